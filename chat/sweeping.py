"""What repairs everything: a thread in each worker process that looks, every few seconds, for what was left behind.

Turns whose worker died, turns whose wake-up call was lost, compactions of either kind. The database's clock decides, so
it does not matter which process looks, or whether all of them do.
"""

from __future__ import annotations

import logging
import random
import threading
from datetime import timedelta
from uuid import UUID

from celery.signals import worker_ready, worker_shutdown
from django.db import close_old_connections, connections
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now
from django.utils import timezone

from agents import tokens
from agents.messages import Message as Spoken
from chat import compacting, lifelines, purging, working
from chat.claiming import worker_name
from chat.ending import Ending, end_turn, queue_again
from chat.errors import NotFound
from chat.locking import Desk, locked
from chat.models import Message, MessageStatus, Turn, TurnState
from chat.waking import wake
from palimpsest.shutdown import is_stopping

logger = logging.getLogger("palimpsest.turns")

SWEEP_SECONDS = 5.0
UNHEARD_SECONDS = 3  # a queued turn this old, with nothing before it, was not heard by anybody
MOST_AT_ONCE = 200
MOST_ATTEMPTS = 5  # a turn whose workers keep dying may be what kills them


def sweep() -> None:
    """Look once."""
    for turn_id, conversation_id, worker in _orphaned():
        release(turn_id, conversation_id, dead=worker)
    for turn_id, conversation_id in _abandoned():
        release(turn_id, conversation_id)
    for conversation_id in _unheard():
        working.work_on(conversation_id)
    compacting.sweep()
    purging.now_and_then()


def release(turn_id: int, conversation_id: UUID, *, dead: str = "") -> None:
    """A turn whose worker is gone: run again if nobody has seen anything of it, else kept as far as it was stored.

    Its lease has run out, or its worker is certainly `dead`.
    """
    gone = Q(worker=dead) if dead else Q(lease_until__lt=Now())
    try:
        with locked(conversation_id, deleted=True) as desk:
            abandoned = Turn.objects.filter(gone, pk=turn_id, state=TurnState.RUNNING)
            turn = abandoned.select_for_update().first()
            if turn is None:
                return
            is_given_up = turn.attempt >= MOST_ATTEMPTS or desk.conversation.deleted_at is not None
            if turn.has_output or is_given_up:
                _interrupt(desk, turn)
            else:
                queue_again(turn)
                logger.warning("turn %d: worker %s is gone, it runs again", turn.pk, turn.worker)
            desk.then(lambda: wake(desk.conversation.pk))
    except NotFound:
        logger.debug("turn %d belongs to a conversation that is gone", turn_id)


def _interrupt(desk: Desk, turn: Turn) -> None:
    """The last checkpoint is the answer."""
    row = Message.objects.filter(turn=turn, status=MessageStatus.STREAMING).order_by("-id").first()
    if row is not None:
        row.status = MessageStatus.INTERRUPTED
        if row.content or row.thinking:
            row.token_count = tokens.count_message(Spoken("assistant", row.content))
            desk.conversation.live_tokens += row.token_count
        else:
            row.retired_at = timezone.now()
        row.save(update_fields=["status", "token_count", "retired_at"])
    end_turn(desk, turn, Ending(TurnState.INTERRUPTED), row, turn.usage)
    length = len(row.content) if row else 0
    logger.warning("turn %d: worker %s is gone, interrupted at %d characters", turn.pk, turn.worker, length)


def _abandoned() -> list[tuple[int, UUID]]:
    rows = Turn.objects.filter(state=TurnState.RUNNING, lease_until__lt=Now())
    return list(rows.order_by("lease_until").values_list("pk", "conversation_id")[:MOST_AT_ONCE])


def _orphaned() -> list[tuple[int, UUID, str]]:
    """Turns of workers of this machine that have certainly ended, whatever their leases say."""
    rows = Turn.objects.filter(state=TurnState.RUNNING).exclude(worker=worker_name())
    found = list(rows.order_by("lease_until").values_list("pk", "conversation_id", "worker")[:MOST_AT_ONCE])
    dead = {worker for worker in {worker for _, _, worker in found} if lifelines.is_dead(worker)}
    return [row for row in found if row[2] in dead]


def _unheard() -> list[UUID]:
    """Conversations whose next turn waits for nothing but a worker, or for a compaction that may have ended."""
    running = Turn.objects.filter(conversation=OuterRef("conversation"), state=TurnState.RUNNING)
    rows = Turn.objects.filter(state=TurnState.QUEUED, created_at__lt=Now() - timedelta(seconds=UNHEARD_SECONDS))
    rows = rows.filter(conversation__deleted_at__isnull=True).exclude(Exists(running))
    return list(rows.order_by("created_at").values_list("conversation_id", flat=True)[:MOST_AT_ONCE])


class Sweeper(threading.Thread):
    """Looks at once, because a machine may just have come back, and then every few seconds."""

    def __init__(self) -> None:
        super().__init__(name="sweep", daemon=True)
        self._ended = threading.Event()

    def run(self) -> None:
        self._tidy()
        while not self._ended.is_set() and not is_stopping():
            try:
                sweep()
            except Exception:
                logger.exception("a sweep failed; the next one tries again")
            finally:
                close_old_connections()
            # Processes that were started together should not all look at the same moment.
            self._ended.wait(SWEEP_SECONDS * random.uniform(0.9, 1.1))
        connections.close_all()

    def _tidy(self) -> None:
        """The lifelines of workers of which nothing is left."""
        try:
            running = Turn.objects.filter(state=TurnState.RUNNING).values_list("worker", flat=True)
            lifelines.tidy(set(running.distinct()))
        except Exception:
            logger.exception("lifelines could not be tidied")

    def end(self) -> None:
        self._ended.set()


_sweepers: list[Sweeper] = []


@worker_ready.connect
def start(**_: object) -> None:
    """Every worker process sweeps; one thread each."""
    if not any(sweeper.is_alive() for sweeper in _sweepers):
        sweeper = Sweeper()
        _sweepers[:] = [sweeper]
        sweeper.start()


@worker_shutdown.connect
def end(**_: object) -> None:
    for sweeper in _sweepers:
        sweeper.end()
