"""What clients go through: sleep, lost frames, a database that went back, readers who never read, people who change."""

from __future__ import annotations

import asyncio
import random
import re
import socket
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.client import ChatClient
from tests.live import Live
from tests.screen import JSON
from tests.upstream import Play

pytestmark = pytest.mark.slow


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r" k(\d+)@", text)]


def stored(live: Live, conversation: str) -> list[tuple[int, str, str]]:
    return [(row[0], row[1], row[2]) for row in live.ask("stored", conversation=conversation)["messages"]]


async def until_same(live: Live, tab: ChatClient, seconds: float = 20) -> None:
    """The page shows the newest version of what the database holds, byte for byte."""

    async def compare() -> bool:
        held = await asyncio.to_thread(live.ask, "stored", conversation=tab.conversation)
        return bool(tab.screen.seq == held["version"] and tab.is_settled)

    until = time.monotonic() + seconds
    while not await compare():
        assert time.monotonic() < until, f"shown is version {tab.screen.seq} of {live.ask('states')}"
        await asyncio.sleep(0.1)
    shown = tab.screen.shown()
    assert shown == stored(live, tab.conversation)[-len(shown) :]  # the newest ones, where they are very long


class LossyTab(ChatClient):
    """A tab to which a part of the frames never comes, whatever they are."""

    def __init__(self, *arguments: Any, lost: float, seed: int, **how: Any) -> None:
        super().__init__(*arguments, **how)
        self.random, self.share, self.lost = random.Random(seed), lost, 0

    async def _take(self, envelope: JSON) -> None:
        if envelope["type"] not in ("snapshot", "pong") and self.random.random() < self.share:
            self.lost += 1
        else:
            await super()._take(envelope)


async def test_a_tab_that_slept_shows_what_happened_meanwhile_from_another_web_process(live: Live) -> None:
    live.ask("change_agent", name="quick", fields={"model": "mock-ttft5-tps300-n60"})
    conversation = live.converse("quick")
    async with live.tab(conversation) as awake:
        sleeper = live.tab(conversation)
        await sleeper.open()
        await awake.say("one")
        await sleeper.until(lambda: any(len(text) > 50 for text in sleeper.screen.answers))
        await sleeper.close()  # in mid-answer, with everything it showed still on the page
        await awake.until(lambda: awake.of("turn_done") and awake.is_settled)
        for text in ("two", "three", "four"):
            await awake.ask(text)
        await awake.say("five")
        await awake.until(lambda: any(len(text) > 50 and len(numbers(text)) < 60 for text in awake.screen.answers))

        sleeper.base_url = live.house.urls[-1]
        sleeper._closed = False
        await sleeper.open()

        for tab in (awake, sleeper):
            await tab.until(lambda tab=tab: len(tab.screen.answers) == 5 and tab.is_settled)
            await until_same(live, tab)
        assert [numbers(text) for text in sleeper.screen.answers] == [list(range(60))] * 5


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_what_is_missing_is_noticed_and_fetched(live: Live, seed: int) -> None:
    """A third of everything that the server says is lost, of pieces as of durable events."""
    live.ask("change_agent", name="quick", fields={"model": "mock-ttft5-tps100-n150-think20"})
    conversation = live.converse("quick")
    lossy = LossyTab(live.house.urls[-1], live.key(), conversation, lost=0.33, seed=seed, ping_every=0.5)
    async with live.tab(conversation) as tab, lossy:
        for text in ("one", "two"):
            await tab.ask(text)
        await until_same(live, tab)
        await until_same(live, lossy)
        assert lossy.lost > 10
        assert lossy.screen.gaps > 0
        assert [numbers(text) for text in lossy.screen.answers] == [list(range(150))] * 2


async def test_after_the_database_went_back_every_page_shows_what_it_holds(live: Live, tmp_path: Path) -> None:
    """Restored from a backup while pages are open: versions and ids are given a second time."""
    if live.house.is_scaled:
        pytest.skip("a backup is a file only where the database is one")
    live.ask("change_agent", name="quick", fields={"model": "mock-ttft5-tps300-n30"})
    conversation = live.converse("quick")
    backup = tmp_path / "backup.sqlite3"
    (database,) = (live.house.folder / "data").glob("*.sqlite3")
    async with live.tab(conversation, ping_every=0.5) as tab, live.tab(conversation, ping_every=60) as other:
        await tab.ask("kept")
        await until_same(live, tab)
        with closing(sqlite3.connect(database)) as from_, closing(sqlite3.connect(backup)) as to:
            from_.backup(to)
        for text in ("lost one", "lost two"):
            await tab.ask(text)
        for one in (tab, other):
            await until_same(live, one)
        await asyncio.sleep(5.5)  # the last snapshots are long over

        with closing(sqlite3.connect(backup)) as from_, closing(sqlite3.connect(database, timeout=20)) as to:
            from_.backup(to)

        await until_same(live, tab)
        assert [text for _, role, text in tab.screen.shown() if role == "user"] == ["kept"]
        # The other page asks nothing for a minute: what it is told next must not be taken for old.
        await tab.ask("said anew")
        for one in (tab, other):
            await until_same(live, one)
            assert [text for _, role, text in one.screen.shown() if role == "user"] == ["kept", "said anew"]
            assert numbers(one.screen.answers[-1]) == list(range(30))


