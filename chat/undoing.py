"""The way back: undoing the newest compaction makes the next request what it would have been without it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django.db.models import Q, QuerySet
from django.utils import timezone

from chat import context
from chat.access import access_conversation
from chat.applying import Guard, say_later, write
from chat.compaction_runs import lose
from chat.compaction_words import sentence
from chat.errors import Conflict, NotFound
from chat.events import CompactionFailed, CompactionUndone
from chat.locking import Desk, locked
from chat.models import Conversation, Role, Turn, TurnState
from chat.models import Message as Row
from compaction.models import OPEN_STATES, Compaction, State

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger("palimpsest.compactions")


def request_undo(user: User, compaction_id: int, *, confirm: bool = False) -> Compaction:
    """A person wants the newest compaction undone: at once where no turn runs, else at the next boundary.

    Where the context would no longer fit, Conflict `would_not_fit` says so first; `confirm` does it all the same.
    """
    row = Compaction.objects.filter(pk=compaction_id).defer("prefix", "covered_ids").first()
    if row is None:
        raise NotFound
    access_conversation(user, row.conversation_id, Role.MEMBER)
    with locked(row.conversation_id) as desk:
        row = _newest_applied(desk.conversation, compaction_id)
        if row.undo_requested_at is not None:
            return row
        if not confirm:
            _check_fits(desk.conversation, row)
        row.undo_requested_at, row.undo_requested_by = timezone.now(), user
        row.save(update_fields=["undo_requested_at", "undo_requested_by"])
        logger.info("undo of compaction %d asked for by %s", row.pk, user.get_username())
        if not Turn.objects.filter(conversation=desk.conversation, state=TurnState.RUNNING).exists():
            undo(desk, row)
    return row


def undo(desk: Desk, row: Compaction) -> None:
    """Unflag what the summary stood for, retire it, and pause automatic runs; call at a boundary, with the lock held.

    An earlier summary that this one covered is live again; what that one stands for stays flagged.
    """
    conversation = desk.conversation
    summary = row.summary_message
    if summary is None:
        raise NotFound
    _drop_open(desk)
    restored = _stood_for(row)
    tokens = context.sent_tokens(restored)
    restored.update(compacted_at=None, compacted_into=None)
    summary.retired_at = timezone.now()
    summary.save(update_fields=["retired_at"])
    conversation.live_tokens += tokens - summary.token_count
    conversation.paused = True
    desk.new_epoch()
    guard = Guard(State.APPLIED, row.attempt)
    row.state, row.undone_at = State.UNDONE, timezone.now()
    write(row, guard)
    logger.info("compaction %d undone: %d messages are live again", row.pk, row.covered_count)
    desk.emit(CompactionUndone(row.pk))
    say_later(desk)


def _newest_applied(conversation: Conversation, compaction_id: int) -> Compaction:
    row = Compaction.objects.filter(conversation=conversation, state=State.APPLIED).order_by("-id").first()
    if row is not None and row.pk == compaction_id:
        return row
    applied = Compaction.objects.filter(pk=compaction_id, state=State.APPLIED).exists()
    code = "not_the_newest" if applied else "not_applied"
    raise Conflict(sentence(code), code=code)


def _check_fits(conversation: Conversation, row: Compaction) -> None:
    """Raises where the restored context would make the next message wait."""
    usage = context.measure(conversation)
    # Pinned messages of the range are in the request already.
    restored = context.sent_tokens(_stood_for(row).exclude(Q(pinned=True, is_summary=False)))
    summary = row.summary_message.token_count if row.summary_message else 0
    after = usage.used_tokens + round((restored - summary) * usage.factor)
    limit = usage.thresholds.block
    if after >= limit:
        raise Conflict(sentence("would_not_fit", tokens=after, limit=limit), code="would_not_fit")


def _stood_for(row: Compaction) -> QuerySet[Row]:
    """What is flagged with its summary, found by place: messages of the range, and the summary before it."""
    places = Q(position__range=(row.covered_from, row.covered_to), is_summary=False) | Q(is_summary=True)
    return Row.objects.filter(places, conversation=row.conversation_id, compacted_into=row.summary_message_id)


def _drop_open(desk: Desk) -> None:
    """A run that builds on what is undone can never be applied: it ends now."""
    opened = Compaction.objects.filter(conversation=desk.conversation, state__in=OPEN_STATES)
    for id_ in opened.values_list("id", flat=True):
        text, now = sentence("undone_meanwhile"), timezone.now()
        Compaction.objects.filter(pk=id_).update(
            state=State.CANCELLED, error_code="undone_meanwhile", error_text=text, prefix=None, finished_at=now
        )
        desk.emit(CompactionFailed(id_, text, "undone_meanwhile", retryable=True))
        desk.then(lambda id_=id_: lose(id_))  # type: ignore[misc]
