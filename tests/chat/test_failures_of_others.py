"""What happened to real products and made their users angry, as far as it needs stored conversations to be shown."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from agents import tokens
from agents.messages import Message
from agents.usage import Usage
from chat import compacting, compaction_runs, context, history
from chat.locking import locked
from chat.models import Conversation
from chat.models import Message as Row
from chat.reading import read_page
from chat.snapshot import read_compactions
from compaction.errors import CompactionError
from compaction.models import Compaction, State
from tests.builders import add_messages, make_agent, make_conversation
from tests.chat.scripting import (
    boundary,
    compact,
    long_chat,
    make_turn,
    originals,
    reload,
    request,
    small_agent,
    summariser,
)

pytestmark = pytest.mark.django_db

DOWN = CompactionError("summariser_failed", why="down", retryable=True)


def report(conversation: Conversation, usage: dict[str, Any]) -> int:
    """What the meter says after a provider's report."""
    agent = conversation.agent
    with locked(conversation.pk) as desk:
        position = desk.conversation.last_position
        context.note_usage(desk, Usage.from_openai(usage), position, agent.channel_id, agent.model_name)
    return context.measure(reload(conversation.pk)).used_tokens


def test_01_a_failing_compaction_is_not_repeated_for_ever() -> None:
    conversation = make_conversation(long_chat(46), agent=small_agent())
    turn = make_turn(conversation)

    for _ in range(10):
        started = boundary(conversation, waiting=turn).started
        if started is not None:
            with summariser(DOWN):
                compaction_runs.run_here(started.pk)

    assert Compaction.objects.count() == 1


def test_04_cached_tokens_are_counted_once() -> None:
    conversation = make_conversation(["hello", "hi"])

    used = report(
        conversation,
        {"prompt_tokens": 1000, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 900}},
    )

    assert used == 1050


def test_05_cached_tokens_that_a_provider_reports_apart_are_not_forgotten() -> None:
    conversation = make_conversation(["hello", "hi"])

    used = report(conversation, {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 900})

    assert used == 1050


def test_08_a_long_chat_is_compacted_now_and_then_and_not_on_every_turn() -> None:
    conversation = make_conversation(agent=small_agent())
    at: list[int] = []
    for number in range(120):
        turn = make_turn(conversation, f"Question {number}. " + "words " * 200)
        outcome = boundary(conversation, waiting=turn)
        if outcome.started is not None:
            at.append(number)
            with summariser():
                compaction_runs.run_here(outcome.started.pk)
        turn.user_message.delete()
        turn.delete()
        add_messages(conversation, [f"Question {number}. " + "words " * 200, f"Answer {number}. " + "words " * 300])
        assert context.measure(reload(conversation.pk)).used_tokens < 32_000

    assert set(Compaction.objects.values_list("state", flat=True)) == {State.APPLIED}
    assert len(at) >= 2
    assert min(later - sooner for sooner, later in pairwise(at)) >= 5


def test_11_over_the_threshold_it_never_silently_does_not_run() -> None:
    conversation = make_conversation(long_chat(46), agent=small_agent())
    Conversation.objects.filter(pk=conversation.pk).update(paused=True)

    assert boundary(conversation).started is None

    row = Compaction.objects.get()
    assert (row.state, row.error_code) == (State.SKIPPED, "paused_after_undo")
    assert row.error_text
    assert context.measure(reload(conversation.pk)).to_event()["advice"]["refusal"]["code"] == "paused_after_undo"


def test_12_the_meter_is_right_after_a_compaction_and_for_the_right_window() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    report(conversation, {"prompt_tokens": 20_000, "completion_tokens": 100})
    compact(conversation)

    usage = context.measure(reload(conversation.pk))
    sent = history.load_transcript(reload(conversation.pk)).tokens

    assert usage.used_tokens == round(sent * usage.factor)
    assert usage.max_tokens == 32_000


def test_14_what_is_said_during_a_compaction_is_kept_and_in_the_request() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())

    compact(conversation, during=lambda: add_messages(conversation, ["do not lose me", "I will not"]))

    assert [message.content for message in request(conversation)[-2:]] == ["do not lose me", "I will not"]


