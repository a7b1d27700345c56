"""How a run ends: its plan is applied at once or kept for the next boundary, its failure is stored and said."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from chat.applying import Guard, Lost, Range, apply, note_end, overtake, say_later, write
from chat.auxiliary import Summariser
from chat.compaction_work import Work
from chat.errors import NotFound
from chat.events import CompactionFailed, CompactionProgress
from chat.locking import Desk, locked
from chat.range_guard import stored_state
from compaction.engine import Plan
from compaction.errors import CompactionError
from compaction.models import Compaction, State
from palimpsest import metrics

logger = logging.getLogger("palimpsest.compactions")

# The run found that there is nothing to do: a refusal, which no breaker counts.
REFUSALS = frozenset({"nothing_to_compact", "gain_too_small", "floor_too_high", "nothing_new"})


def store(work: Work, plan: Plan, started: float) -> None:
    """Keep a plan: applied at once where no turn runs, else ready for the boundary; stale where it was overtaken."""
    row = work.compaction
    _fill(row, work, plan, started)
    guard = Guard(State.RUNNING, row.attempt)
    try:
        with locked(row.conversation_id) as desk:
            range_ = plan.covered_from, plan.covered_to
            state, turn_runs = stored_state(desk.conversation, *range_)
            if state != work.state(*range_):
                overtake(desk, row, guard)
            elif turn_runs:
                row.covered_ids = [entry.id for entry in plan.covered]
                row.covered_hash = work.covered_hash(*range_)
                _keep_for_boundary(desk, row, guard)
            else:
                arrived = desk.conversation.live_tokens - work.live_tokens
                after = round((plan.tokens_after + arrived) * work.settings.factor)
                apply(desk, row, _range_of(plan), guard, tokens_after=after)
    except (Lost, NotFound):
        logger.info("compaction %d was taken away before its commit; nothing was applied", row.pk)
        return
    metrics.compaction_ended(row.reason, row.state, time.monotonic() - started)


def fail(
    compaction_id: int, worker: str, error: CompactionError, started: float, asked: Summariser | None = None
) -> None:
    """Store why a run did not succeed; the context stays as it is and the chat goes on. `asked`: who got the text."""
    ours = Compaction.objects.filter(pk=compaction_id, worker=worker, state=State.RUNNING)
    known = ours.values_list("conversation_id", flat=True).first()
    if known is None:
        return
    try:
        with locked(known) as desk:
            row = ours.first()
            if row is None:
                return
            row.duration_ms = _ms(started)
            _name_reader(row, asked, error.requests, error.usage)
            fail_row(desk, row, error)
    except (Lost, NotFound):
        return
    metrics.compaction_ended(row.reason, row.state, time.monotonic() - started)


def fail_row(desk: Desk, row: Compaction, error: CompactionError) -> None:
    """The same under the lock; a refusal counts as skipped, everything else as a failure."""
    guard = Guard(row.state, row.attempt)
    row.state = State.SKIPPED if error.code in REFUSALS else State.FAILED
    row.error_code, row.error_text, row.retryable = error.code, str(error.message), error.retryable
    row.error_figures = dict(error.figures)
    row.quality, row.usage = error.quality or row.quality, error.usage or row.usage
    row.gain = error.figures.get("gain", row.gain)
    row.finished_at = timezone.now()
    note_end(desk.conversation, row, row.state)
    write(row, guard)
    logger.warning("compaction %d %s: %s (%s)", row.pk, row.state, row.error_text, row.error_code)
    desk.emit(CompactionFailed(row.pk, row.error_text, row.error_code, row.retryable))
    say_later(desk)


def _keep_for_boundary(desk: Desk, row: Compaction, guard: Guard) -> None:
    row.state, row.stage, row.fraction, row.finished_at = State.READY, "ready", 1.0, timezone.now()
    write(row, guard)
    logger.info("compaction %d is ready and waits for the boundary", row.pk)
    desk.tell(CompactionProgress(row.pk, "ready", 1.0))


def _range_of(plan: Plan) -> Range:
    covered = {entry.id for entry in plan.covered}
    kept = [entry.id for entry in plan.between if entry.id not in covered]
    return Range(kept, sum([entry.tokens for entry in plan.covered]))


def _fill(row: Compaction, work: Work, plan: Plan, started: float) -> None:
    """The plan's figures on the row; tokens as the provider counts them, like the meter."""
    factor = work.settings.factor
    row.prefix = plan.prefix.to_json()
    row.covered_from, row.covered_to = plan.covered_from, plan.covered_to
    row.covered_count, row.keep_recent_count = len(plan.covered), len(plan.kept)
    row.tokens_before = row.tokens_before or round(plan.tokens_before * factor)
    row.tokens_after = round(plan.tokens_after * factor)
    row.gain, row.floor = round(plan.gain * factor), round(plan.floor * factor)
    row.quality = plan.quality
    row.fallback_code, row.fallback_figures = plan.fallback_code, dict(plan.fallback_figures)
    row.usage, row.strategy, row.generation = plan.usage, plan.strategy, plan.generation
    _name_reader(row, work.summariser, plan.requests, plan.usage)
    row.stage, row.fraction, row.duration_ms = "assemble", 1.0, _ms(started)


def _name_reader(row: Compaction, asked: Summariser | None, requests: int, usage: Mapping[str, Any]) -> None:
    """Who received the text, if anybody did, and what that cost."""
    if requests and asked is not None:
        row.channel, row.channel_name, row.model = asked.channel, asked.channel.name, asked.model
        row.cost = asked.channel.cost_of(asked.model, usage)


def _ms(since: float) -> int:
    return round((time.monotonic() - since) * 1000)
