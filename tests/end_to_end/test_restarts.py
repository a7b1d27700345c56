"""Processes end: asked to, or all at once as when a machine goes down; and each kind of them is replaced under load."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import time
from collections.abc import Iterator

import pytest

from bench.house import House
from tests.client import ChatClient
from tests.live import Live, has_servers, living, scaled_house

pytestmark = pytest.mark.slow

GRACE = 4  # seconds
AGENTS = [{"name": "quick", "model": "mock-ttft5-tps50-n100", "context_window": 128_000}]


@pytest.fixture(scope="module", params=["embedded", "scaled"])
def live(request: pytest.FixtureRequest) -> Iterator[Live]:
    """A house whose processes get little time to end; each test leaves as many running as it found."""
    env = {"SHUTDOWN_GRACE": str(GRACE)}
    if request.param == "embedded":
        with living(House(env=env), AGENTS) as made:
            yield made
    elif not has_servers():
        pytest.skip("needs DATABASE_URL (PostgreSQL) and REDIS_URL")
    else:
        with scaled_house(env=env) as house, living(house, AGENTS) as made:
            yield made


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r" k(\d+)@", text)]


async def same(live: Live, tab: ChatClient) -> None:
    held = live.ask("stored", conversation=tab.conversation)
    await tab.until(lambda: tab.screen.seq == held["version"] and tab.is_settled)
    shown = [list(row) for row in tab.screen.shown()]
    assert shown == [row[:3] for row in held["messages"]][-len(shown) :]


async def test_a_worker_that_is_asked_to_end_lets_turns_end_or_gives_them_back_in_time(live: Live) -> None:
    """One answer ends within the grace period, one is cut with its text, one that showed nothing is begun anew."""
    plays = {"ends": "mock-ttft5-tps50-n100", "long": "mock-ttft5-tps50-n2000", "silent": "mock-ttft8000-tps0-n20"}
    tabs: dict[str, ChatClient] = {}
    for name, model in plays.items():
        live.ask("change_agent", name="quick", fields={"model": model})
        tabs[name] = live.tab(live.converse("quick"), ping_every=0.5)
        await tabs[name].open()
        await tabs[name].say("Go on")
        await tabs[name].until(lambda name=name: tabs[name].of("turn_start"))
    try:
        await tabs["long"].until(lambda: any(tabs["long"].screen.answers))
        workers = list(live.house.worker_parts)
        began = time.monotonic()
        assert await asyncio.gather(*(asyncio.to_thread(part.terminate) for part in workers)) == [0] * len(workers)
        took = time.monotonic() - began
        if live.house.is_scaled:
            for _ in workers:
                await asyncio.to_thread(live.house.start_worker)
        else:
            port = int(workers[0].url.rsplit(":", 1)[1])
            await asyncio.to_thread(live.house.start_web, port)
        for tab in tabs.values():
            await tab.until(lambda tab=tab: tab.is_settled and len(tab.screen.shown()) == 2, 40)
            await same(live, tab)
        states = {name: live.ask("turns", conversation=tab.conversation)[0] for name, tab in tabs.items()}
    finally:
        for tab in tabs.values():
            await tab.close()
    assert took < GRACE + 6
    assert {name: turn["state"] for name, turn in states.items()} == {
        "ends": "done",
        "long": "interrupted",
        "silent": "done",
    }
    assert states["silent"]["attempt"] == 2
    assert numbers(tabs["ends"].screen.answers[0]) == list(range(100))
    assert numbers(tabs["silent"].screen.answers[0]) == list(range(20))
    cut = tabs["long"].screen.answers[0]
    assert numbers(cut) == list(range(len(numbers(cut))))
    assert cut.startswith(max(tabs["long"].longest.values(), key=len)), "what was shown is kept"


async def test_after_a_reboot_every_turn_is_found_within_30_seconds(live: Live) -> None:
    """Everything dies at once; what comes back knows nothing of it but the database."""
    live.ask("change_agent", name="quick", fields={"model": "mock-ttft5-tps50-n2000"})
    shown, unseen = live.converse("quick"), live.converse("quick")
    async with live.tab(shown, ping_every=0.5) as tab:
        await tab.say("one")
        await tab.until(lambda: any(len(text) > 1500 for text in tab.screen.answers))
        await tab.say("two")
        await tab.until(lambda: tab.screen.queue)
        live.ask("change_agent", name="quick", fields={"model": "mock-ttft60000-tps0-n20"})
        async with live.tab(unseen) as silent:
            await silent.say("one")
            await silent.until(lambda: silent.of("turn_start"))
        live.ask("change_agent", name="quick", fields={"model": "mock-ttft5-tps0-n20"})
        ports = [int(part.url.rsplit(":", 1)[1]) for part in live.house.web_parts]
        workers = len(live.house.worker_parts) if live.house.is_scaled else 0
        for part in [part for part in live.house.parts if part.is_running]:
            part.kill()
        if live.house.is_scaled:  # another machine, which cannot look after the processes of this one
            shutil.rmtree(live.house.folder / "data" / "workers", ignore_errors=True)
        began = time.monotonic()
        for port in ports:
            await asyncio.to_thread(live.house.start_web, port)
        for _ in range(workers):
            await asyncio.to_thread(live.house.start_worker)
        back = time.monotonic()

        def over() -> bool:
            return not live.ask("states")["turns"].keys() & {"queued", "running"}

        while not await asyncio.to_thread(over):
            assert time.monotonic() - back < 30
            await asyncio.sleep(0.2)
        await tab.until(lambda: tab.is_settled and len(tab.screen.shown()) == 4, 30)
        await same(live, tab)
    states = [turn["state"] for turn in live.ask("turns", conversation=shown)]
    assert states == ["interrupted", "done"], f"{time.monotonic() - began:.0f} s"
    (again,) = live.ask("turns", conversation=unseen)
    assert (again["state"], again["attempt"]) == ("done", 2)


async def test_a_rolling_restart_of_every_process_under_load_loses_no_turn(live: Live) -> None:
    """People go on talking while each web and each worker process is replaced, one after the other."""
    if not live.house.is_scaled:
        pytest.skip("one process has nobody to hand over to")
    live.ask("change_agent", name="quick", fields={"model": "mock-ttft5-tps50-n100"})
    made = live.ask("conversations", owner="alice", agent="quick", count=6)
    tabs = [live.tab(conversation, web=number, ping_every=1.0) for number, conversation in enumerate(made)]
    for tab in tabs:
        await tab.open()
    over = asyncio.Event()

    def answered(tab: ChatClient) -> bool:
        shown = tab.screen.shown()
        return bool(shown) and shown[-1][1] == "assistant"

    asked = dict.fromkeys(made, 0)

    async def talk(tab: ChatClient) -> None:
        while not over.is_set():
            asked[tab.conversation] += 1
            said = await tab.say_for_sure(f"question {asked[tab.conversation]}")
            await tab.until(lambda said=said: tab.screen.knows(said) and answered(tab) and tab.is_settled, 60)

    talking = [asyncio.create_task(talk(tab)) for tab in tabs]
    try:
        for part in [*live.house.worker_parts, *live.house.web_parts]:
            await asyncio.sleep(1.0)
            assert await asyncio.to_thread(part.terminate) == 0
            if part.url:
                await asyncio.to_thread(live.house.start_web, int(part.url.rsplit(":", 1)[1]))
            else:
                await asyncio.to_thread(live.house.start_worker)
        over.set()
        await asyncio.gather(*talking)
        for tab in tabs:
            await same(live, tab)
            rows = live.ask("stored", conversation=tab.conversation)["messages"]
            answers = [numbers(row[2]) for row in rows if row[1] == "assistant"]
            assert answers == [list(range(100))] * asked[tab.conversation]
        states = {turn["state"] for conversation in made for turn in live.ask("turns", conversation=conversation)}
        assert states == {"done"}
        assert sum(asked.values()) >= 2 * len(tabs)
    finally:
        for task in talking:
            task.cancel()
        with contextlib.suppress(Exception):
            await asyncio.gather(*talking, return_exceptions=True)
        for tab in tabs:
            await tab.close()
