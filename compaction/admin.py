"""Compactions in Django's admin: their health at a glance, every run to look at, nothing to change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Avg, Count, F, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from compaction.agent_admin import AgentAdmin
from compaction.models import Compaction, State

if TYPE_CHECKING:
    _CompactionAdmin = admin.ModelAdmin[Compaction]
else:  # this class takes no type at run time
    _CompactionAdmin = admin.ModelAdmin

__all__ = ["AgentAdmin", "CompactionAdmin"]

READ_CONTENT = "chat.view_content"
MOST_LINES = 100

# What a conversation says: shown only to those who may read conversations.
_CONTENT = ("instructions", "summary", "quality")


@admin.register(Compaction)
class CompactionAdmin(_CompactionAdmin):
    change_list_template = "admin/compaction/compaction/change_list.html"
    list_display = (
        "id",
        "created_at",
        "agent",
        "state",
        "reason",
        "strategy",
        "covered_count",
        "tokens",
        "gain",
        "seconds",
        "model",
        "error_code",
    )
    list_filter = (
        "state",
        "reason",
        "error_code",
        "strategy",
        "conversation__agent",
        "channel_name",
        "model",
        "created_at",
    )
    list_select_related = ("conversation__agent",)
    search_fields = ("=id", "=conversation__id", "error_code", "error_text", "model")
    date_hierarchy = "created_at"
    show_full_result_count = False
    list_per_page = 50

    def get_queryset(self, request: HttpRequest) -> QuerySet[Compaction]:
        return super().get_queryset(request).defer("prefix", "covered_ids")

    def get_fields(self, request: HttpRequest, obj: Compaction | None = None) -> list[Any]:
        hidden = {"prefix", "covered_ids", "summary_message", "worker", "situation"}
        names = [field.name for field in Compaction._meta.fields if field.name not in hidden]
        if request.user.has_perm(READ_CONTENT):
            return [*names, "summary"]
        return [name for name in names if name not in _CONTENT]

    def get_readonly_fields(self, request: HttpRequest, obj: Compaction | None = None) -> list[Any]:
        return self.get_fields(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Compaction | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Compaction | None = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        response = super().changelist_view(request, extra_context)
        found = getattr(response, "context_data", {}).get("cl")
        if found is not None:
            response.context_data["health"] = health(found.queryset)  # type: ignore[attr-defined]
        return response

    @admin.display(description=gettext_lazy("agent"), ordering="conversation__agent__name")
    def agent(self, row: Compaction) -> str:
        return str(row.conversation.agent)

    @admin.display(description=gettext_lazy("tokens"))
    def tokens(self, row: Compaction) -> str:
        shown = ["–" if tokens is None else f"{tokens:,}" for tokens in (row.tokens_before, row.tokens_after)]
        return " → ".join(shown)

    @admin.display(description=gettext_lazy("seconds"), ordering="duration_ms")
    def seconds(self, row: Compaction) -> str:
        return "–" if row.duration_ms is None else f"{row.duration_ms / 1000:.1f}"

    @admin.display(description=gettext_lazy("summary"))
    def summary(self, row: Compaction) -> str:
        return row.summary_message.content if row.summary_message else "–"


def health(rows: QuerySet[Compaction]) -> list[dict[str, Any]]:
    """Runs, failures, gain, duration and cost by agent and model, of what the list shows."""
    ended = Q(state__in=[State.APPLIED, State.UNDONE, State.READY])
    lines = (
        rows.order_by()
        .exclude(state=State.SKIPPED)
        .values(agent=F("conversation__agent__name"), model_name=F("model"))
        .annotate(
            runs=Count("id"),
            applied=Count("id", filter=ended),
            failed=Count("id", filter=Q(state=State.FAILED)),
            undone=Count("id", filter=Q(state=State.UNDONE)),
            gain=Avg("gain", filter=ended),
            milliseconds=Avg("duration_ms", filter=ended),
            cost=Sum("cost"),
        )
        .order_by("-runs")[:MOST_LINES]
    )
    return [_line(line) for line in lines]


def _line(line: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **line,
        "model_name": line["model_name"] or _("none"),
        "failed_percent": round(100 * line["failed"] / line["runs"]),
        "gain": None if line["gain"] is None else round(line["gain"]),
        "seconds": None if line["milliseconds"] is None else round(line["milliseconds"] / 1000, 1),
    }
