"""The ladder of DESIGN: the table exactly, its order for every window, percentages and their clamp, switched off."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.hints import context_report, hint_for
from compaction.thresholds import compute_thresholds, ladder_for, read_percent

TABLE = [
    (10_000, 6_000, 7_000, 7_000, 0),
    (32_000, 19_200, 22_400, 22_400, 12_000),
    (64_000, 38_400, 44_800, 44_800, 44_000),
    (128_000, 76_800, 95_000, 105_000, 108_000),
    (200_000, 147_000, 167_000, 177_000, 180_000),
    (1_000_000, 947_000, 967_000, 977_000, 980_000),
]
windows = st.integers(0, 2_000_000)


@pytest.mark.parametrize(("window", "warn", "auto", "hard", "effective"), TABLE)
def test_the_table(window: int, warn: int, auto: int, hard: int, effective: int) -> None:
    ladder = compute_thresholds(window)

    assert (ladder.warn, ladder.auto, ladder.hard, ladder.effective_window) == (warn, auto, hard, effective)


@given(windows, st.none() | st.integers(1, 100), st.none() | st.integers(0, 200_000))
def test_the_order_holds_for_every_window(window: int, percent: int | None, reply: int | None) -> None:
    ladder = compute_thresholds(window, percent, reply)

    assert ladder.auto is not None
    assert ladder.hard is not None
    assert 0 <= ladder.warn <= ladder.auto <= ladder.hard <= window
    assert ladder.auto <= ladder.block <= window
    figures = (ladder.warn, ladder.auto, ladder.hard, ladder.block, ladder.effective_window, ladder.least_gain)
    assert all(type(figure) is int for figure in figures)


@given(windows, st.none() | st.integers(0, 200_000))
def test_switched_off_still_has_a_block_and_budgets(window: int, reply: int | None) -> None:
    ladder = compute_thresholds(window, 0, reply)

    assert ladder.disabled
    assert (ladder.auto, ladder.hard, ladder.threshold_percent) == (None, None, None)
    assert ladder.trigger == compute_thresholds(window).auto
    assert 0 <= ladder.warn <= ladder.block <= window


@pytest.mark.parametrize(
    ("window", "reply", "block"),
    [
        (8_000, None, 5_600),
        (16_000, None, 11_500),
        (32_000, None, 27_404),
        (128_000, None, 105_000),
        (128_000, 40_000, 95_500),
    ],
)
def test_block_waits_as_late_as_an_answer_still_fits(window: int, reply: int | None, block: int) -> None:
    assert compute_thresholds(window, reply=reply).block == block


def test_a_percentage_replaces_the_trigger() -> None:
    ladder = compute_thresholds(128_000, 50)

    assert (ladder.warn, ladder.auto, ladder.hard) == (51_200, 64_000, 105_000)
    assert ladder.threshold_percent == 50
    assert ladder.clamp_reason == ""


def test_a_percentage_that_leaves_no_room_is_clamped_and_says_why() -> None:
    ladder = compute_thresholds(128_000, 95)

    assert ladder.auto == 105_000
    assert ladder.threshold_percent == 82
    assert "121,600" in ladder.clamp_reason
    assert "105,000" in ladder.clamp_reason


@pytest.mark.parametrize("percent", [-1, 101, 90_000])
def test_what_is_no_percentage_is_refused(percent: int) -> None:
    with pytest.raises(ValueError, match="0 to 100"):
        compute_thresholds(128_000, percent)


@pytest.mark.parametrize(
    ("tokens", "tier"),
    [
        (0, "safe"),
        (76_799, "safe"),
        (76_800, "warn"),
        (94_999, "warn"),
        (95_000, "auto"),
        (104_999, "auto"),
        (105_000, "hard"),
    ],
)
def test_tiers_are_inclusive(tokens: int, tier: str) -> None:
    assert compute_thresholds(128_000).tier(tokens) == tier


def test_switched_off_colours_follow_block() -> None:
    ladder = compute_thresholds(128_000, 0)

    assert [ladder.tier(tokens) for tokens in (ladder.warn - 1, ladder.warn, ladder.block)] == ["safe", "warn", "hard"]


@pytest.mark.parametrize(
    ("stored", "percent", "warned"),
    [
        (None, None, False),
        (80, 80, False),
        (0, 0, False),
        (100, 100, False),
        (0.8, 80, True),
        ("80%", 80, True),
        ("75", 75, True),
        (96_000, 75, True),
        ("soon", None, True),
        (-5, None, True),
        (500_000, None, True),
    ],
)
def test_older_forms_of_a_setting_are_read_or_warned_about(stored: object, percent: int | None, warned: bool) -> None:
    read, warning = read_percent(stored, 128_000)

    assert read == percent
    assert bool(warning) is warned


def test_a_setting_of_an_older_form_counts_and_says_how_it_was_read() -> None:
    ladder = ladder_for(128_000, 0.5, None)

    assert ladder == replace(compute_thresholds(128_000, 50), clamp_reason=ladder.clamp_reason)
    assert "50 % of the window" in ladder.clamp_reason
    clamped = ladder_for(128_000, "95%", None).clamp_reason
    assert "95 % of the window" in clamped
    assert "so that the summary still fits" in clamped
    assert ladder_for(128_000, 50, None) == compute_thresholds(128_000, 50)


@pytest.mark.parametrize(
    ("tier", "since", "code"),
    [
        ("safe", 99, None),
        ("warn", 5, None),
        ("warn", 6, "long_conversation"),
        ("auto", 5, None),
        ("auto", 6, "context_getting_full"),
        ("hard", 3, None),
        ("hard", 4, "next_message_waits"),
    ],
)
def test_hints_come_after_a_few_messages(tier: str, since: int, code: str | None) -> None:
    hint = hint_for(tier, since)  # type: ignore[arg-type]

    assert (hint.code if hint else None) == code


def test_a_dismissed_hint_comes_back_later() -> None:
    assert hint_for("warn", 20, since_dismissal=10) is None
    assert hint_for("warn", 21, since_dismissal=11) is not None


def test_the_context_report_marks_what_is_reached() -> None:
    report = context_report(compute_thresholds(128_000), 96_000, {"system": 1_000, "messages": 95_000})

    assert [(rung.name, rung.reached) for rung in report.rungs] == [
        ("warn", True),
        ("auto", True),
        ("hard", False),
        ("block", False),
    ]
    assert (report.tier, report.free, report.parts[1]) == ("auto", 32_000, ("messages", 95_000))
