"""Where the time goes between a question and its first token: one table, by step.

    python -m bench.steps scaled            one web and two worker processes (DATABASE_URL, REDIS_URL)
    python -m bench.steps embedded --chats 20

The same load as in bench/streaming.py, on processes that note when each step is passed (bench/traced.py).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import orjson

from bench import drive
from bench.figures import Report, percentile
from bench.streaming import Field

# step -> what the time before it was spent on
STEPS = {
    "heard": "the socket's frame reaches the consumer",
    "db_thread": "a database thread of the web process takes the request",
    "locked": "access checked, the conversation locked",
    "committed": "message, turn and queue written, commit",
    "task": "wake-up: published, taken by a worker",
    "worker_thread": "a database thread of the worker takes it",
    "worker_locked": "the conversation locked",
    "claimed": "boundary, claim, answer's row, commit",
    "request_loaded": "the request built from rows",
    "on_loop": "hop to the process's loop",
    "sending": "the call made ready",
    "response": "connection, request, the provider's first byte",
    "first_piece": "the first event read",
    "handed_over": "frame made, handed to the outbox",
    "back_at_web": "through the layer to the web process",
    "shown": "written to the socket, read by the client",
}


def main() -> None:
    from bench.__main__ import AGENTS, _house, _upstream

    parser = argparse.ArgumentParser(prog="python -m bench.steps")
    parser.add_argument("way", choices=["embedded", "scaled"])
    parser.add_argument("--chats", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=0, help="questions of each chat")
    parser.add_argument("--plain", action="store_true", help="without the stop-watch: processor time alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _upstream() as upstream:
        how = {} if options.plain else {"program": ("-m", "bench.traced"), "env": {"BENCH_STEPS": folder}}
        with _house(options.way, **how) as house:
            made = house.ask("furnish", base_url=upstream, people=["alice"], agents=AGENTS)
            field = Field(house, upstream, made["people"]["alice"]["key"], Report(options.way, True, ""), True)
            asyncio.run(_measure(field, Path(folder), options.chats or [1, 10], options.rounds))


async def _measure(field: Field, folder: Path, counts: list[int], rounds: int) -> None:
    warm = await field.chats("paced", 10)
    await drive.in_turn(warm, 3, 0.2)
    for chat in warm:
        chat.close()
    for count in counts:
        await _one(field, folder, count, rounds or max(2, 30 // count))


async def _one(field: Field, folder: Path, count: int, rounds: int) -> None:
    model = "mock-ttft20-tps50-n50"
    await asyncio.to_thread(field.house.ask, "change_agent", name="paced", fields={"model": model})
    plain = await drive.direct_in_turn(field.upstream, model, count, rounds, 1.0)
    chats = await field.chats("paced", count)
    before, began = _cpu(field), time.monotonic()
    answers: dict[str, list[drive.Answer]] = {}

    async def ask(number: int, chat: drive.Chat) -> None:
        answers[chat.conversation] = []
        for found in await drive.in_turn([chat], rounds, 0.0):
            answers[chat.conversation].append(found)

    async def later(number: int, chat: drive.Chat) -> None:
        await asyncio.sleep(number / count)
        await ask(number, chat)

    await asyncio.gather(*(later(number, chat) for number, chat in enumerate(chats)))
    took = time.monotonic() - began
    after = _cpu(field)
    for chat in chats:
        chat.close()
    total = [answer for found in answers.values() for answer in found]
    over = [
        percentile([a.first_token for a in total], p) - percentile([a.first_token for a in plain], p) for p in (50, 99)
    ]
    print(
        f"\n{count} chats, {len(total)} answers: first token over direct p50 {over[0]:.1f} ms, p99 {over[1]:.1f} ms; "
        f"load {os.getloadavg()[0]:.1f}"
    )
    for name in after:
        used = after[name] - before.get(name, 0)
        each = used / len(total) * 1000
        print(f"  {name}: {each:.1f} ms of processor time an answer, {used / took * 100:.0f} % of a core")
    table = _table(_notes(folder), answers)
    if not table:
        return
    whole = sum(median for median, _ in table.values())
    print(f"  {'step':66s} {'p50 ms':>8s} {'%':>5s} {'p90 ms':>8s}")
    for step, (median, high) in table.items():
        print(f"  {STEPS[step]:66s} {median:8.2f} {median / whole * 100:5.1f} {high:8.2f}")
    print(f"  {'sum of the medians':66s} {whole:8.2f}", flush=True)


def _notes(folder: Path) -> dict[str, list[tuple[int, str]]]:
    """For every conversation, the steps in the order of the clock."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for file in folder.glob("*.jsonl"):
        for line in file.read_bytes().splitlines():
            step, at, _cpu_ns, conversation = orjson.loads(line)
            found[conversation].append((at, step))
    return {conversation: sorted(steps) for conversation, steps in found.items()}


def _table(
    notes: dict[str, list[tuple[int, str]]], answers: dict[str, list[drive.Answer]]
) -> dict[str, tuple[float, float]]:
    """Median and 90th percentile of each step's time (ms)."""
    spent: dict[str, list[float]] = {step: [] for step in STEPS}
    for conversation, asked in answers.items():
        steps = notes.get(conversation, [])
        for answer in asked:
            begin, end = answer.asked_at * 1e9, answer.first_at * 1e9
            first_at: dict[str, float] = {}
            for at, step in steps:
                if begin <= at <= end + 1e6:
                    first_at.setdefault(step, at)
            first_at["shown"] = end
            last = begin
            for step in STEPS:
                if step in first_at:
                    spent[step].append((first_at[step] - last) / 1e6)
                    last = first_at[step]
    return {step: (percentile(times, 50), percentile(times, 90)) for step, times in spent.items() if times}


def _cpu(field: Field) -> dict[str, float]:
    return {part.name: part.cpu() for part in field.house.parts if part.is_running}


if __name__ == "__main__":
    main()
