"""The main job with the real server, worker and database: sign in, chat, fill the window, compact, read on, undo."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench.upstream import fault_of
from tests.client import ChatClient
from tests.end_to_end.conftest import imported, transcript
from tests.live import Live

pytestmark = pytest.mark.slow

FILLER = "Please keep in mind what we agreed on before, the dates, the names and the numbers. " * 30  # 540 tokens


async def sign_in(session: aiohttp.ClientSession, url: str, name: str) -> None:
    """As a person does: open the page, fill in the form, arrive at the chat."""
    async with session.get(f"{url}/") as page:
        assert "login" in str(page.url)
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', await page.text())
    assert token
    form = {"csrfmiddlewaretoken": token[1], "login": name, "password": "secret", "next": "/"}
    async with session.post(f"{url}/accounts/login/", data=form, headers={"Referer": f"{url}/accounts/login/"}) as page:
        assert page.status == 200
        assert str(page.url) == f"{url}/"


async def test_sign_in_and_three_messages_stream(live: Live) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        await sign_in(session, live.url, "alice")
        cookies = {cookie.key: cookie.value for cookie in jar}
        headers = {"X-CSRFToken": cookies["csrftoken"], "Referer": live.url + "/"}
        async with session.post(
            f"{live.url}/api/v1/conversations", json={"agent": live.agents["quick"]}, headers=headers
        ) as made:
            assert made.status == 201, await made.text()
            conversation = (await made.json())["id"]
        async with session.get(f"{live.url}/c/{conversation}") as page:
            assert page.status == 200
    line = "; ".join(f"{name}={value}" for name, value in cookies.items())
    async with ChatClient(live.url, "", conversation, cookies=line) as tab:
        for number in range(3):
            answer = await tab.ask(f"Message {number}")
            assert re.findall(r" k(\d+)@", answer) == [str(i) for i in range(60)]
        assert len(tab.of("delta")) >= 6  # each came in pieces
        assert [role for _, role, _ in tab.screen.shown()] == ["user", "assistant"] * 3
        assert tab.screen.context["used_tokens"] > 0
        assert sum(tab.screen.context["parts"].values()) == tab.screen.context["used_tokens"]


async def test_an_outsider_sees_nothing(live: Live) -> None:
    conversation = live.converse("quick", [{"role": "user", "content": "between us"}])
    tab = live.tab(conversation, "charlie")
    await tab.open()
    assert tab.close_code in (4403, 4404)
    await tab.close()
    with pytest.raises(AssertionError, match="404"):
        await live.api("charlie").get(f"/conversations/{conversation}/messages")


async def test_a_16k_window_is_compacted_in_the_background(live: Live, tmp_path: Path) -> None:
    line, messages = transcript("tau_airline", 1)
    conversation = imported(live, tmp_path, line, "16k")
    api = live.api()
    async with live.tab(conversation) as tab, live.tab(conversation, web=1) as other:
        assert tab.screen.context["used_tokens"] < tab.screen.context["thresholds"]["auto"]
        asked = 0
        while not tab.of("compaction_start"):
            assert asked < 12, f"never compacted, {tab.screen.context}"
            await tab.ask(f"{asked}: {FILLER}")
            asked += 1
        start = tab.of("compaction_start")[0]["data"]
        assert start["blocking"] is False
        assert start["reason"] in ("auto", "hard")
        # The chat goes on while it runs: an answer comes before the compaction is done.
        await tab.until(lambda: len(tab.of("turn_done")) == asked)
        if not tab.of("compaction_done"):
            began = time.monotonic()
            await tab.ask("And what about the luggage?")
            came_first = not tab.of("compaction_done")
            assert came_first or time.monotonic() - began < 1.4, "the send waited for the compaction"
        await tab.until(lambda: any(card["state"] == "applied" for card in tab.screen.compactions.values()), 30)
        await tab.until(lambda: tab.is_settled)
        await other.until(lambda: other.is_settled and other.screen.seq == tab.screen.seq)
        assert tab.screen.shown() == other.screen.shown()
        assert tab.screen.context["used_tokens"] < tab.screen.context["thresholds"]["auto"]
    runs = (await api.get(f"/conversations/{conversation}/compactions"))["items"]
    assert [run["state"] for run in runs if run["state"] != "skipped"] == ["applied"]
    await _full_history_is_unchanged(live, conversation, messages)
    await _next_request_is_accepted(live, conversation, "16k")


async def test_beyond_block_the_wait_is_shown_then_the_answer_comes(live: Live, tmp_path: Path) -> None:
    line, messages = transcript("pi_sessions")
    assert len(messages) == 974
    conversation = imported(live, tmp_path, line, "128k")
    api = live.api()
    before = live.ask("request", conversation=conversation)
    context = await api.get(f"/conversations/{conversation}/context")
    assert context["used_tokens"] > context["thresholds"]["block"]
    async with live.tab(conversation) as tab:
        client_id = await tab.say("Where were we?")
        await tab.until(lambda: tab.of("compaction_start"), 20)
        waiting = [one for event in tab.of("queued", "snapshot") for one in event["data"]["queue"]]
        assert any(one["reason"] in ("block", "compaction") and one["waits_for"] for one in waiting), waiting
        await tab.until(lambda: tab.of("turn_done"), 60)
        await tab.until(lambda: tab.is_settled)
        assert tab.of("compaction_progress")
        done = next(event["data"] for event in tab.of("compaction_done") if event["data"]["summary_message_id"])
        assert done["success"]
        assert tab.screen.context["used_tokens"] < tab.screen.context["thresholds"]["auto"]
        assert tab.screen.knows(client_id)
        shown = tab.screen.shown()
        assert shown[-1][1] == "assistant"
    await _full_history_is_unchanged(live, conversation, messages)
    compacted = await api.all_messages(conversation, "compacted")
    assert compacted[0]["is_summary"] or compacted[1]["is_summary"]
    assert len(compacted) < 974
    await _next_request_is_accepted(live, conversation, "128k")

    run = done["id"]
    undo = f"/conversations/{conversation}/compactions/{run}/undo"
    with pytest.raises(AssertionError, match="would_not_fit"):
        await api.post(undo)
    await api.post(undo, {"confirm": True})
    after = live.ask("request", conversation=conversation)
    assert after["messages"][: len(before["messages"])] == before["messages"]
    assert [message["role"] for message in after["messages"][len(before["messages"]) :]] == [
        "user",
        "assistant",
    ] * 2
    assert after["tools"] == before["tools"]
    await _full_history_is_unchanged(live, conversation, messages)


async def test_undo_brings_back_the_same_request(live: Live, tmp_path: Path) -> None:
    line, _ = transcript("tau_airline", 1)
    conversation = imported(live, tmp_path, line, "16k")
    before = live.ask("request", conversation=conversation)
    async with live.tab(conversation) as tab:
        await tab.send("compact", instructions="keep the reservation numbers")
        await tab.until(lambda: any(card["state"] == "applied" for card in tab.screen.compactions.values()), 20)
        await tab.until(lambda: tab.is_settled)
        run = next(iter(tab.screen.compactions))
        assert live.ask("request", conversation=conversation) != before
        await live.api().post(f"/conversations/{conversation}/compactions/{run}/undo")
        await tab.until(lambda: tab.of("compaction_undone") and tab.is_settled)
    assert live.ask("request", conversation=conversation) == before


async def _full_history_is_unchanged(live: Live, conversation: str, messages: list[dict[str, Any]]) -> None:
    """Every original, word for word and in order, whatever was compacted."""
    full = await live.api().all_messages(conversation, "full")
    originals = [row for row in full if not row["is_summary"]][: len(messages)]
    assert [row["role"] for row in originals] == [message["role"] for message in messages]
    assert [row["content"] for row in originals] == [_text(message) for message in messages]
    assert [len(row["tool_calls"] or []) for row in originals] == [
        len(message.get("tool_calls") or []) for message in messages
    ]


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content if part.get("type") == "text")


async def _next_request_is_accepted(live: Live, conversation: str, agent: str) -> None:
    """What the model sees is a request that a strict provider takes, and what the provider is then really sent."""
    view = await live.api().get(f"/conversations/{conversation}/messages?view=model")
    sent = [message for message in view["messages"] if message["role"] != "system"]
    assert fault_of([*sent, {"role": "user", "content": "One more thing"}]) == ""
    async with live.tab(conversation) as tab:
        await tab.ask("One more thing")
    asked = live.provider.answers[-1].body["messages"]
    assert asked[-1]["content"] == "One more thing"
    assert [message for message in asked if message["role"] != "system"][: len(sent)] == sent
