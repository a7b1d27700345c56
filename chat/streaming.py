"""What an answer has said so far, and its way to the browsers: the first piece at once, later ones merged.

A stream never queues. While its last frames are still on the way, what the model says is added to the next ones, so
that delivery slower than the model makes frames larger and not later. Everything here happens on the process's loop.
"""

from __future__ import annotations

import asyncio
import time

from chat import broadcast
from chat.claiming import Claim
from chat.events import Delta, ThinkingDelta, encode

INTERVAL = 0.04  # between two frames of an answer (seconds)


class Track:
    """One of the two texts of a message, with what of it has been sent. Offsets count code points."""

    __slots__ = ("_pieces", "_unsent", "event", "length", "sent")

    def __init__(self, event: type[Delta] | type[ThinkingDelta]) -> None:
        self.event = event
        self._pieces: list[str] = []
        self._unsent: list[str] = []
        self.length = 0
        self.sent = 0

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self._unsent.append(text)
        self.length += len(text)

    def text(self) -> str:
        """Everything said so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def take(self) -> tuple[int, str] | None:
        """What was not sent yet, with its offset; from now on it counts as sent."""
        if not self._unsent:
            return None
        text, offset = "".join(self._unsent), self.sent
        self._unsent.clear()
        self.sent = self.length
        return offset, text


class Stream:
    """The open message of a turn. Keyed by its turn and message, never by the conversation."""

    def __init__(self, claim: Claim, message: int) -> None:
        self.claim = claim
        self.message = message
        self.content = Track(Delta)
        self.thinking = Track(ThinkingDelta)
        self.first_piece_at: float | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at = 0.0
        self._next_at = 0.0
        self._on_the_way = False

    @property
    def length(self) -> int:
        return self.content.length + self.thinking.length

    def say(self, text: str) -> None:
        self._add(self.content, text)

    def think(self, text: str) -> None:
        self._add(self.thinking, text)

    def flush(self) -> None:
        """Send what is there now, whatever the rhythm."""
        self._cancel_timer()
        frames = [
            encode(self._delta(track, *piece), self.claim.conversation)
            for track in (self.thinking, self.content)
            if (piece := track.take())
        ]
        if frames:
            self._on_the_way = True
            self._sent_at = time.monotonic()
            broadcast.publish(self.claim.conversation, frames, self._arrived)

    def close(self) -> None:
        """Send the rest; nothing more will be said."""
        self.flush()
        self._cancel_timer()

    def repeat(self, channel: str, offset: int, thinking_offset: int) -> None:
        """Send again, to one socket, everything from these offsets on."""
        self.flush()
        frames = [
            encode(self._delta(track, start, text), self.claim.conversation)
            for track, start in ((self.thinking, thinking_offset), (self.content, offset))
            if (text := track.text()[start:])
        ]
        if frames:
            broadcast.publish_to_channel(channel, frames)

    def _add(self, track: Track, text: str) -> None:
        if not text:
            return
        if self.first_piece_at is None:
            self.first_piece_at = time.monotonic()
        track.add(text)
        if self._timer is None and not self._on_the_way:
            self._schedule()

    def _schedule(self) -> None:
        wait = self._next_at - time.monotonic()
        if wait <= 0:
            self.flush()
        else:
            self._timer = self._loop.call_later(wait, self._due)

    def _due(self) -> None:
        self._timer = None
        self.flush()

    def _arrived(self) -> None:
        """The layer has the last frames. Sending never takes more than half of the time."""
        now = time.monotonic()
        self._on_the_way = False
        self._next_at = self._sent_at + max(INTERVAL, 2 * (now - self._sent_at))
        if self._timer is None and (
            self.content.length > self.content.sent or self.thinking.length > self.thinking.sent
        ):
            self._schedule()

    def _delta(self, track: Track, offset: int, text: str) -> Delta | ThinkingDelta:
        return track.event(self.claim.turn, self.claim.attempt, self.message, offset, text)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
