"""Asking for compactions: by a person, at a boundary, or because a provider found a request too long."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from agents.text import clean
from chat import advice, context
from chat.access import access_conversation
from chat.applying import apply_ready, place_of, say_later
from chat.clearing import clear_idle
from chat.compaction_runs import lose, run_compaction
from chat.compaction_sweep import sweep
from chat.compaction_words import sentence
from chat.context import ContextUsage
from chat.errors import Conflict, Invalid, NotFound
from chat.events import CompactionFailed, CompactionSkipped, CompactionStart
from chat.history import live_rows
from chat.locking import Desk, locked
from chat.models import Conversation, Role, Turn
from chat.undoing import request_undo, undo
from chat.waking import wake_compaction
from compaction.breaker import fingerprint
from compaction.decision import Decision, Situation, decide
from compaction.models import OPEN_STATES, Compaction, Reason, State

if TYPE_CHECKING:
    from django.contrib.auth.models import User

__all__ = [
    "apply_ready",
    "cancel",
    "clear_idle",
    "decide_now",
    "open_compaction",
    "request_compaction",
    "request_undo",
    "rescue",
    "run_compaction",
    "situation",
    "sweep",
    "undo",
]

logger = logging.getLogger("palimpsest.compactions")

LONGEST_INSTRUCTIONS = 2_000  # characters of what a person wants kept
HEAVY = ("prefix", "covered_ids")

# Refusals that say nothing new: what they refer to is on the screen already.
_UNSAID = frozenset({"already_attempted", "already_running", "turn_running"})
_AUTOMATIC = (Reason.AUTO, Reason.HARD, Reason.OVERFLOW)
_ATTEMPT = ~Q(state=State.SKIPPED, started_at=None)  # not a refusal, which never was a run


def request_compaction(
    user: User | None, conversation_id: UUID | str, reason: str = Reason.MANUAL, instructions: str = ""
) -> Compaction:
    """A person asks for a compaction now; messages sent meanwhile wait for it. Asked twice, it is the same run."""
    instructions = clean(instructions).strip()
    if len(instructions) > LONGEST_INSTRUCTIONS:
        raise Invalid(sentence("instructions_too_long"), code="instructions_too_long")
    if user is not None:
        access_conversation(user, conversation_id, Role.MEMBER)
    with locked(conversation_id) as desk:
        if (opened := open_compaction(desk.conversation)) is not None:
            return _join(opened, instructions)
        usage = context.measure(desk.conversation)
        blocking = reason == Reason.MANUAL
        return _start(desk, usage, reason, blocking=blocking, user=user, instructions=instructions)


def cancel(user: User, compaction_id: int) -> Compaction:
    """End an open run; the context stays as it is and what waits for it goes on."""
    row = Compaction.objects.filter(pk=compaction_id).defer(*HEAVY).first()
    if row is None:
        raise NotFound
    access_conversation(user, row.conversation_id, Role.MEMBER)
    with locked(row.conversation_id) as desk:
        if not drop(desk, compaction_id, "cancelled"):
            raise Conflict(sentence("ended"), code="ended")
        logger.info("compaction %d cancelled by %s", compaction_id, user.get_username())
    row.refresh_from_db()
    return row


def drop(desk: Desk, compaction_id: int, code: str) -> bool:
    """End an open run without a result; False where it was over already."""
    text, now = sentence(code), timezone.now()
    rows = Compaction.objects.filter(pk=compaction_id, conversation=desk.conversation, state__in=OPEN_STATES)
    if not rows.update(
        state=State.CANCELLED, error_code=code, error_text=text, prefix=None, finished_at=now, cancel_requested_at=now
    ):
        return False
    desk.emit(CompactionFailed(compaction_id, text, code, retryable=False))
    desk.then(lambda: lose(compaction_id))
    say_later(desk)
    return True


def rescue(desk: Desk, turn: Turn) -> Compaction | None:
    """The provider found the turn's request too long: a forced run to wait for, None where that cannot help."""
    usage = context.measure(desk.conversation)
    opened = open_compaction(desk.conversation)
    if opened is not None:
        return _make_it_urgent(desk, opened)
    found = replace(
        _situation(desk, usage, opened),
        requested="overflow",
        breaker=usage.breaker,
        fingerprint=place_of(desk.conversation),
        attempted=_attempted(desk.conversation, Reason.OVERFLOW),
    )
    decision = decide(found)
    if not decision.starts:
        record_skip(desk, decision)
        return None
    logger.info("turn %d is too long for the model by the provider's word", turn.pk)
    return _start(desk, usage, Reason.OVERFLOW, blocking=True)


def decide_now(
    desk: Desk, opened: Compaction | None, pending_tokens: int, *, idle: bool
) -> tuple[Decision, Compaction | None]:
    """The decision at a boundary, carried out: the run it started or waits for, if any. `idle`: nobody needs room."""
    found = replace(situation(desk, pending_tokens, opened=opened), idle=idle)
    decision = decide(found)
    if decision.action in ("skip", "refuse"):
        record_skip(desk, decision)
    if decision.starts and decision.reason is not None:
        usage = context.measure(desk.conversation)
        blocking = decision.action == "wait"
        return decision, _start(desk, usage, decision.reason, blocking=blocking, situation=found.fingerprint)
    return decision, opened if decision.action == "wait" else None


def situation(desk: Desk, pending_tokens: int = 0, *, opened: Compaction | None = None) -> Situation:
    """What the decision needs to know, without loading the history."""
    return _situation(desk, context.measure(desk.conversation, pending_tokens), opened)


