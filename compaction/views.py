"""The ladder of a window, for the agent's admin page and for anyone who wants to know."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from compaction.thresholds import Thresholds, compute_thresholds

LARGEST_WINDOW = 10_000_000  # tokens


class _BadFigure(ValueError):
    """A figure in the query that is none, or out of range."""


@require_GET
def thresholds(request: HttpRequest) -> JsonResponse:
    """`?window=&percent=&reply=` (tokens, percent, tokens); an empty percent means the built-in ladder."""
    try:
        window = _figure(request, "window", LARGEST_WINDOW)
        percent = _figure(request, "percent", 100)
        reply = _figure(request, "reply", LARGEST_WINDOW)
    except _BadFigure as error:
        return JsonResponse({"code": "invalid", "message": str(error)}, status=422)
    if not window:
        return JsonResponse({"code": "invalid", "message": _("Give a window in tokens.")}, status=422)
    return JsonResponse(ladder_json(compute_thresholds(window, percent, reply or None)))


def ladder_json(ladder: Thresholds) -> dict[str, object]:
    """A ladder for whoever draws it (tokens)."""
    return {
        "window": ladder.window,
        "effective_window": ladder.effective_window,
        "warn": ladder.warn,
        "auto": ladder.auto,
        "hard": ladder.hard,
        "block": ladder.block,
        "percent": ladder.percent,
        "threshold_percent": ladder.threshold_percent,
        "disabled": ladder.disabled,
        "clamp_reason": str(ladder.clamp_reason),
    }


def _figure(request: HttpRequest, name: str, largest: int) -> int | None:
    text = request.GET.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or not text.isascii() or int(text[:9]) > largest or len(text) > 9:
        raise _BadFigure(
            _("“%(name)s” must be a whole number from 0 to %(largest)s.") % {"name": name, "largest": f"{largest:,}"}
        )
    return int(text)
