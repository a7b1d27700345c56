"""A conversation that is watched: two tabs ask and look on, and what each shows is compared with the database."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field

from bench.house import House
from tests.client import ChatClient
from tests.screen import JSON

_TOKEN = re.compile(r" k(\d+)@(\d+)")
STUCK_AFTER = 45.0  # seconds without an end: a lease is 15, a sweep comes every 5


@dataclass(slots=True)
class Findings:
    """What went wrong, over all conversations. Only `lost` may be above nought, and only after a kill."""

    differences: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)  # seconds of text that was shown and is gone
    turns: dict[str, int] = field(default_factory=dict)
    compactions: dict[str, int] = field(default_factory=dict)
    compared: int = 0
    refreshed: int = 0
    struck: int = 0  # kills, restarts, flushes
    waited: list[float] = field(default_factory=list)  # seconds from question to end

    @property
    def is_clean(self) -> bool:
        return not (self.differences or self.stuck or self.broken)

    @property
    def is_empty(self) -> bool:
        """The scene does not play in this house."""
        return self.is_clean and not (self.compared or self.struck or self.refreshed)

    def lines(self) -> list[str]:
        longest = max(self.lost, default=0.0)
        return [
            f"struck {self.struck} times, refreshed {self.refreshed} times, compared {self.compared} screens",
            f"turns {self.turns or '-'}, compactions {self.compactions or '-'}",
            f"longest wait for an end {max(self.waited, default=0.0):.1f} s",
            f"differences {len(self.differences)}, stuck {len(self.stuck)}, broken off {len(self.broken)}, "
            f"text lost at most {longest:.1f} s",
            *(f"! {line}" for line in (*self.differences, *self.stuck, *self.broken)[:12]),
        ]


class Witness:
    """One conversation with its tabs, spread over the web processes."""

    def __init__(self, house: House, key: str, conversation: str, findings: Findings, tabs: int = 2) -> None:
        self.house, self.conversation, self.findings = house, conversation, findings
        urls = house.urls
        self.tabs = [ChatClient(urls[number % len(urls)], key, conversation, ping_every=1.0) for number in range(tabs)]

    async def open(self) -> Witness:
        for tab in self.tabs:
            await tab.open()
        return self

    async def close(self) -> None:
        for tab in self.tabs:
            await tab.close()

    async def ask(self, text: str, whole: int | None = None) -> None:
        """Send a message, wait until its turn has ended, compare. `whole`: the answer must have so many tokens."""
        began = time.monotonic()
        try:
            await self.tabs[0].say_for_sure(text)
            stored = await self.settle(text)
        except AssertionError as error:
            self.findings.broken.append(f"{self.conversation}: {error}")
            return
        if stored is None:
            return
        self.findings.waited.append(time.monotonic() - began)
        turn = (await asyncio.to_thread(self.house.ask, "turns", conversation=self.conversation))[-1]
        self.findings.turns[turn["state"]] = self.findings.turns.get(turn["state"], 0) + 1
        if turn["state"] == "failed":
            self.findings.broken.append(f"{self.conversation}: {turn['error_code']} {turn['error_text']}")
        self._measure_loss(stored, whole if turn["state"] == "done" else None)

    async def settle(self, what: str) -> JSON | None:
        """Wait until nothing is open and every tab has caught up, then compare; None where something is stuck."""
        until = time.monotonic() + STUCK_AFTER
        stored: JSON = {}
        while time.monotonic() < until:
            if self.house.is_under_repair:  # how long a start takes is another question
                until = time.monotonic() + STUCK_AFTER
            stored = await asyncio.to_thread(self.house.ask, "stored", conversation=self.conversation)
            in_step = all(tab.screen.seq == stored["version"] and tab.is_settled for tab in self.tabs)
            if not stored["open_turns"] and not stored["open_compactions"] and in_step:
                for number, tab in enumerate(self.tabs):
                    self._compare(number, tab, stored, what)
                return stored
            for tab in self.tabs:
                if tab.broken:
                    self.findings.broken.append(f"{self.conversation}: {tab.broken}")
                    return None
            await asyncio.sleep(0.1)
        seen = [
            (tab.screen.seq, tab.screen.turn and tab.screen.turn.get("state"), len(tab.screen.queue))
            for tab in self.tabs
        ]
        open_ = {name: stored[name] for name in ("version", "open_turns", "open_compactions")}
        self.findings.stuck.append(f"{self.conversation} after {what!r}: {open_}, tabs {seen}")
        return None

    def _compare(self, number: int, tab: ChatClient, stored: JSON, what: str) -> None:
        """What is on the screen against the newest rows, word for word."""
        self.findings.compared += 1
        shown = tab.screen.shown()
        rows = [(row[0], row[1], row[2]) for row in stored["messages"]][-len(shown) :] if shown else []
        if len(shown) < min(50, len(stored["messages"])) or shown != rows:
            wrong = next(
                (pair for pair in zip(shown, rows, strict=False) if pair[0] != pair[1]), (len(shown), len(rows))
            )
            self.findings.differences.append(f"tab {number} of {self.conversation} after {what!r}: {str(wrong)[:400]}")

    def _measure_loss(self, stored: JSON, whole: int | None) -> None:
        """How much of what was shown of the newest answer is gone (seconds), and whether a whole one is whole."""
        answers = [row for row in stored["messages"] if row[1] == "assistant"]
        if not answers:
            return
        id_, _, text, _ = answers[-1]
        longest = max((tab.longest.get(id_, "") for tab in self.tabs), key=len)
        if len(longest) > len(text) and longest.startswith(text):
            self.findings.lost.append(_last_at(longest) - (_last_at(text) or _first_at(longest)))
        numbers = [int(number) for number, _ in _TOKEN.findall(text)]
        if numbers != list(range(len(numbers))):
            self.findings.differences.append(f"answer {id_} has holes or doubles: {numbers[:5]}…{numbers[-5:]}")
        if whole is not None and len(numbers) != whole:
            self.findings.differences.append(f"answer {id_} has {len(numbers)} of {whole} tokens")


async def watch(
    house: House, key: str, agent: str, count: int, findings: Findings, *, messages: int = 0, words: int = 0
) -> list[Witness]:
    """`count` conversations under watch; with a history of `messages` they have something to compact."""
    made = []
    for _ in range(count):
        if messages:
            history = {"owner": "alice", "agent": agent, "count": messages, "words": words}
            made.append(await asyncio.to_thread(house.ask, "history", **history))
        else:
            made += await asyncio.to_thread(house.ask, "conversations", owner="alice", agent=agent, count=1)
    return [await Witness(house, key, conversation, findings).open() for conversation in made]


def _last_at(text: str) -> float:
    found = _TOKEN.findall(text[-80:])
    return int(found[-1][1]) / 1e6 if found else 0.0


def _first_at(text: str) -> float:
    found = _TOKEN.search(text)
    return int(found[2]) / 1e6 if found else 0.0
