"""One answer, start to end, through a real worker and a provider on loopback."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.db.models.functions import Now

from agents import tools
from agents.tools import Tool
from chat import broadcast, queueing, turns
from chat.errors import Conflict, Forbidden
from chat.models import Message, MessageStatus, Role, Turn, TurnState
from tests.builders import make_user
from tests.chat.conftest import Chat, until
from tests.upstream import Play

SLOW = Play(ttft=0, tps=50, n=2000)


@pytest.fixture
def lookup() -> Any:
    def run(arguments: dict[str, Any]) -> str:
        return f"{arguments['city']}: sunny"

    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools.register(Tool("weather", "The weather in a city.", schema, lambda arguments, context: run(arguments)))
    yield
    tools.unregister("weather")


def begun(chat: Chat, written: int = 10) -> None:
    until(lambda: chat.provider.requests and chat.provider.requests[-1].written > written)


def test_a_message_is_answered(worker: None, chat: Chat) -> None:
    chat.provider.plays("mock", Play(ttft=0, tps=0, text="Good morning, Alice."))

    turn = chat.ended(chat.send("Good morning"))

    question, answer = chat.messages()
    assert (question.content, question.position, question.turn_id) == ("Good morning", 1, turn.pk)
    assert (answer.content, answer.position, answer.status) == ("Good morning, Alice.", 2, MessageStatus.COMPLETE)
    assert answer.usage
    assert answer.token_count > 0
    assert turn.attempt == 1
    chat.conversation.refresh_from_db()
    assert chat.conversation.live_tokens == question.token_count + answer.token_count
    assert chat.conversation.base["position"] == 2
    assert chat.conversation.title == "Good morning"


def test_stop_keeps_what_was_seen_and_closes_the_connection(worker: None, chat: Chat) -> None:
    chat.provider.plays("mock", SLOW)
    turn = chat.send()
    begun(chat)

    turns.stop(chat.alice, chat.conversation.pk, turn.pk)
    asked = time.monotonic()
    until(lambda: not chat.provider.open)

    assert time.monotonic() - asked < 1.5  # 0.3 s on a machine of its own, not on a busy one
    answer = chat.answer(chat.ended(turn, TurnState.STOPPED))
    assert answer.content.startswith(" k0@")
    assert answer.status == MessageStatus.INTERRUPTED
    assert answer.metadata == {"stopped": True}  # by a person, not by a fault
    assert answer.token_count > 0


def test_a_stop_that_the_layer_loses_is_seen_with_the_next_checkpoint(
    worker: None, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "publish_to_worker", lambda *_: None)
    chat.provider.plays("mock", SLOW)
    turn = chat.send()
    begun(chat)

    turns.stop(chat.alice, chat.conversation.pk, turn.pk)

    chat.ended(turn, TurnState.STOPPED, seconds=4)


def test_what_came_before_an_error_is_kept(worker: None, chat: Chat) -> None:
    chat.provider.plays("mock", Play(ttft=0, tps=200, n=50, fail=20))

    turn = chat.ended(chat.send(), TurnState.FAILED)

    answer = chat.answer(turn)
    assert answer.content.count(" k") == 20
    assert answer.status == MessageStatus.FAILED
    assert turn.error_text


@pytest.mark.parametrize(
    ("status", "code", "retryable"), [(401, "provider_auth", False), (404, "model_not_found", False)]
)
def test_a_refusal_ends_the_turn_with_a_sentence(
    worker: None, chat: Chat, status: int, code: str, retryable: bool
) -> None:
    chat.provider.plays("mock", Play(status=status))

    turn = chat.ended(chat.send(), TurnState.FAILED)

    assert (turn.error_code, turn.retryable) == (code, retryable)
    assert turn.error_text.endswith((".", "?", ")"))
    assert chat.answer(turn).retired_at is not None  # it said nothing: put away
    assert [row.role for row in chat.messages() if row.retired_at is None] == ["user"]


def test_an_empty_answer_is_no_answer(worker: None, chat: Chat) -> None:
    chat.provider.plays("mock", Play(ttft=0, tps=0, text=""))

    turn = chat.ended(chat.send(), TurnState.FAILED)

    assert (turn.error_code, turn.retryable) == ("empty_answer", True)


def test_tools_run_side_by_side_and_their_results_are_messages(worker: None, chat: Chat, lookup: None) -> None:
    chat.conversation.agent.tools = ["weather"]
    chat.conversation.agent.save()
    calls = (("weather", '{"city": "Paris"}'), ("weather", '{"city": 7}'), ("nothing", "{}"))
    chat.provider.plays("mock", Play(ttft=0, tps=0, calls=calls), Play(ttft=0, tps=0, text="Sunny in Paris."))

    turn = chat.ended(chat.send("Weather?"))

    _question, asked, *results, answer = chat.messages()
    assert [call["function"]["name"] for call in asked.tool_calls] == ["weather", "weather", "nothing"]
    by_call = {row.tool_call_id: row for row in results}
    paris, wrong, unknown = (by_call[call["id"]] for call in asked.tool_calls)
    assert paris.content == "Paris: sunny"
    assert not paris.is_error
    assert wrong.is_error
    assert unknown.is_error
    assert answer.content == "Sunny in Paris."
    assert turn.rounds == 1
    chat.conversation.refresh_from_db()
    assert chat.conversation.live_tokens == sum(row.token_count for row in chat.messages())
    sent = chat.provider.last["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool", "tool"]


def test_rounds_end_somewhere(worker: None, chat: Chat, lookup: None, settings: Any) -> None:
    settings.TOOL_ROUNDS = 3
    chat.conversation.agent.tools = ["weather"]
    chat.conversation.agent.save()
    chat.provider.plays("mock", Play(ttft=0, tps=0, calls=(("weather", '{"city": "Paris"}'),)))

    turn = chat.ended(chat.send(), TurnState.FAILED)

    assert (turn.error_code, turn.rounds) == ("too_many_rounds", 3)


def test_a_stop_reaches_a_tool(worker: None, chat: Chat) -> None:
    running, ended = threading.Event(), threading.Event()

    async def wait(arguments: dict[str, Any], context: Any) -> str:
        import asyncio

        running.set()
        try:
            await asyncio.sleep(20)
        finally:
            ended.set()
        return "late"

    tools.register(Tool("wait", "Waits.", {"type": "object"}, wait))
    try:
        chat.conversation.agent.tools = ["wait"]
        chat.conversation.agent.save()
        chat.provider.plays("mock", Play(ttft=0, tps=0, calls=(("wait", "{}"),)), Play(ttft=0, tps=0, text="Done."))
        turn = chat.send()
        assert running.wait(10)

        turns.stop(chat.alice, chat.conversation.pk, turn.pk)

        chat.ended(turn, TurnState.STOPPED)
        assert ended.wait(1)
        chat.ended(chat.send("and now?"))  # the call without a result does not spoil the conversation
    finally:
        tools.unregister("wait")


def test_messages_sent_meanwhile_wait_and_are_answered_in_order(worker: None, chat: Chat) -> None:
    bob = make_user("bob")
    chat.conversation.participants.create(user=bob, role=Role.MEMBER)
    chat.provider.plays("mock", Play(ttft=300, tps=0, n=5))
    sent = [chat.send("one")]
    begun(chat, -1)
    sent.append(chat.send("two", user=bob))
    sent.append(chat.send("three"))

    assert [Turn.objects.get(pk=turn.pk).state for turn in sent[1:]] == ["queued", "queued"]
    assert Message.objects.get(content="two").position is None
    for turn in sent:
        chat.ended(turn)

    said = [row.content if row.role == "user" else "answer" for row in chat.messages()]
    assert said == ["one", "answer", "two", "answer", "three", "answer"]
    assert [row.position for row in chat.messages()] == [1, 2, 3, 4, 5, 6]


def test_a_waiting_message_can_be_rewritten_and_taken_back(worker: None, chat: Chat) -> None:
    chat.provider.plays("mock", Play(ttft=400, tps=0, n=5))
    first = chat.send("one")
    begun(chat, -1)
    second, third = chat.send("two"), chat.send("three")

    queueing.edit_queued(chat.alice, chat.conversation.pk, second.pk, "two, but better")
    queueing.cancel_queued(chat.alice, chat.conversation.pk, third.pk)

    chat.ended(first)
    chat.ended(second)
    assert [row.content for row in chat.messages() if row.role == "user"] == ["one", "two, but better"]
    with pytest.raises(Conflict):
        queueing.edit_queued(chat.alice, chat.conversation.pk, second.pk, "too late")


def test_nobody_rewrites_what_somebody_else_queued(chat: Chat) -> None:
    bob = make_user("bob")
    chat.conversation.participants.create(user=bob, role=Role.MEMBER)
    mine = chat.send("mine")

    with pytest.raises(Forbidden):
        queueing.edit_queued(bob, chat.conversation.pk, mine.pk, "his")


def test_a_worker_that_lost_its_turn_writes_nothing_more(worker: None, chat: Chat) -> None:
    chat.provider.plays("mock", SLOW)
    turn = chat.send()
    begun(chat)

    Turn.objects.filter(pk=turn.pk).update(state=TurnState.INTERRUPTED, finished_at=Now())
    until(lambda: not chat.provider.open, seconds=4)
    stored = chat.answer(turn).content
    time.sleep(0.3)

    assert chat.answer(turn).content == stored
    turn.refresh_from_db()
    assert turn.state == TurnState.INTERRUPTED
