"""Fixtures with the real thing: server and worker processes, a provider on loopback, people with keys.

`live_server` is embedded. `scaled_server` runs two web and two worker processes on PostgreSQL and Redis, and skips
where DATABASE_URL and REDIS_URL name none.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from bench.house import House
from tests.client import Api, ChatClient
from tests.upstream import Play, Provider, listening_provider

PEOPLE = ["alice", "bob", "charlie"]
AGENTS: list[dict[str, Any]] = [
    {"name": "quick", "model": "mock-ttft0-tps0-n40", "context_window": 128_000},
    {"name": "slow", "model": "mock-ttft10-tps50-n200", "context_window": 128_000},
    {"name": "small", "model": "mock-ttft5-tps200-n60", "context_window": 16_000},
]


@dataclass(slots=True)
class Live:
    """A running installation. Alice owns what she makes, bob is who she invites, charlie is an outsider."""

    house: House
    provider: Provider
    agents: dict[str, int]
    people: dict[str, dict[str, Any]]

    @property
    def url(self) -> str:
        return self.house.url

    def key(self, person: str = "alice") -> str:
        return str(self.people[person]["key"])

    def api(self, person: str = "alice", web: int = 0) -> Api:
        return Api(self.house.urls[web % len(self.house.urls)], self.key(person))

    def tab(self, conversation: str, person: str = "alice", web: int = 0, **how: Any) -> ChatClient:
        """A browser tab, not opened yet; `web` chooses among the web processes."""
        return ChatClient(self.house.urls[web % len(self.house.urls)], self.key(person), conversation, **how)

    def ask(self, task: str, **arguments: Any) -> Any:
        """Ask the database itself (see `bench/clerk.py`)."""
        return self.house.ask(task, **arguments)

    def converse(self, agent: str = "quick", messages: list[dict[str, Any]] | None = None, **more: Any) -> str:
        """A conversation of alice's with a history."""
        return str(self.ask("converse", owner="alice", agent=agent, messages=messages or [], **more))


@contextmanager
def living(house: House, agents: list[dict[str, Any]] | None = None) -> Iterator[Live]:
    """Start a house, furnish it, and take everything down at the end, also after a failure."""
    with listening_provider(Play(ttft=0, tps=0, n=20)) as provider, house:
        made = house.ask("furnish", base_url=provider.base_url, people=PEOPLE, agents=agents or AGENTS)
        try:
            yield Live(house, provider, made["agents"], made["people"])
        except BaseException:
            print(house.logs(30))
            raise


@contextmanager
def scaled_house(database_url: str = "", redis_url: str = "", **how: Any) -> Iterator[House]:
    """A house on a database of its own beside the one DATABASE_URL names: none of the caller's rows is touched."""
    import psycopg

    url, redis_url = database_url or os.environ["DATABASE_URL"], redis_url or os.environ["REDIS_URL"]
    parts = urlsplit(url)
    name = f"bench_{secrets.token_hex(4)}"
    with psycopg.connect(url.replace("postgresql://", "postgres://", 1), autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
    try:
        made = urlunsplit(parts._replace(path=f"/{name}"))
        yield House(database_url=made, redis_url=redis_url, **{"web": 2, "workers": 2, **how})
    finally:
        with psycopg.connect(url.replace("postgresql://", "postgres://", 1), autocommit=True) as admin:
            admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')  # type: ignore[call-overload]


def has_servers() -> bool:
    return os.environ.get("DATABASE_URL", "").startswith("postgres") and bool(os.environ.get("REDIS_URL"))


@pytest.fixture(scope="session")
def live_server() -> Iterator[Live]:
    """Everything in one process on SQLite, shared by the tests of a run: make your own conversation."""
    with living(House()) as live:
        yield live


@pytest.fixture(scope="session")
def scaled_server() -> Iterator[Live]:
    """Two web and two worker processes on PostgreSQL and Redis."""
    if not has_servers():
        pytest.skip("needs DATABASE_URL (PostgreSQL) and REDIS_URL")
    with scaled_house() as house, living(house) as live:
        yield live


@pytest.fixture(scope="session", params=["embedded", "scaled"])
def any_server(request: pytest.FixtureRequest) -> Live:
    """The embedded server, and the scaled one where there are PostgreSQL and Redis."""
    name = "live_server" if request.param == "embedded" else "scaled_server"
    live: Live = request.getfixturevalue(name)
    return live
