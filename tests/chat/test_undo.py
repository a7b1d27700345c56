"""The way back: byte for byte, after anything that may have happened since."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agents.messages import Message
from chat import compacting, context, history
from chat.errors import Conflict
from chat.models import Message as Row
from chat.pinning import pin
from compaction.models import Compaction, State
from tests.builders import add_messages, make_agent, make_conversation, tool_round
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


def undo(row: Compaction, **options: Any) -> Compaction:
    row = compacting.request_undo(row.conversation.owner, row.pk, confirm=True, **options)
    row.refresh_from_db()
    return row


def test_undo_brings_back_the_request_byte_for_byte() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    before, tokens = request(conversation), context.measure(conversation).used_tokens

    row = undo(compact(conversation))

    assert row.state == State.UNDONE
    assert [m.to_openai() for m in request(conversation)] == [m.to_openai() for m in before]
    assert context.measure(reload(conversation.pk)).used_tokens == tokens
    assert reload(conversation.pk).live_tokens == context.recount_live_tokens(conversation)


def test_undo_works_after_later_turns() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    before = request(conversation)
    row = compact(conversation)
    add_messages(conversation, ["what now?", "this."])

    undo(row)

    assert request(conversation) == (*before, Message("user", "what now?"), Message("assistant", "this."))


def test_nested_compactions_are_undone_newest_first() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    first_request = request(conversation)
    first = compact(conversation)
    add_messages(conversation, long_chat(35))
    second_request = request(conversation)
    second = compact(conversation)
    assert second.state == State.APPLIED, second.error_text

    with pytest.raises(Conflict, match="newest"):
        compacting.request_undo(conversation.owner, first.pk)
    undo(second)
    assert request(conversation) == second_request
    assert Row.objects.filter(compacted_into=first.summary_message).count() == first.covered_count
    undo(first)

    assert request(conversation)[: len(first_request)] == first_request
    assert not Row.objects.filter(compacted_into__isnull=False).exists()


def test_an_undo_waits_for_the_boundary_while_a_turn_runs() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    before = request(conversation)
    row = compact(conversation)
    turn = make_turn(conversation, state="running")

    assert undo(row).state == State.APPLIED
    outcome = boundary(conversation, running=turn)

    assert outcome.undone.pk == row.pk
    assert request(conversation) == before


def test_an_undo_drops_a_result_that_builds_on_it() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    first = compact(conversation)
    add_messages(conversation, long_chat(35))
    turn = make_turn(conversation, state="running")
    ready = compact(conversation)
    assert ready.state == State.READY

    undo(first)
    outcome = boundary(conversation, running=turn)

    assert outcome.undone.pk == first.pk
    assert outcome.applied is None
    ready.refresh_from_db()
    assert (ready.state, ready.error_code) == (State.CANCELLED, "undone_meanwhile")


def test_after_an_undo_automatic_runs_pause_until_block_and_a_manual_one_ends_it() -> None:
    conversation = make_conversation(long_chat(46), agent=small_agent())
    undo(compact(conversation))

    assert boundary(conversation).started is None
    assert Compaction.objects.filter(error_code="paused_after_undo").count() == 1
    assert context.measure(reload(conversation.pk)).to_event()["paused"]
    assert compact(conversation).state == State.APPLIED
    assert not reload(conversation.pk).paused


def test_after_an_undo_a_run_still_comes_at_block() -> None:
    conversation = make_conversation(long_chat(46), agent=small_agent())
    undo(compact(conversation))
    add_messages(conversation, long_chat(10))

    assert boundary(conversation, waiting=make_turn(conversation)).waits_for.reason == "hard"


def test_what_was_undone_beyond_block_stays_so_until_a_message_waits() -> None:
    conversation = make_conversation(long_chat(46), agent=small_agent())
    row = compact(conversation)
    add_messages(conversation, long_chat(10))
    undo(row)

    assert boundary(conversation).started is None
    assert boundary(conversation, waiting=make_turn(conversation)).waits_for.reason == "hard"


def test_what_would_no_longer_fit_is_said_before_it_is_done() -> None:
    conversation = make_conversation(long_chat(46), agent=small_agent())
    row = compact(conversation)
    add_messages(conversation, long_chat(10))

    with pytest.raises(Conflict, match="tokens"):
        compacting.request_undo(conversation.owner, row.pk)
    assert undo(row).state == State.UNDONE


def test_only_what_was_applied_can_be_undone() -> None:
    conversation = make_conversation(["hello", "hi"], agent=small_agent())

    with pytest.raises(Conflict):
        undo(compact(conversation))


def test_a_pinned_covered_message_stays_in_the_request() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compact(conversation)
    covered = Row.objects.filter(compacted_into=row.summary_message).order_by("position")[2]
    epoch = reload(conversation.pk).epoch

    pin(conversation.owner, conversation.pk, covered.pk, pinned=True)

    assert covered.content in [message.content for message in request(conversation)]
    assert reload(conversation.pk).epoch == epoch + 1
    measured = context.measure(reload(conversation.pk)).used_tokens
    assert measured == history.load_transcript(reload(conversation.pk)).tokens
    pin(conversation.owner, conversation.pk, covered.pk, pinned=False)
    assert covered.content not in [message.content for message in request(conversation)]


@pytest.mark.parametrize("seed", range(12))
def test_any_sequence_of_turns_compactions_and_undos_leads_back(seed: int) -> None:
    """Whatever happens, originals stay as they are, counts are true, and undoing everything gives the plain history."""
    chance = random.Random(seed)
    conversation = make_conversation(
        long_chat(chance.randint(5, 25)), agent=make_agent(window=chance.choice([16_000, 32_000]))
    )
    said = originals(conversation)
    requests: list[tuple[Compaction, tuple[Message, ...], int]] = []
    for _ in range(8):
        match chance.choice(["turn", "tools", "compact", "compact", "undo"]):
            case "turn":
                add_messages(conversation, long_chat(chance.randint(1, 12)))
            case "tools":
                rounds = [
                    m for n in range(chance.randint(1, 6)) for m in tool_round("read", f"line {n} " * 90, call_id="c")
                ]
                add_messages(conversation, ["use the tools", *rounds, Message("assistant", "used them")])
            case "compact":
                before = (
                    raw(conversation),
                    Row.objects.filter(conversation=conversation).order_by("-position")[0].position,
                )
                row = compact(conversation)
                if row.state == State.APPLIED:
                    requests.append((row, *before))
            case "undo" if requests:
                row, expected, position = requests.pop()
                later = [m for m in plain(conversation) if m[0] > position]
                assert undo(row).state == State.UNDONE
                assert raw(conversation) == (*expected, *(message for _, message in later))
        now = reload(conversation.pk)
        assert now.live_tokens == context.recount_live_tokens(now)
        assert context.measure(now).used_tokens == history.load_transcript(now).tokens
        assert originals(conversation)[: len(said)] == said
        said = originals(conversation)
    while requests:
        row, _, _ = requests.pop()
        undo(row)
    live = history.load_transcript(reload(conversation.pk)).live
    assert [entry.id for entry in live] == [row[0] for row in said]


def raw(conversation: Any) -> tuple[Message, ...]:
    """The next request before ids are made unique."""
    transcript = history.load_transcript(reload(conversation.pk))
    prefix = transcript.prefix.messages if transcript.prefix else ()
    return (*prefix, *(entry.message for entry in (*transcript.pinned_covered, *transcript.live)))


def plain(conversation: Any) -> list[tuple[int, Message]]:
    rows = (
        Row.objects.filter(conversation=conversation, is_summary=False)
        .order_by("position")
        .values_list(*history.COLUMNS)
    )
    return [(entry.position, entry.message) for entry in history.entries_of(rows)]


def test_nothing_but_the_summariser_was_asked_for_the_way_back() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compact(conversation)

    with summariser() as asked:
        undo(row)

    assert asked.asked == []
