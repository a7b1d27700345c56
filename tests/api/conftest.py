"""Callers of the API: alice owns a conversation, bob is a member, vera a viewer, charlie an outsider, one nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chat.models import Conversation, Role
from tests.builders import make_agent, make_conversation, make_user

NAMES = ("alice", "bob", "vera", "charlie", "anonymous")


@dataclass
class Caller:
    """A person's way to the API. Every answer is parsed; errors must have their form."""

    client: Client
    user: User | None

    def get(self, path: str, **query: Any) -> Answer:
        return Answer(self.client.get(_url(path), query))

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self._send("POST", path, body, headers)

    def patch(self, path: str, body: Any = None) -> Answer:
        return self._send("PATCH", path, body, {})

    def delete(self, path: str) -> Answer:
        return self._send("DELETE", path, None, {})

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        response = self.client.generic(
            method, _url(path), b"" if body is None else _json(body), "application/json", headers=headers
        )
        return Answer(response)


class Answer:
    def __init__(self, response: Any) -> None:
        self.response = response
        self.status: int = response.status_code
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        self.json: Any = response.json() if is_json else None
        if self.status >= 400:
            assert set(self.json) == {"code", "message"}, response.content[:300]
            assert self.json["code"]
            assert self.json["message"]

    @property
    def code(self) -> str | None:
        return self.json["code"] if self.status >= 400 else None


def _url(path: str) -> str:
    return f"/api/v1{path}"


def _json(body: Any) -> bytes:
    import orjson

    return body if isinstance(body, bytes) else orjson.dumps(body)


@pytest.fixture
def people(db: None) -> dict[str, Caller]:
    callers = {}
    for name in NAMES[:4]:
        user = make_user(name)
        client = Client(raise_request_exception=False)
        client.force_login(user)
        callers[name] = Caller(client, user)
    callers["anonymous"] = Caller(Client(raise_request_exception=False), None)
    return callers


@pytest.fixture
def alice(people: dict[str, Caller]) -> Caller:
    return people["alice"]


@pytest.fixture
def bob(people: dict[str, Caller]) -> Caller:
    return people["bob"]


@pytest.fixture
def vera(people: dict[str, Caller]) -> Caller:
    return people["vera"]


@pytest.fixture
def charlie(people: dict[str, Caller]) -> Caller:
    return people["charlie"]


@pytest.fixture
def anonymous(people: dict[str, Caller]) -> Caller:
    return people["anonymous"]


@pytest.fixture
def conversation(people: dict[str, Caller]) -> Conversation:
    return make_conversation(
        ["Where is the harbour?", "At the end of the street.", "And the station?", "Behind the harbour."],
        owner=people["alice"].user,
        agent=make_agent(system_prompt="Be a guide.", sees_images=True),
        people=[(people["bob"].user, Role.MEMBER), (people["vera"].user, Role.VIEWER)],
        title="Sights",
    )


@pytest.fixture
def here(conversation: Conversation) -> str:
    return f"/conversations/{conversation.pk}"


def expect(people: dict[str, Caller], call: Any, **statuses: int) -> None:
    """Every person makes the same call; those not named see 404 (charlie) or 401 (anonymous)."""
    for name in NAMES:
        default = {"charlie": 404, "anonymous": 401}.get(name)
        wanted = statuses.get(name, default)
        if wanted is not None:
            answer = call(people[name])
            assert answer.status == wanted, f"{name}: {answer.status} {answer.json}"
