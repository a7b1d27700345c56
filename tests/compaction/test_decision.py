"""The decision and the breaker: every refusal has a code and a sentence, and no sequence of events loops."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.breaker import Breaker, Run, fingerprint
from compaction.decision import FloorParts, Situation, decide
from compaction.thresholds import compute_thresholds

LADDER = compute_thresholds(128_000)  # warn 76,800, auto 95,000, hard 105,000, block 105,000
SMALL = compute_thresholds(32_000)  # auto and hard 22,400, block 27,404
OPEN = Breaker(failures=3)
STOPPED = Breaker(failures=3, forced_failures=3, fingerprint="same")


def situation(tokens: int, **fields: Any) -> Situation:
    fields.setdefault("thresholds", LADDER)
    return Situation(tokens=tokens, **fields)


@pytest.mark.parametrize(
    ("now", "action", "reason", "code"),
    [
        (situation(94_999), "none", None, ""),
        (situation(95_000), "run", "auto", ""),
        (situation(105_000), "wait", "hard", ""),
        (situation(96_000, open_compaction=True), "none", None, "already_running"),
        (situation(105_000, open_compaction=True), "wait", None, "already_running"),
        (situation(96_000, attempted=True), "skip", None, "already_attempted"),
        (situation(96_000, floor=FloorParts(tools=90_000)), "skip", None, "floor_too_high"),
        (situation(96_000, paused=True), "skip", None, "paused_after_undo"),
        (situation(105_000, paused=True), "wait", "hard", ""),
        (situation(105_000, paused=True, idle=True), "skip", None, "paused_after_undo"),
        (situation(105_000, idle=True), "wait", "hard", ""),
        (situation(96_000, breaker=OPEN), "skip", None, "breaker_open"),
        (situation(105_000, breaker=OPEN), "wait", "hard", ""),
        (situation(105_000, breaker=STOPPED, fingerprint="same"), "skip", None, "forcing_stopped"),
        (situation(105_000, breaker=STOPPED, fingerprint="changed"), "wait", "hard", ""),
        (situation(96_000, new_since_last_run=False), "skip", None, "nothing_new"),
        (situation(96_000, coverable=0), "skip", None, "nothing_to_compact"),
        (situation(96_000, coverable=9_000), "skip", None, "gain_too_small"),
        (situation(22_400, thresholds=SMALL), "run", "auto", ""),
        (situation(22_400, thresholds=SMALL, breaker=OPEN), "skip", None, "breaker_open"),
        (situation(27_404, thresholds=SMALL, breaker=OPEN), "wait", "hard", ""),
        (situation(100_000, thresholds=compute_thresholds(128_000, 0)), "none", None, ""),
        (situation(105_000, thresholds=compute_thresholds(128_000, 0)), "refuse", None, "switched_off"),
    ],
)
def test_by_itself(now: Situation, action: str, reason: str | None, code: str) -> None:
    decision = decide(now)

    assert (decision.action, decision.reason, decision.code) == (action, reason, code)
    assert bool(decision.message) == bool(code)


@pytest.mark.parametrize(
    ("fields", "action", "reason", "code"),
    [
        ({}, "run", "manual", ""),
        ({"paused": True, "breaker": STOPPED, "new_since_last_run": False}, "run", "manual", ""),
        ({"thresholds": compute_thresholds(128_000, 0)}, "run", "manual", ""),
        ({"turn_running": True}, "wait", "manual", "turn_running"),
        ({"open_compaction": True}, "skip", None, "already_running"),
        ({"coverable": 0}, "skip", None, "nothing_to_compact"),
    ],
)
def test_asked_for(fields: dict[str, Any], action: str, reason: str | None, code: str) -> None:
    decision = decide(situation(20_000, requested="manual", **fields))

    assert (decision.action, decision.reason, decision.code) == (action, reason, code)


@pytest.mark.parametrize(
    ("fields", "action", "code"),
    [
        ({}, "wait", ""),
        ({"breaker": OPEN, "paused": True}, "wait", ""),
        ({"attempted": True}, "skip", "already_attempted"),
        ({"breaker": STOPPED, "fingerprint": "same"}, "skip", "forcing_stopped"),
        ({"thresholds": compute_thresholds(128_000, 0)}, "refuse", "switched_off"),
        ({"open_compaction": True}, "wait", "already_running"),
    ],
)
def test_rescue_after_the_provider_refused(fields: dict[str, Any], action: str, code: str) -> None:
    decision = decide(situation(60_000, requested="overflow", **fields))

    assert (decision.action, decision.code) == (action, code)


def test_a_floor_that_is_too_high_names_what_takes_most() -> None:
    decision = decide(situation(31_000, thresholds=SMALL, floor=FloorParts(system=1_000, tools=29_000)))

    assert "29,000 of your 32,000" in decision.message
    assert "tools" in decision.message


def test_deciding_takes_microseconds() -> None:
    now = situation(96_000, floor=FloorParts(tools=90_000))
    started = time.process_time()

    for _ in range(1_000):
        decide(now)

    assert (time.process_time() - started) / 1_000 < 0.002


def test_three_failures_open_the_breaker_and_success_closes_it() -> None:
    failed = Breaker.of([Run("auto", "failed")] * 3)

    assert failed.is_open
    assert not failed.after(Run("manual", "applied")).is_open
    assert not failed.after(Run("hard", "applied")).is_open


@pytest.mark.parametrize("state", ["skipped", "stale", "cancelled", "undone", "ready"])
def test_what_is_no_failure_never_counts(state: str) -> None:
    assert Breaker.of([Run("auto", state)] * 9) == Breaker()


def test_a_manual_failure_does_not_open_the_breaker() -> None:
    assert Breaker.of([Run("manual", "failed")] * 9) == Breaker()


def test_failures_must_be_in_a_row() -> None:
    runs = [Run("auto", "failed")] * 2 + [Run("auto", "applied")] + [Run("auto", "failed")] * 2

    assert not Breaker.of(runs).is_open


def test_forced_failures_count_for_one_situation() -> None:
    same = Breaker.of([Run("hard", "failed", "a")] * 3)

    assert same.forcing_stopped("a")
    assert not same.forcing_stopped("b")
    assert not Breaker.of([Run("hard", "failed", "a")] * 2 + [Run("hard", "failed", "b")]).forcing_stopped("b")


def test_a_fingerprint_tells_situations_apart() -> None:
    assert fingerprint(1, "m", 80) == fingerprint(1, "m", 80)
    assert fingerprint(1, "m", 80) != fingerprint(1, "m", 81)


@given(
    st.lists(
        st.tuples(st.integers(60_000, 127_000), st.sampled_from(["failed", "applied", "stale", "cancelled"])),
        max_size=60,
    ),
    st.booleans(),
)
def test_no_sequence_of_events_makes_two_attempts_at_one_boundary(steps: list[tuple[int, str]], paused: bool) -> None:
    breaker, forced_failures = Breaker(), 0
    for tokens, outcome in steps:
        now = situation(tokens, breaker=breaker, paused=paused, fingerprint="unchanged")
        decision = decide(now)
        if not decision.starts:
            continue
        assert decision.reason is not None
        assert not decide(replace(now, attempted=True)).starts
        assert not decide(replace(now, open_compaction=True)).starts
        breaker = breaker.after(Run(decision.reason, outcome, "unchanged"))
        forced_failures = forced_failures + 1 if outcome == "failed" and decision.reason == "hard" else forced_failures
        if outcome == "applied":
            forced_failures = 0
        assert forced_failures <= 3
