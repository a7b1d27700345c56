"""The turns that this process answers: how many, how they are told something, how they end when the process does."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any
from uuid import UUID

from channels.layers import get_channel_layer
from django.conf import settings

from chat import broadcast, ending, lifelines
from chat.answering import Answer, Request, load_request
from chat.checkpoints import Checkpoints
from chat.claiming import Claim, LostTurn, claim_next, worker_name
from chat.ending import Ending
from chat.loop import process_loop, run_in_db, submit_to_db
from chat.models import TurnState
from palimpsest.shutdown import is_stopping, on_drain

logger = logging.getLogger("palimpsest.turns")

HAND_BACK_SECONDS = 3.0  # of the grace period, kept for giving back what does not end by itself
MOST_STOPPED_EARLY = 100  # turns that were stopped before they began, as far as this process remembers
RETRY_SECONDS = 1.0  # between two tries to listen on a channel layer that is away


class Worker:
    """What runs here. Its methods belong to the loop's thread, except `reserve`, `release` and `let_in`."""

    def __init__(self) -> None:
        lifelines.hold(worker_name())
        self.home = process_loop()
        self.answers: dict[int, Answer] = {}
        self.checkpoints = Checkpoints(self._judged)
        self._stopped_early: set[int] = set()
        self._reserved = 0
        self._turned_away: dict[UUID, None] = {}  # conversations that found no place, in order
        self._counting = threading.Lock()
        self._listener: asyncio.Task[None] | None = None

    @property
    def has_room(self) -> bool:
        return len(self.answers) + self._reserved < settings.TURNS_PER_PROCESS

    def reserve(self, conversation: UUID) -> bool:
        """Take one of the places of this process, from any thread; where all are taken, the next free one is tried."""
        with self._counting:
            if not self.has_room:
                self._turned_away[conversation] = None
                return False
            self._reserved += 1
            return True

    def release(self) -> None:
        """Give back a place that was not needed."""
        with self._counting:
            self._reserved -= 1
        self.let_in()

    def let_in(self) -> None:
        """Work on the first conversation that found no place, if there is one now."""
        with self._counting:
            if not self._turned_away or not self.has_room:
                return
            conversation = next(iter(self._turned_away))
            del self._turned_away[conversation]
        work_on(conversation)

    def begin_reserved(self, claim: Claim, request: Request) -> None:
        """Answer a claimed turn on the place that was reserved for it."""
        try:
            self.begin(claim, request)
        finally:
            with self._counting:
                self._reserved -= 1

    def begin(self, claim: Claim, request: Request) -> None:
        """Answer a claimed turn; from the loop's thread."""
        if self._listener is None or self._listener.done():
            self._listener = self.home.spawn(self._listen(), "turns-listener")
        answer = Answer(claim, request, self.checkpoints)
        self.answers[claim.turn] = answer
        if claim.turn in self._stopped_early:
            self._stopped_early.discard(claim.turn)
            answer.stop()
        self.home.spawn(self._run(answer), f"answer-{claim.turn}")

    def hand_back(self) -> None:
        """End everything that runs here."""
        for answer in list(self.answers.values()):
            answer.hand_back()

    async def _run(self, answer: Answer) -> None:
        turn = answer.claim.turn
        next_claim = None
        try:
            next_claim = await answer.run()
        except Exception:
            logger.exception("turn %d could not be ended; the sweep will", turn)
        finally:
            if self.answers.get(turn) is answer:
                del self.answers[turn]
        if next_claim is not None:
            await self._go_on(next_claim)
        self.let_in()

    async def _go_on(self, claim: Claim) -> None:
        """The next turn of the same conversation."""
        try:
            request = await run_in_db(load_request, claim, claim.row)
        except Exception:
            logger.exception("turn %d could not be started", claim.turn)
            await run_in_db(give_up, claim)
        else:
            self.begin(claim, request)

    # What others say to a turn

    async def _listen(self) -> None:
        """Receive what is said to the turns of this process. Without the layer, stops are seen at checkpoints."""
        while True:
            try:
                layer = _layer()
                channel = await layer.new_channel("turns.")
                await layer.group_add(broadcast.worker_group(worker_name()), channel)
                while True:
                    self._told(await layer.receive(channel))
            except Exception as error:
                logger.warning("the channel layer is away (%s); stops are seen a second later", error)
                await asyncio.sleep(RETRY_SECONDS)

    def _told(self, message: dict[str, Any]) -> None:
        turn = message.get("turn", 0)
        answer = self.answers.get(turn)
        if answer is None:
            if message["type"] == "turn.stop":  # claimed, and not begun yet
                self._stopped_early = {turn, *sorted(self._stopped_early)[-MOST_STOPPED_EARLY:]}
        elif message["type"] == "turn.stop":
            answer.stop()
        elif message["type"] == "turn.sync":
            self.home.spawn(self._sync(answer, message))

    async def _sync(self, answer: Answer, wanted: dict[str, Any]) -> None:
        """A client misses something: store what there is, and send it again from where the client stands."""
        stream = answer.stream
        if stream.message != wanted["message"]:
            return
        stream.repeat(wanted["reply"], wanted["offset"], wanted["thinking_offset"])
        await self.checkpoints.write_now(stream)

    def _judged(self, turn: int, ours: bool) -> None:
        answer = self.answers.get(turn)
        if answer is not None:
            if ours:
                answer.stop()
            else:
                answer.lose()


