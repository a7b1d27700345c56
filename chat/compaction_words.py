"""What is said of a compaction that did not happen, or not as it should: made from code and figures when it is shown.

Whoever looks reads it in their own language, whatever the language of the process that stored it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.utils.translation import gettext as _

from agents import errors as agents_errors
from agents.errors import AgentsError
from compaction import errors
from compaction.errors import CompactionError

_SENTENCES: dict[str, Callable[[], str]] = {
    "stale": lambda: _("The conversation was changed while it was being compacted; the context is as it was."),
    "worker_lost": lambda: _("The process that compacted the conversation ended. Try again; the context is as it was."),
    "internal_error": lambda: _("Something went wrong while compacting. Try again; the context is as it was."),
    "auxiliary_unavailable": lambda: _("No channel can write summaries. An administrator can choose one."),
    "undone_meanwhile": lambda: _("The compaction before this one was undone, so this one was dropped."),
    "instructions_too_long": lambda: _("What to keep can be said in at most 2,000 characters."),
    "not_the_newest": lambda: _("Only the newest compaction can be undone. Undo the later one first."),
    "not_applied": lambda: _("Only a compaction that was applied can be undone."),
    "would_not_fit": lambda: _(
        "Without this compaction the context would have %(tokens)s tokens, more than the %(limit)s that fit. "
        "The next message would wait for a new compaction. Undo it all the same?"
    ),
    "ended": lambda: _("This compaction is over already."),
}
_RETRYABLE = {"stale", "worker_lost", "internal_error", "auxiliary_unavailable", "undone_meanwhile"}

# Why the channel that was chosen to write summaries cannot.
_UNAVAILABLE: dict[str, Callable[[], str]] = {
    "switched_off": lambda: _("“%(name)s” is switched off"),
    "deleted": lambda: _("the chosen channel was deleted"),
    "not_auxiliary": lambda: _("“%(name)s” may not be used for summaries any more"),
    "no_models": lambda: _("“%(name)s” lists no models"),
}


def sentence(code: str, **figures: object) -> str:
    """The sentence for a code of the chat or of the engine, in the language that is active."""
    if code == "auxiliary_unavailable" and figures.get("because") in _UNAVAILABLE:
        why = _UNAVAILABLE[str(figures["because"])]() % {"name": figures.get("name", "")}
        text = _(
            "The channel that should write summaries cannot be used: %(why)s. An administrator can choose another."
        )
        return text % {"why": why}
    if code not in _SENTENCES:
        return errors.sentence(code, _with_cause(figures))
    shown = {name: f"{value:,}" if isinstance(value, int) else value for name, value in figures.items()}
    return _SENTENCES[code]() % shown if shown else _SENTENCES[code]()


def stored(code: str, figures: Mapping[str, Any], text: str) -> str:
    """The sentence for what a row holds; its `text`, as it was written then, where nobody knows the code any more."""
    if code not in _SENTENCES and not errors.is_known(code):
        return text
    said = sentence(code, **figures)
    lacks_figures = not figures and ("…" in said or "%(" in said)
    return text if lacks_figures and text else said


def refused(code: str, **figures: object) -> CompactionError:
    """A failure of the chat's own in the form of all the others."""
    return CompactionError(code, sentence(code, **figures), retryable=code in _RETRYABLE, **figures)


def summariser_failed(error: AgentsError, *, retryable: bool) -> CompactionError:
    """The call to the model that writes summaries failed; its cause is kept as a code too."""
    figures = {"why": str(error.message), "cause": error.code, "detail": error.detail, "model": error.model}
    return CompactionError("summariser_failed", retryable=retryable, **figures)


def _with_cause(figures: Mapping[str, Any]) -> Mapping[str, Any]:
    """A provider's failure inside the sentence is said in the reader's language too."""
    if figures.get("cause") not in agents_errors.SENTENCES:
        return figures
    why = agents_errors.sentence(figures["cause"], detail=figures.get("detail", ""), model=figures.get("model", ""))
    return {**figures, "why": why}
