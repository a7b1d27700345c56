"""What a socket still has to be sent: bounded, in order, and slow where the person's line is slow.

A server that waits for the line (uvicorn) makes `send` wait. Daphne does not: it fills the connection's buffer. There
the connection is asked to say when its buffer is full, so that what waits is counted here and not there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

logger = logging.getLogger("palimpsest.sockets")

Send = Callable[[dict[str, Any]], Awaitable[None]]

MOST_WAITING = 4 * 1024 * 1024  # bytes that wait for one socket; a socket further behind is closed and comes back
TOO_SLOW = 4408  # close code; Autobahn lets an application use 1000 and 3000-4999 only


class Outgoing:
    """Sends frames one after the other on a task of its own, so that nobody else waits for this socket."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._line = _Line(send)
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._held: list[bytes] | None = None
        self._task: asyncio.Task[None] | None = None
        self.closed = False

    def put(self, frames: list[bytes]) -> None:
        """Send frames after all that wait. A socket that is too far behind is closed: a snapshot costs less."""
        if self.closed:
            return
        if self._held is not None:
            self._held.extend(frames)
            return
        self._waiting.extend(frames)
        self._size += sum(map(len, frames))
        # A snapshot may be as long as that by itself: what counts is how much else waits.
        if self._size > MOST_WAITING and self._size - max(map(len, self._waiting)) > MOST_WAITING:
            logger.warning("a socket is %d kB behind and is closed", self._size // 1024)
            self.close(TOO_SLOW)
        elif self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain())

    @property
    def is_held(self) -> bool:
        return self._held is not None

    def hold(self) -> None:
        """Keep back what comes, until `release`."""
        if self._held is None:
            self._held = []

    def release(self, first: bytes | None = None) -> None:
        """Send `first`, then what was held back."""
        held, self._held = self._held or [], None
        self.put(([first] if first is not None else []) + held)

    def close(self, code: int) -> None:
        """Close the socket now; what waits is dropped."""
        if self.closed:
            return
        self._end()
        self._task = asyncio.get_running_loop().create_task(self._say_goodbye(code))

    def end(self) -> None:
        """The socket is gone."""
        if not self.closed:
            self._end()

    def _end(self) -> None:
        self.closed = True
        self._waiting.clear()
        self._size = 0
        self._line.open()
        if self._task is not None:
            self._task.cancel()

    async def _drain(self) -> None:
        while self._waiting:
            await self._line.wait()
            if not self._waiting:
                return
            frame = self._waiting.popleft()
            self._size -= len(frame)
            try:
                await self._send({"type": "websocket.send", "text": frame.decode()})
            except Exception as error:
                # The line broke a moment ago, and each server says so in its own way; or this frame cannot be sent.
                logger.debug("a frame of %d bytes could not be sent: %s", len(frame), error)
                self.close(TOO_SLOW)
                return

    async def _say_goodbye(self, code: int) -> None:
        with contextlib.suppress(Exception):  # it may be gone already, in which case `disconnect` follows
            await self._send({"type": "websocket.close", "code": code})


class _Line:
    """Whether the connection's own buffer has room. Twisted tells it to a registered producer; others need not."""

    def __init__(self, send: Send) -> None:
        self._free = asyncio.Event()
        self._free.set()
        arguments = getattr(send, "args", ())
        transport = getattr(arguments[0], "transport", None) if arguments else None
        if transport is not None and hasattr(transport, "registerProducer"):
            # The HTTP request that became this socket is still registered; it has nothing more to say.
            transport.unregisterProducer()
            transport.registerProducer(self, True)

    async def wait(self) -> None:
        await self._free.wait()

    def open(self) -> None:
        self._free.set()

    # What Twisted calls

    def pauseProducing(self) -> None:  # noqa: N802
        self._free.clear()

    def resumeProducing(self) -> None:  # noqa: N802
        self._free.set()

    def stopProducing(self) -> None:  # noqa: N802
        self._free.set()
