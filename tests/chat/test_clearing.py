"""Idle clearing: decided once, when a person comes back, and never taken back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents import mcp_tools, tools
from agents.messages import Message
from agents.models import McpServer
from chat import compacting, context, history
from chat.locking import locked
from chat.models import Conversation
from chat.models import Message as Row
from compaction.microcompact import CLEARED
from tests.builders import make_agent, make_conversation, tool_round
from tests.chat.scripting import originals, reload, request

pytestmark = pytest.mark.django_db


def idle(minutes: int, **settings: int) -> Conversation:
    rounds = [message for number in range(8) for message in tool_round("read", f"line {number} " * 60)]
    chat = ["read all of it", *rounds, Message("assistant", "done", thinking="let me see")]
    answered = timezone.now() - timedelta(minutes=minutes)
    return make_conversation(chat, agent=make_agent(**settings), last_answer_at=answered)


def clear(conversation: Conversation) -> int:
    with locked(conversation.pk) as desk:
        return compacting.clear_idle(desk)


def test_after_an_hour_old_results_read_as_cleared_and_the_newest_five_stay() -> None:
    conversation = idle(61)
    said = originals(conversation)

    assert clear(conversation) == 4  # three results, and the thinking

    results = [message for message in request(conversation) if message.role == "tool"]
    assert [message.content == CLEARED for message in results] == [True] * 3 + [False] * 5
    assert all(message.name == "read" for message in results)
    assert originals(conversation) == said
    now = reload(conversation.pk)
    assert now.live_tokens == context.recount_live_tokens(now) < conversation.live_tokens
    assert context.measure(now).used_tokens == history.load_transcript(now).tokens
    assert now.epoch == 1


def test_after_a_few_minutes_only_thinking_goes() -> None:
    conversation = idle(6)

    assert clear(conversation) == 1
    assert not any(message.content == CLEARED for message in request(conversation))
    assert Row.objects.get(thinking="let me see").cleared_at is not None


def test_a_conversation_that_goes_on_is_left_alone_and_costs_no_statement() -> None:
    conversation = idle(4)

    with locked(conversation.pk) as desk:
        from django.db import connection
        from django.test.utils import CaptureQueriesContext

        with CaptureQueriesContext(connection) as queries:
            assert compacting.clear_idle(desk) == 0
    assert len(queries) == 0


def test_it_is_decided_once() -> None:
    conversation = idle(61)
    clear(conversation)
    first = request(conversation)

    assert clear(conversation) == 0
    assert request(conversation) == first


def test_off_is_off() -> None:
    conversation = idle(600, clear_thinking_after_minutes=-1, clear_tool_results_after_minutes=-1)

    assert clear(conversation) == 0


@pytest.mark.parametrize("clearable", [True, False])
def test_results_of_a_server_are_cleared_where_the_administrator_allows_it(
    clearable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "_registry", dict(tools._registry))
    monkeypatch.setattr(mcp_tools, "_registered", set())
    monkeypatch.setattr(mcp_tools, "_stamp", None)
    look = {"name": "look", "public": "shop__look", "description": "Looks.", "parameters": {"type": "object"}}
    McpServer.objects.create(name="shop", url="http://127.0.0.1:9/mcp", clearable=clearable, tools=[look])
    rounds = [message for number in range(8) for message in tool_round("shop__look", f"price {number} " * 60)]
    answered = timezone.now() - timedelta(minutes=61)
    agent = make_agent(tools=["shop__look"])
    conversation = make_conversation(["look", *rounds, "done"], agent=agent, last_answer_at=answered)

    clear(conversation)

    results = [message.content == CLEARED for message in request(conversation) if message.role == "tool"]
    assert results == [clearable] * 3 + [False] * 5


def test_errors_and_pins_stay() -> None:
    conversation = idle(61)
    first, second = Row.objects.filter(role="tool").order_by("position")[:2]
    Row.objects.filter(pk=first.pk).update(is_error=True)
    Row.objects.filter(pk=second.pk).update(pinned=True)

    clear(conversation)

    assert not Row.objects.filter(pk__in=[first.pk, second.pk], cleared_at__isnull=False).exists()
