"""The guard of a compaction's commit: whether the rows of its range are still what was read of them.

A run that commits what it read itself compares states: on PostgreSQL the versions of the rows, which it keeps anyway;
on SQLite, which has none, what they hold. A plan that waits for its boundary, maybe for another process or another
release, has a fingerprint of what they held.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from django.db import connection

from chat import context
from chat.history import CLEARED_TOKENS
from chat.models import Conversation
from chat.prepared import executed, key

# What a row holds that a plan depends on: its text, and its id, marks and cost in one number. A message's parts and
# calls never change without its cost or its conversation's epoch.
Mark = tuple[str, int]
Sign = Mark | int  # what a row adds to a state: its mark or its version
State = list[Sign] | tuple[int, int]  # the marks in order, or the number and the sum of the versions

_MOST_TOKENS: Final = 1 << 26
_NUMBER: Final = (
    "(m.id * 4 + CASE WHEN m.pinned THEN 2 ELSE 0 END + CASE WHEN m.cleared_at IS NULL THEN 0 ELSE 1 END)"
    f" * {_MOST_TOKENS} + {context.SENT}"
)
# Whatever changes a row is another transaction than the one that wrote what was read: 64 bits of its number and the id.
_VERSION: Final = "HASHTEXTEXTENDED(CAST(m.xmin AS TEXT), m.id)"
_RANGE: Final = """FROM chat_message m WHERE m.conversation_id = %(conversation)s
  AND m.position BETWEEN %(first)s AND %(last)s
  AND m.retired_at IS NULL AND m.compacted_into_id IS NULL AND NOT m.is_summary AND m.status <> 'streaming'"""
_TURN_RUNS: Final = (
    "EXISTS(SELECT 1 FROM chat_turn t WHERE t.conversation_id = %(conversation)s AND t.state = 'running')"
)
_MARKS: Final = f"SELECT m.content, {_NUMBER}, {_TURN_RUNS} {_RANGE} ORDER BY m.position"
_VERSIONS: Final = f"SELECT COUNT(*), CAST(COALESCE(SUM({_VERSION}), 0) AS TEXT), {_TURN_RUNS} {_RANGE}"


def version_column() -> str:
    """What `history.live_batches` reads besides for `sign_of`, as a piece of SQL."""
    return _VERSION if connection.vendor == "postgresql" else "0"


def sign_of(row: Sequence[Any]) -> Sign:
    """What a live row, read with its version at the end, adds to a state."""
    return int(row[-1]) if connection.vendor == "postgresql" else mark_of(row)


def state_of(signs: list[Sign]) -> State:
    """The state of live rows as they were read."""
    return (len(signs), sum(cast("list[int]", signs))) if connection.vendor == "postgresql" else signs


def stored_state(conversation: Conversation, first: int, last: int) -> tuple[State, bool]:
    """The state of the live rows between two positions, inclusive, as it is now; and whether a turn of the conversation
    runs, which saves a statement."""
    if connection.vendor != "postgresql":
        rows = _fetch(_MARKS, conversation, first, last)
        return [row[:2] for row in rows], bool(rows and rows[0][2])
    [(count, total, turn_runs)] = _fetch(_VERSIONS, conversation, first, last)
    return (count, int(total)), turn_runs


def stored_marks(conversation: Conversation, first: int, last: int) -> list[Mark]:
    """The marks of the live rows between two positions, inclusive."""
    return [row[:2] for row in _fetch(_MARKS, conversation, first, last)]


def _fetch(sql: str, conversation: Conversation, first: int, last: int) -> list[Any]:
    with executed(sql, {"conversation": key(Conversation, conversation.pk), "first": first, "last": last}) as cursor:
        found: list[Any] = cursor.fetchall()
    return found


def mark_of(row: Sequence[Any]) -> Mark:
    """The mark of a live row as `history.live_batches` reads it."""
    cleared = row[13] is not None
    sent = CLEARED_TOKENS if cleared and row[2] == "tool" else row[11]
    return row[4], (row[0] * 4 + (2 if row[12] else 0) + cleared) * _MOST_TOKENS + sent


def id_and_tokens(mark: Mark) -> tuple[int, int]:
    """Whose mark it is, and what that message costs in a request (tokens)."""
    marks, tokens = divmod(mark[1], _MOST_TOKENS)
    return marks // 4, tokens


def line_of(mark: Mark) -> str:
    """A mark's part of the fingerprint; a release that is being replaced reads and writes the same."""
    content, number = mark
    marks, tokens = divmod(number, _MOST_TOKENS)
    digest = hashlib.md5(content.encode(), usedforsecurity=False).hexdigest()
    return f"{marks // 4} {digest} {tokens} {marks // 2 % 2} {marks % 2}\n"


def fingerprint(lines: Iterable[str]) -> str:
    """One fingerprint of many marks, for a plan that waits for its boundary."""
    return hashlib.sha256("".join(lines).encode()).hexdigest()
