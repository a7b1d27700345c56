"""Turns and streams with the real processes: stop, order, faults, two tabs, and a rolling restart."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from tests.client import ChatClient
from tests.live import Live
from tests.upstream import Play

pytestmark = pytest.mark.slow


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r" k(\d+)@", text)]


async def test_stop_from_another_process_closes_the_providers_connection(live: Live) -> None:
    live.ask("change_agent", name="quick", fields={"model": "mock-ttft5-tps50-n1000"})
    conversation = live.converse("quick")
    async with live.tab(conversation) as tab, live.tab(conversation, web=1) as other:
        await tab.say("Tell me everything")
        await other.until(lambda: other.screen.turn and any(len(text) > 200 for text in other.screen.answers))
        stopped_at = time.monotonic()
        await other.send("stop", turn=other.screen.turn["id"])
        await asyncio.to_thread(live.provider.wait_until, lambda provider: provider.requests[-1].outcome == "aborted")
        took = (live.provider.requests[-1].ended or 0) - stopped_at
        await tab.until(lambda: tab.of("turn_done") and tab.is_settled)
        await other.until(lambda: other.of("turn_done") and other.is_settled)
        seen = max(tab.longest.values(), key=len)
    # 0.3 s on a machine of its own; a busy one that runs the tests side by side gets more.
    assert took < 1.5
    assert tab.of("turn_done")[-1]["data"]["state"] == "stopped"
    stored = live.ask("stored", conversation=conversation)["messages"][-1][2]
    assert stored.startswith(seen)
    assert tab.screen.answers == other.screen.answers == [stored]


async def test_messages_sent_while_an_answer_streams_wait_in_order(live: Live) -> None:
    live.ask("change_agent", name="quick", fields={"model": "mock-ttft5-tps200-n100"})
    conversation = live.converse("quick", people={"bob": "member"})
    async with live.tab(conversation) as alice, live.tab(conversation, "bob", web=1) as bob:
        await alice.say("one")
        await alice.until(lambda: alice.of("turn_start"))
        for author, text in ((bob, "two"), (alice, "three"), (bob, "four")):
            await author.say(text)
            await alice.until(lambda text=text: any(one["message"]["content"] == text for one in alice.screen.queue))
        assert [one["reason"] for one in alice.screen.queue] == ["turn"] * 3
        for tab in (alice, bob):
            await tab.until(lambda tab=tab: len(tab.of("turn_done")) == 4 and tab.is_settled, 30)
        questions = [text for _, role, text in bob.screen.shown() if role == "user"]
        assert questions == ["one", "two", "three", "four"]
        assert alice.screen.shown() == bob.screen.shown()


@pytest.mark.parametrize(
    ("play", "code", "retryable"),
    [
        (Play(status=401), "provider_auth", False),
        (Play(status=404), "model_not_found", False),
        (Play(status=429, retry_after="0"), "rate_limited", True),
        (Play(status=503, retry_after="0"), "provider_unavailable", True),
        (Play(ttft=0, tps=200, n=50, cut=20), "stream_cut", True),
        (Play(ttft=0, tps=200, n=50, fail=20), "", True),
    ],
)
async def test_a_providers_fault_ends_the_turn_with_words(live: Live, play: Play, code: str, retryable: bool) -> None:
    live.provider.plays("faulty", play)
    live.ask("change_agent", name="quick", fields={"model": "faulty"})
    conversation = live.converse("quick")
    async with live.tab(conversation) as tab, live.tab(conversation, web=1) as other:
        await tab.say("Hello")
        for one in (tab, other):
            await one.until(lambda one=one: one.of("turn_error") and one.is_settled, 40)
        error = tab.of("turn_error")[-1]["data"]
        assert not code or error["code"] == code
        assert error["retryable"] is retryable
        assert len(error["message"]) > 20
        received = 20 if play.cut > 0 or play.fail > 0 else 0
        stored = live.ask("stored", conversation=conversation)["messages"]
        assert numbers("".join(row[2] for row in stored if row[1] == "assistant")) == list(range(received))
        assert [row[:3] for row in stored] == [list(row) for row in tab.screen.shown()]
        assert tab.screen.shown() == other.screen.shown()


async def test_a_busy_provider_is_asked_again(live: Live) -> None:
    model = "mock-ttft0-tps0-n20-err429x1"
    live.ask("change_agent", name="quick", fields={"model": model})
    async with live.tab(live.converse("quick")) as tab:
        assert numbers(await tab.ask("Hello again", 30)) == list(range(20))


async def test_a_resend_is_the_same_message(live: Live) -> None:
    live.ask("change_agent", name="quick", fields={"model": "mock-ttft0-tps0-n5"})
    conversation = live.converse("quick")
    async with live.tab(conversation) as tab:
        for _ in range(3):
            await tab.send("chat", content="once", attachments=[], client_id="the-same")
        await tab.until(lambda: tab.of("turn_done") and tab.is_settled)
    assert [row[1] for row in live.ask("stored", conversation=conversation)["messages"]] == ["user", "assistant"]


async def test_people_see_who_is_here(live: Live) -> None:
    conversation = live.converse("quick", people={"bob": "member"})

    def online(tab: ChatClient) -> dict[str, bool]:
        return {person["name"]: person["online"] for person in tab.screen.people}

    async with live.tab(conversation) as alice:
        async with live.tab(conversation, "bob", web=1) as bob:
            for tab in (alice, bob):
                await tab.until(lambda tab=tab: online(tab) == {"alice": True, "bob": True})
            await bob.send("typing", typing=True)
            await alice.until(lambda: any(one["typing"] for one in alice.screen.people if one["name"] == "bob"))
        await alice.until(lambda: online(alice) == {"alice": True, "bob": False})
