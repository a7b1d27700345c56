"""A request that the provider finds too long is compacted and sent once more, also between rounds of tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agents import tools
from agents.tools import Tool
from chat.models import TurnState
from compaction.models import Compaction, State
from tests.builders import add_messages
from tests.chat.conftest import Chat
from tests.chat.scripting import long_chat
from tests.upstream import Play

pytestmark = pytest.mark.django_db(transaction=True)

TOO_LONG = Play(ctx=0)
SAYS = Play(ttft=0, tps=0, text="It is sunny.")
ASKS = Play(ttft=0, tps=0, calls=(("weather", '{"city": "Paris"}'),))


@pytest.fixture
def long(worker: None, chat: Chat) -> Iterator[Chat]:
    """A chat that is long enough for a compaction and far below every threshold; its agent has a tool."""
    schema: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools.register(Tool("weather", "The weather in a city.", schema, lambda arguments, context: "sunny"))
    agent = chat.conversation.agent
    agent.tools, agent.context_window, agent.compaction_strategy = ["weather"], 64_000, "extractive"
    agent.save()
    add_messages(chat.conversation, long_chat(20))
    yield chat
    tools.unregister("weather")


def test_a_first_request_that_is_too_long_is_compacted_and_sent_again(long: Chat) -> None:
    long.provider.plays("mock", TOO_LONG, SAYS)

    turn = long.ended(long.send("Weather?"), seconds=30)

    assert long.answer(turn).content == "It is sunny."
    assert list(Compaction.objects.values_list("reason", "state")) == [("overflow", State.APPLIED)]
    first, second = long.provider.bodies
    assert len(second["messages"]) < len(first["messages"])
    assert second["messages"][-1] == first["messages"][-1]


def test_a_request_that_becomes_too_long_between_rounds_of_tools_is_compacted_and_sent_again(long: Chat) -> None:
    long.provider.plays("mock", ASKS, TOO_LONG, SAYS)

    turn = long.ended(long.send("Weather?"), seconds=30)

    assert long.answer(turn).content == "It is sunny."
    assert turn.rounds == 1
    assert list(Compaction.objects.values_list("reason", "state")) == [("overflow", State.APPLIED)]
    _, second, third = long.provider.bodies
    assert len(third["messages"]) < len(second["messages"])
    assert [message["role"] for message in third["messages"][-3:]] == ["user", "assistant", "tool"]
    assert [row.position for row in long.messages() if row.turn_id == turn.pk] == [41, 42, 43, 44]


@pytest.mark.parametrize("before", [(), (ASKS,)])
def test_what_stays_too_long_ends_in_a_clear_error_after_one_more_try(long: Chat, before: tuple[Play, ...]) -> None:
    long.provider.plays("mock", *before, TOO_LONG)

    turn = long.ended(long.send("Weather?"), TurnState.FAILED, 30)

    assert turn.error_code == "context_exceeded"
    assert len(long.provider.requests) == len(before) + 2
    assert Compaction.objects.count() == 1
    assert turn.user_message.content == "Weather?"
