"""When compaction runs, waits, is skipped or refused: at the boundary, with a scripted summariser."""

from __future__ import annotations

import pytest

from chat import compacting, compaction_runs, context
from chat.boundary import Outcome
from chat.locking import locked
from chat.models import Message as Row
from compaction.errors import CompactionError
from compaction.models import Compaction, State
from tests.builders import add_messages, make_conversation, tool_round
from tests.chat.scripting import (
    boundary,
    compact,
    long_chat,
    make_turn,
    reload,
    request,
    small_agent,
    summariser,
)

pytestmark = pytest.mark.django_db


def test_below_the_trigger_a_boundary_does_nothing() -> None:
    conversation = make_conversation(["hello", "hi"])

    assert boundary(conversation, waiting=make_turn(conversation)) == Outcome()


def test_at_the_trigger_a_run_starts_in_the_background_and_the_turn_goes_on() -> None:
    conversation = make_conversation(long_chat(46), agent=small_agent())
    usage = context.measure(conversation)
    assert usage.thresholds.auto <= usage.used_tokens < usage.thresholds.block

    outcome = boundary(conversation, waiting=make_turn(conversation))

    assert outcome.proceed
    assert (outcome.started.reason, outcome.started.blocking) == ("auto", False)


def test_beyond_block_the_turn_waits_for_the_run() -> None:
    conversation = make_conversation(long_chat(60), agent=small_agent())

    outcome = boundary(conversation, waiting=make_turn(conversation))

    assert not outcome.proceed
    assert (outcome.waits_for.reason, outcome.waits_for.blocking) == ("hard", True)


def test_the_pending_message_counts_for_the_decision() -> None:
    conversation = make_conversation(long_chat(40), agent=small_agent())
    assert boundary(conversation).started is None

    assert boundary(conversation, waiting=make_turn(conversation, "word " * 4000)).started is not None


def test_a_failed_run_is_not_repeated_at_the_same_boundary_and_the_message_goes_on() -> None:
    conversation = make_conversation(long_chat(46), agent=small_agent())
    turn = make_turn(conversation)
    started = boundary(conversation, waiting=turn).started
    with summariser(CompactionError("summariser_failed", why="down")):
        compaction_runs.run_here(started.pk)

    again = boundary(conversation, waiting=turn)

    assert again.proceed
    assert again.started is None
    assert Compaction.objects.count() == 1


def test_after_three_failures_the_breaker_opens_and_says_so_once() -> None:
    conversation = make_conversation(long_chat(46), agent=small_agent())
    for _ in range(5):
        started = boundary(conversation).started
        if started is not None:
            with summariser(CompactionError("summariser_failed", why="down")):
                compaction_runs.run_here(started.pk)
        add_messages(conversation, ["go on", "yes"])

    states = list(Compaction.objects.order_by("id").values_list("state", "error_code"))
    assert states == [*[("failed", "summariser_failed")] * 3, ("skipped", "breaker_open")]
    assert context.measure(reload(conversation.pk)).to_event()["breaker"]["open"]
    assert compact(conversation).state == State.APPLIED
    assert not context.measure(reload(conversation.pk)).to_event()["breaker"]["open"]


def test_a_floor_above_the_trigger_is_said_once_and_never_run() -> None:
    agent = small_agent(system_prompt="rule " * 22_000)
    conversation = make_conversation(long_chat(6), agent=agent)

    for _ in range(3):
        assert boundary(conversation).started is None
        add_messages(conversation, ["go on", "yes"])

    assert list(Compaction.objects.values_list("state", "error_code")) == [("skipped", "floor_too_high")]
    advice = context.measure(reload(conversation.pk)).to_event()["advice"]
    assert advice["refusal"]["code"] == "floor_too_high"


def test_a_result_waits_for_the_boundary_while_a_turn_runs() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    turn = make_turn(conversation, state="running")

    row = compact(conversation)
    assert row.state == State.READY
    assert not Row.objects.filter(is_summary=True).exists()
    outcome = boundary(conversation, running=turn)

    assert outcome.applied.pk == row.pk
    assert outcome.changed
    assert Row.objects.filter(is_summary=True).count() == 1
    row.refresh_from_db()
    assert row.state == State.APPLIED
    assert row.tokens_after == context.measure(reload(conversation.pk)).used_tokens


def test_a_manual_run_holds_the_queue_until_it_is_cancelled() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    turn = make_turn(conversation)
    row = compacting.request_compaction(conversation.owner, conversation.pk)
    assert not boundary(conversation, waiting=turn).proceed

    compacting.cancel(conversation.owner, row.pk)

    assert boundary(conversation, waiting=turn).proceed


def test_cancelling_a_run_that_a_message_waited_for_sends_it_as_it_is() -> None:
    conversation = make_conversation(long_chat(60), agent=small_agent())
    turn = make_turn(conversation)
    row = boundary(conversation, waiting=turn).waits_for
    compaction_runs.claim(row.pk)

    compacting.cancel(conversation.owner, row.pk)

    assert boundary(conversation, waiting=turn).proceed


def test_switched_off_a_send_beyond_block_is_refused_with_the_reason() -> None:
    conversation = make_conversation(long_chat(60), agent=small_agent(compaction_threshold=0))

    outcome = boundary(conversation, waiting=make_turn(conversation))

    assert (outcome.proceed, outcome.refusal[0]) == (False, "switched_off")
    assert compact(conversation).state == State.APPLIED


def test_the_provider_s_own_word_forces_a_run_once() -> None:
    conversation = make_conversation(long_chat(20), agent=small_agent())
    turn = make_turn(conversation, state="running")

    with locked(conversation.pk) as desk:
        row = compacting.rescue(desk, turn)
    assert (row.reason, row.blocking) == ("overflow", True)
    with summariser(CompactionError("summariser_failed", why="down")):
        compaction_runs.run_here(row.pk)
    with locked(conversation.pk) as desk:
        again = compacting.rescue(desk, turn)

    row.refresh_from_db()
    assert (row.state, row.strategy) == (State.READY, "extractive")
    assert again.pk == row.pk
    turn_waits = boundary(conversation, waiting=turn)
    assert turn_waits.applied.pk == row.pk
    with locked(conversation.pk) as desk:
        assert compacting.rescue(desk, turn) is None


def test_tool_work_of_a_hundred_messages_in_one_turn_is_compacted_between_its_rounds() -> None:
    rounds = [message for number in range(50) for message in tool_round("read", f"result {number} " * 130)]
    conversation = make_conversation(["do it all", *rounds], agent=small_agent())
    turn = make_turn(conversation, state="running")

    row = compact(conversation)
    outcome = boundary(conversation, running=turn)

    assert outcome.applied is not None, row.error_text
    assert request(conversation)[-1].role == "tool"
    assert any(message.content == "do it all" for message in request(conversation))
