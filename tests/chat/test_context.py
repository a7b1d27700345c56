"""The one measurement: what is counted, when the provider's report counts instead, and what it costs."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.messages import Message
from agents.models import Calibration
from agents.usage import Usage
from chat import advice, context, history
from chat.locking import locked
from chat.models import Conversation
from chat.models import Message as Row
from tests.builders import add_messages, make_agent, make_conversation, tool_round

pytestmark = pytest.mark.django_db


def note(conversation: Conversation, *, prompt: int, completion: int = 0, reasoning: int = 0) -> Conversation:
    agent = conversation.agent
    with locked(conversation.pk) as desk:
        usage = Usage(prompt_tokens=prompt, completion_tokens=completion, reasoning_tokens=reasoning)
        context.note_usage(desk, usage, desk.conversation.last_position, agent.channel_id, agent.model_name)
    for action in desk.afterwards:
        action()
    conversation.refresh_from_db()
    return conversation


def test_without_a_report_everything_is_counted() -> None:
    conversation = make_conversation(["hello there", "hi", *tool_round("read", "text " * 100)])

    usage = context.measure(conversation)

    assert usage.used_tokens == history.load_transcript(conversation).tokens
    assert usage.estimated
    assert sum(usage.parts.values()) == usage.used_tokens


def test_a_report_is_the_base_and_only_what_came_after_is_counted() -> None:
    conversation = note(make_conversation(["hello", "hi"]), prompt=1000, completion=60, reasoning=10)
    before = context.measure(conversation)
    add_messages(conversation, [Message(role="user", content="more words")])

    after = context.measure(conversation)

    assert before.used_tokens == 1050
    assert not before.estimated
    assert after.used_tokens == 1050 + round(Row.objects.latest("position").token_count * after.factor)
    assert sum(after.parts.values()) == after.used_tokens


@pytest.mark.parametrize("change", ["epoch", "channel", "model"])
def test_a_report_of_another_epoch_channel_or_model_is_no_base(change: str) -> None:
    conversation = note(make_conversation(["hello", "hi"]), prompt=1000)
    other = make_agent()
    match change:
        case "epoch":
            conversation.epoch += 1
        case "channel":
            conversation.agent.channel = other.channel
        case "model":
            conversation.agent.model = "another"

    assert context.measure(conversation).estimated


def test_the_pending_message_is_part_of_the_estimate() -> None:
    conversation = make_conversation(["hello", "hi"])

    plain, with_draft = context.measure(conversation), context.measure(conversation, pending_tokens=500)

    assert with_draft.used_tokens == plain.used_tokens + 500


def test_a_changed_system_prompt_is_measured_although_a_report_is_the_base() -> None:
    conversation = note(make_conversation(["hello", "hi"]), prompt=1000)
    conversation.agent.system_prompt += " Always answer in rhymes, at least four lines long."

    assert context.measure(conversation).used_tokens > 1000


def test_the_factor_follows_the_reports_and_stays_within_its_bounds() -> None:
    conversation = make_conversation(["hello " * 300, "hi " * 300])
    raw = context.measure(conversation).raw_tokens

    note(conversation, prompt=raw * 3 // 2)
    assert Calibration.objects.get().factor == pytest.approx(1.5, abs=0.01)
    note(conversation, prompt=raw * 50)
    assert Calibration.objects.get().factor <= 2.0


def test_before_the_first_report_a_known_model_is_counted_by_its_own_tokenizer() -> None:
    conversation = make_conversation(["hello " * 300, "hi " * 300])
    conversation.agent.model = "claude-sonnet-4-5"
    conversation.agent.save()

    usage = context.measure(conversation)
    assert usage.used_tokens == round(usage.raw_tokens * 1.335)

    note(conversation, prompt=usage.raw_tokens)
    assert context.measure(conversation).factor == pytest.approx(1.0, abs=0.01)


def test_a_new_report_moves_an_old_average_by_a_quarter() -> None:
    assert context.moved(1.0, 10, 1.4) == pytest.approx(1.1)
    assert context.moved(1.0, 0, 1.4) == pytest.approx(1.4)


def test_a_settled_factor_is_not_written_for_nothing() -> None:
    conversation = make_conversation(["hello " * 300, "hi " * 300])
    raw = context.measure(conversation).raw_tokens
    for _ in range(15):
        note(conversation, prompt=raw)

    assert Calibration.objects.get().reports == context.SETTLED_REPORTS


def test_percent_stops_at_100_and_used_tokens_never() -> None:
    conversation = make_conversation(["word " * 2000], agent=make_agent(window=1000))

    usage = context.measure(conversation)

    assert usage.percent == 100
    assert usage.used_tokens > 2000


@pytest.mark.parametrize("total", [0, 1, 2, 7, 1000, 999_999])
def test_parts_add_up_exactly(total: int) -> None:
    parts = {"system": 3, "tools": 0, "summary": 7, "attachments": 11, "messages": 13}

    assert sum(context.scale(parts, total).values()) == total


def test_the_decision_costs_the_same_at_any_length() -> None:
    short, long = make_conversation(["hello", "hi"]), make_conversation(["hello", "hi"] * 400)

    counts = []
    for conversation in (short, long):
        loaded = Conversation.objects.select_related("agent__channel").get(pk=conversation.pk)
        with CaptureQueriesContext(connection) as queries:
            context.measure(loaded)
        counts.append(len(queries))

    assert counts[0] == counts[1] <= 5


def test_live_tokens_equal_their_recount() -> None:
    conversation = make_conversation(["hello", "hi", *tool_round("read", "text")])

    assert conversation.live_tokens == context.recount_live_tokens(conversation)


def test_the_meter_speaks_the_protocol() -> None:
    event = context.measure(make_conversation(["hello", "hi"])).to_event()

    assert event["tier"] == "safe"
    assert set(event["parts"]) == set(context.PARTS)
    assert set(event["thresholds"]) == {"warn", "auto", "hard", "block"}
    assert event["advice"]["turns_left"] > 0
    assert event["advice"]["refusal"] is None


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL plans by size")
@pytest.mark.parametrize(("statement", "least"), [(context._MEASURE, 4), (advice._RECENT, 1)])
def test_the_meter_looks_at_no_message_that_a_summary_stands_for(statement: str, least: int) -> None:
    conversation = make_conversation(["hello", "hi"])
    values = {"channel": 1, "model": "m", "conversation": conversation.pk.hex, "position": 1}

    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {statement}", values)
        steps = [row[3] for row in cursor.fetchall() if row[3].startswith(("SEARCH m ", "SCAN m"))]

    short = ("USING INDEX live_messages", "USING INDEX pinned_messages", "USING INDEX summaries", "(rowid=?)")
    assert len(steps) >= least
    assert [step for step in steps if not any(way in step for way in short)] == []
