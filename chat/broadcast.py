"""Frames on their way to browsers: handed over from any thread, sent in order, merged while the layer is busy.

Everything leaves through the process's loop, so that what one process says arrives in the order in which it was said.
The layer only carries: when it is away a frame is lost, never a turn, and clients notice by `seq` and `offset`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from channels.layers import get_channel_layer

from chat.loop import process_loop

logger = logging.getLogger("palimpsest.broadcast")

SECONDS_BETWEEN_COMPLAINTS = 10.0
LARGEST_BATCH = 256 * 1024  # bytes of frames in one message of the layer

Sent = Callable[[], None]


def conversation_group(conversation_id: UUID | str) -> str:
    return f"conversation.{conversation_id}"


def user_group(user_id: int | str) -> str:
    return f"user.{user_id}"


def worker_group(worker: str) -> str:
    """The group of one worker process, by its name in `Turn.worker`, which may hold what a group's name may not."""
    return f"worker.{hashlib.blake2b(worker.encode(), digest_size=16).hexdigest()}"


def publish(conversation_id: UUID | str, frames: list[bytes], sent: Sent | None = None) -> None:
    """Send frames to everyone who looks at a conversation. `sent` is called on the loop once the layer has them."""
    _outbox().put(Address(conversation_group(conversation_id), is_group=True), frames, sent)


async def handed_over(conversation_id: UUID | str) -> None:
    """Returns once the layer has, or has refused, all frames of a conversation that wait now; on the loop only."""
    await _outbox().settled(Address(conversation_group(conversation_id), is_group=True))


def publish_to_channel(channel: str, frames: list[bytes]) -> None:
    """Send frames to one socket, in order with what its conversation is sent."""
    _outbox().put(Address(channel, is_group=False), frames, None)


def publish_to_user(user_id: int | str, message: dict[str, Any]) -> None:
    """Tell all sockets of a person something, e.g. `{"type": "recheck"}` when a role or a session ended."""
    _outbox().tell(Address(user_group(user_id), is_group=True), message)


def publish_to_worker(worker: str, message: dict[str, Any]) -> None:
    """Tell the worker that owns a turn something about it: stop, send again."""
    _outbox().tell(Address(worker_group(worker), is_group=True), message)


def publish_to_conversation(conversation_id: UUID | str, message: dict[str, Any]) -> None:
    """Tell all sockets of a conversation something that is not a frame."""
    _outbox().tell(Address(conversation_group(conversation_id), is_group=True), message)


def tell_channel(channel: str, message: dict[str, Any]) -> None:
    """Tell one socket something that is not a frame."""
    _outbox().tell(Address(channel, is_group=False), message)


class Address(NamedTuple):
    """Where something goes: a group, or the channel of one socket."""

    name: str
    is_group: bool


class Outbox:
    """What waits to be sent, by address. One task an address, and only while something waits there."""

    def __init__(self) -> None:
        self._home = process_loop()
        self._waiting: dict[Address, list[tuple[list[bytes], Sent | None]]] = {}
        self._complained_at = 0.0

    @property
    def is_open(self) -> bool:
        return not self._home.loop.is_closed()

    def put(self, address: Address, frames: list[bytes], sent: Sent | None) -> None:
        if self._home.is_current:
            self._put(address, frames, sent)
        else:
            self._home.soon(self._put, address, frames, sent)

    async def settled(self, address: Address) -> None:
        if address not in self._waiting:
            return
        done = asyncio.Event()
        self._put(address, [], done.set)
        await done.wait()

    def tell(self, address: Address, message: dict[str, Any]) -> None:
        self._home.soon(self._spawn_tell, address, message)

    def _spawn_tell(self, address: Address, message: dict[str, Any]) -> None:
        self._home.spawn(self._send(address, message))

    def _put(self, address: Address, frames: list[bytes], sent: Sent | None) -> None:
        waiting = self._waiting.get(address)
        if waiting is not None:
            waiting.append((frames, sent))
            return
        self._waiting[address] = [(frames, sent)]
        self._home.spawn(self._drain(address))

    async def _drain(self, address: Address) -> None:
        """Send until nothing waits. What arrives during a send goes out together with the next one."""
        try:
            while batch := self._take(address):
                frames = [frame for part, _ in batch for frame in part]
                if frames:
                    await self._send(address, {"type": "frame", "frames": frames})
                for _, sent in batch:
                    if sent is not None:
                        sent()
        finally:
            self._waiting.pop(address, None)

    def _take(self, address: Address) -> list[tuple[list[bytes], Sent | None]]:
        """The next batch: all that waits, up to the size that one message of the layer should have."""
        waiting, size = self._waiting[address], 0
        for taken, (frames, _) in enumerate(waiting):
            size += sum(map(len, frames))
            if size > LARGEST_BATCH:
                batch, self._waiting[address] = waiting[: taken + 1], waiting[taken + 1 :]
                return batch
        self._waiting[address] = []
        return waiting

    async def _send(self, address: Address, message: dict[str, Any]) -> None:
        layer = get_channel_layer()
        if layer is None:
            return
        try:
            await (layer.group_send if address.is_group else layer.send)(address.name, message)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # Whatever the layer throws, a turn goes on: the database has it all.
            if time.monotonic() - self._complained_at > SECONDS_BETWEEN_COMPLAINTS:
                self._complained_at = time.monotonic()
                logger.warning("the channel layer does not take frames (%s); clients will catch up", error)


_current: Outbox | None = None


def _outbox() -> Outbox:
    global _current
    found = _current
    if found is None or not found.is_open or found._home is not process_loop():
        found = _current = Outbox()
    return found
