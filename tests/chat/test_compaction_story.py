"""The whole way with the real worker, the real client and the demo model: what issue and README promise."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from agents.demo import DemoServer
from agents.models import Agent
from chat import compacting, context, history, loop, sending
from chat.importing import import_lines
from chat.models import Conversation, Turn
from chat.models import Message as Row
from compaction.models import Compaction, State
from compaction.validate import fault
from tests.builders import make_agent, make_channel, make_user
from tests.chat.conftest import until
from tests.chat.scripting import long_chat, originals, reload, request
from tests.compaction.builders import SHARED

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
real = pytest.mark.skipif(not (SHARED / "transcripts").is_dir(), reason="the shared transcripts are not here")


@pytest.fixture
def demo(worker: None) -> Iterator[str]:
    server = DemoServer("secret", tokens_per_second=5_000)
    address = loop.process_loop().submit(server.start()).result(10)
    yield address
    loop.process_loop().submit(server.stop()).result(10)


def demo_agent(address: str, model: str, window: int, **fields: Any) -> Agent:
    channel = make_channel(supplier="demo", base_url=address, api_key="secret", models=[model])
    return make_agent(channel=channel, model=model, window=window, **fields)


def bring_in(alice: User, agent: Agent, source: str, number: int = 0) -> Conversation:
    with (SHARED / "transcripts" / f"{source}.jsonl").open("rb") as file:
        line = [next(file) for _ in range(number + 1)][-1]
    made = next(import_lines(io.BytesIO(line), alice, agent)).conversation
    assert made is not None
    return made


def say(alice: User, conversation: Conversation, text: str) -> Turn:
    turn = sending.send_message(alice, conversation.pk, text).turn
    assert turn is not None
    return turn


def answered(turn: Turn) -> Turn:
    until(lambda: Turn.objects.filter(pk=turn.pk).exclude(state__in=("queued", "running")).exists(), 60)
    turn.refresh_from_db()
    assert turn.state == "done", (turn.error_code, turn.error_text)
    return turn


def settled(conversation: Conversation) -> Compaction:
    over = Compaction.objects.filter(conversation=conversation).exclude(state__in=("queued", "running", "ready"))
    until(over.exists, 60)
    row = over.latest("id")
    assert row.state == State.APPLIED, (row.error_code, row.error_text, row.quality)
    return row


def test_a_chat_that_crosses_auto_is_compacted_in_the_background_while_it_goes_on(demo: str) -> None:
    alice = make_user("alice")
    agent = demo_agent(demo, "demo-16k", 16_000, compaction_threshold=60)
    lines = [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(long_chat(20))]
    line = json.dumps({"messages": lines}).encode()
    conversation = next(import_lines(io.BytesIO(line), alice, agent)).conversation
    assert conversation is not None
    said = originals(conversation)

    turn = answered(say(alice, conversation, "What did we look at?"))
    row = settled(conversation)

    assert (row.reason, row.blocking, row.model) == ("auto", False, "demo-16k")
    assert originals(conversation)[: len(said)] == said
    assert turn.waits_for_id is None
    assert context.measure(reload(conversation.pk)).used_tokens < row.tokens_before
    answered(say(alice, conversation, "And then?"))
    assert not context.measure(reload(conversation.pk)).estimated


@real
def test_a_real_coding_session_beyond_block_waits_is_compacted_and_answered_and_undone(demo: str) -> None:
    alice = make_user("alice")
    conversation = bring_in(alice, demo_agent(demo, "demo-128k", 128_000), "pi_sessions")
    said, before = originals(conversation), request(conversation)
    usage = context.measure(conversation)
    assert usage.used_tokens >= usage.thresholds.block

    turn = say(alice, conversation, "Summarise what is still open.")
    answered(turn)
    row = settled(conversation)

    assert row.reason == "hard"
    assert row.blocking
    assert originals(conversation)[:974] == said
    sent = request(conversation)
    assert fault(sent) == ""
    assert any(message.content == "Summarise what is still open." for message in sent)
    with pytest.raises(Exception, match="tokens"):
        compacting.request_undo(alice, row.pk)
    compacting.request_undo(alice, row.pk, confirm=True)
    assert request(conversation)[: len(before)] == before


@real
def test_real_tool_dialogues_are_compacted_at_once_and_go_back_byte_for_byte(demo: str) -> None:
    alice = make_user("alice")
    agent = demo_agent(demo, "demo-16k", 16_000)
    for number in range(0, 40, 8):
        conversation = bring_in(alice, agent, "tau_airline", number)
        before = request(conversation)
        compacting.request_compaction(alice, conversation.pk)
        ended = Compaction.objects.filter(conversation=conversation).exclude(state__in=("queued", "running", "ready"))
        until(ended.exists, 60)
        row = ended.latest("id")
        assert row.state in (State.APPLIED, State.SKIPPED), (row.error_code, row.error_text, row.quality)
        assert fault(request(conversation)) == ""
        assert before[1] in request(conversation)  # the policy, a system message of the conversation
        if row.state == State.APPLIED:
            compacting.request_undo(alice, row.pk, confirm=True)
            assert request(conversation) == before
            assert reload(conversation.pk).live_tokens == context.recount_live_tokens(conversation)


def test_an_empty_conversation_has_a_request_and_nothing_to_compact(demo: str) -> None:
    alice = make_user("alice")
    conversation = Conversation.objects.create(owner=alice, agent=demo_agent(demo, "demo-16k", 16_000))

    assert [message.role for message in history.request_for(conversation)[0]] == ["system"]
    assert not Row.objects.filter(conversation=conversation).exists()


def test_a_window_that_is_set_too_large_is_found_out_and_the_message_is_answered(demo: str) -> None:
    alice = make_user("alice")
    agent = demo_agent(demo, "demo-16k", 32_000)
    lines = [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(long_chat(46))]
    line = json.dumps({"messages": lines}).encode()
    conversation = next(import_lines(io.BytesIO(line), alice, agent)).conversation
    assert conversation is not None

    answered(say(alice, conversation, "What did we look at?"))

    assert Compaction.objects.filter(conversation=conversation, state=State.APPLIED).exists()
