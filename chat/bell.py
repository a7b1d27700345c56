"""The bell that wakes workers: a list in Redis that a web process pushes to and that waiting workers pop from.

A wake-up call needs none of what a task queue does, and the queue's way through its client, its event loop and its
threads was as long as everything else between a message's commit and its claim. As with every call: losing one loses
nothing, the sweep finds the turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any
from uuid import UUID

from celery.signals import worker_ready, worker_shutdown
from django.conf import settings

from chat import broadcast, working
from chat.loop import ProcessLoop, process_loop
from palimpsest.redis_layer import Line
from palimpsest.shutdown import on_drain

logger = logging.getLogger("palimpsest.turns")

POP_SECONDS = 5  # that Redis lets a worker wait; then the line is known to live
DEAD_SECONDS = 15.0  # without any answer to a pop
KEPT_SECONDS = 600  # calls that nobody hears are forgotten; the sweep of the first worker to come finds their turns
RETRY_SECONDS = 1.0
LONGEST_WAIT_FOR_FRAMES = 0.5
FULL_SECONDS = 0.05  # between two looks for a free place, while all of this process are taken


class Bell:
    """One process's end of it; its methods run on the process's loop."""

    def __init__(self) -> None:
        self.home = process_loop()
        self._name = f"{settings.REDIS_PREFIX}:bell".encode()
        self._pushing: Line | None = None
        self._opening = asyncio.Lock()
        self._listener: asyncio.Task[None] | None = None

    async def push(self, conversation: str) -> None:
        """Wake a worker, once everybody can know what it is woken for: `queued` comes before its `turn_start`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT_FOR_FRAMES):
                await broadcast.handed_over(conversation)
        try:
            async with self._opening:
                if self._pushing is None or self._pushing.is_lost:
                    self._pushing = await Line.open(settings.REDIS_URL)
            pushed = self._pushing.ask(b"LPUSH", self._name, conversation.encode())
            kept = self._pushing.ask(b"EXPIRE", self._name, b"%d" % KEPT_SECONDS)
            await asyncio.gather(pushed, kept)
        except OSError as error:
            logger.warning("nobody can be woken (%s); the sweep will find the turn", error)

    def listen(self) -> None:
        if self._listener is None or self._listener.done():
            self._listener = self.home.spawn(self._listen(), "bell")

    def stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.cancel()

    async def _listen(self) -> None:
        while True:
            try:
                line = await Line.open(settings.REDIS_URL)
            except OSError as error:
                logger.warning("the bell cannot be heard (%s); the sweep finds turns meanwhile", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            try:
                await self._hear(line)
            except Exception as error:
                logger.warning("the bell was lost (%s)", error)
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                line.close()

    async def _hear(self, line: Line) -> None:
        while True:
            if not (working.is_open() and working.has_room()):  # others hear it then
                await asyncio.sleep(FULL_SECONDS)
                continue
            async with asyncio.timeout(DEAD_SECONDS):
                heard: list[bytes] | None = await line.ask(b"BRPOP", self._name, b"%d" % POP_SECONDS)
            if heard is None:
                continue
            conversation = heard[1].decode()
            if working.is_open():
                working.work_on(conversation)
            else:
                await self.push(conversation)


_current: Bell | None = None


def push(conversation_id: UUID | str) -> None:
    """Wake one of the workers, wherever it runs; from any thread, returns at once."""
    home = process_loop()
    home.soon(_push, home, str(conversation_id))


def _push(home: ProcessLoop, conversation: str) -> None:
    home.spawn(_bell().push(conversation))


def _bell() -> Bell:
    """On the loop only."""
    global _current
    if _current is None or _current.home is not process_loop():
        _current = Bell()
    return _current


def open_for_turns() -> None:
    """From now on this process answers turns."""
    if working.opened(True) and not settings.EMBEDDED:
        process_loop().soon(lambda: _bell().listen())


def close_for_turns() -> None:
    """This process takes no more turns."""
    if working.opened(False) and not settings.EMBEDDED:
        process_loop().soon(lambda: _bell().stop_listening())


@worker_ready.connect
def _open(sender: Any, **_: object) -> None:
    if "turns" in [queue.name for queue in sender.task_consumer.queues]:
        open_for_turns()


@worker_shutdown.connect
def _close(**_: object) -> None:
    close_for_turns()


@on_drain
def _drain(seconds: float) -> None:
    close_for_turns()
