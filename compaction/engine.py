"""A compaction, start to end: the four stages on a transcript give a plan. No database, no network but the summariser.

`compact` either returns a plan whose whole request was checked, or raises `CompactionError` and has changed nothing.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from agents.messages import Message
from compaction import fallback, quality, sections
from compaction.case import Case, EngineSettings, open_case
from compaction.compose import EXTRACT_PERCENT, Material, Outcome, compose, prepare
from compaction.counting import Count, Counter
from compaction.errors import Cancelled, CompactionError
from compaction.language import headings_for, script_of
from compaction.prompts import CLOSING, SECTIONS, USER_MESSAGES, Brief, summary_request
from compaction.quality import Quality
from compaction.restore import Restorable
from compaction.stages import assemble
from compaction.stages.prune import prune
from compaction.stages.summarize import (
    Calls,
    Draft,
    Reader,
    Summarise,
    SummaryReply,
    SummaryRequest,
    fits_whole,
    output_cap,
    repair,
    summarize,
)
from compaction.strategies import strategy
from compaction.transcript import Entry, Prefix, Transcript

__all__ = [
    "Cancelled",
    "CompactionError",
    "EngineSettings",
    "Plan",
    "SummaryReply",
    "SummaryRequest",
    "compact",
    "covered_hash",
]

Progress = Callable[[str, float], None]
EARLIER_PERCENT = 35  # of the summariser's window: what an earlier summary may take of it


@dataclass(frozen=True, slots=True)
class Plan:
    """What a compaction would do: nothing is applied yet (all sizes in raw tokens).

    `covered` gets flagged, `kept` stays; positions are inclusive, `between` is all that was live from one to the other.
    Where the extractive strategy stepped in, `fallback_code` says why, with the figures of that sentence.
    """

    prefix: Prefix
    covered: tuple[Entry, ...]
    kept: tuple[Entry, ...]
    covered_from: int
    covered_to: int
    between: tuple[Entry, ...]
    tokens_before: int
    tokens_after: int
    floor: int
    gain: int
    quality: dict[str, Any]
    usage: dict[str, Any]
    strategy: str
    generation: int
    requests: int
    rebuilt: bool = False
    fallback_code: str = ""
    fallback_figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def covered_hash(self) -> str:
        """Guards everything between the first and the last covered message; worked out when it is asked for."""
        return covered_hash(self.between)

    def request(self, transcript: Transcript) -> tuple[Message, ...]:
        """The request after this plan is applied to the transcript it was made for."""
        return assemble.next_request(transcript, self.prefix, self.kept)


def covered_hash(entries: Sequence[Entry]) -> str:
    """A fingerprint of live entries: any edit, pin, clearing or removal between the first and the last changes it."""
    digest = hashlib.sha256()
    for entry in entries:
        message = entry.message
        marks = f"{entry.id}|{entry.position}|{int(entry.pinned)}{int(entry.cleared)}"
        digest.update(f"{marks}|{message.role}|{message.tool_call_id}|".encode("utf-8", "surrogatepass"))
        digest.update(message.content.encode("utf-8", "surrogatepass"))
        if message.parts or message.tool_calls:
            digest.update(repr((message.parts, message.tool_calls)).encode("utf-8", "surrogatepass"))
        digest.update(b"\x00")
    return digest.hexdigest()


def compact(
    transcript: Transcript,
    settings: EngineSettings,
    summarise: Summarise,
    *,
    progress: Progress | None = None,
    restored: Restorable = (),
    secrets_masked: bool = False,
    count: Count | None = None,
) -> Plan:
    """Shrinks a transcript to a plan, or raises `CompactionError` with a code and the reason for people."""
    report = progress or (lambda stage, fraction: None)
    count = count or _count_text()
    counter = Counter(count, _prompt_lines(count))
    report("boundary", 0.0)
    case = open_case(transcript, settings, restored)
    calls = Calls(summarise, lambda done: report("summarize", 0.05 + 0.85 * done))
    try:
        if not case.strategy.uses_model:
            outcome = _extract(case, counter)
        else:
            outcome = _by_model(case, secrets_masked, calls, counter, report)
    except Cancelled:
        raise
    except CompactionError as error:
        error.usage, error.requests = calls.usage, calls.requests
        outcome = _without_model(case, error, counter)
    report("assemble", 0.95)
    plan = _plan(case, outcome, calls)
    assemble.check(transcript, plan.request(transcript))
    report("assemble", 1.0)
    return plan


def _without_model(case: Case, error: CompactionError, count: Count) -> Outcome:
    """Where the person's message could not be answered at all without a summary, code alone makes room."""
    if not (case.must_shrink and case.strategy.uses_model):
        raise error
    try:
        return replace(_extract(case, count), fallback_code=error.code, fallback_figures=error.figures)
    except CompactionError:
        raise error from None


