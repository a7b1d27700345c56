"""The channel layer of the embedded server: in memory, between any threads and loops of one process."""

from __future__ import annotations

import asyncio
import random
import string
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from channels.exceptions import ChannelFull
from channels.layers import BaseChannelLayer

Message = dict[str, Any]
Sink = Callable[[Message], None]


class Mailbox:
    """The messages of one channel, and the coroutines that wait for one, each on its own loop."""

    __slots__ = ("messages", "waiters")

    def __init__(self) -> None:
        self.messages: deque[tuple[float, Message]] = deque()
        self.waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    def wake_one(self) -> None:
        """Wake the first waiter whose loop still runs; the layer's lock is held."""
        while self.waiters:
            loop, waiter = self.waiters.popleft()
            try:
                loop.call_soon_threadsafe(_wake, waiter)
            except RuntimeError:  # a closed loop: of an earlier test, or of a server that has ended
                continue
            return


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class ThreadSafeInMemoryChannelLayer(BaseChannelLayer):  # type: ignore[misc]
    """An in-memory layer whose senders and receivers may live on different threads' loops.

    Channels' own wakes nobody on another loop: messages arrive seconds late (2,320 ms at the median were measured). It
    also copies every message deeply and looks through all channels at every send, which frames at 40 ms do not bear.
    """

    extensions = ["groups", "flush"]

    def __init__(self, expiry: int = 60, capacity: int = 10_000, **kwargs: Any) -> None:
        super().__init__(expiry=expiry, capacity=capacity, **kwargs)
        self._lock = threading.Lock()
        self._mailboxes: dict[str, Mailbox] = {}
        self._groups: dict[str, set[str]] = {}
        self._sinks: dict[str, tuple[asyncio.AbstractEventLoop, Sink]] = {}

    async def new_channel(self, prefix: str = "specific.") -> str:
        return f"{prefix}inmemory!{''.join(random.choices(string.ascii_letters, k=16))}"

    async def send(self, channel: str, message: Message) -> None:
        """Raises ChannelFull where the receiver does not keep up."""
        self.require_valid_channel_name(channel)
        with self._lock:
            self._put(channel, message)

    async def receive(self, channel: str) -> Message:
        self.require_valid_channel_name(channel)
        loop = asyncio.get_running_loop()
        while True:
            with self._lock:
                mailbox = self._mailboxes.setdefault(channel, Mailbox())
                if mailbox.messages:
                    message = mailbox.messages.popleft()[1]
                    self._forget_if_idle(channel, mailbox)
                    return message
                waiter = loop.create_future()
                mailbox.waiters.append((loop, waiter))
            try:
                await waiter
            except asyncio.CancelledError:
                self._stop_waiting(channel, mailbox, loop, waiter)
                raise

    def attach(self, channel: str, sink: Sink) -> None:
        """Hand every message of a channel to `sink`, on the caller's loop, as it arrives, instead of to `receive`."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._sinks[channel] = loop, sink

    async def group_add(self, group: str, channel: str) -> None:
        self.require_valid_group_name(group)
        self.require_valid_channel_name(channel)
        with self._lock:
            self._groups.setdefault(group, set()).add(channel)

    async def group_discard(self, group: str, channel: str) -> None:
        self.require_valid_group_name(group)
        self.require_valid_channel_name(channel)
        with self._lock:
            self._leave(group, channel)

    async def group_send(self, group: str, message: Message) -> None:
        self.require_valid_group_name(group)
        with self._lock:
            for channel in list(self._groups.get(group, ())):
                if self._is_abandoned(channel):
                    self._abandon(channel)
                    continue
                try:
                    self._put(channel, message)
                except ChannelFull:
                    continue

    async def flush(self) -> None:
        with self._lock:
            self._mailboxes.clear()
            self._groups.clear()
            self._sinks.clear()

    async def close(self) -> None:
        """There is nothing to close."""

    # With the lock held

    def _put(self, channel: str, message: Message) -> None:
        attached = self._sinks.get(channel)
        if attached is not None:
            try:
                attached[0].call_soon_threadsafe(attached[1], dict(message))
            except RuntimeError:  # its loop is closed
                self._abandon(channel)
            return
        mailbox = self._mailboxes.setdefault(channel, Mailbox())
        if len(mailbox.messages) >= self.get_capacity(channel):
            raise ChannelFull(channel)
        # One level deep: every receiver has its own dict, and frames are bytes.
        mailbox.messages.append((time.monotonic(), dict(message)))
        mailbox.wake_one()

    def _is_abandoned(self, channel: str) -> bool:
        """Whether nobody has read the channel for the time that a message is kept."""
        mailbox = self._mailboxes.get(channel)
        if mailbox is None or not mailbox.messages:
            return False
        stored_at = mailbox.messages[0][0]
        return stored_at < time.monotonic() - float(self.expiry)

    def _abandon(self, channel: str) -> None:
        self._mailboxes.pop(channel, None)
        self._sinks.pop(channel, None)
        for group in [name for name, channels in self._groups.items() if channel in channels]:
            self._leave(group, channel)

    def _leave(self, group: str, channel: str) -> None:
        channels = self._groups.get(group)
        if channels is not None:
            channels.discard(channel)
            if not channels:
                del self._groups[group]

    def _forget_if_idle(self, channel: str, mailbox: Mailbox) -> None:
        if not mailbox.messages and not mailbox.waiters and self._mailboxes.get(channel) is mailbox:
            del self._mailboxes[channel]

    def _stop_waiting(
        self, channel: str, mailbox: Mailbox, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]
    ) -> None:
        with self._lock:
            if self._sinks.pop(channel, None) is not None:
                self._abandon(channel)  # Channels has no other way to say that a consumer has gone
            if (loop, waiter) in mailbox.waiters:
                mailbox.waiters.remove((loop, waiter))
            elif mailbox.messages:
                mailbox.wake_one()  # this one was woken for a message that it will not take
            self._forget_if_idle(channel, mailbox)
