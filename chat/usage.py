"""Who used how many tokens: by day, person, agent and model, for answers and for summaries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.db.models import BigIntegerField, Count, F, QuerySet, Sum
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, TruncDate

from chat.models import Turn
from compaction.models import Compaction

MOST_LINES: Final = 500

_COUNTED: Final = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")


def by_day(turns: QuerySet[Turn]) -> list[Mapping[str, Any]]:
    """Tokens of answers for each day, person, agent and model, the newest day first."""
    lines = (
        turns.order_by()
        .values(
            day=TruncDate("created_at"),
            person=F("requested_by__username"),
            agent=F("conversation__agent__name"),
            model=F("conversation__agent__model"),
        )
        .annotate(turns=Count("id"), **_sums())
        .order_by("-day", "person", "agent")
    )
    return list(lines[:MOST_LINES])


def of_summaries(rows: QuerySet[Compaction]) -> list[Mapping[str, Any]]:
    """Tokens that summaries took, by day, agent and the model that wrote them."""
    lines = (
        rows.order_by()
        .filter(started_at__isnull=False)
        .values("channel_name", "model", day=TruncDate("created_at"), agent=F("conversation__agent__name"))
        .annotate(runs=Count("id"), cost=Sum("cost"), **_sums())
        .order_by("-day", "agent")
    )
    return list(lines[:MOST_LINES])


def total(turns: QuerySet[Turn]) -> Mapping[str, Any]:
    """All of it in one line."""
    return turns.order_by().aggregate(turns=Count("id"), **_sums())


def _sums() -> dict[str, Sum]:
    return {name: Sum(Cast(KT(f"usage__{name}"), BigIntegerField())) for name in _COUNTED}
