"""/conversations/<id>/messages: the three views, pages, and saying something."""

from __future__ import annotations

import pytest
from django.utils import timezone

from chat.api.schemas import MessageOut, SentOut
from chat.models import Conversation, Message, Turn, TurnState
from tests.api.conftest import Caller, expect
from tests.builders import add_messages, make_agent, make_conversation

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent stays queued: these tests look at what the API stores, not at answers."""
    monkeypatch.setattr("chat.sending.wake", lambda *_: None)


def test_its_people_read_all_views(people: dict[str, Caller], here: str) -> None:
    for view in ("compacted", "full", "model"):
        expect(people, lambda who, view=view: who.get(f"{here}/messages", view=view), alice=200, bob=200, vera=200)


def test_messages_come_in_reading_order_in_the_documented_shape(alice: Caller, here: str) -> None:
    page = alice.get(f"{here}/messages").json
    assert [row["position"] for row in page["items"]] == [1, 2, 3, 4]
    assert page["next"] is None
    for row in page["items"]:
        assert set(row) == set(MessageOut.model_fields)
        MessageOut.model_validate(row)
    assert page["items"][0]["author"] == {"id": alice.user.pk, "name": "alice"}
    assert page["items"][1]["author"] is None


def test_pages_go_back_to_the_beginning_without_gap_or_double(
    alice: Caller, conversation: Conversation, here: str
) -> None:
    add_messages(conversation, [f"message {n}" for n in range(21)])
    seen: list[int] = []
    query: dict[str, object] = {"limit": 7}
    while True:
        page = alice.get(f"{here}/messages", **query).json
        seen = [row["position"] for row in page["items"]] + seen
        if page["next"] is None:
            break
        query["before"] = page["next"]
    assert seen == list(range(1, 26))


def test_pages_go_forward_from_a_position(alice: Caller, conversation: Conversation, here: str) -> None:
    add_messages(conversation, [f"message {n}" for n in range(6)])
    page = alice.get(f"{here}/messages", after="4", limit=3).json
    assert [row["position"] for row in page["items"]] == [4, 5, 6]
    more = alice.get(f"{here}/messages", after=page["next"], limit=30).json
    assert [row["position"] for row in more["items"]] == [7, 8, 9, 10]


@pytest.mark.parametrize("cursor", ["x", "1.2", "1.2.3.4", "--", ""])
def test_a_broken_cursor_is_refused(alice: Caller, here: str, cursor: str) -> None:
    assert alice.get(f"{here}/messages", before=cursor).status == 422


def test_a_page_is_bounded_whatever_is_asked(alice: Caller, conversation: Conversation, here: str) -> None:
    add_messages(conversation, [f"message {n}" for n in range(230)])
    assert len(alice.get(f"{here}/messages", limit=100_000).json["items"]) == 200
    assert len(alice.get(f"{here}/messages", limit=-5).json["items"]) == 1


def test_a_compacted_conversation_shows_the_summary_and_the_full_one_everything(
    alice: Caller, conversation: Conversation, here: str
) -> None:
    summary = _cover(conversation, upto=3)
    compacted = alice.get(f"{here}/messages").json["items"]
    assert next(row["id"] for row in compacted) == summary.pk
    assert [row["position"] for row in compacted] == [3, 4]
    full = alice.get(f"{here}/messages", view="full").json["items"]
    assert [(row["position"], row["is_summary"]) for row in full] == [
        (1, False),
        (2, False),
        (3, False),
        (3, True),
        (4, False),
    ]
    assert [row["compacted_into"] for row in full] == [summary.pk] * 3 + [None, None]


def test_originals_are_the_leaves_of_all_generations(
    people: dict[str, Caller], conversation: Conversation, here: str
) -> None:
    first = _cover(conversation, upto=2)
    second = _cover(conversation, upto=4)
    assert first.pk != second.pk
    path = f"{here}/summaries/{second.pk}/originals"
    expect(people, lambda who: who.get(path), alice=200, bob=200, vera=200)
    page = people["vera"].get(path, limit=3).json
    rest = people["vera"].get(path, after=page["next"]).json
    assert [row["position"] for row in page["items"] + rest["items"]] == [1, 2, 3, 4]
    only_first = people["vera"].get(f"{here}/summaries/{first.pk}/originals").json["items"]
    assert [row["position"] for row in only_first] == [1, 2]
    not_a_summary = Message.objects.filter(conversation=conversation, position=1).get()
    assert people["alice"].get(f"{here}/summaries/{not_a_summary.pk}/originals").status == 404


def test_the_model_view_is_the_next_request(alice: Caller, here: str) -> None:
    shown = alice.get(f"{here}/messages", view="model").json
    assert [message["role"] for message in shown["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert shown["messages"][0]["content"] == "Be a guide."
    assert shown["kinds"] == ["system", "user", "assistant", "user", "assistant"]
    assert shown["tokens"]["used_tokens"] > 0


def test_a_hidden_prompt_is_hidden_from_people_but_not_from_staff(alice: Caller) -> None:
    agent = make_agent(system_prompt="the secret recipe", hide_system_prompt=True)
    conversation = make_conversation(["Hello", "Hi"], owner=alice.user, agent=agent)
    path = f"/conversations/{conversation.pk}/messages"
    assert "secret recipe" not in str(alice.get(path, view="model").json)
    alice.user.is_staff = True
    alice.user.save()
    assert "secret recipe" in str(alice.get(path, view="model").json)


def test_pictures_are_named_never_sent_along(alice: Caller, conversation: Conversation, here: str) -> None:
    Message.objects.filter(conversation=conversation, position=1).update(
        parts=[
            {"kind": "image", "url": "data:image/png;base64,AAAA", "name": "a.png", "attachment": "x", "tokens": 1600}
        ]
    )
    shown = alice.get(f"{here}/messages")
    assert b"base64" not in shown.response.content
    assert shown.json["items"][0]["parts"] == [{"kind": "image", "name": "a.png", "attachment": "x", "tokens": 1600}]


def test_members_say_things_viewers_do_not(people: dict[str, Caller], here: str) -> None:
    expect(people, lambda who: who.post(f"{here}/messages", {"content": "Hello"}), alice=202, bob=202, vera=403)


def test_saying_something_answers_with_the_turn(alice: Caller, here: str) -> None:
    sent = alice.post(f"{here}/messages", {"content": "Hello"}).json
    SentOut.model_validate(sent)
    assert sent["turn"]["state"] == "queued"
    assert (sent["message"]["content"], sent["message"]["position"]) == ("Hello", None)


def test_the_same_idempotency_key_says_it_once(alice: Caller, here: str) -> None:
    first, second = (
        alice.post(f"{here}/messages", {"content": "Hello"}, **{"Idempotency-Key": "k1"}).json for _ in range(2)
    )
    assert first["message"]["id"] == second["message"]["id"]
    assert first["turn"]["id"] == second["turn"]["id"]
    assert Message.objects.filter(content="Hello").count() == 1


def test_nothing_and_too_much_are_refused(alice: Caller, here: str) -> None:
    assert alice.post(f"{here}/messages", {"content": "  "}).code == "nothing_to_send"
    assert alice.post(f"{here}/messages", {"content": "x" * 2_000_001}).status == 422
    assert alice.post(f"{here}/messages", {"content": "x" * 6_000_000}).code == "too_large"


def test_commands_answer_at_once(alice: Caller, vera: Caller, here: str) -> None:
    shown = alice.post(f"{here}/messages", {"content": "/context"})
    assert shown.status == 200
    assert shown.json["command_result"]["result"]["max_tokens"] == 128_000
    assert vera.post(f"{here}/messages", {"content": "/help"}).status == 200
    assert Turn.objects.count() == 0


def test_what_waits_is_rewritten_and_taken_back_by_its_author(people: dict[str, Caller], here: str) -> None:
    turn = people["bob"].post(f"{here}/messages", {"content": "Helo"}).json["turn"]["id"]
    path = f"{here}/turns/{turn}"
    expect(people, lambda who: who.patch(path, {"content": "Hello"}), bob=200, vera=403)
    assert Message.objects.get(answered_by=turn).content == "Hello"
    expect(people, lambda who: who.delete(path), bob=204, vera=403)
    assert people["bob"].delete(path).status == 404


def test_stopping_a_turn_needs_a_member(
    people: dict[str, Caller], conversation: Conversation, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat.turns.wake", lambda *_: None)
    turn = Turn.objects.create(conversation=conversation, state=TurnState.RUNNING)
    path = f"{here}/turns/{turn.pk}/stop"
    expect(people, lambda who: who.post(path), alice=202, bob=202, vera=403)
    turn.refresh_from_db()
    assert turn.stop_requested_at is not None
    elsewhere = make_conversation(owner=people["alice"].user)
    assert people["alice"].post(f"/conversations/{elsewhere.pk}/turns/{turn.pk}/stop").status == 404


def test_the_open_turn_and_the_queue_are_listed(people: dict[str, Caller], here: str) -> None:
    people["bob"].post(f"{here}/messages", {"content": "Hello"})
    expect(people, lambda who: who.get(f"{here}/turns"), alice=200, bob=200, vera=200)
    assert [turn["state"] for turn in people["vera"].get(f"{here}/turns").json["items"]] == ["queued"]


def _cover(conversation: Conversation, *, upto: int) -> Message:
    """A summary of everything live up to a position, as an applied compaction leaves it."""
    summary = Message.objects.create(
        conversation=conversation, position=upto, role="user", content="Summary", is_summary=True
    )
    live = Message.objects.filter(conversation=conversation, compacted_into=None, position__lte=upto)
    live.exclude(pk=summary.pk).update(compacted_into=summary, compacted_at=timezone.now())
    return summary