def _by_model(case: Case, mask_secrets: bool, calls: Calls, count: Counter, report: Progress) -> Outcome:
    """A summary by the summariser, checked, repaired at most once, checked again."""
    report("prune", 0.02)
    headings = headings_for(script_of(case.conversation))
    limit = output_cap(case.trigger, case.settings.summariser_max_output)
    reader = Reader(
        window=int((case.settings.summariser_window or case.settings.window) / case.settings.summariser_factor),
        max_output=limit,
        mask_secrets=mask_secrets,
    )
    brief = Brief(headings, words=max(200, limit * 6 // 10), instructions=case.settings.instructions)
    material = _material(case, reader, brief, count)
    calls.meanwhile = lambda: prepare(case, material, headings, count)
    calls.follow = _following(count, material)
    report("summarize", 0.05)
    entries = prune(material.entries, mask_secrets=mask_secrets)
    draft = summarize(entries, reader, replace(brief, earlier=material.earlier), calls, count)
    outcome = _judge(case, material, draft, count)
    if outcome.fault is not None:
        first = outcome.fault
        if mask_secrets:
            first = quality.without_secrets(first, material.people)
        draft = repair(draft, [first.repair], reader, calls, count)
        outcome = _judge(case, material, draft, count)
        outcome = replace(outcome, quality=replace(outcome.quality, repaired=True, repaired_for=first.code))
    if outcome.fault is not None:
        error = CompactionError(outcome.fault.code, **dict(outcome.fault.figures))
        error.quality = outcome.quality.to_json()
        raise error
    return outcome


def _following(count: Counter, material: Material) -> Callable[[str], None]:
    """What can be told of a draft before its end: its tokens and its names, line by line."""

    def follow(text: str) -> None:
        count.follow(text)
        material.find.follow(text)

    return follow


def _material(case: Case, reader: Reader, brief: Brief, count: Count) -> Material:
    """The originals wherever they fit one request, else what is new together with the earlier summary."""
    covered, prefix, originals = case.cut.covered, case.transcript.prefix, case.transcript.earlier
    if prefix is None:
        return Material(covered)
    if originals and fits_whole(prune((*originals, *covered)), reader, brief, count):
        entries = (*originals, *covered)
        return Material(entries, rebuilt=True)
    written, listed = _earlier_parts(prefix.summary)
    written = _within(written, reader.window * EARLIER_PERCENT // 100, count)
    return Material(covered, written, listed)


def _within(written: str, budget: int, count: Count) -> str:
    """An earlier summary that a smaller summariser can still read beside what is new: all sections evenly shorter."""
    tokens = count(written)
    if tokens <= budget:
        return written
    bodies = sections.parse(written)
    if not bodies:
        return written[: len(written) * budget // tokens]
    shorter = {index: body[: len(body) * budget * 9 // (tokens * 10)] for index, body in bodies.items()}
    return sections.render(shorter, headings_for(script_of(written)))


def _earlier_parts(summary: str) -> tuple[str, str]:
    """An earlier summary without what code had added to it, and its list of people's messages."""
    for closing in CLOSING.values():
        summary = summary.replace(closing, "")
    bodies = sections.parse(summary)
    if not bodies:
        return summary.strip(), ""
    headings = headings_for(script_of(summary))
    listed = bodies.pop(USER_MESSAGES, "")
    return sections.render(bodies, headings), listed


def _judge(case: Case, material: Material, draft: Draft, count: Count) -> Outcome:
    """A draft as it would stand in the request, with the first fault found."""
    headings = draft.brief.headings
    bodies, fault = quality.read_draft(draft.reply.text, draft.reply.finish_reason, headings, case.conversation)
    if fault is not None:
        missing = tuple(sections.missing(bodies, headings))
        figures = Quality(sections=len(bodies), sections_missing=missing, reachable_percent=0, written_percent=0)
        return Outcome(Prefix((), "", 0, 0), case.before, figures, fault, case.strategy.name)
    return compose(case, material, bodies, headings, count, case.strategy)


def _extract(case: Case, count: Count) -> Outcome:
    """The summary by code alone."""
    headings = headings_for(script_of(case.conversation))
    chosen = case.strategy if not case.strategy.uses_model else strategy("extractive")
    material = _extracted_material(case)
    budget = min(case.trigger * chosen.statements_percent, case.cut.covered_tokens * EXTRACT_PERCENT) // 300
    bodies = fallback.extract(material.entries, material.earlier, budget, headings)
    outcome = compose(case, material, bodies, headings, count, chosen)
    if outcome.fault is not None and outcome.fault.code != "summary_lost_facts":
        raise CompactionError(outcome.fault.code, **dict(outcome.fault.figures))
    return outcome


def _extracted_material(case: Case) -> Material:
    """The originals where they are at hand: code can read any number of them."""
    covered, prefix, originals = case.cut.covered, case.transcript.prefix, case.transcript.earlier
    if prefix is None or originals:
        entries = (*originals, *covered)
        return Material(entries, rebuilt=prefix is not None)
    written, listed = _earlier_parts(prefix.summary)
    return Material(covered, written, listed)


def _plan(case: Case, outcome: Outcome, calls: Calls) -> Plan:
    first, last = case.cut.spanned
    live = case.transcript.live
    start = bisect_left(live, first, key=_position)
    between = live[start : bisect_right(live, last, start, key=_position)]
    return Plan(
        prefix=outcome.prefix,
        covered=case.cut.covered,
        kept=case.cut.kept,
        covered_from=first,
        covered_to=last,
        between=between,
        tokens_before=case.before,
        tokens_after=outcome.after,
        floor=case.floor,
        gain=case.before - outcome.after,
        quality=outcome.quality.to_json(),
        usage=calls.usage,
        strategy=outcome.strategy,
        generation=outcome.prefix.generation,
        requests=calls.requests,
        rebuilt=outcome.rebuilt,
        fallback_code=outcome.fallback_code,
        fallback_figures=outcome.fallback_figures,
    )


def _position(entry: Entry) -> int:
    return entry.position


@lru_cache(maxsize=2)
def _prompt_lines(count: Count) -> Mapping[str, int]:
    """What every request to a summariser says, counted once for all runs."""
    counter = Counter(count)
    for headings in SECTIONS:
        for message in summary_request("", Brief(headings, words=0)):
            counter(message.content)
    return counter.known


def _count_text() -> Count:
    """The product's counter; imported late so that the engine can be used with any other."""
    from agents.tokens import count_text

    return count_text
