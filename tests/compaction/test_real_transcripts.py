"""Real tool dialogues and a real coding session, compacted wherever a person spoke, and again as they go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from compaction.engine import CompactionError, EngineSettings, Plan, SummaryReply, SummaryRequest, compact
from compaction.transcript import Entry, Transcript
from compaction.validate import fault, pair
from tests.compaction.builders import SYSTEM, conversations, cost, count, make_summary, real_messages

HARMLESS = {"nothing_to_compact", "gain_too_small"}
# A context smaller than this has no room for nine sections and the facts of the worst summary a model could write.
SMALLEST = 1_200


def summarise(request: SummaryRequest) -> SummaryReply:
    body = "The assistant went on with the work, and it was done in the way that was asked for by the people."
    return SummaryReply(make_summary(body=body))


def entries_of(conversation: dict[str, Any]) -> list[Entry]:
    messages = [message for message in real_messages(conversation) if message.role != "system"]
    return [Entry(id_, id_, message, cost(message)) for id_, message in enumerate(messages, start=1)]


def boundaries(entries: list[Entry]) -> Iterator[int]:
    """Before and after each message of a person: a send, and the end of the turn before it."""
    for at, entry in enumerate(entries):
        if entry.message.role == "user":
            yield at
            yield at + 1
    yield len(entries)


def violations(before: Transcript, plan: Plan) -> list[str]:
    request = plan.request(before)
    found = [fault(request)] if fault(request) else []
    if request[: len(before.system)] != before.system:
        found.append("system prompt")
    people = [entry.message for entry in before.live if entry.message.role == "user"]
    if people and people[-1] not in request:
        found.append("newest message")
    if plan.tokens_after >= plan.tokens_before:
        found.append("tokens")
    covered = {entry.id for entry in plan.covered}
    callers = pair([entry.message for entry in before.live])
    if any((before.live[at].id in covered) != (before.live[caller].id in covered) for at, caller in callers.items()):
        found.append("a call without its result")
    if (
        replace(before, live=tuple(sorted((*plan.covered, *plan.kept), key=lambda e: e.id))).request()
        != before.request()
    ):
        found.append("undo")
    return found


def compact_at_every_boundary(entries: list[Entry], strategy: str) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for at in boundaries(entries):
        before = Transcript(live=tuple(entries[:at]), system=(SYSTEM,), system_tokens=cost(SYSTEM))
        if before.tokens < SMALLEST:
            continue
        window = max(2_000, before.tokens * 10 // 7)
        chosen = EngineSettings(window=window, strategy=strategy, reason="manual", summariser_window=400_000)
        try:
            plan = compact(before, chosen, summarise, count=count)
        except CompactionError as error:
            outcomes[error.code] += 1
        else:
            assert violations(before, plan) == []
            outcomes["compacted"] += 1
    return outcomes


@pytest.mark.parametrize("strategy", ["balanced", "aggressive", "extractive"])
def test_tool_dialogues_are_compacted_at_every_boundary(strategy: str) -> None:
    outcomes: Counter[str] = Counter()
    for conversation in conversations("tau_airline"):
        outcomes += compact_at_every_boundary(entries_of(conversation), strategy)

    assert set(outcomes) <= HARMLESS | {"compacted"}
    assert outcomes["compacted"] > 300


@pytest.mark.parametrize("strategy", ["balanced", "aggressive", "extractive"])
def test_a_coding_session_is_compacted_at_every_boundary(strategy: str) -> None:
    [conversation] = conversations("pi_sessions")

    outcomes = compact_at_every_boundary(entries_of(conversation), strategy)

    assert set(outcomes) <= HARMLESS | {"compacted"}
    assert outcomes["compacted"] > 90


@pytest.mark.parametrize("window", [16_000, 32_000, 128_000])
def test_a_coding_session_goes_on_through_many_compactions(window: int) -> None:
    """Message by message, compacted whenever the trigger is reached between two model calls, as in a real chat."""
    [conversation] = conversations("pi_sessions")
    now = Transcript(live=(), system=(SYSTEM,), system_tokens=cost(SYSTEM))
    chosen = EngineSettings(window=window, strategy="balanced", summariser_window=128_000)
    outcomes: Counter[str] = Counter()
    entries = entries_of(conversation)
    for at, entry in enumerate(entries):
        now = replace(now, live=(*now.live, entry))
        is_boundary = at + 1 == len(entries) or entries[at + 1].message.role != "tool"
        if not is_boundary or now.tokens < (chosen.thresholds.auto or 0):
            continue
        try:
            plan = compact(now, chosen, summarise, count=count)
        except CompactionError as error:
            outcomes[error.code] += 1
            continue
        assert violations(now, plan) == []
        outcomes["compacted"] += 1
        now = replace(now, live=plan.kept, prefix=plan.prefix)

    assert set(outcomes) <= HARMLESS | {"compacted", "floor_too_high"}
    assert outcomes["compacted"] >= 3
