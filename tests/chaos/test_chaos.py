"""The short form of `make chaos`: reloads and kills, and every tab shows what the database holds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from bench import chaos
from bench.chaos import RedisServer
from bench.house import House
from tests.live import has_servers
from tests.upstream import Play, Provider, listening_provider

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with listening_provider(Play(ttft=20, tps=60, n=120)) as made:
        yield made


def test_embedded(provider: Provider) -> None:
    with House() as house:
        assert chaos.run(house, provider, ["refreshes", "kills"], short=True, seed=7, redis=None), house.logs()


@pytest.mark.skipif(not has_servers(), reason="needs DATABASE_URL (PostgreSQL) and REDIS_URL")
@pytest.mark.skipif(not shutil.which("redis-server"), reason="needs redis-server, to kill one of its own")
def test_scaled(provider: Provider) -> None:
    with chaos.scaled("") as (house, server):
        assert isinstance(server, RedisServer)
        scenes = ["refreshes", "kills", "redis", "web"]
        assert chaos.run(house, provider, scenes, short=True, seed=7, redis=server), house.logs()
