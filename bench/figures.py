"""What was measured: names, budgets, values, and how they are shown."""

from __future__ import annotations

import math
import platform
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

_MULTIPLICATIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One value with its budget. `better` says on which side of the budget it has to be; None: only reported."""

    name: str
    value: float
    unit: str = ""
    budget: float | None = None
    better: Literal["lower", "higher"] = "lower"
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        if self.budget is None:
            return None
        return self.value <= self.budget if self.better == "lower" else self.value >= self.budget

    def row(self) -> tuple[str, str, str, str]:
        sign = "≤" if self.better == "lower" else "≥"
        budget = "" if self.budget is None else f"{sign} {_number(self.budget)} {self.unit}".strip()
        met = {None: "", True: "met", False: "**not met**"}[self.is_met]
        note = f" ({self.note})" if self.note else ""
        return f"{self.name}{note}", budget, f"{_number(self.value)} {self.unit}".strip(), met


@dataclass(slots=True)
class Report:
    """All figures of a run."""

    way: str  # embedded or scaled
    is_quick: bool
    command: str
    figures: list[Figure] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, *figures: Figure) -> None:
        for figure in figures:
            self.figures.append(figure)
            print("  " + "  ".join(part.strip("*") for part in figure.row() if part), flush=True)

    def table(self) -> str:
        lines = ["| what | budget | measured | |", "| --- | --- | --- | --- |"]
        lines += ["| " + " | ".join(figure.row()) + " |" for figure in self.figures]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "way": self.way,
            "quick": self.is_quick,
            "command": self.command,
            "machine": machine(),
            "commit": commit(),
            "figures": [
                {
                    "name": figure.name,
                    "value": round(figure.value, 3),
                    "unit": figure.unit,
                    "budget": figure.budget,
                    "met": figure.is_met,
                    "note": figure.note,
                }
                for figure in self.figures
            ],
            "remarks": self.remarks,
        }


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile; 0 for nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(percent * len(ordered) / 100) - 1))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def machine() -> str:
    """Processor, cores, memory and versions in one line; never a host name."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    cores = sum(line.startswith("processor") for line in _lines("/proc/cpuinfo"))
    memory = next((int(line.split()[1]) // 2**20 for line in _lines("/proc/meminfo") if "MemTotal" in line), 0)
    system = next((line.split("=", 1)[1].strip('"\n') for line in _lines("/etc/os-release") if "PRETTY" in line), "")
    return f"{cores} cores ({cpu}), {memory} GiB, {system}, Python {platform.python_version()}"


def pace() -> str:
    """How fast the machine is at the moment: a virtual one may give half of what it gave a minute ago."""
    took = []
    for _ in range(5):
        began, total = time.perf_counter(), 0
        for number in range(_MULTIPLICATIONS):
            total += number * number
        took.append((time.perf_counter() - began) * 1000)
    return f"a loop of {_MULTIPLICATIONS:,} multiplications in {min(took):.0f} to {max(took):.0f} ms"


def commit() -> str:
    try:
        said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return said.stdout.strip()


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
