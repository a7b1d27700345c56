"""The layer and the bell over Redis: between loops, in order, and back by themselves when Redis was away."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings

from palimpsest.redis_layer import Line, RedisChannelLayer, pack, unpack
from palimpsest.redis_layer import _Incomplete as Incomplete
from palimpsest.redis_layer import _parse as parse

needs_redis = pytest.mark.skipif(not settings.REDIS_URL, reason="needs REDIS_URL")


def make_layer() -> RedisChannelLayer:
    return RedisChannelLayer(settings.REDIS_URL, prefix=f"test-{secrets.token_hex(4)}")


async def soon(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - there is nobody to set an event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "frame", "frames": [b'{"a":1}', b"", "é".encode() * 70_000]},
        {"type": "frame", "frames": []},
        {"type": "turn.sync", "turn": 5, "reply": "specific.x!y"},
    ],
)
def test_messages_travel_as_they_are(message: dict[str, Any]) -> None:
    assert unpack(pack(message)) == message


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (b":12\r\n", 12),
        (b"$-1\r\n", None),
        (b"*-1\r\n", None),
        (b"$4\r\na\r\nb\r\n", b"a\r\nb"),
        (b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n", [b"message", b"c", b""]),
    ],
)
def test_replies_are_read_wherever_they_are_cut(said: bytes, meant: object) -> None:
    for cut in range(len(said)):
        with pytest.raises(Incomplete):
            parse(bytearray(said[:cut]), 0)
    assert parse(bytearray(said + b":1\r\n"), 0) == (meant, len(said))


@needs_redis
async def test_a_group_is_heard_in_order_on_every_loop() -> None:
    layer = make_layer()
    heard: list[int] = []
    joined, done = threading.Event(), threading.Event()

    async def elsewhere() -> None:
        channel = await layer.new_channel()
        await layer.group_add("room", channel)
        joined.set()
        while len(heard) < 50:
            heard.append((await layer.receive(channel))["n"])
        await layer.flush()
        done.set()

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    assert joined.wait(10)
    await asyncio.gather(*(layer.group_send("room", {"type": "frame.n", "n": n}) for n in range(50)))
    assert await asyncio.to_thread(done.wait, 10)
    thread.join(10)
    await layer.flush()
    assert heard == list(range(50))


@needs_redis
async def test_an_attached_socket_is_handed_frames_until_it_leaves() -> None:
    layer = make_layer()
    got: list[dict[str, Any]] = []
    channel = await layer.new_channel()
    receiving = asyncio.ensure_future(layer.receive(channel))
    layer.attach(channel, got.append)
    await layer.group_add("room", channel)

    await layer.group_send("room", {"type": "frame", "frames": [b"one"]})
    await layer.send(channel, {"type": "frame", "frames": [b"two"]})
    await soon(lambda: len(got) == 2)
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    await layer.group_send("room", {"type": "frame", "frames": [b"three"]})
    await layer.send(channel, {"type": "frame", "frames": [b"four"]})
    other = await layer.new_channel()
    await layer.send(other, {"type": "frame", "frames": [b"five"]})
    assert (await asyncio.wait_for(layer.receive(other), 10))["frames"] == [b"five"]

    assert [message["frames"] for message in got] == [[b"one"], [b"two"]]
    await layer.flush()


@needs_redis
async def test_a_line_that_breaks_is_opened_again_with_all_its_groups() -> None:
    layer = make_layer()
    channel = await layer.new_channel()
    await layer.group_add("room", channel)
    exchange = layer._here()
    assert exchange._listening
    assert exchange._speaking is None or not exchange._speaking.is_lost
    broken = exchange._listening

    broken.close()
    await soon(lambda: exchange._listening not in (None, broken))
    await soon(lambda: all(confirmed.done() for confirmed in exchange._subscribed.values()))
    await layer.group_send("room", {"type": "frame", "frames": [b"again"]})

    assert (await asyncio.wait_for(layer.receive(channel), 10))["frames"] == [b"again"]
    await layer.flush()


async def test_a_redis_that_is_away_is_a_connection_error() -> None:
    layer = RedisChannelLayer("redis://127.0.0.1:1/0", prefix="nobody")
    with pytest.raises(OSError):
        await layer.group_send("room", {"type": "frame", "frames": []})
    with pytest.raises(OSError):
        await layer.new_channel()
    await layer.flush()


@needs_redis
async def test_what_redis_refuses_is_said() -> None:
    line = await Line.open(settings.REDIS_URL)
    with pytest.raises(ConnectionError, match="refuses"):
        await line.ask(b"NO-SUCH-COMMAND")
    assert await line.ask(b"PING") == b"PONG"
    line.close()
