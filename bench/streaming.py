"""First tokens, bursts and many answers at once: each driven through Palimpsest and straight from the provider."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from bench import drive
from bench.drive import Answer, Chat
from bench.figures import Figure, Report, median, percentile
from bench.house import House

SPREAD = 1.0  # seconds over which chats begin


@dataclass(frozen=True, slots=True)
class Bounds:
    """What must be reached: embedded is one process, scaled has web and worker processes of their own."""

    first_p50: float
    first_p99: float
    first_up_to: int  # chats
    is_scaled: bool


SCALED = Bounds(first_p50=15, first_p99=60, first_up_to=50, is_scaled=True)
EMBEDDED = Bounds(first_p50=40, first_p99=150, first_up_to=20, is_scaled=False)


# (chats, tokens of an answer, questions of each chat): answers of 0.4 to 4 seconds, one after another.
QUICK = ((1, 20, 15), (10, 100, 3), (20, 200, 2), (50, 200, 2))
FULL = ((1, 20, 100), (10, 100, 12), (20, 200, 6), (50, 200, 4))


@dataclass(slots=True)
class Field:
    """Where the load is driven: a house, its provider, and conversations with open sockets."""

    house: House
    upstream: str  # base URL of the provider
    key: str
    report: Report
    is_quick: bool

    async def chats(self, agent: str, count: int) -> list[Chat]:
        """New conversations with that agent, over all web processes, joined."""
        made = await asyncio.to_thread(self.house.ask, "conversations", owner="alice", agent=agent, count=count)
        urls = self.house.urls
        chats = [Chat(urls[number % len(urls)], self.key, conversation) for number, conversation in enumerate(made)]
        for start in range(0, len(chats), 20):
            await asyncio.gather(*(chat.open() for chat in chats[start : start + 20]))
        return chats


async def measure(field: Field) -> None:
    bounds = SCALED if field.house.is_scaled else EMBEDDED
    warm = await field.chats("paced", 10)
    await drive.in_turn(warm, 2, 0.2)
    _close(warm)
    for load in QUICK if field.is_quick else FULL:
        await first_token(field, bounds, *load)
    await burst(field)
    for count in (50,) if field.is_quick else (50, 200):
        await many(field, bounds, count)


async def first_token(field: Field, bounds: Bounds, count: int, n: int, rounds: int) -> None:
    """`count` chats, each asking one question after another; answers of `n` tokens."""
    model = f"mock-ttft20-tps50-n{n}"
    await asyncio.to_thread(field.house.ask, "change_agent", name="paced", fields={"model": model})
    plain = await drive.direct_in_turn(field.upstream, model, count, rounds, SPREAD)
    chats = await field.chats("paced", count)
    before = _cpu(field.house)
    answers = await drive.in_turn(chats, rounds, SPREAD)
    each = (_cpu(field.house) - before) / len(answers) * 1000
    _close(chats)
    over50, over99 = _over(answers, plain, 50), _over(answers, plain, 99)
    applies = count <= bounds.first_up_to
    what = f"first token over direct, {count} chat{'s' if count > 1 else ''}"
    note = f"{len(answers)} answers of {n} tokens, {each:.0f} ms of processor time each"
    field.report.add(
        Figure(f"{what}, p50", over50, "ms", bounds.first_p50 if applies else None, note=note),
        Figure(f"{what}, p99", over99, "ms", bounds.first_p99 if applies else None),
    )
    _must_be_whole(field, what, answers, n)


async def burst(field: Field) -> None:
    """10 chats, and a provider as fast as the socket takes it."""
    n = 10_000 if field.is_quick else 30_000
    model = f"mock-ttft0-tps0-n{n}"
    await asyncio.to_thread(field.house.ask, "change_agent", name="burst", fields={"model": model})
    plain = await drive.direct_in_turn(field.upstream, model, 10, 1, 0.0)
    chats = await field.chats("burst", 10)
    answers = await drive.in_turn(chats, 1, 0.0)
    _close(chats)
    delivered, directly = drive.tokens_a_second(answers), drive.tokens_a_second(plain)
    note = f"direct {directly:,.0f}, {sum(answer.frames for answer in answers)} frames"
    budget = 60_000 if field.house.is_scaled else None
    field.report.add(
        Figure("tokens a second delivered, unlimited upstream, 10 chats", delivered, "", budget, "higher", note)
    )
    _must_be_whole(field, "burst", answers, n)


async def many(field: Field, bounds: Bounds, count: int) -> None:
    """`count` chats started within a second, 50 tokens a second each."""
    n = 100 if field.is_quick else 250
    model = f"mock-ttft20-tps50-n{n}"
    await asyncio.to_thread(field.house.ask, "change_agent", name="paced", fields={"model": model})
    plain = await drive.direct_in_turn(field.upstream, model, count, 1, SPREAD)
    chats = await field.chats("paced", count)
    before = _cpu(field.house)
    began = time.monotonic()
    answers = await drive.in_turn(chats, 1, SPREAD)
    used = (_cpu(field.house) - before) / (time.monotonic() - began)
    _close(chats)
    share = 100 * drive.tokens_a_second(answers) / drive.tokens_a_second(plain)
    what = f"{count} chats × 50 tokens a second"
    lag = median([lag for answer in answers for lag in answer.lags()])
    budget = 90 if bounds.is_scaled or count <= 50 else None
    note = f"{used:.2f} cores, the last token shown {lag:.0f} ms after it was written"
    field.report.add(Figure(f"{what}: delivered, of what direct delivers", share, "%", budget, "higher", note))
    if count >= 200:
        limits = (150, 500) if bounds.is_scaled else (None, None)
        for percent, limit in zip((50, 99), limits, strict=True):
            over = _over(answers, plain, percent)
            field.report.add(
                Figure(f"first token over direct, 200 chats within a second, p{percent}", over, "ms", limit)
            )
    _must_be_whole(field, what, answers, n)


def _over(answers: list[Answer], plain: list[Answer], percent: float) -> float:
    came = [answer.first_token for answer in answers if answer.first_at]
    return percentile(came, percent) - percentile([answer.first_token for answer in plain], percent)


def _must_be_whole(field: Field, what: str, answers: list[Answer], n: int) -> None:
    """Lost, doubled and failed: always reported, and nought is the only good figure."""
    wrong = [answer.wrong_tokens(n) for answer in answers]
    lost, doubled = sum(one[0] for one in wrong), sum(one[1] for one in wrong)
    faults = [answer.fault for answer in answers if answer.fault]
    note = f"{lost} lost, {doubled} doubled, {len(faults)} failed of {len(answers)}"
    field.report.add(
        Figure(f"{what}: tokens lost or doubled, chats failed", lost + doubled + len(faults), "", 0, note=note)
    )
    field.report.remarks += sorted(set(faults))[:5]


def _cpu(house: House) -> float:
    """Seconds of processor time that all processes have used."""
    return sum(part.cpu() for part in house.parts if part.is_running)


def _close(chats: list[Chat]) -> None:
    for chat in chats:
        chat.close()
