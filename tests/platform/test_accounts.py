"""Doors: who gets in, by what, and when they are out again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from palimpsest.accounts import access, first
from palimpsest.accounts.asgi import person_of, refusal_of
from palimpsest.accounts.keys import make_key, user_of_key
from palimpsest.accounts.models import ApiKey

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice() -> User:
    return User.objects.create_user("alice", password="a quiet parchment")


@pytest.fixture
def lost() -> Iterator[list[int]]:
    """The people who lost access, as the sockets hear of it."""
    heard: list[int] = []
    access.on_access_lost(heard.append)
    yield heard
    access._callbacks.remove(heard.append)


# Keys


def test_a_key_is_stored_as_a_digest_only(alice: User) -> None:
    key = make_key(alice, "a script")
    row = ApiKey.objects.get()
    assert key.startswith("pal_")
    assert key not in str(row.__dict__)
    assert user_of_key(key) == alice


@pytest.mark.parametrize("key", ["", "pal_", "pal_" + "x" * 43, "\ud800", "ü" * 5000])
def test_an_unknown_key_is_nobodys(alice: User, key: str) -> None:
    make_key(alice)
    assert user_of_key(key) is None


def test_a_revoked_key_and_a_key_of_a_deactivated_person_end(alice: User) -> None:
    revoked, kept = make_key(alice), make_key(alice)
    ApiKey.objects.filter(pk=ApiKey.objects.earliest("id").pk).update(revoked_at=timezone.now())
    assert user_of_key(revoked) is None
    assert user_of_key(kept) == alice
    User.objects.update(is_active=False)
    assert user_of_key(kept) is None


def test_use_is_noted_at_most_once_a_minute(alice: User, django_assert_num_queries: Any) -> None:
    key = make_key(alice)
    user_of_key(key)
    with django_assert_num_queries(1):
        user_of_key(key)
    ApiKey.objects.update(last_used_at=timezone.now() - timedelta(minutes=2))
    with django_assert_num_queries(2):
        user_of_key(key)


def test_the_command_needs_an_active_person(alice: User, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("create_api_key", "alice", name="a script")
    assert user_of_key(capsys.readouterr().out.strip()) == alice
    with pytest.raises(CommandError, match="no user"):
        call_command("create_api_key", "bob")
    User.objects.update(is_active=False)
    with pytest.raises(CommandError, match="not active"):
        call_command("create_api_key", "alice")


# Pages and API


def test_without_a_session_a_page_asks_to_sign_in_and_the_api_says_401(client: Client) -> None:
    assert client.get("/").headers["Location"] == "/accounts/login/?next=/"
    answer = client.get("/api/v1/agents")
    assert answer.status_code == 401
    assert set(answer.json()) == {"code", "message"}


def test_a_key_needs_no_csrf_token_and_makes_no_session(alice: User) -> None:
    client = Client(enforce_csrf_checks=True)
    answer = client.post("/language/", {"language": "en"}, headers={"Authorization": f"Bearer {make_key(alice)}"})
    assert answer.status_code != 403
    assert "sessionid" not in answer.cookies


def test_a_key_neither_administers_nor_changes_the_password(alice: User) -> None:
    User.objects.update(is_staff=True, is_superuser=True)
    headers = {"Authorization": f"Bearer {make_key(alice)}"}
    for path in ("/admin/", "/accounts/password/change/"):
        assert Client().get(path, headers=headers).status_code == 302


def test_sign_up_opens_only_where_the_site_says_so(client: Client, settings: Any) -> None:
    form = {"username": "bob", "password1": "a quiet parchment", "password2": "a quiet parchment"}
    client.post("/accounts/signup/", form)
    assert not User.objects.exists()
    settings.SIGNUP = "open"
    client.post("/accounts/signup/", form)
    assert User.objects.get().username == "bob"
    assert not User.objects.get().is_staff


def test_people_sign_in_by_name_and_out(client: Client, alice: User) -> None:
    client.post("/accounts/login/", {"login": "alice", "password": "a quiet parchment"})
    assert client.session["_auth_user_id"] == str(alice.pk)
    client.post("/accounts/logout/")
    assert "_auth_user_id" not in client.session


def test_guessing_a_password_is_slowed_down(client: Client, alice: User) -> None:
    from django.core.cache import cache

    cache.clear()
    for _ in range(6):
        client.post("/accounts/login/", {"login": "alice", "password": "wrong"})
    client.post("/accounts/login/", {"login": "alice", "password": "a quiet parchment"})
    assert "_auth_user_id" not in client.session
    cache.clear()


# The first administrator


def test_the_link_is_void_as_soon_as_there_is_an_administrator(client: Client) -> None:
    link = first.link_path()
    form = {"username": "alice", "password1": "a quiet parchment", "password2": "a quiet parchment"}
    assert client.post(link, form).status_code == 302
    alice = User.objects.get()
    assert alice.is_superuser
    assert client.session["_auth_user_id"] == str(alice.pk)
    Client().post(link, {**form, "username": "mallory"})
    assert User.objects.count() == 1


def test_a_forged_or_old_link_opens_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    form = {"username": "mallory", "password1": "a quiet parchment", "password2": "a quiet parchment"}
    assert client.post("/accounts/first/forged/", form).status_code == 403
    link = first.link_path()
    monkeypatch.setattr(first, "VALID_SECONDS", -1)
    assert client.post(link, form).status_code == 403
    assert not User.objects.exists()


def test_a_weak_password_is_refused_with_its_reason(client: Client) -> None:
    answer = client.post(first.link_path(), {"username": "alice", "password1": "12345678", "password2": "12345678"})
    assert answer.status_code == 200
    assert b"too common" in answer.content
    assert not User.objects.exists()


# Lost access


@pytest.mark.django_db(transaction=True)
def test_sockets_hear_of_a_sign_out_after_the_session_ended(client: Client, alice: User) -> None:
    client.force_login(alice)
    cookie = client.cookies["sessionid"].value
    seen: list[bool] = []

    def recheck(user_id: int) -> None:
        seen.append(person_of(scope(cookie=f"sessionid={cookie}")).is_authenticated)

    access.on_access_lost(recheck)
    try:
        client.post("/accounts/logout/")
    finally:
        access._callbacks.remove(recheck)
    assert seen == [False]


@pytest.mark.django_db(transaction=True)
def test_sockets_hear_of_passwords_deactivation_and_revoked_keys(alice: User, lost: list[int]) -> None:
    alice.first_name = "Alice"
    alice.save()
    assert lost == []
    alice.set_password("another parchment")
    alice.save()
    assert lost == [alice.pk]
    alice.is_active = False
    alice.save()
    assert lost == [alice.pk] * 2
    make_key(alice)
    row = ApiKey.objects.get()
    row.revoked_at = timezone.now()
    row.save()
    assert lost == [alice.pk] * 3


@pytest.mark.django_db(transaction=True)
def test_a_new_password_ends_the_other_sessions(alice: User) -> None:
    here, elsewhere = Client(), Client()
    for client in (here, elsewhere):
        client.force_login(alice)
    here.post(
        "/accounts/password/change/",
        {"oldpassword": "a quiet parchment", "password1": "another parchment", "password2": "another parchment"},
    )
    cookies = [client.cookies["sessionid"].value for client in (here, elsewhere)]
    people = [person_of(scope(cookie=f"sessionid={cookie}")) for cookie in cookies]
    assert [person.is_authenticated for person in people] == [True, False]


# Sockets


def scope(host: str = "localhost", scheme: str = "ws", **headers: str) -> dict[str, Any]:
    named = {"host": host, **headers}
    return {
        "type": "websocket",
        "scheme": scheme,
        "path": "/ws/",
        "headers": [(name.encode(), value.encode("latin1")) for name, value in named.items()],
    }


def test_a_socket_belongs_to_the_person_of_its_key_or_session(alice: User, client: Client) -> None:
    key = make_key(alice)
    client.force_login(alice)
    assert person_of(scope(authorization=f"Bearer {key}")) == alice
    assert person_of(scope(cookie=f"sessionid={client.cookies['sessionid'].value}")) == alice
    assert not person_of(scope(cookie="sessionid=forged")).is_authenticated
    assert not person_of(scope(cookie="\x00=;;;")).is_authenticated
    assert not person_of(scope()).is_authenticated


@pytest.mark.parametrize(
    ("origin", "host", "scheme", "fine"),
    [
        ("http://localhost:8000", "localhost:8000", "ws", True),
        ("http://localhost", "localhost:80", "ws", True),
        ("https://localhost", "localhost", "wss", True),
        ("https://chat.example.org", "localhost:8000", "ws", True),
        ("https://chat.example.org:444", "localhost:8000", "ws", False),
        ("http://localhost:8001", "localhost:8000", "ws", False),
        ("https://localhost:8000", "localhost:8000", "ws", False),
        ("http://evil.example", "localhost:8000", "ws", False),
        ("http://evil.example", "evil.example", "ws", False),
        ("http://localhost:8000.evil.example", "localhost:8000", "ws", False),
        ("null", "localhost", "ws", False),
        ("", "localhost", "ws", False),
    ],
)
def test_origins_are_compared_with_scheme_host_and_port(
    origin: str, host: str, scheme: str, fine: bool, settings: Any
) -> None:
    settings.ALLOWED_HOSTS = ["localhost"]
    settings.CSRF_TRUSTED_ORIGINS = ["https://chat.example.org"]
    assert (refusal_of(scope(host, scheme, origin=origin, cookie="sessionid=x")) is None) is fine


def test_only_a_trusted_proxy_says_that_the_connection_was_encrypted(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["chat.example.org"]
    asked = scope("chat.example.org", origin="https://chat.example.org", **{"x-forwarded-proto": "https"})
    assert refusal_of(asked) is not None
    settings.TRUSTED_PROXIES = 1
    assert refusal_of(asked) is None
