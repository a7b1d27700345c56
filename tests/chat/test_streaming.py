"""Pieces on their way to browsers: the first at once, later ones merged, never a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import orjson
import pytest

from chat import broadcast, streaming
from chat.claiming import Claim
from chat.loop import process_loop
from chat.streaming import Stream

JSON = dict[str, Any]


class Layer:
    """Takes frames, and says when they have arrived."""

    def __init__(self) -> None:
        self.events: list[JSON] = []
        self.waiting: list[broadcast.Sent] = []

    def publish(self, conversation: object, frames: list[bytes], sent: broadcast.Sent | None = None) -> None:
        self.events += [orjson.loads(frame) for frame in frames]
        if sent is not None:
            self.waiting.append(sent)

    def arrive(self) -> None:
        waiting, self.waiting = self.waiting, []
        for sent in waiting:
            sent()

    def pieces(self, kind: str = "delta") -> list[tuple[int, str]]:
        return [(event["data"]["offset"], event["data"]["text"]) for event in self.events if event["type"] == kind]


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Layer]:
    made = Layer()
    monkeypatch.setattr(broadcast, "publish", made.publish)
    monkeypatch.setattr(broadcast, "publish_to_channel", lambda channel, frames: made.publish(channel, frames))
    return made


def open_stream() -> Stream:
    claim = Claim.__new__(Claim)
    for name, value in {"turn": 7, "attempt": 2, "conversation": uuid4(), "message": 9}.items():
        object.__setattr__(claim, name, value)
    return Stream(claim, 9)


async def test_the_first_piece_leaves_at_once(layer: Layer) -> None:
    open_stream().say("Hel")

    assert layer.pieces() == [(0, "Hel")]
    assert layer.events[0]["data"] | {"turn": 7, "attempt": 2, "message": 9} == layer.events[0]["data"]


async def test_later_pieces_are_merged(layer: Layer) -> None:
    stream = open_stream()
    for piece in ("a", "b", "c"):
        stream.say(piece)
        layer.arrive()
    await asyncio.sleep(streaming.INTERVAL * 2)

    assert layer.pieces() == [(0, "a"), (1, "bc")]


async def test_nothing_is_sent_while_the_last_frame_is_on_its_way(layer: Layer) -> None:
    stream = open_stream()
    stream.say("a")
    for piece in "bcdef":
        stream.say(piece)
        await asyncio.sleep(streaming.INTERVAL)
    assert layer.pieces() == [(0, "a")]

    layer.arrive()
    await asyncio.sleep(streaming.INTERVAL * 12)

    assert layer.pieces() == [(0, "a"), (1, "bcdef")]


async def test_offsets_count_code_points_and_thinking_has_its_own(layer: Layer) -> None:
    stream = open_stream()
    stream.think("🤔🤔")
    stream.flush()
    stream.say("😀é")
    stream.flush()
    stream.say("!")
    stream.close()

    assert layer.pieces("thinking_delta") == [(0, "🤔🤔")]
    assert layer.pieces() == [(0, "😀é"), (2, "!")]
    assert (stream.content.text(), stream.thinking.text()) == ("😀é!", "🤔🤔")


async def test_what_was_said_can_be_repeated_from_anywhere(layer: Layer) -> None:
    stream = open_stream()
    stream.say("Hello, world")
    layer.events.clear()

    stream.repeat("somebody", 7, 0)

    assert layer.pieces() == [(7, "world")]


async def test_frames_of_one_address_keep_their_order_and_are_merged_while_the_layer_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow:
        batches: list[list[bytes]] = []

        async def group_send(self, group: str, message: JSON) -> None:
            await asyncio.sleep(0.02)
            self.batches.append(message["frames"])

    slow = Slow()
    monkeypatch.setattr(broadcast, "get_channel_layer", lambda: slow)
    sent: list[int] = []
    for number in range(20):
        broadcast.publish("one", [str(number).encode()], lambda number=number: sent.append(number))
    await asyncio.sleep(0.3)

    assert [int(frame) for batch in slow.batches for frame in batch] == list(range(20))
    assert len(slow.batches) < 5
    assert sent == list(range(20))


async def test_a_layer_that_is_away_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        async def group_send(self, group: str, message: JSON) -> None:
            raise ConnectionError

    monkeypatch.setattr(broadcast, "get_channel_layer", Away)
    sent: list[int] = []

    broadcast.publish("one", [b"x"], lambda: sent.append(1))
    await asyncio.sleep(0.1)

    assert sent == [1]


def test_nobody_is_woken_before_everybody_can_know_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """`queued` leaves before the wake-up call, so that the `turn_start` of another process cannot overtake it."""
    order: list[str] = []

    class Slow:
        async def group_send(self, group: str, message: dict[str, Any]) -> None:
            await asyncio.sleep(0.05)
            order.append("frames")

    monkeypatch.setattr(broadcast, "get_channel_layer", Slow)

    async def wake() -> None:
        await broadcast.handed_over("c")
        order.append("wake")

    broadcast.publish("c", [b"{}"])
    process_loop().submit(wake()).result(10)

    assert order == ["frames", "wake"]
