"""Inviting by name and by link, changing roles, leaving."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from chat.models import Conversation, Invitation
from tests.api.conftest import Caller, expect

pytestmark = pytest.mark.django_db


def test_everyone_in_it_sees_who_takes_part(people: dict[str, Caller], here: str) -> None:
    expect(people, lambda who: who.get(f"{here}/participants"), alice=200, bob=200, vera=200)
    shown = people["vera"].get(f"{here}/participants").json["items"]
    assert [(row["name"], row["role"]) for row in shown] == [("alice", "owner"), ("bob", "member"), ("vera", "viewer")]


def test_only_the_owner_invites(people: dict[str, Caller], here: str) -> None:
    wanted = {"username": "charlie", "role": "viewer"}
    expect(people, lambda who: who.post(f"{here}/participants", wanted), bob=403, vera=403)
    assert people["alice"].post(f"{here}/participants", wanted).status == 201
    assert people["charlie"].get(here).json["role"] == "viewer"


def test_a_misspelt_name_is_told(alice: Caller, here: str) -> None:
    assert alice.post(f"{here}/participants", {"username": "charly"}).code == "no_such_person"


def test_nobody_becomes_owner(alice: Caller, here: str) -> None:
    assert alice.post(f"{here}/participants", {"username": "charlie", "role": "owner"}).status == 422
    assert alice.patch(f"{here}/participants/{alice.user.pk}", {"role": "viewer"}).code == "owner_stays"


def test_a_role_is_changed_and_means_something(alice: Caller, bob: Caller, here: str) -> None:
    assert alice.patch(f"{here}/participants/{bob.user.pk}", {"role": "viewer"}).json["role"] == "viewer"
    assert bob.patch(here, {"title": "mine"}).status == 403


def test_removed_people_are_out_at_once_and_their_sockets_told(
    alice: Caller, bob: Caller, here: str, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: object
) -> None:
    told = []
    monkeypatch.setattr("chat.broadcast.publish_to_user", lambda user, message: told.append((user, message["type"])))
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        assert alice.delete(f"{here}/participants/{bob.user.pk}").status == 204
    assert bob.get(here).status == 404
    assert told == [(bob.user.pk, "recheck")]


def test_who_was_removed_cannot_come_back_by_a_link(alice: Caller, bob: Caller, vera: Caller, here: str) -> None:
    link = alice.post(f"{here}/invitations", {}).json["link"].removeprefix("http://testserver")
    assert vera.delete(f"{here}/participants/{vera.user.pk}").status == 204
    assert alice.get(f"{here}/invitations").json["items"], "who leaves takes no link away"

    alice.delete(f"{here}/participants/{bob.user.pk}")

    assert alice.get(f"{here}/invitations").json["items"] == []
    bob.client.post(link)
    assert bob.get(here).status == 404


def test_one_may_leave_but_not_remove_others_and_the_owner_stays(
    alice: Caller, bob: Caller, vera: Caller, here: str
) -> None:
    assert bob.delete(f"{here}/participants/{vera.user.pk}").status == 403
    assert vera.delete(f"{here}/participants/{vera.user.pk}").status == 204
    assert alice.delete(f"{here}/participants/{alice.user.pk}").code == "owner_stays"


def test_the_prefix_changes_when_a_second_person_comes_or_the_last_one_goes(
    alice: Caller, bob: Caller, vera: Caller, conversation: Conversation, here: str
) -> None:
    alice.delete(f"{here}/participants/{bob.user.pk}")
    assert alice.get(here).json["epoch"] == conversation.epoch
    alice.delete(f"{here}/participants/{vera.user.pk}")
    assert alice.get(here).json["epoch"] == conversation.epoch + 1
    alice.post(f"{here}/participants", {"username": "bob"})
    assert alice.get(here).json["epoch"] == conversation.epoch + 2


def test_a_link_lets_one_join_and_is_not_stored(
    people: dict[str, Caller], here: str, conversation: Conversation
) -> None:
    expect(people, lambda who: who.post(f"{here}/invitations", {}), bob=403, vera=403)
    made = people["alice"].post(f"{here}/invitations", {"role": "viewer"}).json
    path = made["link"].removeprefix("http://testserver")
    charlie = people["charlie"]
    assert "Sights" in charlie.client.get(path).content.decode()
    assert charlie.get(here).status == 404, "looking at a link joins nothing"
    assert charlie.client.post(path).headers["Location"] == f"/c/{conversation.pk}"
    assert charlie.get(here).json["role"] == "viewer"
    token = path.rsplit("/", 1)[1]
    assert token not in str(Invitation.objects.values())
    listed = people["alice"].get(f"{here}/invitations").json["items"]
    assert [(row["link"], row["uses"]) for row in listed] == [(None, 1)]


def test_a_link_gives_nobody_a_smaller_role(alice: Caller, bob: Caller, here: str) -> None:
    link = alice.post(f"{here}/invitations", {"role": "viewer"}).json["link"]
    bob.client.post(link.removeprefix("http://testserver"))
    assert bob.get(here).json["role"] == "member"


def test_expired_and_revoked_links_are_over(alice: Caller, charlie: Caller, here: str) -> None:
    first = alice.post(f"{here}/invitations", {}).json
    assert alice.delete(f"{here}/invitations/{first['id']}").status == 204
    assert alice.delete(f"{here}/invitations/{first['id']}").status == 404
    second = alice.post(f"{here}/invitations", {}).json
    Invitation.objects.filter(pk=second["id"]).update(expires_at=timezone.now() - timedelta(seconds=1))
    for link in (first["link"], second["link"]):
        path = link.removeprefix("http://testserver")
        assert charlie.client.get(path).status_code == charlie.client.post(path).status_code == 410
    assert charlie.get(here).status == 404
