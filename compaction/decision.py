"""Run, wait, skip or refuse, and why: asked at every boundary, answered from numbers alone in microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from compaction.breaker import Breaker
from compaction.errors import sentence
from compaction.thresholds import Thresholds

Action = Literal["run", "wait", "skip", "refuse", "none"]
Reason = Literal["manual", "auto", "hard", "overflow"]


@dataclass(frozen=True, slots=True)
class FloorParts:
    """What the floor is made of (tokens)."""

    system: int = 0
    tools: int = 0
    pins: int = 0
    turn: int = 0

    @property
    def tokens(self) -> int:
        return self.system + self.tools + self.pins + self.turn

    def largest(self) -> tuple[str, int]:
        """What takes most of it, as `errors.sentence` knows it, with its size (tokens)."""
        parts = (("system", self.system), ("tools", self.tools), ("pins", self.pins), ("turn", self.turn))
        return max(parts, key=lambda part: part[1])


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known at a boundary (tokens as the meter counts them, the pending message included).

    `coverable`: tokens a compaction could cover, None where nobody has looked; `new_since_last_run`: whether history,
    model or settings changed since the last run that did not succeed; `attempted`: an automatic run was already
    started at this boundary; `idle`: no turn runs and none waits; `fingerprint`: of history, model and settings, for
    forced runs.
    """

    tokens: int
    thresholds: Thresholds
    floor: FloorParts = field(default_factory=FloorParts)
    requested: Literal["manual", "overflow"] | None = None
    paused: bool = False
    breaker: Breaker = field(default_factory=Breaker)
    open_compaction: bool = False
    coverable: int | None = None
    new_since_last_run: bool = True
    turn_running: bool = False
    attempted: bool = False
    idle: bool = False
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do. `run`: start in the background; `wait`: the send waits, for the open run or for one started now;
    `skip`: wanted but not run; `refuse`: the send cannot go on until a person compacts; `none`: nothing is needed.

    `reason` is the reason to run with; `code` and `message` say why, for programs and for people; `figures` are the
    numbers of the sentence.
    """

    action: Action
    reason: Reason | None = None
    code: str = ""
    message: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def starts(self) -> bool:
        """Whether a new run is to be started."""
        return self.action in ("run", "wait") and self.reason is not None


NONE = Decision("none")


def decide(situation: Situation) -> Decision:
    """The one decision, the same for every caller; never answers `run` twice to one situation at one boundary."""
    if situation.requested == "manual":
        return _by_hand(situation)
    if situation.requested == "overflow":
        return _rescue(situation)
    return _by_itself(situation)


def _by_hand(now: Situation) -> Decision:
    """A person asked: pauses, breakers and thresholds do not count, only whether there is something to gain."""
    if now.open_compaction:
        return _skip("already_running")
    if refusal := _nothing_to_gain(now):
        return refusal
    if now.turn_running:
        return _because("wait", "turn_running", "manual")
    return Decision("run", "manual")


def _rescue(now: Situation) -> Decision:
    """The provider says the request is too long: one forced run for this request, then a clear error."""
    if now.thresholds.disabled:
        return _because("refuse", "switched_off")
    if now.open_compaction:
        return _because("wait", "already_running")
    if now.attempted:
        return _skip("already_attempted")
    if now.breaker.forcing_stopped(now.fingerprint):
        return _skip("forcing_stopped", failures=now.breaker.forced_failures)
    return _nothing_to_gain(now) or Decision("wait", "overflow")


def _by_itself(now: Situation) -> Decision:
    ladder = now.thresholds
    if ladder.auto is None or ladder.hard is None:
        return _because("refuse", "switched_off") if now.tokens >= ladder.block else NONE
    if now.tokens < ladder.auto:
        return NONE
    blocked = now.tokens >= ladder.block
    if now.open_compaction:
        return _because("wait" if blocked else "none", "already_running")
    if now.attempted:
        return _skip("already_attempted")
    # On small windows `hard` is `auto`: there only `block` forces, or no failure would ever open the breaker.
    forced = blocked or now.tokens >= ladder.hard > ladder.auto
    if refusal := _not_by_itself(now, forced, blocked) or _nothing_to_gain(now):
        return refusal
    return Decision("wait" if blocked else "run", "hard" if forced else "auto")


def _not_by_itself(now: Situation, forced: bool, blocked: bool) -> Decision | None:
    """What holds back a run nobody asked for."""
    ladder = now.thresholds
    if now.floor.tokens + ladder.least_gain > ladder.trigger:
        largest, size = now.floor.largest()
        return _skip("floor_too_high", largest=largest, size=size, window=ladder.window)
    if now.paused and (now.idle or not blocked):  # what a person undid stays so until a message needs the room
        return _skip("paused_after_undo")
    if forced:
        if now.breaker.forcing_stopped(now.fingerprint):
            return _skip("forcing_stopped", failures=now.breaker.forced_failures)
        return None
    if now.breaker.is_open:
        return _skip("breaker_open", failures=now.breaker.failures)
    if not now.new_since_last_run:
        return _skip("nothing_new")
    return None


def _nothing_to_gain(now: Situation) -> Decision | None:
    if now.coverable is None:
        return None
    if now.coverable <= 0:
        return _skip("nothing_to_compact")
    least = now.thresholds.least_gain
    if now.coverable < least:
        return _skip("gain_too_small", gain=now.coverable, least=least)
    return None


def _skip(code: str, **figures: Any) -> Decision:
    return Decision("skip", None, code, sentence(code, figures), figures)


def _because(action: Action, code: str, reason: Reason | None = None) -> Decision:
    return Decision(action, reason, code, sentence(code))
