"""Numbers for Prometheus. Counters belong to the process that counts; what the database knows is asked at a scrape.

Several processes on one machine show their counters together when they share a folder: PROMETHEUS_MULTIPROC_DIR.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from typing import Any

from django.db.models import Count, Min
from django.utils import timezone
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

registry = CollectorRegistry()

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

TURNS = Counter("palimpsest_turns", "Turns that ended, by state.", ["state"], registry=registry)
TURN_SECONDS = Histogram("palimpsest_turn_seconds", "From claim to end.", buckets=_SECONDS, registry=registry)
FIRST_TOKEN_SECONDS = Histogram(
    "palimpsest_first_token_seconds", "From claim to the first piece of text.", buckets=_SECONDS, registry=registry
)
TOKENS = Counter("palimpsest_tokens", "Tokens that providers reported, by kind.", ["kind"], registry=registry)
COMPACTIONS = Counter(
    "palimpsest_compactions", "Compactions that ended, by reason and state.", ["reason", "state"], registry=registry
)
COMPACTION_SECONDS = Histogram(
    "palimpsest_compaction_seconds", "From start to end of a compaction.", buckets=_SECONDS, registry=registry
)
SOCKETS = Gauge("palimpsest_sockets", "Open sockets.", registry=registry, multiprocess_mode="livesum")


def turn_ended(state: str, seconds: float) -> None:
    TURNS.labels(state).inc()
    TURN_SECONDS.observe(seconds)


def tokens_reported(prompt: int, completion: int, cached: int = 0) -> None:
    """What a provider reported for one call (tokens)."""
    TOKENS.labels("prompt").inc(prompt)
    TOKENS.labels("completion").inc(completion)
    TOKENS.labels("cached").inc(cached)


def compaction_ended(reason: str, state: str, seconds: float) -> None:
    COMPACTIONS.labels(reason, state).inc()
    COMPACTION_SECONDS.observe(seconds)


class Stored(Collector):
    """What the database knows: queues and open work. Asked at most every few seconds, however many scrape."""

    KEPT_SECONDS = 5.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: list[GaugeMetricFamily] = []
        self._asked_at = float("-inf")

    def collect(self) -> Iterable[GaugeMetricFamily]:
        with self._lock:
            if time.monotonic() - self._asked_at > self.KEPT_SECONDS:
                self._families = self._ask()
                self._asked_at = time.monotonic()
            return list(self._families)

    def _ask(self) -> list[GaugeMetricFamily]:
        from chat.models import Turn, TurnState
        from compaction.models import Compaction

        open_turns = Turn.objects.filter(state__in=(TurnState.QUEUED, TurnState.RUNNING))
        turns = GaugeMetricFamily("palimpsest_open_turns", "Turns that wait or run.", labels=["state"])
        counted = {row["state"]: row["count"] for row in open_turns.values("state").annotate(count=Count("id"))}
        for state in (TurnState.QUEUED, TurnState.RUNNING):
            turns.add_metric([state.value], counted.get(state.value, 0))
        oldest = Turn.objects.filter(state=TurnState.QUEUED).aggregate(at=Min("created_at"))["at"]
        age = (timezone.now() - oldest).total_seconds() if oldest else 0.0
        waiting = GaugeMetricFamily("palimpsest_oldest_queued_turn_seconds", "Age of the turn that waits longest.", age)
        open_states = ("queued", "running", "ready")
        rows = Compaction.objects.filter(state__in=open_states).values("state").annotate(count=Count("id"))
        runs = {row["state"]: row["count"] for row in rows}
        compactions = GaugeMetricFamily("palimpsest_open_compactions", "Compactions not ended yet.", labels=["state"])
        for name in open_states:
            compactions.add_metric([name], runs.get(name, 0))
        return [turns, waiting, compactions]


_stored = Stored()


def exposition() -> tuple[bytes, str]:
    """All numbers in Prometheus' text form, and its content type."""
    shown: Any = CollectorRegistry()
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        MultiProcessCollector(shown)  # type: ignore[no-untyped-call]
    else:
        shown.register(_Counted())
    shown.register(_stored)
    return generate_latest(shown), CONTENT_TYPE_LATEST


class _Counted(Collector):
    def collect(self) -> Iterable[Any]:
        return registry.collect()
