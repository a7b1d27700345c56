"""Probes and metrics say what is wrong, by name, in time, to those who may know."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from palimpsest import health, metrics

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_beats() -> None:
    cache.clear()


def test_alive_needs_nothing(client: Client, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        answer = client.get("/healthz", headers={"Host": "10.0.0.7"})
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert not answer.cookies


def test_without_a_worker_it_is_not_ready_and_says_so(client: Client) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["worker"] == {"ok": False, "error": "no worker reads turns and compactions"}
    health.beat(["turns"])
    assert client.get("/readyz").json()["worker"]["error"] == "no worker reads compactions"
    health.beat(["compactions"])
    assert client.get("/readyz").status_code == 200


def test_an_old_beat_is_none(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    health.beat(["turns", "compactions"])
    now = time.time()
    monkeypatch.setattr(health.time, "time", lambda: now + health.BEAT_IS_OLD_AFTER + 1)
    assert client.get("/readyz").json()["worker"]["ok"] is False


def test_a_part_that_hangs_is_named_in_time_and_does_not_pile_up(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, calls = threading.Event(), []

    def hang() -> None:
        calls.append(1)
        hanging.wait(20)

    monkeypatch.setitem(health._PROBES, "database", hang)
    monkeypatch.setattr(health, "PROBE_LIMIT", 0.2)
    try:
        began = time.monotonic()
        for _ in range(3):
            assert client.get("/readyz").json()["database"] == {"ok": False, "error": "no answer within 0.2 s"}
        assert time.monotonic() - began < 5
        assert len(calls) == 1
    finally:
        hanging.set()


def test_a_failure_tells_strangers_its_kind_only(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ConnectionRefusedError("postgres://chat:secret@10.0.0.7")

    monkeypatch.setitem(health._PROBES, "broker", fail)
    assert client.get("/readyz").json()["broker"] == {"ok": False, "error": "ConnectionRefusedError"}


def test_metrics_are_for_this_machine_or_the_token(client: Client, settings: Any) -> None:
    assert client.get("/metrics").status_code == 200
    assert client.get("/metrics", REMOTE_ADDR="203.0.113.7").status_code == 403
    assert client.get("/metrics", headers={"X-Forwarded-For": "203.0.113.7"}).status_code == 403
    settings.METRICS_TOKEN = "a-token"
    assert client.get("/metrics").status_code == 403
    answer = client.get("/metrics", REMOTE_ADDR="203.0.113.7", headers={"Authorization": "Bearer a-token"})
    assert answer.status_code == 200


def test_metrics_count_what_happened(client: Client) -> None:
    def value(name: str) -> float:
        text = client.get("/metrics").content.decode()
        found = [line.split()[-1] for line in text.splitlines() if line.startswith(name)]
        return float(found[0]) if found else 0.0

    before = value('palimpsest_turns_total{state="done"}'), value('palimpsest_tokens_total{kind="prompt"}')
    metrics.turn_ended("done", 2.5)
    metrics.tokens_reported(prompt=120, completion=30, cached=100)
    metrics.compaction_ended("auto", "applied", 9.0)
    assert value('palimpsest_turns_total{state="done"}') == before[0] + 1
    assert value('palimpsest_tokens_total{kind="prompt"}') == before[1] + 120
    assert value('palimpsest_compactions_total{reason="auto",state="applied"}') >= 1
    assert value('palimpsest_open_turns{state="running"}') == 0
