"""Rounds of tools in a real turn: side by side, each in its own time, stopped, and compacted in their middle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agents import tools
from agents.messages import JSON
from agents.tools import Tool
from chat import turns
from chat.loop import run_in_db
from chat.models import Message, TurnState
from compaction.models import Compaction, State
from compaction.validate import NO_RESULT
from tests.builders import add_messages, make_agent, make_channel
from tests.chat.conftest import Chat, until
from tests.chat.scripting import long_chat
from tests.upstream import Play

NOTHING: JSON = {"type": "object", "properties": {}}
APART = 0.5  # how long each of two tools takes (seconds)


class Tools:
    """Tools that tests steer. `meeting` is open once two calls are there at once."""

    def __init__(self) -> None:
        self.meeting = asyncio.Barrier(2)
        self.met: list[tuple[float, float]] = []  # from when to when each of them worked
        self.large = ""

    async def meet(self, arguments: JSON, context: Any) -> str:
        began = time.monotonic()
        async with asyncio.timeout(20):
            await self.meeting.wait()
        await asyncio.sleep(APART)
        self.met.append((began, time.monotonic()))
        return "met"

    async def sleep(self, arguments: JSON, context: Any) -> str:
        await asyncio.sleep(60)
        return "late"

    async def fine(self, arguments: JSON, context: Any) -> str:
        return "fine"

    async def read(self, arguments: JSON, context: Any) -> str:
        return self.large

    async def wait(self, arguments: JSON, context: Any) -> str:
        """Until a compaction of the conversation is there to be applied, or was."""
        rows = Compaction.objects.filter(conversation=context.conversation_id, state__in=(State.READY, State.APPLIED))
        await run_in_db(until, rows.exists, 25)
        return "waited"


@pytest.fixture
def made(chat: Chat) -> Iterator[Tools]:
    steered = Tools()
    names = {"meet": {}, "sleep": {"timeout_seconds": 0.3}, "forever": {}, "fine": {}, "read": {}, "wait": {}}
    for name, more in names.items():
        run = steered.sleep if name == "forever" else getattr(steered, name)
        tools.register(Tool(name, name, NOTHING, run, **more))
    chat.conversation.agent.tools = list(names)
    chat.conversation.agent.save()
    yield steered
    for name in names:
        tools.unregister(name)


def plays(chat: Chat, *rounds: tuple[str, ...]) -> None:
    """The model calls these tools, round by round, and then says that it is done."""
    calls = (Play(ttft=0, tps=0, exact=True, calls=tuple((name, "{}") for name in names)) for names in rounds)
    chat.provider.plays("mock", *calls, Play(ttft=0, tps=0, exact=True, text="Done."))


def results(chat: Chat) -> dict[str, Message]:
    return {row.tool_name: row for row in chat.messages() if row.role == "tool"}


def test_calls_of_a_round_run_side_by_side_and_say_how_long_they_took(worker: None, chat: Chat, made: Tools) -> None:
    plays(chat, ("meet", "meet"))

    chat.ended(chat.send(), seconds=40)

    first, second = (row for row in chat.messages() if row.role == "tool")
    assert (first.content, second.content) == ("met", "met")
    shown = [row.metadata["duration_ms"] / 1000 for row in (first, second)]
    assert min(shown) > APART * 0.9
    both = max(end for _, end in made.met) - min(began for began, _ in made.met)
    assert both < sum(shown)


def test_a_slow_tool_is_stopped_after_its_own_time_and_the_other_answers(worker: None, chat: Chat, made: Tools) -> None:
    plays(chat, ("sleep", "fine"))

    chat.ended(chat.send())

    slow, fine = results(chat)["sleep"], results(chat)["fine"]
    assert slow.is_error
    assert "“sleep” was stopped after 0.3 seconds" in slow.content
    assert 300 <= slow.metadata["duration_ms"] < 5_000
    assert fine.content == "fine"
    assert [row.content for row in chat.messages()][-1] == "Done."


def test_a_stop_keeps_the_results_that_are_there(worker: None, chat: Chat, made: Tools) -> None:
    plays(chat, ("forever", "fine"))
    turn = chat.send()
    until(lambda: "fine" in results(chat))

    turns.stop(chat.alice, chat.conversation.pk, turn.pk)

    chat.ended(turn, TurnState.STOPPED)
    assert set(results(chat)) == {"fine"}
    chat.ended(chat.send("and now?"))
    sent = [message["content"] for message in chat.provider.last["messages"] if message["role"] == "tool"]
    assert sent == [NO_RESULT, "fine"]


@pytest.mark.parametrize(("words", "waits"), [(4_000, False), (9_000, True)], ids=["beyond auto", "beyond block"])
def test_a_result_that_crosses_a_threshold_is_compacted_in_mid_loop_with_the_active_calls_kept(
    worker: None, chat: Chat, made: Tools, words: int, waits: bool
) -> None:
    writer = make_channel(base_url=chat.provider.base_url, models=["writer"], is_auxiliary=True)
    agent = make_agent(window=32_000, channel=chat.conversation.agent.channel, tools=chat.conversation.agent.tools)
    agent.auxiliary_channel = writer
    agent.save()
    chat.conversation.agent = agent
    chat.conversation.save()
    add_messages(chat.conversation, long_chat(38))
    made.large = "word " * words
    plays(chat, ("read",), ("wait", "fine"))

    turn = chat.ended(chat.send("Read it, then look again."), seconds=60)

    (row,) = Compaction.objects.all()
    assert (row.state, row.blocking) == (State.APPLIED, waits), row.error_text
    assert turn.rounds == 2
    asked = Message.objects.filter(turn=turn, role="assistant").order_by("position")[1]
    assert row.covered_to < asked.position
    first, second, last = (request.body["messages"] for request in chat.provider.answers)
    is_compacted = ["[Background, not a request." in str(sent[1]["content"]) for sent in (first, second, last)]
    assert is_compacted == [False, waits, True]
    assert [message["role"] for message in last[-3:]] == ["assistant", "tool", "tool"]
    assert [call["function"]["name"] for call in last[-3]["tool_calls"]] == ["wait", "fine"]
    assert {message["content"] for message in last[-2:]} == {"waited", "fine"}
    assert any(message["content"] == "Read it, then look again." for message in last)
    assert chat.messages()[-1].content == "Done."