async def test_readers_who_never_read_cost_little_and_harm_nobody(live: Live) -> None:
    """Their sockets are open and take nothing, while 12 MB of answers pass by."""
    live.provider.plays("flood", Play(ttft=0, tps=0, n=3_000, w=1_000))
    live.ask("change_agent", name="quick", fields={"model": "flood"})
    part = live.house.web_parts[0]
    await flood(live, live.converse("quick"))  # the process gets to know such answers
    before = part.memory()[0]
    alone = await flood(live, live.converse("quick"))
    grown_alone = part.memory()[0] - before
    conversation = live.converse("quick")
    deaf = [await asyncio.to_thread(never_reads, live, conversation) for _ in range(12)]
    try:
        before = part.memory()[0]
        beside_them = await flood(live, conversation)
        grown = part.memory()[0] - before
    finally:
        for line in deaf:
            line.close()
    assert part.log.read_text(errors="replace").count("behind and is closed") >= 12
    assert grown - grown_alone < 80, f"{grown:.0f} MiB more, {grown_alone:.0f} without them"
    assert beside_them < 4 * alone + 2


async def flood(live: Live, conversation: str) -> float:
    """Four long answers that somebody reads; how long they took (seconds)."""
    async with live.tab(conversation, ping_every=60) as tab:
        began = time.monotonic()
        for text in ("first", "second", "third", "fourth"):
            await tab.ask(text, 60)
        took = time.monotonic() - began
        await until_same(live, tab)
    return took


def never_reads(live: Live, conversation: str) -> socket.socket:
    """A WebSocket whose other end takes next to nothing."""
    host, port = live.house.web_parts[0].url.removeprefix("http://").split(":")
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect((host, int(port)))
    line.sendall(
        f"GET /ws/conversations/{conversation}/ HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: Bearer {live.key()}\r\n\r\n".encode()
    )
    assert b"101" in line.recv(64)
    return line


async def test_people_who_come_change_and_go_are_seen_at_once(live: Live) -> None:
    """By everybody's open page, with the same meter; who is removed is let go on any web process."""
    live.ask("change_agent", name="quick", fields={"model": "mock-ttft5-tps300-n30"})
    conversation = live.converse("quick")
    api, here = live.api(), f"/conversations/{conversation}"

    def seen(tab: ChatClient) -> dict[str, tuple[str, bool]]:
        return {one["name"]: (one["role"], bool(one.get("online"))) for one in tab.screen.people}

    async with live.tab(conversation) as alice:
        await api.post(f"{here}/participants", {"username": "bob", "role": "member"})
        bob = live.tab(conversation, "bob", web=1)
        await bob.open()
        await alice.until(lambda: seen(alice) == {"alice": ("owner", True), "bob": ("member", True)})
        await bob.ask("May I?")
        for tab in (alice, bob):
            await until_same(live, tab)
        await alice.until(lambda: alice.screen.context == bob.screen.context)

        await api.call("PATCH", f"{here}/participants/{live.people['bob']['id']}", {"role": "viewer"})
        await bob.until(lambda: bob.screen.conversation["role"] == "viewer")
        await bob.say("And now?")
        await bob.until(lambda: bob.of("error"))
        assert bob.of("error")[-1]["data"]["code"] == "forbidden"
        await alice.until(lambda: seen(alice) == {"alice": ("owner", True), "bob": ("viewer", True)})

        await api.call("DELETE", f"{here}/participants/{live.people['bob']['id']}")
        await bob.until(lambda: bob.close_code is not None)
        assert bob.close_code in (4403, 4404)
        await alice.until(lambda: list(seen(alice)) == ["alice"])
        heard = len(bob.events)
        await alice.ask("Are we alone?")
        assert len(bob.events) == heard
        await bob.close()


async def test_what_waits_for_a_compaction_is_edited_taken_back_and_answered_in_order(live: Live) -> None:
    history = [
        {"role": role, "content": f"{number}: {'The ledger of folio ' + str(number)} " + "vellum ink gall " * 120}
        for number in range(12)
        for role in ("user", "assistant")
    ]
    conversation = live.converse("16k", history, people={"bob": "member"})
    async with live.tab(conversation) as alice, live.tab(conversation, "bob", web=1) as bob:
        await alice.send("compact", instructions="")
        await alice.until(lambda: alice.of("compaction_start"))
        assert alice.of("compaction_start")[0]["data"]["blocking"]
        for author, text in ((bob, "from bob"), (alice, "taken back"), (alice, "to be rewritten"), (bob, "last")):
            await author.say(text)
            await alice.until(lambda text=text: any(one["message"]["content"] == text for one in alice.screen.queue))
        waiting = {one["message"]["content"]: one for one in alice.screen.queue}
        assert [one["reason"] for one in alice.screen.queue] == ["compaction", "turn", "turn", "turn"]

        turns = f"/conversations/{conversation}/turns"
        await live.api(web=1).call("PATCH", f"{turns}/{waiting['to be rewritten']['turn']}", {"content": "rewritten"})
        await alice.send("cancel", turn=waiting["taken back"]["turn"])
        left = ["from bob", "rewritten", "last"]
        await bob.until(lambda: [one["message"]["content"] for one in bob.screen.queue] == left)

        for tab in (alice, bob):
            await tab.until(lambda tab=tab: len(tab.of("turn_done")) == 3 and tab.is_settled, 40)
            await until_same(live, tab)
        asked = [text for _, role, text in alice.screen.shown() if role == "user"]
        assert asked[-3:] == left
        assert any(card["state"] == "applied" for card in alice.screen.compactions.values())
