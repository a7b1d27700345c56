"""The commit of a compaction: one short transaction under the lock flags what the summary stands for, or nothing."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from django.utils import timezone

from chat import broadcast, context, prepared
from chat.compaction_words import sentence
from chat.errors import NotFound
from chat.events import CompactionDone, CompactionFailed, MessageStored, TokenUpdate, encode
from chat.locking import Desk, read_conversation
from chat.models import Conversation
from chat.models import Message as Row
from chat.prepared import clock, executed, key
from chat.presenting import present_message
from chat.range_guard import fingerprint as fingerprint_of
from chat.range_guard import id_and_tokens, line_of, stored_marks
from chat.waking import wake
from compaction.breaker import Breaker, Run, fingerprint
from compaction.models import Compaction, Reason, State
from compaction.transcript import Prefix

logger = logging.getLogger("palimpsest.compactions")

_SPENT = """SELECT CAST(t.usage AS TEXT) FROM chat_turn t WHERE t.conversation_id = %(conversation)s
  AND CAST(t.usage AS TEXT) <> '{}' ORDER BY t.id DESC LIMIT 1"""
_FLAG = """UPDATE chat_message SET compacted_at = {now}, compacted_into_id = %(summary)s
  WHERE conversation_id = %(conversation)s AND position BETWEEN %(first)s AND %(last)s AND NOT is_summary
  AND retired_at IS NULL AND compacted_into_id IS NULL"""
_FLAG_EARLIER = """UPDATE chat_message SET compacted_at = {now}, compacted_into_id = %(summary)s
  WHERE conversation_id = %(conversation)s AND position IS NOT NULL AND is_summary AND id <> %(summary)s
  AND retired_at IS NULL AND compacted_into_id IS NULL RETURNING token_count"""
# What others may change while a run works: it must not write back what it once read.
_OF_OTHERS = ("id", "conversation", "created_at", "blocking", "asked_at_position")
_WRITTEN = tuple(field.name for field in Compaction._meta.concrete_fields if field.name not in _OF_OTHERS)


class Lost(Exception):
    """The run is no longer ours: somebody cancelled it or took it up. Its transaction is rolled back."""


class Guard(NamedTuple):
    """What a row must still be for a write to count."""

    state: str
    attempt: int


class Range(NamedTuple):
    """The live rows from the first covered one to the last: ids of those that stay, what the others cost (tokens)."""

    kept: list[int]
    tokens: int


def apply_ready(desk: Desk, row: Compaction) -> Compaction | None:
    """Apply a run that is ready, if nothing in its range has changed; else it is stale and None is returned."""
    guard = Guard(State.READY, row.attempt)
    marks = stored_marks(desk.conversation, row.covered_from or 0, row.covered_to or 0)
    if fingerprint_of(map(line_of, marks)) != row.covered_hash:
        overtake(desk, row, guard)
        return None
    covered = frozenset(row.covered_ids)
    found = list(map(id_and_tokens, marks))
    kept = [id_ for id_, _ in found if id_ not in covered]
    apply(desk, row, Range(kept, sum(tokens for id_, tokens in found if id_ in covered)), guard)
    return row


def apply(desk: Desk, row: Compaction, range_: Range, guard: Guard, *, tokens_after: int | None = None) -> None:
    """Insert the summary, flag what it covers, start a new epoch. The range has passed the guard.

    `tokens_after`: what the meter will say, where the caller knows it; else it is measured.
    Raises Lost where the row is not what `guard` says any more.
    """
    conversation = desk.conversation
    prefix = Prefix.from_json(row.prefix or {})
    summary = _insert_summary(conversation, row, prefix)
    with prepared.sent_ahead():
        _flag(conversation, row, summary, range_.kept)
        earlier = _flag_earlier(conversation, summary) if row.generation > 1 else 0
        conversation.live_tokens += prefix.tokens - earlier - range_.tokens
        desk.new_epoch()
        if row.reason == Reason.MANUAL:
            conversation.paused = False
        note_end(conversation, row, State.APPLIED)
        row.situation = place_of(conversation)  # what comes after it is measured against the context it made
        row.state, row.summary_message, row.applied_at = State.APPLIED, summary, timezone.now()
        row.tokens_after = context.measure(conversation).used_tokens if tokens_after is None else tokens_after
        row.gain = (row.tokens_before or 0) - row.tokens_after
        _tell(desk, row, summary, prefix)
        write(row, guard)
    logger.info(
        "compaction %d applied: %d messages, %d -> %d tokens, %d kept, %d ms, by %s",
        row.pk,
        row.covered_count,
        row.tokens_before or 0,
        row.tokens_after,
        row.keep_recent_count,
        row.duration_ms or 0,
        f"{row.channel_name}/{row.model}" if row.model else row.strategy,
    )


def overtake(desk: Desk, row: Compaction, guard: Guard) -> None:
    """The range changed while the run was on its way: nothing is applied."""
    row.state, row.error_code, row.retryable = State.STALE, "stale", True
    row.error_text = sentence("stale")
    row.prefix = None
    write(row, guard)
    logger.info("compaction %d is stale: its messages changed meanwhile", row.pk)
    desk.emit(CompactionFailed(row.pk, row.error_text, row.error_code, row.retryable))
    say_later(desk)


def write(row: Compaction, guard: Guard) -> None:
    """Write the whole row by compare-and-set; raises Lost where it is not what it was."""
    row.finished_at = row.finished_at or timezone.now()
    if not prepared.write(row, _WRITTEN, **guard._asdict()):
        raise Lost


def note_end(conversation: Conversation, row: Compaction, state: str) -> None:
    """The breaker learns how a run ended."""
    breaker = context.breaker_of(conversation).after(Run(row.reason, state, row.situation))
    conversation.breaker = {} if breaker == Breaker() else asdict(breaker)


def place_of(conversation: Conversation) -> str:
    """Names what a refusal or a failure depends on besides the messages that are added: settings, model, and the epoch,
    which an edit, an undo or an apply begins anew."""
    agent = conversation.agent
    return fingerprint(conversation.epoch, agent.pk, agent.updated_at.timestamp(), agent.channel_id, agent.model_name)


def say_later(desk: Desk) -> None:
    """After the commit: the meter is told anew, and whoever waits in the queue may go on."""
    conversation_id = desk.conversation.pk
    desk.then(lambda: tell_context(conversation_id))
    desk.then(lambda: wake(conversation_id))


def tell_context(conversation_id: UUID) -> None:
    """The meter as it stands now, for everyone who looks at the conversation."""
    spent = {"conversation": key(Conversation, conversation_id)}
    try:
        with prepared.sent_ahead(), executed(_SPENT, spent) as cursor:
            conversation = read_conversation(conversation_id)
            stored = cursor.fetchone()
    except NotFound:
        return
    update = TokenUpdate(_spent(stored), context.measure(conversation).to_event())
    broadcast.publish(conversation.pk, [encode(update, conversation.pk)])


def _spent(stored: tuple[str] | None) -> dict[str, int]:
    """What the last turn used, so that a meter that is told anew keeps showing it."""
    usage = orjson.loads(stored[0]) if stored else {}
    prompt, completion = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
    return {
        "input_tokens": prompt,
        "output_tokens": completion,
        "total_tokens": prompt + completion,
        "api_calls": usage.get("api_calls", 0),
    }


def _insert_summary(conversation: Conversation, row: Compaction, prefix: Prefix) -> Row:
    """The summary stands at the position of the last message it covers; its count is that of the whole prefix."""
    summary = Row(
        conversation=conversation,
        position=row.covered_to,
        role="user",
        content=prefix.summary,
        is_summary=True,
        token_count=prefix.tokens,
    )
    prepared.insert(summary)
    return summary


def _flag(conversation: Conversation, row: Compaction, summary: Row, kept: list[int]) -> None:
    """Flag the covered messages."""
    ends = {"first": row.covered_from, "last": row.covered_to}
    but = f" AND id NOT IN ({', '.join(map(str, kept))})" if kept else ""
    with executed(_FLAG.format(now=clock()) + but, _into(summary, conversation) | ends):
        pass


def _flag_earlier(conversation: Conversation, summary: Row) -> int:
    """Flag the summary before this one too; returns what its prefix cost (tokens)."""
    with executed(_FLAG_EARLIER.format(now=clock()), _into(summary, conversation)) as cursor:
        return sum(row[0] for row in cursor.fetchall())


def _into(summary: Row, conversation: Conversation) -> dict[str, Any]:
    return {"summary": summary.pk, "conversation": key(Conversation, conversation.pk)}


def _tell(desk: Desk, row: Compaction, summary: Row, prefix: Prefix) -> None:
    desk.emit(MessageStored(present_message(summary)))
    desk.emit(
        CompactionDone(
            id=row.pk,
            success=True,
            compacted_count=row.covered_count,
            keep_recent_count=row.keep_recent_count,
            summary_message_id=summary.pk,
            summary_content=prefix.summary,
            tokens_before=row.tokens_before or 0,
            tokens_after=row.tokens_after or 0,
            duration_ms=row.duration_ms or 0,
        )
    )
    say_later(desk)
