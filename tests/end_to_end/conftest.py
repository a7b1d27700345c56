"""Real conversations to go on with, and agents whose windows they fill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.house import ROOT, House
from tests.live import Live, has_servers, living, scaled_house

DATA = ROOT.parent / "shared" / "data" / "transcripts"
AGENTS: list[dict[str, Any]] = [
    {"name": "quick", "model": "mock-ttft5-tps300-n60", "context_window": 128_000},
    # Room between `auto` (11,200) and `block` (14,500), and a summariser that takes its time.
    {
        "name": "16k",
        "model": "mock-ttft5-tps300-n60-exact-strict-ctx16000-sumwait1500",
        "context_window": 16_000,
        "max_output_tokens": 1_000,
    },
    {
        "name": "128k",
        "model": "mock-ttft5-tps300-n60-exact-strict-ctx128000-sumwait200",
        "context_window": 128_000,
        "max_output_tokens": 4_000,
    },
]


@pytest.fixture(scope="module", params=["embedded", "scaled"])
def live(request: pytest.FixtureRequest) -> Iterator[Live]:
    """One process on SQLite; two web and two worker processes on PostgreSQL and Redis where there are those."""
    if request.param == "embedded":
        with living(House(), AGENTS) as made:
            yield made
    elif not has_servers():
        pytest.skip("needs DATABASE_URL (PostgreSQL) and REDIS_URL")
    else:
        with scaled_house() as house, living(house, AGENTS) as made:
            yield made


def transcript(name: str, number: int = 0) -> tuple[str, list[dict[str, Any]]]:
    """One line of a file of real conversations, and its messages."""
    path = DATA / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"needs {path.name} in ../shared/data/transcripts")
    with path.open() as lines:
        line = next(line for at, line in enumerate(lines) if at == number)
    return line, json.loads(line)["messages"]


def imported(live: Live, folder: Path, line: str, agent: str) -> str:
    """The conversation made from that line by `manage.py import_conversation`, owned by alice."""
    file = folder / "conversation.jsonl"
    file.write_text(line)
    live.ask("command", name="import_conversation", arguments=[str(file), "--user", "alice", "--agent", agent])
    return str(live.ask("newest_conversation", owner="alice"))
