"""Idle clearing: what an old conversation need not carry any more, decided once when a person's message is accepted.

No model is asked. The caller writes `cleared_at` for the ids in the same transaction; it is never taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction.stages.prune import tool_names
from compaction.transcript import Entry

CLEARED = "[Old tool result content cleared]"
OFF = -1


@dataclass(frozen=True, slots=True)
class IdleSettings:
    """When what is cleared (minutes since the last answer of a model); -1 switches either off."""

    clear_thinking_after_minutes: int = 5
    clear_tool_results_after_minutes: int = 60
    tool_results_to_keep: int = 5

    def __post_init__(self) -> None:
        values = (self.clear_thinking_after_minutes, self.clear_tool_results_after_minutes, self.tool_results_to_keep)
        if any(value == 0 or value < OFF for value in values):
            raise ValueError("idle clearing takes numbers above 0, or -1 for off")


@dataclass(frozen=True, slots=True)
class Clearing:
    """The ids of messages to clear: thinking of assistant messages, content of tool results; `tokens` that frees."""

    thinking: tuple[int, ...] = ()
    tool_results: tuple[int, ...] = ()
    tokens: int = 0

    def __bool__(self) -> bool:
        return bool(self.thinking or self.tool_results)


def clear_idle(
    live: Sequence[Entry],
    *,
    last_answer_at: datetime | None,
    now: datetime,
    settings: IdleSettings,
    is_clearable: Callable[[str], bool] = lambda tool: True,
) -> Clearing:
    """What to clear after the time since the last answer. Pins, errors and results already cleared stay as they are.

    The caller asks only when a person's message is accepted: a tool loop, however long, is not idleness.
    """
    if last_answer_at is None:
        return Clearing()
    idle = now - last_answer_at
    thinking = _old_thinking(live) if _is_over(idle, settings.clear_thinking_after_minutes) else ()
    results: tuple[Entry, ...] = ()
    if settings.tool_results_to_keep != OFF and _is_over(idle, settings.clear_tool_results_after_minutes):
        results = _old_results(live, settings.tool_results_to_keep, is_clearable)
    freed = sum(max(0, entry.tokens - len(CLEARED) // 4) for entry in results)
    return Clearing(thinking, tuple(entry.id for entry in results), freed)


def _is_over(idle: timedelta, minutes: int) -> bool:
    return minutes != OFF and idle > timedelta(minutes=minutes)


def _old_thinking(live: Sequence[Entry]) -> tuple[int, ...]:
    return tuple(
        entry.id
        for entry in live
        if entry.message.role == "assistant" and entry.message.thinking and not entry.cleared and not entry.pinned
    )


def _old_results(live: Sequence[Entry], keep: int, is_clearable: Callable[[str], bool]) -> tuple[Entry, ...]:
    """Successful results of clearable tools but for the newest `keep`, each counted by itself in a parallel batch."""
    names = tool_names(live)
    successful = [
        entry
        for index, entry in enumerate(live)
        if index in names and not entry.is_error and not entry.keep and is_clearable(names[index])
    ]
    old = successful[: max(0, len(successful) - keep)]
    return tuple(entry for entry in old if not entry.cleared and not entry.pinned and _is_worth_it(entry))


def _is_worth_it(entry: Entry) -> bool:
    """Clearing a result shorter than its marker would cost tokens."""
    return len(entry.message.content) > len(CLEARED) or bool(entry.message.parts)
