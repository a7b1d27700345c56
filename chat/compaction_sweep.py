"""What repairs compactions, every few seconds in every worker: no wake-up call, worker or process is ever relied on."""

from __future__ import annotations

import logging
from datetime import timedelta
from uuid import UUID

from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from chat.applying import apply_ready, say_later
from chat.compaction_results import fail_row
from chat.compaction_words import refused
from chat.errors import NotFound
from chat.locking import Desk, locked
from chat.models import Turn, TurnState
from chat.undoing import undo
from chat.waking import wake_compaction
from compaction.models import Compaction, State

logger = logging.getLogger("palimpsest.compactions")

LEASE_SECONDS = 15
PATIENCE_SECONDS = 10  # before a queued run counts as forgotten
MOST_ATTEMPTS = 3  # of one run whose workers end
AT_ONCE = 100


def sweep() -> int:
    """Wake forgotten runs, take up those whose worker is gone, settle what waits for a boundary; returns how many."""
    return _queued() + _running() + _waiting_for_boundary() + _of_deleted()


def settle(desk: Desk) -> None:
    """Undo and apply what waits; call with the lock held and no turn running."""
    rows = Compaction.objects.filter(conversation=desk.conversation)
    waiting = rows.filter(undo_requested_at__isnull=False, state=State.APPLIED).order_by("-id").first()
    if waiting is not None:
        undo(desk, waiting)
    ready = rows.filter(state=State.READY).first()
    if ready is not None:
        apply_ready(desk, ready)


def _queued() -> int:
    old = Now() - timedelta(seconds=PATIENCE_SECONDS)
    rows = Compaction.objects.filter(state=State.QUEUED, created_at__lt=old, conversation__deleted_at=None)
    forgotten = list(rows.values_list("id", flat=True)[:AT_ONCE])
    for id_ in forgotten:
        wake_compaction(id_)
    return len(forgotten)


def _running() -> int:
    gone = Now() - timedelta(seconds=LEASE_SECONDS)
    rows = Compaction.objects.filter(state=State.RUNNING, conversation__deleted_at=None)
    dead = rows.filter(Q(heartbeat_at__lt=gone) | Q(heartbeat_at=None)).values_list("id", "attempt", "conversation_id")
    found = list(dead[:AT_ONCE])
    for id_, attempt, conversation_id in found:
        _take_up(id_, attempt, conversation_id)
    return len(found)


def _take_up(id_: int, attempt: int, conversation_id: UUID) -> None:
    """Begin a run again whose worker is gone; after a few workers it has failed."""
    if attempt < MOST_ATTEMPTS:
        rows = Compaction.objects.filter(pk=id_, attempt=attempt, state=State.RUNNING)
        if rows.update(state=State.QUEUED, worker="", heartbeat_at=None):
            logger.warning("compaction %d lost its worker in attempt %d and begins again", id_, attempt)
            wake_compaction(id_)
        return
    try:
        with locked(conversation_id) as desk:
            row = Compaction.objects.filter(pk=id_, attempt=attempt, state=State.RUNNING).first()
            if row is not None:
                fail_row(desk, row, refused("worker_lost"))
    except NotFound:
        return


def _waiting_for_boundary() -> int:
    """Undos and results that wait although no turn runs: the call that should have settled them was lost."""
    running = Turn.objects.filter(conversation=OuterRef("conversation"), state=TurnState.RUNNING)
    waiting = Q(state=State.READY) | Q(state=State.APPLIED, undo_requested_at__isnull=False)
    rows = Compaction.objects.filter(waiting, ~Exists(running), conversation__deleted_at=None)
    found = set(rows.values_list("conversation_id", flat=True)[:AT_ONCE])
    for conversation_id in found:
        try:
            with locked(conversation_id) as desk:
                if not Turn.objects.filter(conversation_id=conversation_id, state=TurnState.RUNNING).exists():
                    settle(desk)
                    say_later(desk)
        except NotFound:
            continue
    return len(found)


def _of_deleted() -> int:
    """Runs of conversations that were deleted meanwhile end silently."""
    rows = Compaction.objects.filter(
        state__in=(State.QUEUED, State.RUNNING, State.READY), conversation__deleted_at__isnull=False
    )
    ids = list(rows.values_list("id", flat=True)[:AT_ONCE])
    return Compaction.objects.filter(pk__in=ids).update(state=State.CANCELLED, finished_at=Now()) if ids else 0
