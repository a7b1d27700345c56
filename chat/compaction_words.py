"""What is said of a compaction that did not happen for a reason that only the chat knows."""

from __future__ import annotations

from collections.abc import Callable

from django.utils.translation import gettext as _

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


def sentence(code: str, **figures: object) -> str:
    """The sentence for a code of the chat or of the engine, in the language that is active."""
    if code not in _SENTENCES:
        return errors.sentence(code, figures)
    shown = {name: f"{value:,}" if isinstance(value, int) else value for name, value in figures.items()}
    return _SENTENCES[code]() % shown if shown else _SENTENCES[code]()


def refused(code: str) -> CompactionError:
    """A failure of the chat's own in the form of all the others."""
    return CompactionError(code, sentence(code), retryable=code in _RETRYABLE)