def open_compaction(conversation: Conversation) -> Compaction | None:
    """The one run that is queued, running or ready."""
    return Compaction.objects.filter(conversation=conversation, state__in=OPEN_STATES).defer(*HEAVY).first()


def record_skip(desk: Desk, decision: Decision) -> None:
    """Say once why a compaction does not come: one row a code until settings, model or an earlier prefix change."""
    if decision.code in _UNSAID or not decision.code:
        return
    conversation = desk.conversation
    here = place_of(conversation)
    place = fingerprint(decision.code, here)
    # A run that found nothing to do has said so itself: with this code, or with the one that more of nothing follows.
    said = Q(error_code=decision.code, situation__in=(place, here))
    if decision.code == "nothing_new":
        said |= Q(situation=here)
    if Compaction.objects.filter(said, conversation=conversation, state=State.SKIPPED).exists():
        return
    row = Compaction.objects.create(
        conversation=conversation,
        reason=decision.reason or Reason.AUTO,
        state=State.SKIPPED,
        situation=place,
        error_code=decision.code,
        error_text=decision.message,
        error_figures=dict(decision.figures),
        asked_at_position=conversation.last_position,
        finished_at=timezone.now(),
    )
    logger.info("no compaction: %s (%s)", decision.message, decision.code)
    desk.emit(CompactionSkipped(row.pk, decision.code, decision.message))


def _situation(desk: Desk, usage: ContextUsage, opened: Compaction | None) -> Situation:
    """Below the trigger nothing else is asked of the database."""
    ladder = usage.thresholds
    bare = Situation(tokens=usage.used_tokens, thresholds=ladder, open_compaction=opened is not None)
    if usage.used_tokens < (ladder.block if ladder.auto is None else ladder.auto) or opened is not None:
        return bare
    conversation = desk.conversation
    place = place_of(conversation)
    last = _last_automatic(conversation)
    return replace(
        bare,
        floor=advice.scaled(advice.floor_parts(usage), usage.factor),
        paused=usage.paused,
        breaker=usage.breaker,
        coverable=_coverable(last, usage, place),
        new_since_last_run=_is_new(last, usage, place),
        attempted=last is not None and last.asked_at_position == conversation.last_position,
        fingerprint=place,
    )


def _last_automatic(conversation: Conversation) -> Compaction | None:
    """The newest run that nobody asked for, one that was cancelled before it was begun included."""
    rows = Compaction.objects.filter(_ATTEMPT, conversation=conversation, reason__in=_AUTOMATIC)
    return rows.defer(*HEAVY).order_by("-id").first()


def _attempted(conversation: Conversation, reason: str) -> bool:
    """Whether such a run was already tried since the last message got its position."""
    rows = Compaction.objects.filter(_ATTEMPT, conversation=conversation, reason=reason)
    return rows.filter(asked_at_position=conversation.last_position).exists()


def _coverable(last: Compaction | None, usage: ContextUsage, place: str) -> int | None:
    """What a run could cover, where the last one looked and found too little and little has come since (tokens)."""
    if last is None or last.state != State.SKIPPED or last.situation != place or _has_grown(last, usage):
        return None
    return max(0, last.gain or 0)


def _is_new(last: Compaction | None, usage: ContextUsage, place: str) -> bool:
    """Whether another run could end differently: a failed one may be repeated, any other needs more to do."""
    if last is None or last.situation != place or last.state not in (State.APPLIED, State.SKIPPED):
        return True
    return _has_grown(last, usage)


def _has_grown(last: Compaction, usage: ContextUsage) -> bool:
    """Whether as much has come since that run as would make another worth having."""
    then = last.tokens_after if last.state == State.APPLIED else last.tokens_before
    return usage.used_tokens - (then or 0) >= usage.thresholds.least_gain


def _make_it_urgent(desk: Desk, opened: Compaction) -> Compaction:
    """The open run is what the turn waits for; it counts as the attempt of this boundary."""
    opened.blocking, opened.asked_at_position = True, desk.conversation.last_position
    if opened.state == State.QUEUED:
        opened.reason = Reason.OVERFLOW
    opened.save(update_fields=["blocking", "asked_at_position", "reason"])
    return opened


def _join(opened: Compaction, instructions: str) -> Compaction:
    """Somebody asks while a run is open: it is theirs too, unless they want something else kept."""
    if instructions and instructions != opened.instructions:
        raise Conflict(sentence("already_running"), code="already_running")
    if not opened.blocking:
        Compaction.objects.filter(pk=opened.pk).update(blocking=True)
        opened.blocking = True
    return opened


def _start(
    desk: Desk,
    usage: ContextUsage,
    reason: str,
    *,
    blocking: bool,
    user: User | None = None,
    instructions: str = "",
    situation: str = "",
) -> Compaction:
    conversation = desk.conversation
    row = Compaction.objects.create(
        conversation=conversation,
        reason=reason,
        strategy=conversation.agent.compaction_strategy,
        blocking=blocking,
        instructions=instructions,
        requested_by=user,
        tokens_before=usage.used_tokens,
        asked_at_position=conversation.last_position,
        situation=situation or place_of(conversation),
    )
    logger.info(
        "compaction %d asked for: %s, by %s, %d of %d tokens used%s",
        row.pk,
        reason,
        user.get_username() if user else "the decision",
        usage.used_tokens,
        usage.max_tokens,
        ", messages wait for it" if blocking else "",
    )
    desk.emit(CompactionStart(row.pk, reason, live_rows(conversation).count(), blocking))
    compaction_id = row.pk
    desk.then(lambda: wake_compaction(compaction_id))
    return row
