"""The snapshot: everything of one moment, at the same cost whatever the length."""

from __future__ import annotations

import orjson
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chat import presenting, snapshot
from chat.api.schemas import CompactionOut, ConversationOut, MessageOut, PersonOut, TurnOut
from chat.errors import NotFound
from chat.events import encode
from chat.models import Conversation, Message, Turn, TurnState
from compaction.models import Compaction
from tests.api.conftest import Caller
from tests.builders import add_messages

pytestmark = pytest.mark.django_db


def _read(who: Caller, conversation: Conversation) -> dict[str, object]:
    """The snapshot as a browser gets it."""
    shown, version = snapshot.read_snapshot(who.user, conversation.pk)
    envelope = orjson.loads(encode(shown, conversation.pk, version))
    assert envelope["seq"] == version
    return envelope["data"]


def test_it_holds_everything_in_the_documented_shapes(vera: Caller, conversation: Conversation) -> None:
    question = Message.objects.get(conversation=conversation, position=3)
    running = Turn.objects.create(conversation=conversation, user_message=question, state=TurnState.RUNNING, attempt=1)
    writing = Message.objects.create(
        conversation=conversation, turn=running, position=5, role="assistant", content="So far", status="streaming"
    )
    draft = Message.objects.create(conversation=conversation, role="user", content="And then?")
    Turn.objects.create(conversation=conversation, user_message=draft)
    Compaction.objects.create(conversation=conversation, reason="manual", state="running", blocking=True)
    shown = _read(vera, conversation)
    ConversationOut.model_validate(shown["conversation"])
    assert [MessageOut.model_validate(row).position for row in shown["messages"]] == [1, 2, 3, 4, 5]
    turn = TurnOut.model_validate(shown["turn"])
    assert (turn.state, turn.message, turn.text) == ("running", writing.pk, "So far")
    assert [(row["message"]["content"], row["message"]["position"]) for row in shown["queue"]] == [("And then?", None)]
    assert shown["queue"][0]["reason"] == "turn"
    assert CompactionOut.model_validate(shown["compaction"]).blocking
    assert [card["id"] for card in shown["compactions"]] == [shown["compaction"]["id"]]
    assert sum(shown["context"]["parts"].values()) == shown["context"]["used_tokens"]
    assert [PersonOut.model_validate(person).name for person in shown["people"]] == ["alice", "bob", "vera"]
    assert shown["conversation"]["role"] == "viewer"


def test_outsiders_get_none(charlie: Caller, conversation: Conversation) -> None:
    with pytest.raises(NotFound):
        snapshot.read_snapshot(charlie.user, conversation.pk)


def test_a_failed_turn_is_still_there_after_a_reload_and_a_done_one_is_not(
    alice: Caller, conversation: Conversation
) -> None:
    turn = Turn.objects.create(
        conversation=conversation, state=TurnState.FAILED, error_code="rate_limited", error_text="Wait.", retryable=True
    )
    assert _read(alice, conversation)["turn"]["error"] == {
        "code": "rate_limited",
        "message": "Wait.",
        "retryable": True,
    }
    Turn.objects.filter(pk=turn.pk).update(state=TurnState.DONE, error_code="")
    assert _read(alice, conversation)["turn"] is None


def test_it_costs_the_same_at_any_length(alice: Caller, conversation: Conversation) -> None:
    add_messages(conversation, ["a message of some length"] * 60)
    short, short_size = _cost(alice, conversation)
    add_messages(conversation, ["a message of some length"] * 3_000)
    for _ in range(40):
        Compaction.objects.create(conversation=conversation, reason="auto", state="failed", error_code="x")
    Compaction.objects.all().update(asked_at_position=1)
    long, long_size = _cost(alice, conversation)
    assert long == short <= 14
    assert long_size < 1.2 * short_size


def test_a_change_while_it_is_read_is_never_half_seen(
    alice: Caller, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version moves under the first two readings: the third one is given out, with its own version."""
    read, changes = snapshot._read, iter([True, True, False, False, False])

    def disturbed(row: Conversation) -> snapshot.Snapshot:
        shown = read(row)
        if next(changes):
            Conversation.objects.filter(pk=row.pk).update(version=row.version + 1)
        return shown

    monkeypatch.setattr(snapshot, "_read", disturbed)
    _shown, version = snapshot.read_snapshot(alice.user, conversation.pk)
    assert version == conversation.version + 2


def test_a_conversation_that_never_rests_is_read_under_its_lock(
    alice: Caller, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = snapshot._read

    def disturbed(row: Conversation) -> snapshot.Snapshot:
        Conversation.objects.filter(pk=row.pk).update(version=row.version + 1)
        return read(row)

    monkeypatch.setattr(snapshot, "_read", disturbed)
    _shown, version = snapshot.read_snapshot(alice.user, conversation.pk)
    assert version == conversation.version + 4


def _cost(who: Caller, conversation: Conversation) -> tuple[int, int]:
    with CaptureQueriesContext(connection) as captured:
        shown, version = snapshot.read_snapshot(who.user, conversation.pk)
    return len(captured), len(encode(shown, conversation.pk, version))


def test_very_long_messages_are_sent_a_few_at_a_time(vera: Caller, conversation: Conversation) -> None:
    """A snapshot has to fit through a socket: what does not comes with the next page."""
    long = snapshot.CHARACTERS * 2 // 5
    add_messages(conversation, [{"role": "assistant", "content": "x" * long} for _ in range(4)])
    shown = _read(vera, conversation)
    assert len(shown["messages"]) == 2
    assert shown["next"]

    add_messages(conversation, [{"role": "assistant", "content": "y" * (snapshot.CHARACTERS + 1)}])
    assert len(_read(vera, conversation)["messages"]) == 1


def test_a_queue_of_very_long_drafts_is_shown_as_far_as_it_fits(vera: Caller, conversation: Conversation) -> None:
    for _ in range(3):
        draft = Message.objects.create(
            conversation=conversation, role="user", content="x" * (presenting.LONGEST_QUEUE_SHOWN * 2 // 5)
        )
        Turn.objects.create(conversation=conversation, user_message=draft)
    assert len(_read(vera, conversation)["queue"]) == 2
