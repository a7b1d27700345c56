"""How much of what a compaction keeps: one small class each, registered by name and chosen per agent."""

from __future__ import annotations

from typing import ClassVar

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from compaction.errors import CompactionError
from compaction.stages.boundary import TailBudget
from compaction.thresholds import Thresholds


class Strategy:
    """Budgets for the four stages, as percentages of the trigger; a new strategy is a subclass with a name."""

    name: ClassVar[str] = ""
    title: ClassVar[str | Promise] = ""
    keeps: ClassVar[str | Promise] = ""
    tail_percent: ClassVar[int] = 30
    tail_limit_percent: ClassVar[int] = 60
    least_messages: ClassVar[bool] = True  # honours the agent's `keep_recent`
    statements_percent: ClassVar[int] = 10  # the list of people's messages inside the summary
    list_percent: ClassVar[int] = 50  # but no more than this share of what is left for all that code adds
    verbatim_percent: ClassVar[int] = 8
    restored_percent: ClassVar[int] = 100  # of the budget for restored state
    goal_percent: ClassVar[int] = 70  # what the whole request should not exceed after the compaction
    uses_model: ClassVar[bool] = True

    def tail(self, thresholds: Thresholds, keep_recent: int, factor: float = 1.0) -> TailBudget:
        """The tail's budget in raw tokens; `factor` is provider tokens per raw one."""
        trigger = int(thresholds.trigger / factor)
        return TailBudget(
            tokens=trigger * self.tail_percent // 100,
            limit=trigger * self.tail_limit_percent // 100,
            keep_recent=keep_recent if self.least_messages else 0,
        )


_REGISTERED: dict[str, Strategy] = {}


def register(strategy: type[Strategy]) -> type[Strategy]:
    """Makes a strategy known under its name."""
    _REGISTERED[strategy.name] = strategy()
    return strategy


def strategy(name: str) -> Strategy:
    """The strategy of that name."""
    try:
        return _REGISTERED[name]
    except KeyError:
        raise CompactionError("unknown_strategy", name=name) from None


def is_strategy(name: str) -> bool:
    """Whether a strategy of that name is registered."""
    return name in _REGISTERED


def strategies() -> tuple[Strategy, ...]:
    """All strategies in the order they were registered, the default first."""
    return tuple(_REGISTERED.values())


@register
class Balanced(Strategy):
    name = "balanced"
    title = _("Balanced")
    keeps = _("A summary, the newest third of the context word for word, the files and images last used.")


@register
class Conservative(Strategy):
    name = "conservative"
    title = _("Conservative")
    keeps = _("As balanced, with nearly half of the context word for word. Compacts more often.")
    tail_percent = 45
    statements_percent = 10
    goal_percent = 80


@register
class Aggressive(Strategy):
    name = "aggressive"
    title = _("Aggressive")
    keeps = _("A summary, your newest message and the tool work in progress. Frees the most.")
    tail_percent = 0
    tail_limit_percent = 0
    least_messages = False
    statements_percent = 6
    verbatim_percent = 3
    restored_percent = 40
    goal_percent = 50


@register
class Extractive(Strategy):
    name = "extractive"
    title = _("Extractive")
    keeps = _(
        "No model is used: what people said word for word, rules and corrections first, last answers, files and tools."
    )
    statements_percent = 22
    list_percent = 70
    verbatim_percent = 0
    uses_model = False
