"""Idle clearing: what is old, what stays, and that a tool loop is not idleness."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agents.messages import Message
from compaction.microcompact import Clearing, IdleSettings, clear_idle
from tests.compaction.builders import assistant, entries, result, user

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OUTPUT = "some output that is long enough to be worth clearing"


def clear(live: Any, minutes: float, **fields: Any) -> Clearing:
    idle = fields.pop("settings", IdleSettings())
    return clear_idle(live, last_answer_at=NOW - timedelta(minutes=minutes), now=NOW, settings=idle, **fields)


def batch(number: int) -> list[Message]:
    calls = [(f"c{at}", "look") for at in range(number)]
    return [user("go"), assistant("", *calls), *(result(id_, OUTPUT, name="look") for id_, _ in calls), assistant("ok")]


def test_nothing_is_cleared_before_its_time() -> None:
    assert not clear(entries(batch(8)), minutes=60)


def test_the_newest_five_results_stay_also_within_a_parallel_batch() -> None:
    assert clear(entries(batch(8)), minutes=61).tool_results == (3, 4, 5)


def test_errors_stay_and_do_not_count() -> None:
    live = entries(batch(8), is_error={3: True, 10: True})

    assert clear(live, minutes=61).tool_results == (4,)


def test_pins_and_kept_tools_and_cleared_ones_stay() -> None:
    live = entries(batch(9), pinned={3: True}, keep={4: True}, cleared={5: True})

    assert clear(live, minutes=61).tool_results == (6,)
    assert clear(entries(batch(9)), minutes=61).tool_results == (3, 4, 5, 6)


def test_only_clearable_tools() -> None:
    assert clear(entries(batch(8)), minutes=61, is_clearable=lambda tool: tool != "look").tool_results == ()


def test_short_results_are_not_worth_a_marker() -> None:
    live = entries([assistant("", ("a", "look")), result("a", "ok"), *batch(5)])

    assert clear(live, minutes=61).tool_results == ()


def test_thinking_is_cleared_after_five_minutes() -> None:
    thought = Message(role="assistant", content="yes", thinking="hm")
    live = entries([user("hi"), thought, user("and?"), thought])

    assert clear(live, minutes=5).thinking == ()
    assert clear(live, minutes=5.1).thinking == (2, 4)


@pytest.mark.parametrize(
    "off",
    [
        IdleSettings(clear_tool_results_after_minutes=-1),
        IdleSettings(tool_results_to_keep=-1),
    ],
)
def test_minus_one_switches_off(off: IdleSettings) -> None:
    assert clear(entries(batch(20)), minutes=9_999, settings=off).tool_results == ()


def test_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="-1 for off"):
        IdleSettings(tool_results_to_keep=0)


def test_without_an_answer_there_is_no_idleness() -> None:
    assert not clear_idle(entries(batch(8)), last_answer_at=None, now=NOW, settings=IdleSettings())


def test_it_says_what_it_frees() -> None:
    assert clear(entries(batch(8)), minutes=61).tokens > 0
