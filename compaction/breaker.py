"""What stops automatic compaction after failures in a row: a pure state, rebuilt from the stored runs at any time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

FAILURES_TO_OPEN = 3
FORCED_FAILURES = 3

_FORCED = {"hard", "overflow"}


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run as the breaker sees it. `fingerprint`: of history, model and settings when it began."""

    reason: str
    state: str
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Breaker:
    """Failures in a row. Open, it holds back automatic runs; forced ones go on, three times for one situation."""

    failures: int = 0
    forced_failures: int = 0
    fingerprint: str = ""  # the situation of the forced failures

    @property
    def is_open(self) -> bool:
        return self.failures >= FAILURES_TO_OPEN

    def forcing_stopped(self, fingerprint: str) -> bool:
        """Whether forced runs have failed often enough in just this situation."""
        return self.forced_failures >= FORCED_FAILURES and fingerprint == self.fingerprint

    def after(self, run: Run) -> Breaker:
        """The state after one more run. Skipped, stale, cancelled and undone runs never count."""
        if run.state == "applied":
            return Breaker()
        if run.state != "failed" or run.reason == "manual":
            return self
        if run.reason not in _FORCED:
            return replace(self, failures=self.failures + 1)
        same = run.fingerprint == self.fingerprint
        return replace(self, forced_failures=(self.forced_failures if same else 0) + 1, fingerprint=run.fingerprint)

    @classmethod
    def of(cls, runs: Iterable[Run]) -> Breaker:
        """The state after these runs, oldest first."""
        state = cls()
        for run in runs:
            state = state.after(run)
        return state


def fingerprint(*parts: object) -> str:
    """Names a situation: equal parts (history, model, settings) give the same name, in every process."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:32]
