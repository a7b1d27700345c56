"""The ladder: from which size on a conversation is warned about, compacted and made to wait (all in tokens)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from django.utils.translation import gettext as _

Tier = Literal["safe", "warn", "auto", "hard"]

SUMMARY_RESERVE = 20_000
AUTOCOMPACT_BUFFER = 13_000
WARN_BUFFER = 20_000
HARD_BUFFER = 3_000
DEFAULT_PCT = 0.7
WARN_PCT_OFFSET = 0.1

UNKNOWN_REPLY = 4_096  # an answer's length where the agent does not say
REPLY_MARGIN = 500
BLOCK_BUFFER = 10_000

# Shares in tenths, so that every figure stays an integer: 0.7 * 64_000 is not one in floating point.
_AUTO_TENTHS = round(DEFAULT_PCT * 10)
_WARN_TENTHS = round((DEFAULT_PCT - WARN_PCT_OFFSET) * 10)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The ladder of one agent (tokens). `auto` and `hard` are None where compaction by itself is switched off.

    `block` is where a send must wait; `ladder_auto` is the built-in trigger, from which budgets are taken where the
    agent has none. `percent` is what the agent asks for, `clamp_reason` says why it got less or how it was read.
    """

    window: int
    warn: int
    auto: int | None
    hard: int | None
    effective_window: int
    block: int
    ladder_auto: int
    percent: int | None = None
    clamp_reason: str = ""

    @property
    def disabled(self) -> bool:
        return self.auto is None

    @property
    def trigger(self) -> int:
        """What budgets and the least gain are shares of: `auto`, or the ladder's where it is switched off."""
        return self.ladder_auto if self.auto is None else self.auto

    @property
    def least_gain(self) -> int:
        """A compaction that frees less than this is not worth having: a tenth of the trigger."""
        return self.trigger // 10

    @property
    def threshold_percent(self) -> int | None:
        """The trigger that is in force as a share of the window, rounded; None where it is switched off."""
        if self.auto is None or not self.window:
            return None
        return (self.auto * 200 + self.window) // (2 * self.window)

    def tier(self, tokens: int) -> Tier:
        """Where `tokens` stands on the ladder; boundaries are inclusive. Switched off, colours follow `block`."""
        if self.auto is None or self.hard is None:
            return "hard" if tokens >= self.block else "warn" if tokens >= self.warn else "safe"
        if tokens >= self.hard:
            return "hard"
        if tokens >= self.auto:
            return "auto"
        return "warn" if tokens >= self.warn else "safe"


def compute_thresholds(window: int, percent: int | None = None, reply: int | None = None) -> Thresholds:
    """The ladder of a window (tokens). `percent`: None built-in, 1-100 of it, 0 off; `reply`: longest answer."""
    window = max(0, int(window))
    effective = max(0, window - SUMMARY_RESERVE)
    auto = max(window * _AUTO_TENTHS // 10, effective - AUTOCOMPACT_BUFFER)
    warn = max(window * _WARN_TENTHS // 10, auto - WARN_BUFFER)
    hard = max(effective - HARD_BUFFER, auto)
    if percent is None:
        return Thresholds(window, warn, auto, hard, effective, _block(window, auto, hard, reply), auto)
    if not 0 <= percent <= 100:
        raise ValueError(f"a threshold is a percentage from 0 to 100, not {percent}")
    if percent == 0:
        block = _block(window, auto, hard, reply)
        return Thresholds(window, _warn_below(block, window), None, None, effective, block, auto, percent=0)
    wanted = percent * window // 100
    chosen = min(wanted, hard)
    return Thresholds(
        window=window,
        warn=_warn_below(chosen, window),
        auto=chosen,
        hard=hard,
        effective_window=effective,
        block=_block(window, chosen, hard, reply),
        ladder_auto=auto,
        percent=percent,
        clamp_reason=_clamp_reason(percent, wanted, chosen) if chosen < wanted else "",
    )


def ladder_for(window: int, stored: object, reply: int | None) -> Thresholds:
    """The ladder of an agent as it is stored: a setting of an older form counts, and `clamp_reason` says how."""
    percent, warning = read_percent(stored, window)
    ladder = compute_thresholds(window, percent, reply)
    if not warning:
        return ladder
    return replace(ladder, clamp_reason=" ".join(filter(None, (warning, ladder.clamp_reason))))


def _block(window: int, auto: int, hard: int, reply: int | None) -> int:
    """Where a send must wait: as late as the answer still fits, so that small windows make nobody wait."""
    answer = min(reply or UNKNOWN_REPLY, window // 4)
    return max(auto, min(window - answer - REPLY_MARGIN, max(hard, auto + BLOCK_BUFFER)))


def _warn_below(trigger: int, window: int) -> int:
    return max(0, trigger - window // 10, trigger - WARN_BUFFER)


def _clamp_reason(percent: int, wanted: int, chosen: int) -> str:
    return _(
        "%(percent)d %% of the window would be %(wanted)s tokens. Compaction starts at %(chosen)s at the latest, "
        "so that the summary still fits."
    ) % {"percent": percent, "wanted": f"{wanted:,}", "chosen": f"{chosen:,}"}


def read_percent(stored: object, window: int) -> tuple[int | None, str]:
    """A stored threshold of any older form as (percent, warning); the warning is empty where nothing was changed.

    Older forms: a fraction (0.8), text ("80%"), or a number of tokens (90000). What cannot be read falls back to the
    built-in ladder and says so.
    """
    if stored is None or stored == "":
        return None, ""
    if isinstance(stored, int) and not isinstance(stored, bool) and 0 <= stored <= 100:
        return stored, ""
    try:
        number = float(str(stored).strip().rstrip("%").strip())
    except ValueError:
        return None, _("The threshold “%(stored)s” is not a number; the built-in ladder is used.") % {"stored": stored}
    if 0 < number < 1:
        number *= 100
    elif number > 100 and window > 0:
        number = number * 100 / window
    if not 0 <= number <= 100:
        return None, _("The threshold “%(stored)s” is out of range; the built-in ladder is used.") % {"stored": stored}
    percent = max(1, round(number)) if number else 0
    return percent, _("The threshold “%(stored)s” is read as %(percent)d %% of the window.") % {
        "stored": stored,
        "percent": percent,
    }
