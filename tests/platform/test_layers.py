"""The in-memory layer: between threads, at once, bounded."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from channels.exceptions import ChannelFull

from palimpsest.layers import ThreadSafeInMemoryChannelLayer


def in_a_thread(sending: Coroutine[Any, Any, None]) -> None:
    thread = threading.Thread(target=asyncio.run, args=(sending,))
    thread.start()
    thread.join()


async def test_a_message_from_another_threads_loop_arrives_at_once() -> None:
    layer = ThreadSafeInMemoryChannelLayer()
    channel = await layer.new_channel()
    receiving = asyncio.ensure_future(layer.receive(channel))
    await asyncio.sleep(0)
    sent_at = time.monotonic()
    threading.Thread(target=asyncio.run, args=(layer.send(channel, {"type": "frame"}),)).start()
    assert await asyncio.wait_for(receiving, 2) == {"type": "frame"}
    assert time.monotonic() - sent_at < 1.5  # without waking the loop it would take until the time-out


async def test_receivers_on_two_loops_both_hear_a_group() -> None:
    layer = ThreadSafeInMemoryChannelLayer()
    heard: list[dict[str, Any]] = []
    joined = threading.Event()

    async def elsewhere() -> None:
        channel = await layer.new_channel()
        await layer.group_add("room", channel)
        joined.set()
        heard.append(await layer.receive(channel))

    thread = threading.Thread(target=asyncio.run, args=(elsewhere(),))
    thread.start()
    assert joined.wait(2)
    here = await layer.new_channel()
    await layer.group_add("room", here)
    await layer.group_send("room", {"type": "frame", "n": 1})
    heard.append(await asyncio.wait_for(layer.receive(here), 2))
    thread.join(2)
    assert heard == [{"type": "frame", "n": 1}] * 2


async def test_messages_keep_their_order_and_nobody_shares_a_dict() -> None:
    layer = ThreadSafeInMemoryChannelLayer()
    sent = [{"type": "frame", "n": n} for n in range(100)]
    for message in sent:
        await layer.send("one", message)
    received = [await layer.receive("one") for _ in sent]
    assert received == sent
    assert all(one is not other for one, other in zip(received, sent, strict=True))


async def test_a_full_channel_is_said_to_a_sender_and_skipped_in_a_group() -> None:
    layer = ThreadSafeInMemoryChannelLayer(capacity=1)
    await layer.group_add("room", "slow")
    await layer.send("slow", {"type": "frame"})
    with pytest.raises(ChannelFull):
        await layer.send("slow", {"type": "frame"})
    await layer.group_send("room", {"type": "frame"})


async def test_a_channel_that_nobody_reads_leaves_its_groups() -> None:
    layer = ThreadSafeInMemoryChannelLayer(expiry=0)
    await layer.group_add("room", "dead")
    await layer.group_send("room", {"type": "frame"})
    await asyncio.sleep(0.01)
    await layer.group_send("room", {"type": "frame"})
    assert layer._groups == {}
    assert layer._mailboxes == {}


async def test_a_cancelled_receiver_loses_no_message() -> None:
    layer = ThreadSafeInMemoryChannelLayer()
    first = asyncio.ensure_future(layer.receive("one"))
    await asyncio.sleep(0)
    in_a_thread(layer.send("one", {"type": "frame"}))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    if first.cancelled():
        assert await asyncio.wait_for(layer.receive("one"), 2) == {"type": "frame"}


async def test_a_receiver_of_an_ended_loop_does_not_keep_a_message() -> None:
    layer = ThreadSafeInMemoryChannelLayer()

    async def gone() -> None:
        task = asyncio.ensure_future(layer.receive("one"))
        await asyncio.sleep(0)
        assert not task.done()

    in_a_thread(gone())
    await layer.send("one", {"type": "frame"})
    assert await asyncio.wait_for(layer.receive("one"), 2) == {"type": "frame"}
