"""What a run knows before it writes a word: settings, ladder, cut and floor; it refuses what cannot be worth it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compaction.decision import FloorParts
from compaction.errors import CompactionError
from compaction.language import sample
from compaction.restore import Restorable
from compaction.stages import boundary
from compaction.stages.boundary import Cut, TailBudget
from compaction.strategies import Strategy, strategy
from compaction.thresholds import Thresholds, compute_thresholds
from compaction.transcript import Transcript

PREFIX_TOKENS = 300  # frame, headings, acknowledgement: what the smallest summary costs (tokens)
LEAST_LIST = 150  # tokens for the list of messages even where nothing seems left


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What a run needs to know of agent and summariser (tokens). `factor`: tokens the provider counts per raw one."""

    window: int
    reply: int | None = None
    percent: int | None = None
    keep_recent: int = 4
    strategy: str = "balanced"
    summariser_window: int | None = None  # None: as large as the agent's
    summariser_max_output: int | None = None
    instructions: str = ""
    reason: str = "auto"
    factor: float = 1.0
    summariser_factor: float = 1.0

    @property
    def thresholds(self) -> Thresholds:
        return compute_thresholds(self.window, self.percent, self.reply)

    def raw(self, tokens: int) -> int:
        """A provider's figure in our own raw counts (tokens)."""
        return int(tokens / self.factor)


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a run knows before it writes a word (raw tokens)."""

    transcript: Transcript
    settings: EngineSettings
    thresholds: Thresholds
    strategy: Strategy
    cut: Cut
    floor: int
    before: int
    least_gain: int
    restorable: Restorable
    conversation: str  # a sample of what people said, for its language

    @property
    def fixed(self) -> int:
        """What stays whatever the summary says: system, tools, pins and the tail (tokens)."""
        pins = sum(entry.tokens for entry in self.transcript.pinned_covered)
        return self.transcript.system_tokens + self.transcript.tool_tokens + pins + self.cut.kept_tokens

    @property
    def trigger(self) -> int:
        return self.settings.raw(self.thresholds.trigger)

    @property
    def must_shrink(self) -> bool:
        """Whether the request would not fit the window as it is."""
        reply = min(self.settings.reply or 4_096, self.settings.window // 4)
        too_large = self.before * self.settings.factor > self.settings.window - reply
        return too_large or self.settings.reason == "overflow"


def open_case(transcript: Transcript, settings: EngineSettings, restored: Restorable) -> Case:
    """Cuts the transcript and refuses what cannot be worth it before any model is asked."""
    thresholds = settings.thresholds
    chosen = strategy(settings.strategy)
    if not transcript.live:
        raise CompactionError("nothing_to_compact")
    shape = boundary.Shape.of(transcript.live)
    divided = boundary.cut(transcript.live, _tail(chosen, thresholds, transcript, settings), shape)
    if not divided.covered:
        raise CompactionError("nothing_to_compact")
    case = Case(
        transcript=transcript,
        settings=settings,
        thresholds=thresholds,
        strategy=chosen,
        cut=divided,
        floor=boundary.floor(transcript, shape),
        before=transcript.tokens,
        least_gain=settings.raw(thresholds.least_gain),
        restorable=restored,
        conversation=sample(entry.message.content for entry in transcript.live if entry.message.role == "user"),
    )
    _refuse_the_hopeless(case)
    return case


def _tail(chosen: Strategy, thresholds: Thresholds, transcript: Transcript, settings: EngineSettings) -> TailBudget:
    """The tail's budget; who compacts by hand a conversation that is still short gets a tail in proportion."""
    budget = chosen.tail(thresholds, settings.keep_recent, settings.factor)
    if settings.reason != "manual":
        return budget
    live = sum([entry.tokens for entry in transcript.live])
    return replace(budget, tokens=min(budget.tokens, live * chosen.tail_percent // 100))


def _refuse_the_hopeless(case: Case) -> None:
    if case.settings.reason in ("auto", "hard") and case.floor + case.least_gain > case.trigger:
        largest, size = _largest_of_floor(case)
        raise CompactionError("floor_too_high", largest=largest, size=size, window=case.settings.window)
    best = case.before - case.fixed - PREFIX_TOKENS - LEAST_LIST
    if best < case.least_gain:
        raise CompactionError("gain_too_small", gain=max(0, best), least=case.least_gain)


def _largest_of_floor(case: Case) -> tuple[str, int]:
    pins = sum(entry.tokens for entry in (*case.transcript.pinned_covered, *case.transcript.live) if entry.pinned)
    system, tools = case.transcript.system_tokens, case.transcript.tool_tokens
    return FloorParts(system=system, tools=tools, pins=pins, turn=max(0, case.floor - system - tools - pins)).largest()
