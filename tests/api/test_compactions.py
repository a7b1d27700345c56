"""/conversations/<id>/context and …/compactions."""

from __future__ import annotations

import pytest

from chat.api.schemas import CompactionOut
from chat.models import Conversation, Message
from compaction.models import Compaction
from tests.api.conftest import Caller, expect
from tests.builders import make_conversation

pytestmark = pytest.mark.django_db


def test_everyone_in_it_sees_the_meter(people: dict[str, Caller], here: str) -> None:
    expect(people, lambda who: who.get(f"{here}/context"), alice=200, bob=200, vera=200)
    shown = people["vera"].get(f"{here}/context").json
    assert sum(shown["parts"].values()) == shown["used_tokens"]


def test_members_ask_for_a_compaction_viewers_do_not(people: dict[str, Caller], here: str) -> None:
    expect(people, lambda who: who.post(f"{here}/compactions", {}), alice=202, bob=202, vera=403)
    expect(people, lambda who: who.get(f"{here}/compactions"), alice=200, bob=200, vera=200)
    shown = people["alice"].get(f"{here}/compactions").json["items"]
    assert len(shown) == 1, "asked twice, it is one run"
    CompactionOut.model_validate(shown[0])
    assert set(shown[0]) == set(CompactionOut.model_fields)
    assert (shown[0]["state"], shown[0]["requested_by"]) == ("queued", "alice")


def test_an_open_run_is_cancelled_by_members(people: dict[str, Caller], here: str) -> None:
    run = people["alice"].post(f"{here}/compactions", {"instructions": "keep the SQL"}).json["id"]
    path = f"{here}/compactions/{run}/cancel"
    expect(people, lambda who: who.post(path), bob=202, vera=403)
    assert people["alice"].post(path).status == 409
    assert people["alice"].get(f"{here}/compactions/{run}").json["error"]["code"] == "cancelled"


def test_a_run_of_another_conversation_is_not_found(people: dict[str, Caller], here: str) -> None:
    elsewhere = make_conversation(["Hello"], owner=people["charlie"].user)
    run = Compaction.objects.create(conversation=elsewhere, reason="manual")
    for action in ("cancel", "undo"):
        assert people["alice"].post(f"{here}/compactions/{run.pk}/{action}").status == 404
    assert people["alice"].get(f"{here}/compactions/{run.pk}").status == 404


def test_only_the_newest_applied_one_can_be_undone_and_not_by_viewers(
    people: dict[str, Caller], conversation: Conversation, here: str
) -> None:
    older, newer = (_applied(conversation, position) for position in (2, 4))
    shown = {row["id"]: row["can_undo"] for row in people["vera"].get(f"{here}/compactions").json["items"]}
    assert shown == {older.pk: False, newer.pk: True}
    assert people["vera"].post(f"{here}/compactions/{newer.pk}/undo").status == 403
    assert people["alice"].post(f"{here}/compactions/{older.pk}/undo").status == 409
    undone = people["bob"].post(f"{here}/compactions/{newer.pk}/undo").json
    assert undone["state"] == "undone"


def test_the_list_goes_on_by_cursor(alice: Caller, conversation: Conversation, here: str) -> None:
    made = [Compaction.objects.create(conversation=conversation, reason="auto", state="failed").pk for _ in range(5)]
    first = alice.get(f"{here}/compactions", limit=3).json
    rest = alice.get(f"{here}/compactions", limit=3, before=first["next"]).json
    assert [row["id"] for row in first["items"] + rest["items"]] == made[::-1]
    assert rest["next"] is None


def _applied(conversation: Conversation, position: int) -> Compaction:
    summary = Message.objects.create(
        conversation=conversation, position=position, role="user", content="Summary", is_summary=True
    )
    return Compaction.objects.create(
        conversation=conversation, reason="manual", state="applied", prefix={"messages": []}, summary_message=summary
    )
