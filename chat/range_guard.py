"""The guard of a compaction's commit: whether the rows of its range are still what was read of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from chat import context
from chat.history import CLEARED_TOKENS
from chat.models import Conversation
from chat.prepared import executed, key

# What a row holds that a plan depends on: its text, and its id, marks and cost in one number. A message's parts and
# calls never change without its cost or its conversation's epoch.
Mark = tuple[str, int]

_MOST_TOKENS: Final = 1 << 26
_NUMBER: Final = (
    "(m.id * 4 + CASE WHEN m.pinned THEN 2 ELSE 0 END + CASE WHEN m.cleared_at IS NULL THEN 0 ELSE 1 END)"
    f" * {_MOST_TOKENS} + {context.SENT}"
)
_MARKS: Final = f"""SELECT m.content, {_NUMBER},
  EXISTS(SELECT 1 FROM chat_turn t WHERE t.conversation_id = %(conversation)s AND t.state = 'running')
FROM chat_message m WHERE m.conversation_id = %(conversation)s AND m.position BETWEEN %(first)s AND %(last)s
  AND m.retired_at IS NULL AND m.compacted_into_id IS NULL AND NOT m.is_summary AND m.status <> 'streaming'
ORDER BY m.position"""  # noqa: S608


def stored_marks(conversation: Conversation, first: int, last: int) -> tuple[list[Mark], bool]:
    """The marks of the live rows between two positions, inclusive; and whether a turn of the conversation runs, which
    saves a statement."""
    with executed(_MARKS, {"conversation": key(Conversation, conversation.pk), "first": first, "last": last}) as cursor:
        rows = cursor.fetchall()
    return [row[:2] for row in rows], bool(rows and rows[0][2])


def mark_of(row: Sequence[Any]) -> Mark:
    """The mark of a live row as `history.live_values` reads it."""
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