def test_15_a_failing_summariser_does_not_keep_the_message_from_being_answered() -> None:
    conversation = make_conversation(long_chat(46), agent=small_agent())
    turn = make_turn(conversation)
    started = boundary(conversation, waiting=turn).started

    with summariser(DOWN):
        compaction_runs.run_here(started.pk)

    assert boundary(conversation, waiting=turn).proceed


def test_16_a_failure_stays_visible_where_it_happened() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())

    row = compact(conversation, DOWN)

    cards, _ = read_compactions(reload(conversation.pk), limit=10)
    assert [card.pk for card in cards] == [row.pk]
    assert (row.error_code, row.retryable, row.asked_at_position) == ("summariser_failed", True, 60)


def test_18_a_floor_above_the_trigger_burns_no_tokens() -> None:
    conversation = make_conversation(long_chat(20), agent=small_agent(system_prompt="rule " * 21_000))

    with summariser() as asked:
        for _ in range(20):
            started = boundary(conversation).started
            if started is not None:
                compaction_runs.run_here(started.pk)
            add_messages(conversation, ["go on", "yes"])

    assert asked.asked == []


def test_20_a_replaced_answer_makes_a_waiting_summary_stale() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    turn = make_turn(conversation, state="running")
    row = compact(conversation)
    assert row.state == State.READY
    Row.objects.filter(conversation=conversation, position=20).update(retired_at=row.finished_at)

    outcome = boundary(conversation, running=turn)

    assert outcome.applied is None
    row.refresh_from_db()
    assert row.state == State.STALE


@pytest.mark.parametrize(
    "sentence",
    [
        "我们决定把数据库从单机迁移到集群，请记住不要在生产环境直接执行删除操作。",
        "データベースを移行する前に、必ずバックアップを取ってください。本番環境では削除しないでください。",
        "데이터베이스를 이전하기 전에 반드시 백업을 만들고 운영 환경에서는 삭제하지 마세요.",
    ],
)
def test_22_chinese_japanese_and_korean_are_not_under_counted(sentence: str) -> None:
    """A quarter of a token for each character, the rule for English, would say a third of what it is."""
    chat = [sentence * 40, "好"]
    usage = context.measure(reload(make_conversation(chat, agent=make_agent(window=32_000)).pk))

    assert usage.estimated
    assert usage.parts["messages"] == pytest.approx(len(encoded(sentence * 40)), rel=0.02)
    assert usage.parts["messages"] > 1.8 * len(sentence) * 40 / 4


def encoded(text: str) -> list[int]:
    return tokens.encoding_for("gpt-4.1").encode_ordinary(text)


def test_23_the_marker_is_there_after_a_reload() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compact(conversation)

    rows = read_page(reload(conversation.pk), "compacted", limit=200).rows

    assert [shown.pk for shown in rows if shown.is_summary] == [row.summary_message_id]
    assert all(shown.compacted_into_id is None for shown in rows)


def test_24_the_full_history_reads_as_before_and_there_is_a_way_back() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    said, before = originals(conversation), request(conversation)
    row = compact(conversation)

    full = [shown for shown in read_page(reload(conversation.pk), "full", limit=200).rows if not shown.is_summary]
    assert [shown.content for shown in full] == [values[3] for values in said]
    compacting.request_undo(conversation.owner, row.pk, confirm=True)

    assert request(conversation) == before


def test_26_a_switch_to_a_smaller_model_ends_in_a_compaction_and_not_in_a_loop() -> None:
    conversation = make_conversation(long_chat(60), agent=make_agent(window=128_000))
    Conversation.objects.filter(pk=conversation.pk).update(agent=make_agent(window=16_000), epoch=1)
    assert context.measure(reload(conversation.pk)).percent == 100
    turn = make_turn(conversation)

    runs = 0
    while not (outcome := boundary(conversation, waiting=turn)).proceed:
        runs += 1
        assert runs < 4
        with summariser():
            compaction_runs.run_here(outcome.waits_for.pk)

    assert context.measure(reload(conversation.pk)).used_tokens < 16_000
    assert request(conversation)[-1] == Message("assistant", long_chat(60)[-1])
