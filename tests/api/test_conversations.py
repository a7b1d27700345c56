"""/conversations: who sees, makes, changes and deletes what."""

from __future__ import annotations

import pytest
from django.test.utils import CaptureQueriesContext

from chat.api.schemas import ConversationOut
from chat.models import Conversation, Participant
from tests.api.conftest import Caller, expect
from tests.builders import add_messages, make_agent, make_conversation

pytestmark = pytest.mark.django_db


def test_only_its_people_read_a_conversation(people: dict[str, Caller], here: str) -> None:
    expect(people, lambda who: who.get(here), alice=200, bob=200, vera=200)


def test_each_sees_their_own_role(people: dict[str, Caller], here: str) -> None:
    roles = {name: people[name].get(here).json["role"] for name in ("alice", "bob", "vera")}
    assert roles == {"alice": "owner", "bob": "member", "vera": "viewer"}


def test_the_shape_is_the_documented_one(alice: Caller, here: str) -> None:
    shown = alice.get(here).json
    assert set(shown) == set(ConversationOut.model_fields)
    ConversationOut.model_validate(shown)


def test_the_list_shows_what_one_takes_part_in(people: dict[str, Caller], conversation: Conversation) -> None:
    listed = {
        name: [row["id"] for row in people[name].get("/conversations").json["items"]]
        for name in ("alice", "bob", "vera", "charlie")
    }
    assert listed == {
        "alice": [str(conversation.pk)],
        "bob": [str(conversation.pk)],
        "vera": [str(conversation.pk)],
        "charlie": [],
    }
    assert people["anonymous"].get("/conversations").code == "sign_in"


def test_the_list_goes_on_where_it_ended_and_shows_pinned_ones_first(alice: Caller) -> None:
    made = [make_conversation(owner=alice.user, title=f"number {n}", pinned=n == 2) for n in range(5)]
    seen, cursor = [], None
    for _ in range(5):
        page = alice.get("/conversations", limit=2, **({"cursor": cursor} if cursor else {})).json
        seen += [row["title"] for row in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen[0] == "number 2"
    assert sorted(seen) == sorted(row.title for row in made)


def test_a_broken_cursor_is_refused(alice: Caller) -> None:
    assert alice.get("/conversations", cursor="nonsense").status == 422


def test_search_takes_percent_signs_literally(alice: Caller) -> None:
    make_conversation(owner=alice.user, title="100% sure")
    make_conversation(owner=alice.user, title="1000 times")
    found = alice.get("/conversations", q="100%").json["items"]
    assert [row["title"] for row in found] == ["100% sure"]


def test_the_list_costs_the_same_for_many_conversations(alice: Caller, django_assert_num_queries: object) -> None:
    agent = make_agent()
    for number in range(3):
        make_conversation(owner=alice.user, agent=agent, title=str(number))
    few = _queries(alice, "/conversations")
    for number in range(30):
        make_conversation(owner=alice.user, agent=agent, title=str(number))
    assert _queries(alice, "/conversations") == few <= 3


def test_reading_and_messages_cost_the_same_at_any_length(alice: Caller, conversation: Conversation, here: str) -> None:
    short = (_queries(alice, here), _queries(alice, f"{here}/messages"))
    add_messages(conversation, [f"message {n}" for n in range(1_000)])
    assert (_queries(alice, here), _queries(alice, f"{here}/messages")) == short
    assert short <= (3, 4)


def test_a_new_conversation_has_the_first_agent(alice: Caller) -> None:
    agent = make_agent(name="First")
    make_agent(name="Second")
    made = alice.post("/conversations", {"title": "  Plans \n for  May "})
    assert made.status == 201
    assert made.json["agent"]["id"] == agent.pk
    assert made.json["title"] == "Plans for May"
    assert made.json["role"] == "owner"


def test_an_unknown_or_disabled_agent_is_refused(alice: Caller) -> None:
    disabled = make_agent(enabled=False)
    assert alice.post("/conversations", {"agent": disabled.pk}).code == "agent_unavailable"
    assert alice.post("/conversations", {"agent": 10**9}).code == "agent_unavailable"
    assert alice.post("/conversations", {}).code == "no_agent"


def test_members_change_it_viewers_do_not(people: dict[str, Caller], here: str) -> None:
    expect(people, lambda who: who.patch(here, {"title": "Trip"}), alice=200, bob=200, vera=403)


def test_another_agent_begins_a_new_epoch(alice: Caller, conversation: Conversation, here: str) -> None:
    other = make_agent()
    changed = alice.patch(here, {"agent": other.pk}).json
    assert changed["agent"]["id"] == other.pk
    assert (changed["epoch"], changed["version"]) == (conversation.epoch + 1, conversation.version + 1)


def test_a_change_of_nothing_moves_no_version(alice: Caller, conversation: Conversation, here: str) -> None:
    assert alice.patch(here, {"title": conversation.title}).json["version"] == conversation.version


def test_pinned_and_archived_are_kept(alice: Caller, here: str) -> None:
    assert alice.patch(here, {"pinned": True, "archived": True}).json["pinned"] is True
    assert alice.get("/conversations").json["items"] == []
    assert len(alice.get("/conversations", archived=True).json["items"]) == 1


def test_only_the_owner_deletes_and_it_is_gone_at_once(people: dict[str, Caller], here: str) -> None:
    expect(people, lambda who: who.delete(here), bob=403, vera=403)
    assert people["alice"].delete(here).status == 204
    expect(people, lambda who: who.get(here), alice=404, bob=404, vera=404)
    assert people["bob"].get("/conversations").json["items"] == []
    assert Participant.objects.count() == 3


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"title": 5}, 422),
        ({"titel": "x"}, 422),
        ({"title": "x" * 201}, 422),
        (b"{not json", 400),
        (b"", 422),
        ([], 422),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(alice: Caller, here: str, body: object, status: int) -> None:
    assert alice.patch(here, body).status == status


def test_unknown_addresses_and_methods_answer_in_json(alice: Caller, here: str) -> None:
    assert alice.get("/nothing").status == 404
    assert alice.get("/conversations/not-a-uuid").status == 404
    assert alice.post(here, {}).code == "method_not_allowed"


def test_a_session_needs_the_csrf_token(alice: Caller, here: str) -> None:
    alice.client.handler.enforce_csrf_checks = True
    refused = alice.patch(here, {"title": "stolen"})
    assert (refused.status, refused.code) == (403, "csrf_failed")


def test_a_fault_of_ours_is_a_sentence_with_a_number(alice: Caller, here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("chat.api.conversations.access_conversation", broken)
    assert alice.get(here).code == "fault"


def _queries(who: Caller, path: str) -> int:
    from django.db import connection

    with CaptureQueriesContext(connection) as captured:
        assert who.get(path).status == 200
    return len(captured)
