"""`make chaos`: what happens to conversations when pages are reloaded and processes die, and whether any tab lies.

    python -m bench.chaos                 embedded; scaled too where DATABASE_URL names a PostgreSQL server
    python -m bench.chaos --short         half a minute, as in the tests
    python -m bench.chaos --only kills    one scene: refreshes, kills, compactions, redis, web

Scaled starts a Redis server of its own on a spare port, so that it can be killed and flushed. Everything is on
loopback, bounded, and stopped at the end. Exit code 1 where a difference, a stuck turn or too much lost text was found.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

from bench.house import House, Part, end_tidily
from bench.witness import Findings, Witness, watch
from tests.upstream import Play, Provider, listening_provider

LOST_AT_MOST = 5.0  # seconds of text, by a kill -9 alone
AGENTS = [
    {"name": "paced", "model": "mock-ttft20-tps60-n120", "context_window": 128_000},
    {"name": "longer", "model": "mock-ttft20-tps50-n250", "context_window": 128_000},
    {"name": "small", "model": "mock-ttft20-tps100-n40-sumwait1500", "context_window": 16_000},
]


@dataclass(slots=True)
class Stage:
    """Where a scene plays."""

    house: House
    key: str
    short: bool
    redis: RedisServer | None
    random: random.Random


class RedisServer:
    """A Redis of our own on a spare port: nobody else's is ever touched."""

    def __init__(self) -> None:
        with socket.socket() as spare:
            spare.bind(("127.0.0.1", 0))
            self.port = spare.getsockname()[1]
        self.folder = tempfile.mkdtemp(prefix="palimpsest-redis-")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        raise RuntimeError("redis-server did not start")

    def flush(self) -> None:
        import redis

        client = redis.Redis(port=self.port)
        client.flushall()
        client.close()

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


# The scenes


async def refreshes(stage: Stage, findings: Findings) -> None:
    """Two tabs each, reloaded at random tokens."""
    wanted, count = (24, 3) if stage.short else (200, 8)
    async with _watched(stage, "paced", count, findings) as witnesses:

        async def one(witness: Witness) -> None:
            while findings.refreshed < wanted and not findings.stuck:
                asking = asyncio.create_task(witness.ask("Go on", whole=120))
                while not asking.done():
                    await asyncio.sleep(stage.random.uniform(0.05, 0.7))
                    tab = stage.random.choice(witness.tabs[1:] if stage.random.random() < 0.7 else witness.tabs)
                    if not asking.done() and tab.screen.streams:
                        findings.refreshed += 1
                        if stage.random.random() < 0.5 and tab is not witness.tabs[0]:
                            await tab.reload()
                        else:
                            await tab.lose_socket()
                await asking

        await asyncio.gather(*(one(witness) for witness in witnesses))


async def kills(stage: Stage, findings: Findings) -> None:
    """kill -9 of the process that answers, in mid-answer."""
    await _struck(stage, findings, "longer", 2 if stage.short else 20, lambda: _kill_worker(stage))


async def compactions(stage: Stage, findings: Findings) -> None:
    """kill -9 in mid-compaction; afterwards the history is either compacted or as it was."""
    wanted = 1 if stage.short else 20
    count = 1 if stage.short else 2
    async with _watched(stage, "small", count, findings, messages=60, words=120) as witnesses:
        for number in range(wanted):
            witness = witnesses[number % count]
            began = len(witness.tabs[0].of("compaction_start"))
            await _compact(witness)
            with contextlib.suppress(AssertionError):
                await witness.tabs[0].until(lambda: len(witness.tabs[0].of("compaction_start")) > began, 5)  # noqa: B023
            await asyncio.sleep(stage.random.uniform(0.1, 1.2))
            await _kill_worker(stage)
            findings.struck += 1
            await witness.settle(f"kill {number} in mid-compaction")
            # Something new to compact, and proof that the chat goes on.
            await witness.ask("Tell me more. " + "word " * 600, whole=40)
        for witness in witnesses:
            await _count_compactions(stage, witness, findings)


async def redis(stage: Stage, findings: Findings) -> None:
    """Redis flushed, then killed and started again, in mid-stream."""
    if stage.redis is None:
        return
    server = stage.redis
    turn = 0

    async def strike() -> None:
        nonlocal turn
        turn += 1
        if turn % 2:
            await asyncio.to_thread(server.flush)
            return
        await asyncio.to_thread(server.stop)
        await asyncio.sleep(stage.random.uniform(0.2, 2.0))
        await asyncio.to_thread(server.start)

    await _struck(stage, findings, "longer", 2 if stage.short else 8, strike, whole=250)


async def web(stage: Stage, findings: Findings) -> None:
    """The web process killed in mid-stream; the workers go on."""
    if not stage.house.is_scaled:
        return

    async def strike() -> None:
        await _kill_and_restart(stage, stage.random.choice(stage.house.web_parts))

    await _struck(stage, findings, "longer", 1 if stage.short else 6, strike, whole=250)


SCENES: dict[str, Callable[[Stage, Findings], Awaitable[None]]] = {
    scene.__name__: scene for scene in (refreshes, kills, compactions, redis, web)
}


