"""Why a compaction did not happen: one code each, and a sentence a person can act on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.utils.translation import gettext as _

# Sentences are made when they are shown, in the reader's language; figures are filled in by name.
_SENTENCES: dict[str, Callable[[], str]] = {
    "nothing_to_compact": lambda: _("There is nothing to compact yet: everything in the context has to stay."),
    "gain_too_small": lambda: _("Compacting would free %(gain)s tokens; at least %(least)s make it worth doing."),
    "floor_too_high": lambda: _(
        "Compaction cannot help here: %(largest)s takes %(size)s of your %(window)s tokens. "
        "Take fewer tools or pins, or choose an agent with a larger window."
    ),
    "nothing_new": lambda: _("Too little was added since the last compaction to make another one worth it."),
    "already_running": lambda: _("A compaction of this conversation is already running."),
    "already_attempted": lambda: _("A compaction was tried a moment ago; the next one comes after the next answer."),
    "turn_running": lambda: _("The compaction starts as soon as the answer that is being written allows it."),
    "paused_after_undo": lambda: _(
        "Automatic compaction pauses because the last one was undone. /compact ends the pause."
    ),
    "breaker_open": lambda: _(
        "Automatic compaction stopped after %(failures)s failures in a row. /compact tries again at once."
    ),
    "forcing_stopped": lambda: _(
        "Compaction failed %(failures)s times although the window is full. "
        "Change the agent's model or settings, or try /compact."
    ),
    "switched_off": lambda: _(
        "Automatic compaction is switched off for this agent and the context is full. Use /compact to go on."
    ),
    "summariser_window_too_small": lambda: _(
        "The model that writes summaries has a window of only %(window)s tokens, too small to read this conversation."
    ),
    "summary_cut_off": lambda: _(
        "The summary was cut off before its end. Try again, or use a model with longer output."
    ),
    "summary_empty": lambda: _(
        "The model returned an empty summary. Try again, or choose another model for summaries."
    ),
    "summary_refused": lambda: _("The model refused to write the summary. Choose another model for summaries."),
    "summary_is_error": lambda: _("The model answered with an error text instead of a summary. Try again later."),
    "summary_incomplete": lambda: _("The summary lacks: %(missing)s. Try again, or choose a stronger model."),
    "summary_wrong_language": lambda: _("The summary is not in the conversation's language. Try again."),
    "summary_lost_facts": lambda: _(
        "The summary loses too much: only %(percent)s %% of the names, numbers, paths and links stay reachable."
    ),
    "summary_too_long": lambda: _(
        "The summary is too long: it would free %(gain)s tokens, not the least of %(least)s."
    ),
    "request_invalid": lambda: _("The compacted context would not be a valid request: %(why)s. Nothing was changed."),
    "does_not_fit": lambda: _("Even compacted, the context does not fit the window of %(window)s tokens."),
    "unknown_strategy": lambda: _("There is no compaction strategy named “%(name)s”."),
    "summariser_failed": lambda: _("The model that writes summaries could not be used: %(why)s"),
    "cancelled": lambda: _("The compaction was cancelled; the context is as it was."),
}

# What can take most of a window, by the name it is stored under.
_PARTS: dict[str, Callable[[], str]] = {
    "system": lambda: _("the system prompt"),
    "tools": lambda: _("the list of tools"),
    "pins": lambda: _("what is pinned"),
    "turn": lambda: _("the newest message"),
}

_RETRYABLE = {
    "summary_cut_off",
    "summary_empty",
    "summary_is_error",
    "summary_incomplete",
    "summary_wrong_language",
    "summary_lost_facts",
    "summary_too_long",
    "summary_refused",
    "summariser_failed",
}


def sentence(code: str, figures: Mapping[str, Any] | None = None) -> str:
    """What a code means, for people, in the language that is active; numbers get their thousands separated."""
    template = _SENTENCES[code]()
    shown = _Figures({name: _shown(name, value) for name, value in (figures or {}).items()})
    return template % shown if "%" in template else template


def _shown(name: str, value: Any) -> Any:
    if name == "largest" and value in _PARTS:
        return _PARTS[value]()
    return f"{value:,}" if isinstance(value, int) else value


class _Figures(dict[str, Any]):
    """Figures of a sentence; one that was not stored reads as an ellipsis."""

    def __missing__(self, name: str) -> str:
        return "…"


def is_known(code: str) -> bool:
    """Whether `sentence` has words for this code."""
    return code in _SENTENCES


def codes() -> tuple[str, ...]:
    """Every code this package can give, for documentation and tests."""
    return tuple(_SENTENCES)


class CompactionError(Exception):
    """A compaction that did not happen: `code` for programs, `message` for people, `retryable` if another try may help.

    `figures` are the numbers of the sentence; `quality`, `usage` and `requests` what the run had measured and spent.
    """

    def __init__(self, code: str, message: str = "", retryable: bool | None = None, **figures: Any) -> None:
        self.code = code
        self.figures = figures
        self.message = message or (sentence(code, figures) if code in _SENTENCES else code)
        self.retryable = code in _RETRYABLE if retryable is None else retryable
        self.quality: dict[str, Any] = {}
        self.usage: dict[str, Any] = {}
        self.requests = 0
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Cancelled(CompactionError):
    """A person, or a newer state of the conversation, ended the run; never counted as a failure."""

    def __init__(self) -> None:
        super().__init__("cancelled", retryable=False)
