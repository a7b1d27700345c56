"""What compaction costs beside the model that writes the summary."""

from __future__ import annotations

import asyncio

from bench.figures import Figure, median
from bench.streaming import Field

MESSAGES, WORDS = 2_000, 130  # about 280,000 tokens


async def measure(field: Field) -> None:
    rounds = 2 if field.is_quick else 5
    ask = field.house.ask
    runs = await asyncio.to_thread(
        ask, "compaction_cost", owner="alice", agent="wide", count=MESSAGES, words=WORDS, rounds=rounds + 1
    )
    runs = runs[1:]
    states = sorted({run["state"] for run in runs})
    each = [run["ms"] for run in runs]
    processor = median([run["processor_ms"] for run in runs])
    note = (
        f"{runs[0]['tokens']:,} tokens, {', '.join(states)}, {min(each):.0f} to {max(each):.0f} ms; "
        f"{processor:.0f} ms of processor time with what is done while the summariser writes"
    )
    after = f"and {max(run['statements_after'] for run in runs)} for the meter after it"
    field.report.add(
        Figure(
            "compaction of 2,000 messages outside the summariser",
            median(each),
            "ms",
            60,
            note=note,
        ),
        Figure("the same: statements to the commit", max(run["statements"] for run in runs), "", 10, note=after),
    )
    decisions = await asyncio.to_thread(
        ask, "decision_cost", owner="alice", agent="wide", counts=[100, 5_000], rounds=10 if field.is_quick else 50
    )
    for decision in decisions:
        note = f"{decision['statements']} statements"
        what = f"deciding that no compaction is needed, {decision['messages']:,} messages"
        field.report.add(Figure(what, decision["ms"], "ms", 2, note=note))
