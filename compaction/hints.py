"""What the composer hints at and what `/context` prints: numbers and codes, put into words where they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from django.utils.translation import gettext as _

from compaction.thresholds import Thresholds, Tier

HintCode = Literal["long_conversation", "context_getting_full", "next_message_waits"]


@dataclass(frozen=True, slots=True)
class Hint:
    """One dismissible line at the composer."""

    code: HintCode
    message: str


@dataclass(frozen=True, slots=True)
class _Rule:
    code: HintCode
    after: int  # shown from the message after this many on (messages)
    again_after: int  # and, once dismissed, after this many more (messages)


_RULES: dict[Tier, _Rule] = {
    "warn": _Rule("long_conversation", after=5, again_after=10),
    "auto": _Rule("context_getting_full", after=5, again_after=5),
    "hard": _Rule("next_message_waits", after=3, again_after=3),
}


def hint_for(tier: Tier, messages_since: int, since_dismissal: int | None = None) -> Hint | None:
    """The hint to show, if any.

    `messages_since`: messages since the start or the last compaction; `since_dismissal`: messages since the person
    dismissed this very hint, None where they never did.
    """
    rule = _RULES.get(tier)
    if rule is None or messages_since <= rule.after:
        return None
    if since_dismissal is not None and since_dismissal <= rule.again_after:
        return None
    return Hint(rule.code, _sentence(rule.code))


def _sentence(code: HintCode) -> str:
    if code == "long_conversation":
        return _("This is a long conversation: /compact frees context.")
    if code == "context_getting_full":
        return _("The context is getting full.")
    return _("The context is full: the next message will wait for a compaction.")


@dataclass(frozen=True, slots=True)
class Rung:
    """One threshold of the ladder as `/context` prints it; `reached` marks the rungs at or below what is used."""

    name: Literal["warn", "auto", "hard", "block"]
    tokens: int
    reached: bool


@dataclass(frozen=True, slots=True)
class ContextReport:
    """Everything `/context` prints (tokens); `rungs` from low to high, `parts` in the order of the meter."""

    window: int
    effective_window: int
    used: int
    tier: Tier
    threshold_percent: int | None
    clamp_reason: str
    rungs: tuple[Rung, ...]
    parts: tuple[tuple[str, int], ...]

    @property
    def free(self) -> int:
        return max(0, self.window - self.used)


def context_report(thresholds: Thresholds, used: int, parts: Mapping[str, int]) -> ContextReport:
    """The numbers behind `/context`: the ladder with a mark at the current tier and the five parts of the meter."""
    steps: list[tuple[Literal["warn", "auto", "hard", "block"], int | None]] = [
        ("warn", thresholds.warn),
        ("auto", thresholds.auto),
        ("hard", thresholds.hard),
        ("block", thresholds.block),
    ]
    rungs = [Rung(name, tokens, used >= tokens) for name, tokens in steps if tokens is not None]
    return ContextReport(
        window=thresholds.window,
        effective_window=thresholds.effective_window,
        used=used,
        tier=thresholds.tier(used),
        threshold_percent=thresholds.threshold_percent,
        clamp_reason=thresholds.clamp_reason,
        rungs=tuple(sorted(rungs, key=lambda rung: rung.tokens)),
        parts=tuple(parts.items()),
    )