_current: Worker | None = None
_is_open = False
_making = threading.Lock()


def worker() -> Worker:
    """The one of this process and its loop."""
    global _current
    found = _current
    if found is None or found.home is not process_loop():
        with _making:
            if _current is None or _current.home is not process_loop():
                _current = Worker()
            found = _current
    return found


def work_on(conversation_id: UUID | str) -> None:
    """Claim and start the next turn of a conversation in this process; returns at once."""
    if not is_stopping():
        submit_to_db(_claim_and_start, UUID(str(conversation_id)))


def opened(is_open: bool) -> bool:
    """Whether this process answers turns from now on. Returns whether that changes anything."""
    global _is_open
    before, _is_open = _is_open, is_open
    return before != is_open


def is_open() -> bool:
    """Whether this process answers turns."""
    return _is_open and not is_stopping()


def has_room() -> bool:
    """Whether one more turn would find a place in this process."""
    return _current is None or _current.has_room


def running_here() -> int:
    """How many turns this process answers at the moment."""
    return len(_current.answers) if _current is not None else 0


def _claim_and_start(conversation_id: UUID) -> None:
    here = worker()
    if is_stopping() or not here.reserve(conversation_id):
        return
    claim, is_handed_over = None, False
    try:
        claim = claim_next(conversation_id)
        if claim is None:
            return
        request = load_request(claim, claim.row)
        here.home.soon(here.begin_reserved, claim, request)
        is_handed_over = True
    except Exception:
        if claim is not None:
            give_up(claim)
        raise
    finally:
        if not is_handed_over:
            here.release()


def give_up(claim: Claim) -> None:
    """A turn whose request cannot even be made ends at once, with a reason."""
    from django.utils.translation import gettext as _

    how = Ending(TurnState.FAILED, "internal_error", _("Something went wrong here. Try again."), retryable=True)
    try:
        ending.finish(claim, ending.Said(claim.message), how, ending.Spent(), go_on=False)
    except LostTurn:
        logger.warning("turn %d was taken away before it began", claim.turn)


@on_drain
def drain(seconds: float) -> None:
    """Let running turns end; what does not within the grace period is handed back or kept as it is."""
    here = _current
    if here is None or here.home.loop.is_closed():
        return
    deadline = time.monotonic() + seconds
    _wait_until_empty(here, deadline - min(HAND_BACK_SECONDS, seconds / 2))
    if here.answers:
        logger.info("%d turns do not end in time and are handed back", len(here.answers))
        here.home.soon(here.hand_back)
        _wait_until_empty(here, deadline)


def _wait_until_empty(here: Worker, deadline: float) -> None:
    while here.answers and time.monotonic() < deadline:
        time.sleep(0.05)


def _layer() -> Any:
    return get_channel_layer()
