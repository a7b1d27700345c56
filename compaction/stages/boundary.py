"""Where a transcript is cut: what a compaction covers and what stays word for word.

The cut falls before a message of a person or, where the turn at hand alone is too large, between its completed tool
rounds. It never parts a call from its result. Whatever must stay verbatim (pins, system messages, the newest message
of a person, unanswered ones) stays on this side of it even when it stands before the cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from agents.messages import Message
from compaction.transcript import Entry, Transcript
from compaction.validate import pair


@dataclass(frozen=True, slots=True)
class TailBudget:
    """What stays: `tokens` wanted, at least `keep_recent` messages, which yields where `limit` tokens are passed."""

    tokens: int
    limit: int
    keep_recent: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The two sides of a transcript. `covered` is what the summary stands for, `kept` what stays, both in order."""

    covered: tuple[Entry, ...]
    kept: tuple[Entry, ...]
    covered_tokens: int
    kept_tokens: int

    @property
    def spanned(self) -> tuple[int, int]:
        """First and last covered position, inclusive."""
        return self.covered[0].position, self.covered[-1].position


def cut(live: Sequence[Entry], budget: TailBudget, shape: Shape | None = None) -> Cut:
    """Divides the live entries; `covered` is empty where everything has to stay. `shape` saves looking twice."""
    if not live:
        return Cut((), (), 0, 0)
    shape = shape or Shape.of(live)
    at = _place(shape, budget)
    return _divide(live, shape, at)


def floor(transcript: Transcript, shape: Shape | None = None) -> int:
    """What no compaction can remove (tokens): system prompt, tools, pins and the newest turn without its old rounds."""
    live = transcript.live
    fixed = transcript.system_tokens + transcript.tool_tokens + sum(entry.tokens for entry in transcript.pinned_covered)
    if not live:
        return fixed
    shape = shape or Shape.of(live)
    at = shape.last_unit
    return fixed + shape.tail_tokens[at] + sum(live[index].tokens for index in shape.kept if index < at)


def _divide(live: Sequence[Entry], shape: Shape, at: int) -> Cut:
    stays_before = sorted(index for index in shape.kept if index < at)
    covered: list[Entry] = []
    start = 0
    for index in (*stays_before, at):
        covered += live[start:index]
        start = index + 1
    stays = [live[index] for index in stays_before]
    kept_tokens = shape.tail_tokens[at] + sum(entry.tokens for entry in stays)
    return Cut(tuple(covered), (*stays, *live[at:]), shape.tail_tokens[0] - kept_tokens, kept_tokens)


@dataclass(frozen=True, slots=True)
class Shape:
    """The structure of a history: where it may be cut, what must stay, what each tail would cost (indices, tokens)."""

    user_cuts: tuple[int, ...]  # before a person's message
    turn_cuts: tuple[int, ...]  # between units of the turn at hand
    kept: frozenset[int]
    newest_user: int  # -1: no person has spoken
    last_unit: int
    tail_tokens: tuple[int, ...]  # what the entries from an index on cost
    length: int

    @classmethod
    def of(cls, live: Sequence[Entry]) -> Shape:
        messages = [entry.message for entry in live]
        callers = pair(messages) if any(message.role == "tool" for message in messages) else {}
        allowed = _allowed_cuts(messages, callers)
        users = [index for index, message in enumerate(messages) if message.role == "user"]
        newest = users[-1] if users else -1
        tail = tuple(accumulate((entry.tokens for entry in reversed(live)), initial=0))[::-1]
        return cls(
            user_cuts=tuple(index for index in users if allowed[index]),
            turn_cuts=tuple(index for index in range(newest + 1, len(live)) if allowed[index]),
            kept=_must_stay(live, callers, newest),
            newest_user=newest,
            last_unit=next((index for index in range(len(live) - 1, -1, -1) if allowed[index]), 0),
            tail_tokens=tail,
            length=len(live),
        )


def _allowed_cuts(messages: Sequence[Message], callers: dict[int, int]) -> list[bool]:
    """For each index whether a cut before it would leave every call beside its result."""
    if not callers and not any(message.role == "tool" for message in messages):
        return [True] * len(messages)
    ends: dict[int, int] = {}
    for result, caller in callers.items():
        ends[caller] = max(ends.get(caller, caller), result)
    allowed = []
    reach = -1  # the last index that belongs to a group already begun
    for index, message in enumerate(messages):
        orphan = message.role == "tool" and index not in callers and index > 0
        allowed.append(index > reach and not orphan)
        reach = max(reach, ends.get(index, index))
    return allowed


def _must_stay(live: Sequence[Entry], callers: dict[int, int], newest_user: int) -> frozenset[int]:
    """Pins with their whole tool round, system messages, the newest message of a person, unanswered ones before it."""
    stay = {index for index, entry in enumerate(live) if entry.pinned or entry.message.role == "system"}
    pinned_rounds = {callers.get(index, index) for index in stay}
    stay.update(caller for caller in pinned_rounds)
    stay.update(result for result, caller in callers.items() if caller in pinned_rounds)
    if newest_user >= 0:
        stay.add(newest_user)
        last = live[-1].message
        answered = last.role == "assistant" and not last.tool_calls
        before = newest_user - 1
        while not answered and before >= 0 and live[before].message.role == "user":
            stay.add(before)
            before -= 1
    return frozenset(stay)


def _place(shape: Shape, budget: TailBudget) -> int:
    """The index of the cut: the longest tail within the budget, lengthened to the least number of messages."""
    if fitting := [index for index in shape.user_cuts if shape.tail_tokens[index] <= budget.tokens]:
        return _lengthen(shape, budget, fitting[0], shape.user_cuts)
    spoken = shape.tail_tokens[shape.newest_user] - shape.tail_tokens[shape.newest_user + 1] if shape.user_cuts else 0
    fitting = [index for index in shape.turn_cuts if shape.tail_tokens[index] + spoken <= budget.tokens]
    at = fitting[0] if fitting else shape.last_unit
    return _lengthen(shape, budget, at, (*shape.user_cuts, *shape.turn_cuts))


def _lengthen(shape: Shape, budget: TailBudget, at: int, cuts: Sequence[int]) -> int:
    """Moves the cut back until enough messages stay, as far as the limit allows."""
    for earlier in reversed(cuts):
        if shape.length - at >= budget.keep_recent:
            break
        if earlier < at:
            if shape.tail_tokens[earlier] > budget.limit:
                break
            at = earlier
    return at
