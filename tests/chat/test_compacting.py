"""A compaction from the wish to the commit, with a scripted summariser and everything else real."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from agents.models import SiteSettings
from chat import compacting, compaction_runs, context, history, reading
from chat.errors import Conflict, Forbidden, Invalid, NotFound
from chat.models import Conversation, Turn, TurnState
from chat.models import Message as Row
from compaction.errors import CompactionError
from compaction.models import Compaction, State
from tests.builders import add_messages, make_agent, make_channel, make_conversation, make_user
from tests.chat.scripting import (
    compact,
    long_chat,
    originals,
    reload,
    request,
    small_agent,
    summariser,
)

pytestmark = pytest.mark.django_db

# The commit


def test_a_compaction_replaces_old_messages_in_the_request_and_touches_no_original() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    before, said = context.measure(conversation), originals(conversation)

    row = compact(conversation)

    assert row.state == State.APPLIED, row.error_text
    assert originals(conversation) == said
    after = context.measure(reload(conversation.pk))
    assert after.used_tokens < before.used_tokens
    assert after.used_tokens == row.tokens_after
    assert row.tokens_before == before.used_tokens
    messages = request(conversation)
    assert messages[0].role == "system"
    assert "## 1." in messages[1].content
    assert messages[-1].content == long_chat()[-1]
    covered = Row.objects.filter(conversation=conversation, compacted_into=row.summary_message)
    assert covered.count() == row.covered_count > 10
    assert row.summary_message.position == row.covered_to


def test_the_meter_counts_the_request_that_is_sent_after_a_compaction() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    compact(conversation)

    transcript = history.load_transcript(reload(conversation.pk))

    assert context.measure(reload(conversation.pk)).used_tokens == transcript.tokens
    assert conversation.live_tokens == context.recount_live_tokens(conversation)


def test_a_compaction_starts_a_new_epoch_and_leaves_no_base() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())

    compact(conversation)

    assert conversation.epoch == 1
    assert conversation.base is None


def test_pins_system_messages_and_the_newest_question_are_never_flagged() -> None:
    chat: list[Any] = [{"role": "system", "content": "Policy: refuse refunds."}, *long_chat()]
    conversation = make_conversation(chat, agent=small_agent())
    Row.objects.filter(position=4).update(pinned=True)

    compact(conversation)

    live = list(Row.objects.filter(conversation=conversation, compacted_into=None, is_summary=False))
    assert {1, 4} <= {row.position for row in live}
    contents = [message.content for message in request(conversation)]
    assert "Policy: refuse refunds." in contents
    assert chat[3] in contents


def test_a_second_compaction_covers_the_first_summary_and_originals_keep_their_first() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    first = compact(conversation)
    add_messages(conversation, long_chat(40))

    second = compact(conversation)

    assert second.state == State.APPLIED, second.error_text
    assert second.generation == 2
    first_summary = Row.objects.get(pk=first.summary_message_id)
    assert first_summary.compacted_into_id == second.summary_message_id
    assert Row.objects.filter(compacted_into=first_summary).count() == first.covered_count
    assert conversation.live_tokens == context.recount_live_tokens(conversation)
    assert context.measure(reload(conversation.pk)).used_tokens == second.tokens_after


def test_the_leaves_of_a_nested_summary_are_all_originals_it_stands_for() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    first = compact(conversation)
    add_messages(conversation, long_chat(40))
    second = compact(conversation)

    leaves = reading.read_originals(conversation, second.summary_message, after=None, limit=200).rows

    assert len(leaves) == history.originals(conversation).count() == first.covered_count + second.covered_count
    assert not any(row.is_summary for row in leaves)


def test_a_rebuild_reads_the_originals_again_where_they_fit() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    compact(conversation)
    add_messages(conversation, long_chat(12))

    row = compacting.request_compaction(conversation.owner, conversation.pk)
    with summariser() as asked:
        compaction_runs.run_here(row.pk)

    assert "part_0.py" in asked.read


def test_what_arrives_meanwhile_stays_after_the_cut() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())

    row = compact(conversation, during=lambda: add_messages(conversation, ["one more thing", "sure"]))

    assert row.state == State.APPLIED
    assert request(conversation)[-1].content == "sure"
    assert row.tokens_after == context.measure(reload(conversation.pk)).used_tokens


@pytest.mark.parametrize("change", ["pinned", "cleared_at", "retired_at", "content"])
def test_a_change_in_the_covered_range_makes_the_result_stale(change: str) -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    values = {"pinned": True, "cleared_at": timezone.now(), "retired_at": timezone.now(), "content": "erased"}

    @transaction.atomic  # of its own, as every change is
    def edit() -> None:
        Row.objects.filter(conversation=conversation, position=3).update(**{change: values[change]})

    row = compact(conversation, during=edit)

    assert row.state == State.STALE
    assert not Row.objects.filter(conversation=conversation, is_summary=True).exists()
    assert not Row.objects.filter(compacted_into__isnull=False).exists()
    assert conversation.epoch == 0


def test_a_deleted_conversation_is_left_alone() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    delete = Conversation.objects.filter(pk=conversation.pk)

    row = compact(conversation, during=lambda: delete.update(deleted_at=timezone.now()))
    compacting.sweep()

    row.refresh_from_db()
    assert row.state == State.CANCELLED
    assert not Row.objects.filter(is_summary=True).exists()


def test_another_model_meanwhile_does_not_spoil_the_result() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    switch = Conversation.objects.filter(pk=conversation.pk)

    row = compact(conversation, during=lambda: switch.update(agent=make_agent(window=8_000), epoch=5))

    assert row.state == State.APPLIED
    assert conversation.epoch == 6


# Asking, twice, and by whom


def test_asked_twice_it_is_one_run() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())

    first = compacting.request_compaction(conversation.owner, conversation.pk)
    second = compacting.request_compaction(conversation.owner, conversation.pk)

    assert first.pk == second.pk
    assert Compaction.objects.count() == 1


def test_another_wish_during_a_run_is_refused_with_a_reason() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    compacting.request_compaction(conversation.owner, conversation.pk)

    with pytest.raises(Conflict, match="already running"):
        compacting.request_compaction(conversation.owner, conversation.pk, instructions="keep the SQL")


def test_instructions_reach_the_summariser_and_have_a_limit() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compacting.request_compaction(conversation.owner, conversation.pk, instructions="keep the SQL")
    with summariser() as asked:
        compaction_runs.run_here(row.pk)

    assert "keep the SQL" in asked.read
    with pytest.raises(Invalid):
        compacting.request_compaction(conversation.owner, conversation.pk, instructions="x" * 2001)


def test_only_members_may_ask_cancel_or_undo() -> None:
    bob, charlie = make_user(), make_user()
    conversation = make_conversation(long_chat(), agent=small_agent(), people=[(bob, "viewer")])
    row = compact(conversation)

    for action in (compacting.cancel, compacting.request_undo):
        with pytest.raises(Forbidden):
            action(bob, row.pk)
        with pytest.raises(NotFound):
            action(charlie, row.pk)
    with pytest.raises(NotFound):
        compacting.request_compaction(charlie, conversation.pk)


def test_a_second_delivery_of_the_task_finds_nothing_to_do() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compacting.request_compaction(conversation.owner, conversation.pk)

    with summariser(during=lambda: compaction_runs.run_here(row.pk)) as asked:
        compaction_runs.run_here(row.pk)
        compaction_runs.run_here(row.pk)

    assert len(asked.asked) == 1
    row.refresh_from_db()
    assert (row.state, row.attempt) == (State.APPLIED, 1)


def test_a_cancelled_run_changes_nothing_and_is_no_failure() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())

    def cancel() -> None:
        compacting.cancel(conversation.owner, Compaction.objects.get().pk)

    row = compact(conversation, during=cancel)

    assert row.state == State.CANCELLED
    assert not Row.objects.filter(is_summary=True).exists()
    assert conversation.breaker == {}


def test_what_is_over_cannot_be_cancelled() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compact(conversation)

    with pytest.raises(Conflict):
        compacting.cancel(conversation.owner, row.pk)


# Failures


def test_a_failing_summariser_leaves_a_row_with_the_reason_and_the_old_context() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    before = request(conversation)

    row = compact(conversation, CompactionError("summariser_failed", why="no route", retryable=True))

    assert (row.state, row.error_code, row.retryable) == (State.FAILED, "summariser_failed", True)
    assert "no route" in row.error_text
    assert request(conversation) == before


def test_an_unexpected_exception_is_a_failure_too() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())

    row = compact(conversation, ValueError("bug"))

    assert (row.state, row.error_code) == (State.FAILED, "internal_error")


def test_nothing_to_compact_is_a_refusal_and_no_failure() -> None:
    conversation = make_conversation(["hello", "hi"], agent=small_agent())

    row = compact(conversation)

    assert row.state == State.SKIPPED
    assert row.error_code in ("nothing_to_compact", "gain_too_small")


def test_a_chosen_auxiliary_channel_that_was_switched_off_is_never_replaced_silently() -> None:
    other = make_channel(is_auxiliary=True, enabled=False)
    conversation = make_conversation(long_chat(), agent=small_agent(auxiliary_channel=other))

    row = compact(conversation)

    assert (row.state, row.error_code, row.retryable) == (State.FAILED, "auxiliary_unavailable", True)


def test_a_deleted_auxiliary_channel_stays_chosen() -> None:
    other = make_channel(is_auxiliary=True)
    conversation = make_conversation(long_chat(), agent=small_agent(auxiliary_channel=other))
    type(other).objects.filter(pk=other.pk).delete()

    assert compact(conversation).error_code == "auxiliary_unavailable"


def test_the_site_s_default_channel_writes_the_summary_and_the_card_names_it() -> None:
    other = make_channel(is_auxiliary=True, models=["small", "large"])
    SiteSettings.objects.create(id=1, default_auxiliary_channel=other)
    conversation = make_conversation(long_chat(), agent=small_agent())

    row = compact(conversation)

    assert (row.channel_name, row.model) == (other.name, "small")


def test_an_agent_that_keeps_its_text_uses_its_own_channel() -> None:
    SiteSettings.objects.create(id=1, default_auxiliary_channel=make_channel(is_auxiliary=True))
    agent = small_agent(keeps_text_with_supplier=True)
    conversation = make_conversation(long_chat(), agent=agent)

    assert compact(conversation).channel_name == agent.channel.name


def test_without_a_summariser_code_makes_room_where_the_request_would_not_fit() -> None:
    agent = small_agent(auxiliary_channel=make_channel(is_auxiliary=True, enabled=False))
    conversation = make_conversation(long_chat(60), agent=agent)

    row = compact(conversation)

    assert row.state == State.APPLIED
    assert row.strategy == "extractive"
    assert row.fallback_code == "auxiliary_unavailable"
    assert row.channel_name == ""


@pytest.fixture
def told(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Callable[..., Any]
) -> list[dict[str, Any]]:
    """Every envelope that left, decoded."""
    import orjson

    from chat import broadcast

    frames: list[dict[str, Any]] = []
    monkeypatch.setattr(broadcast, "publish", lambda _, sent, *__: frames.extend(map(orjson.loads, sent)))
    return frames


def test_the_story_is_told_in_events(
    told: list[dict[str, Any]], django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())

    with django_capture_on_commit_callbacks(execute=True):
        compact(conversation)

    durable = [event["type"] for event in told if event["seq"] is not None]
    assert durable == ["compaction_start", "message", "compaction_done"]
    assert {event["data"]["stage"] for event in told if event["type"] == "compaction_progress"} >= {"summarize"}
    assert [event["seq"] for event in told if event["seq"] is not None] == [1, 2, 3]
    assert told[-1]["type"] == "token_update"


def test_the_meter_that_is_told_anew_still_says_what_the_last_turn_used(
    told: list[dict[str, Any]], django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    spent = {"prompt_tokens": 700, "completion_tokens": 30, "api_calls": 2}
    Turn.objects.create(conversation=conversation, state=TurnState.DONE, usage=spent)
    Turn.objects.create(conversation=conversation, state=TurnState.FAILED)

    with django_capture_on_commit_callbacks(execute=True):
        compact(conversation)

    current = {"input_tokens": 700, "output_tokens": 30, "total_tokens": 730, "api_calls": 2}
    assert told[-1]["data"]["current"] == current
