"""Figures: percentiles, budgets, and the page that keeps its words."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.figures import Figure, Report, percentile
from bench.page import write_page


@pytest.mark.parametrize(("percent", "expected"), [(50, 50), (99, 99), (100, 100), (1, 1)])
def test_percentiles_are_values_that_were_measured(percent: float, expected: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], percent) == expected


@pytest.mark.parametrize(
    ("value", "better", "met"), [(5, "lower", True), (6, "lower", False), (5, "higher", True), (4, "higher", False)]
)
def test_a_budget_is_met_on_its_own_side(value: float, better: str, met: bool) -> None:
    assert Figure("x", value, budget=5, better=better).is_met is met  # type: ignore[arg-type]


def test_the_page_keeps_what_a_person_wrote(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures: embedded -->\nold\n<!-- end of figures: embedded -->\nafter\n")
    report = Report("embedded", True, "python -m bench")
    report.add(Figure("first token", 12.3, "ms", 40))
    write_page(page, [report])
    text = page.read_text()
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert "| first token | ≤ 40 ms | 12.3 ms | met |" in text
    assert "old" not in text