async def _struck(
    stage: Stage,
    findings: Findings,
    agent: str,
    times: int,
    strike: Callable[[], Awaitable[None]],
    whole: int | None = None,
) -> None:
    """Conversations that go on all the time, and something that strikes in between."""
    async with _watched(stage, agent, 2 if stage.short else 5, findings) as witnesses:
        over = asyncio.Event()

        async def go_on(witness: Witness) -> None:
            while not over.is_set() and not findings.stuck:
                await witness.ask("Go on", whole=whole)

        talking = [asyncio.create_task(go_on(witness)) for witness in witnesses]
        for _ in range(times):
            await asyncio.sleep(stage.random.uniform(1.5, 4.0))
            await _someone_streams(witnesses)
            await asyncio.sleep(stage.random.uniform(0.0, 3.0))  # at its beginning, or well on its way
            await strike()
            findings.struck += 1
        await asyncio.sleep(1)
        over.set()
        await asyncio.gather(*talking)


async def _someone_streams(witnesses: list[Witness], seconds: float = 60.0) -> None:
    """Wait until at least one answer is on its way: a piece came just now, and it was not the first."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not any(map(_streams_now, witnesses)):  # noqa: ASYNC110 - any of many clients
        await asyncio.sleep(0.05)


def _streams_now(witness: Witness) -> bool:
    tab = witness.tabs[0]
    recent = [piece for piece in tab.pieces[-2:] if time.monotonic() - piece[0] < 0.5]
    return len(recent) == 2 and recent[-1][1] in tab.screen.streams


async def _compact(witness: Witness) -> None:
    with contextlib.suppress(Exception):
        await witness.tabs[0].send("compact", instructions="")


async def _count_compactions(stage: Stage, witness: Witness, findings: Findings) -> None:
    rows = await asyncio.to_thread(stage.house.ask, "compactions", conversation=witness.conversation)
    for row in rows:
        name = f"{row['state']} {row['error_code']}".strip()
        findings.compactions[name] = findings.compactions.get(name, 0) + 1


async def _kill_worker(stage: Stage) -> None:
    """Scaled: a worker dies and another is started. Embedded: everything dies and is started again."""
    await _kill_and_restart(stage, stage.random.choice(stage.house.worker_parts))


async def _kill_and_restart(stage: Stage, part: Part) -> None:
    house = stage.house
    house.is_under_repair = True
    try:
        await asyncio.to_thread(part.kill)
        if part.url:
            await asyncio.to_thread(house.start_web, int(part.url.rsplit(":", 1)[1]))
        else:
            await asyncio.to_thread(house.start_worker)
    finally:
        house.is_under_repair = False


@contextlib.asynccontextmanager
async def _watched(
    stage: Stage, agent: str, conversations: int, findings: Findings, **history: int
) -> AsyncIterator[list[Witness]]:
    witnesses = await watch(stage.house, stage.key, agent, conversations, findings, **history)
    try:
        yield witnesses
    finally:
        for witness in witnesses:
            await witness.close()


# The whole


def run(
    house: House, provider: Provider, scenes: list[str], *, short: bool, seed: int, redis: RedisServer | None
) -> bool:
    """Play the scenes in a house that runs; True where nothing was wrong."""
    made = house.ask("furnish", base_url=provider.base_url, people=["alice"], agents=AGENTS)
    stage = Stage(house, made["people"]["alice"]["key"], short, redis, random.Random(seed))
    clean = True
    for name in scenes:
        findings, began = Findings(), time.monotonic()
        asyncio.run(SCENES[name](stage, findings))
        if findings.is_empty:
            continue
        if not findings.compared:
            findings.broken.append("nothing could be compared")
        limit = LOST_AT_MOST if name == "kills" else 0.0
        if max(findings.lost, default=0.0) > limit:
            findings.differences.append(f"{max(findings.lost):.1f} s of text lost, at most {limit:.0f} s may be")
        clean = clean and findings.is_clean
        print(f"\n{name} ({time.monotonic() - began:.0f} s)", *findings.lines(), sep="\n  ", flush=True)
    return clean


@contextlib.contextmanager
def scaled(database_url: str) -> Iterator[tuple[House, RedisServer]]:
    """Two web and two worker processes, a database of their own, and a Redis of their own."""
    from tests.live import scaled_house

    server = RedisServer()
    server.start()
    try:
        with scaled_house(redis_url=server.url, database_url=database_url) as house, house:
            yield house, server
    finally:
        server.remove()


def main() -> None:
    end_tidily()
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description="Shake Palimpsest and compare.")
    parser.add_argument("way", nargs="?", choices=["embedded", "scaled"])
    parser.add_argument("--short", action="store_true", help="half a minute")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10_000)
    parser.add_argument("--only", choices=list(SCENES), action="append")
    parser.add_argument("--logs", action="store_true", help="print the ends of the logs")
    options = parser.parse_args()
    has_database = os.environ.get("DATABASE_URL", "").startswith("postgres") and bool(shutil.which("redis-server"))
    ways = [options.way] if options.way else ["embedded", *(["scaled"] if has_database else [])]
    clean = True
    for way in ways:
        print(f"\n{way}, seed {options.seed}", flush=True)
        with contextlib.ExitStack() as stack:
            provider = stack.enter_context(listening_provider(Play(ttft=20, tps=60, n=120)))
            server = None
            if way == "scaled":
                house, server = stack.enter_context(scaled(os.environ.get("DATABASE_URL", "")))
            else:
                house = stack.enter_context(House())
            scenes = options.only or list(SCENES)
            clean = run(house, provider, scenes, short=options.short, seed=options.seed, redis=server) and clean
            if options.logs:
                print(house.logs(60))
    print("\nclean" if clean else "\nNOT clean")
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
