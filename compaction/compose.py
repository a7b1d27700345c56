"""The prefix from a summary's sections: what code adds to them, by budget, and how the result measures up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from compaction import fallback, quality, sections
from compaction.case import LEAST_LIST, PREFIX_TOKENS, Case
from compaction.counting import Count, Counter
from compaction.identifiers import Finder
from compaction.language import Headings, prose_of_conversation
from compaction.prompts import CLOSING, USER_MESSAGES
from compaction.quality import Fault, Quality
from compaction.restore import (
    Restorable,
    RestoredFile,
    RestoredImage,
    RestoredState,
    carried_images,
    images_of,
    restore,
    restored_budget,
)
from compaction.stages import assemble
from compaction.stages.assemble import Verbatim
from compaction.stages.summarize import OUTPUT_FLOOR
from compaction.statements import Said, Statements, list_statements, name_missing, repeat_verbatim, said, unseen
from compaction.strategies import Strategy
from compaction.transcript import Entry, Prefix

NAMED_PERCENT = 12  # of the trigger: names listed behind the messages that hold them
# Very large windows do not need longer lists: what is in them is found by number and by search (tokens).
MOST_LISTED = 16_000
MOST_COPIED = 8_000
MOST_NAMED = 12_000
EXTRACT_PERCENT = 33  # of what is covered: what the extractive strategy may take


@dataclass(frozen=True, slots=True)
class Outcome:
    """A composed prefix with its figures, and the fault that keeps it from counting, if any."""

    prefix: Prefix
    after: int
    quality: Quality
    fault: Fault | None = None
    strategy: str = ""
    rebuilt: bool = False
    fallback_code: str = ""
    fallback_figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Material:
    """What a summary is made from: the entries behind it and, in an update, what the earlier summary says.

    What people said in them is read when it is first asked for, at best while the summariser writes (`prepare`).
    """

    entries: tuple[Entry, ...]
    earlier: str = ""  # its eight written sections
    earlier_list: str = ""  # its section of people's messages
    rebuilt: bool = False
    find: Finder = field(default_factory=Finder, repr=False, compare=False)  # names in what is written
    _statements: dict[int, Statements] = field(default_factory=dict, repr=False, compare=False)
    _copies: dict[tuple[Any, ...], Verbatim] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def people(self) -> list[Said]:
        """The messages of people among the entries."""
        return said(self.entries)

    @cached_property
    def names(self) -> list[str]:
        """The names, numbers, paths and links in them, which must stay within reach."""
        return quality.names_of(self.people)

    def statements(self, budget: int) -> Statements:
        """Their messages, each in one line, within a budget (tokens)."""
        if budget not in self._statements:
            self._statements[budget] = list_statements(self.people, self.earlier_list, budget)
        return self._statements[budget]

    def copies(self, whole: tuple[int, ...], budget: int, headings: Headings) -> Verbatim:
        """Copies of what is not whole in their list, within a budget (tokens)."""
        which = (headings, budget, whole)
        if which not in self._copies:
            self._copies[which] = repeat_verbatim(self.people, whole, budget, headings)
        return self._copies[which]


def prepare(case: Case, material: Material, headings: Headings, count: Counter) -> None:
    """Reads and counts what will stand beside any summary of the usual size, so that it need not be done afterwards."""
    room = _room(case, case.strategy, OUTPUT_FLOOR)
    statements = material.statements(room.listed)
    count.keep(f"{statements.text(headings)}\n\n")  # and the next heading
    count.keep(material.copies(statements.whole, room.copied, headings).text)
    _ = material.names
    prose_of_conversation(case.conversation)


def compose(
    case: Case, material: Material, bodies: dict[int, str], headings: Headings, count: Count, chosen: Strategy
) -> Outcome:
    """Fills in what code adds, builds the prefix and measures it.

    Where that frees too little, only the least is added; where names get lost, they come before everything else.
    """
    written = count("\n\n".join(bodies.values())) + PREFIX_TOKENS
    outcome = _composed(case, material, bodies, headings, count, chosen, _room(case, chosen, written))
    if outcome.fault is not None and outcome.fault.code == "summary_too_long":
        outcome = _composed(case, material, bodies, headings, count, chosen, Room(LEAST_LIST))
    if outcome.fault is not None and outcome.fault.code == "summary_lost_facts":
        # Below the trigger all the same: a context that needs the next compaction at once helps nobody.
        most = min(case.before - case.least_gain, case.trigger)
        spare = most - case.fixed - written - LEAST_LIST
        names_first = Room(LEAST_LIST, named=max(0, spare), left=max(0, spare))
        better = _composed(case, material, bodies, headings, count, chosen, names_first)
        outcome = better if better.fault is None else outcome
    return outcome


@dataclass(frozen=True, slots=True)
class Room:
    """What the parts that code adds may take (tokens): each its own most, all together `left`."""

    listed: int
    verbatim: int = 0
    named: int = 0
    restored: int = 0
    left: int = 0

    @property
    def copied(self) -> int:
        return min(self.verbatim, self.left // 3)


def _room(case: Case, chosen: Strategy, written: int) -> Room:
    """Shares of the trigger, within what the strategy's goal and a decent gain leave beside summary and tail."""
    goal = min(case.trigger * chosen.goal_percent // 100, case.before - case.least_gain * 3 // 2)
    if not chosen.uses_model:
        goal = min(goal, case.fixed + case.cut.covered_tokens * EXTRACT_PERCENT // 100)
    left = max(0, goal - case.fixed - written)
    listed = min(MOST_LISTED, case.trigger * chosen.statements_percent // 100, left * chosen.list_percent // 100)
    listed = max(LEAST_LIST, listed)
    return Room(
        listed=listed,
        verbatim=min(MOST_COPIED, case.trigger * chosen.verbatim_percent // 100),
        named=min(MOST_NAMED, case.trigger * NAMED_PERCENT // 100),
        restored=case.settings.raw(restored_budget(case.settings.window)) * chosen.restored_percent // 100,
        left=max(0, left - listed),
    )


@dataclass(frozen=True, slots=True)
class _Added:
    """What code adds to a summary, and how much of what people named can be reached with it."""

    listed: str
    verbatim: Verbatim
    restored: RestoredState
    names: int
    written_percent: int
    missing: tuple[str, ...]
    percent: int
    fault: Fault | None


def _add(
    case: Case,
    material: Material,
    bodies: dict[int, str],
    headings: Headings,
    count: Count,
    chosen: Strategy,
    room: Room,
) -> _Added:
    """The list of people's messages, copies, names that stand nowhere else, and restored state with what is left."""
    people, left = material.people, room.left
    if chosen.uses_model:
        statements = material.statements(room.listed)
    else:
        statements = fallback.pick_statements(people, material.earlier_list, room.listed)
    verbatim = material.copies(statements.whole, room.copied, headings)
    left -= verbatim.tokens
    wanted = material.names
    own_words = "\n".join(body for index, body in bodies.items() if index != USER_MESSAGES)
    written_percent, missing = quality.lost_facts(wanted, own_words, material.find)
    missing = unseen(missing, people, statements, verbatim)
    named, missing = name_missing(statements, people, missing, min(room.named, left))
    left -= named.tokens - statements.tokens
    restored = restore(_restorable(case), min(room.restored, max(0, left)), headings, count)
    listed = named.text(headings)
    missing = [name for name in missing if name not in restored.text]
    percent, fault = quality.reachable_share(wanted, missing)
    return _Added(listed, verbatim, restored, len(wanted), written_percent, tuple(missing), percent, fault)


def _composed(
    case: Case,
    material: Material,
    bodies: dict[int, str],
    headings: Headings,
    count: Count,
    chosen: Strategy,
    room: Room,
) -> Outcome:
    added = _add(case, material, bodies, headings, count, chosen, room)
    prefix = assemble.assemble(
        f"{sections.render({**bodies, USER_MESSAGES: added.listed}, headings)}\n\n{CLOSING[headings]}",
        headings,
        covered_to=case.cut.spanned[1],
        generation=(case.transcript.prefix.generation if case.transcript.prefix else 0) + 1,
        count=count,
        verbatim=added.verbatim,
        restored=added.restored,
    )
    after = case.fixed + prefix.tokens
    figures = Quality(
        sections=len({*bodies, USER_MESSAGES}),
        ratio_percent=prefix.tokens * 100 // max(1, case.cut.covered_tokens),
        names=added.names,
        reachable_percent=added.percent,
        written_percent=added.written_percent,
        missing=added.missing[: quality.MISSING_SHOWN],
    )
    fault = _too_little(case, case.before - after) or added.fault
    return Outcome(prefix, after, figures, fault, chosen.name, material.rebuilt)


def _too_little(case: Case, gain: int) -> Fault | None:
    if gain >= case.least_gain:
        return None
    shorter = "It is too long. Write at most half as much."
    return Fault("summary_too_long", shorter, (("gain", max(0, gain)), ("least", case.least_gain)))


def _restorable(case: Case) -> Restorable:
    """What the caller read from storage; the newest images come from the messages themselves where it named none."""
    if any(isinstance(entry, RestoredImage) for entry in case.restorable):
        return case.restorable
    files = [entry for entry in case.restorable if isinstance(entry, RestoredFile)]
    earlier = carried_images(case.transcript.prefix) if case.transcript.prefix else []
    return [*files, *earlier, *images_of(case.cut.covered)]
