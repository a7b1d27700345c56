"""Edit, answer again, fork, pin, choose, retry."""

from __future__ import annotations

import pytest
from django.utils import timezone

from chat.api.schemas import BranchOut
from chat.models import Conversation, Message, Turn, TurnState
from tests.api.conftest import Caller, expect

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chat.branching.wake", lambda *_: None)
    monkeypatch.setattr("chat.sending.wake", lambda *_: None)


def _at(conversation: Conversation, position: int) -> Message:
    return Message.objects.get(conversation=conversation, position=position, is_summary=False)


def test_members_pin_and_unpin_viewers_do_not(people: dict[str, Caller], conversation: Conversation, here: str) -> None:
    path = f"{here}/messages/{_at(conversation, 1).pk}/pin"
    expect(people, lambda who: who.post(path), alice=200, bob=200, vera=403)
    assert people["vera"].get(f"{here}/messages").json["items"][0]["pinned"] is True
    assert people["bob"].post(path, {"pinned": False}).json["pinned"] is False


def test_a_pin_moves_the_epoch_only_where_the_request_changes(
    alice: Caller, conversation: Conversation, here: str
) -> None:
    covered, live = _at(conversation, 1), _at(conversation, 4)
    summary = Message.objects.create(conversation=conversation, position=2, role="user", is_summary=True)
    Message.objects.filter(pk=covered.pk).update(compacted_into=summary, compacted_at=timezone.now())
    alice.post(f"{here}/messages/{live.pk}/pin")
    assert alice.get(here).json["epoch"] == conversation.epoch
    alice.post(f"{here}/messages/{covered.pk}/pin")
    assert alice.get(here).json["epoch"] == conversation.epoch + 1


def test_summaries_and_tool_work_are_not_pinned(alice: Caller, conversation: Conversation, here: str) -> None:
    summary = Message.objects.create(conversation=conversation, position=2, role="user", is_summary=True)
    tool = Message.objects.create(conversation=conversation, position=9, role="tool", content="42")
    assert alice.post(f"{here}/messages/{summary.pk}/pin").status == 404
    assert alice.post(f"{here}/messages/{tool.pk}/pin").code == "cannot_pin"


def test_a_member_edits_their_own_the_owner_everyones(
    people: dict[str, Caller], conversation: Conversation, here: str
) -> None:
    path = f"{here}/messages/{_at(conversation, 3).pk}/edit"
    expect(people, lambda who: who.post(path, {"content": "And the airport?"}), bob=403, vera=403)
    edited = people["alice"].post(path, {"content": "And the airport?"})
    assert edited.status == 202
    BranchOut.model_validate(edited.json)
    assert (edited.json["is_new"], edited.json["conversation"]["role"]) == (False, "owner")
    shown = people["vera"].get(f"{here}/messages").json["items"]
    assert [row["position"] for row in shown] == [1, 2]


def test_answering_again_keeps_the_earlier_answer_to_choose(
    people: dict[str, Caller], conversation: Conversation, here: str
) -> None:
    question, answer = _at(conversation, 3), _at(conversation, 4)
    turn = Turn.objects.create(conversation=conversation, user_message=question, state=TurnState.DONE)
    Message.objects.filter(pk=answer.pk).update(turn=turn)
    path = f"{here}/messages/{answer.pk}/regenerate"
    expect(people, lambda who: who.post(path), bob=202, vera=403)
    assert people["bob"].post(path).status in (404, 409)
    Turn.objects.filter(state=TurnState.QUEUED).update(state=TurnState.STOPPED)
    found = people["vera"].get(f"{here}/messages/{question.pk}/answers").json["items"]
    assert [(each["turn"], each["chosen"]) for each in found] == [(turn.pk, False)]
    expect(people, lambda who: who.post(f"{here}/turns/{turn.pk}/choose"), bob=200, vera=403)
    assert [row["position"] for row in people["vera"].get(f"{here}/messages").json["items"]] == [1, 2, 3, 4]


def test_everyone_may_fork_into_a_conversation_of_their_own(
    people: dict[str, Caller], conversation: Conversation, here: str
) -> None:
    path = f"{here}/messages/{_at(conversation, 2).pk}/fork"
    expect(people, lambda who: who.post(path), alice=201, bob=201, vera=201)
    made = people["vera"].post(path).json
    assert made["role"] == "owner"
    copied = people["vera"].get(f"/conversations/{made['id']}/messages").json["items"]
    assert [row["content"] for row in copied] == ["Where is the harbour?", "At the end of the street."]
    assert people["alice"].get(f"/conversations/{made['id']}").status == 404


def test_a_failed_turn_is_tried_again(people: dict[str, Caller], conversation: Conversation, here: str) -> None:
    turn = Turn.objects.create(
        conversation=conversation, user_message=_at(conversation, 3), state=TurnState.FAILED, error_code="rate_limited"
    )
    expect(people, lambda who: who.post(f"{here}/turns/{turn.pk}/retry"), bob=202, vera=403)
