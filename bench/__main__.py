"""`make bench`: measures the real stack against the budgets, and writes the figures down.

    python -m bench                     embedded; and scaled as well where DATABASE_URL and REDIS_URL are set
    python -m bench scaled --quick      fewer repetitions, for a look
    python -m bench --only streaming    one part: streaming, opening, compacting, sockets
    python -m bench --write             also into docs/benchmarks.md

Everything runs on loopback, is bounded in count and time, and is stopped at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import compacting, opening, streaming
from bench.figures import Figure, Report, pace
from bench.house import ROOT, House, end_tidily
from bench.page import write_page
from bench.streaming import Field

PARTS = ("opening", "compacting", "streaming", "sockets")
AGENTS = [
    {"name": "quick", "model": "mock-ttft0-tps0-n20", "context_window": 1_000_000},
    {"name": "paced", "model": "mock-ttft20-tps50-n50", "context_window": 1_000_000},
    {"name": "burst", "model": "mock-ttft0-tps0-n10000", "context_window": 2_000_000},
    {"name": "wide", "model": "mock-ttft0-tps0-n20", "context_window": 400_000},
]


def main() -> None:
    end_tidily()
    options = _options()
    ways = [options.way] if options.way else ["embedded", *(["scaled"] if _has_servers() else [])]
    reports = []
    for way in ways:
        command = f"python -m bench {way}" + (" --quick" if options.quick else "")
        report = Report(way, options.quick, command)
        report.remarks.append(f"before the run: load average {os.getloadavg()[0]:.1f}, {pace()}")
        print(f"\n{way}, {report.remarks[0]}", flush=True)
        with _upstream() as upstream, _house(way) as house:
            asyncio.run(_measure(house, upstream, report, options))
        report.remarks.append(f"after the run: {pace()}")
        reports.append(report)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    for report in reports:
        (folder / f"bench-{report.way}.json").write_text(json.dumps(report.to_json(), indent=1) + "\n")
        print(f"\n{report.way}: {report.command}\n{report.table()}")
        for remark in report.remarks:
            print(f"! {remark}")
    if options.write:
        write_page(ROOT / "docs" / "benchmarks.md", reports)
    missed = [figure.name for report in reports for figure in report.figures if figure.is_met is False]
    print(f"\n{len(missed)} not met" if missed else "\nall met")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Palimpsest against its budgets.")
    parser.add_argument("way", nargs="?", choices=["embedded", "scaled"])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--only", choices=PARTS, action="append", help="one part, can be given several times")
    parser.add_argument("--sockets", type=int, default=2_000, help="how many idle sockets (part `sockets`)")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--out", default=str(ROOT / "var" / "bench"), help="folder of the JSON files")
    return parser.parse_args()


async def _measure(house: House, upstream: str, report: Report, options: argparse.Namespace) -> None:
    made = await asyncio.to_thread(house.ask, "furnish", base_url=upstream, people=["alice"], agents=AGENTS)
    field = Field(house, upstream, made["people"]["alice"]["key"], report, options.quick)
    await asyncio.to_thread(house.start_again)
    await asyncio.sleep(1 if options.quick else 10)
    opening.start_and_memory(field)
    parts = options.only or [part for part in PARTS if part != "sockets" or not options.quick]
    for part in parts:
        began = time.monotonic()
        try:
            if part == "sockets":
                await opening.idle_sockets(field, options.sockets)
            else:
                await {"opening": opening, "compacting": compacting, "streaming": streaming}[part].measure(field)
        except Exception as error:
            # One part that cannot be measured must not hide the others' figures.
            report.remarks.append(f"{part} broke off: {type(error).__name__}: {str(error)[:1500]}")
            report.add(Figure(f"{part}: broke off", 1, "", 0))
            print(house.logs(15), file=sys.stderr)
        print(f"  ({part}: {time.monotonic() - began:.0f} s)", flush=True)


@contextlib.contextmanager
def _upstream() -> Iterator[str]:
    """The provider in a process of its own; its base URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.upstream", "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        yield process.stdout.readline().rsplit(" ", 1)[1].strip()
    finally:
        process.kill()
        process.wait(10)


@contextlib.contextmanager
def _house(way: str, **how: Any) -> Iterator[House]:
    if way == "embedded":
        with House(**how) as house:
            yield house
        return
    if not _has_servers():
        sys.exit("The scaled bench needs DATABASE_URL (PostgreSQL) and REDIS_URL.")
    from tests.live import scaled_house

    with scaled_house(web=1, workers=2, **how) as house, house:
        yield house


def _has_servers() -> bool:
    return os.environ.get("DATABASE_URL", "").startswith("postgres") and bool(os.environ.get("REDIS_URL"))


if __name__ == "__main__":
    main()
