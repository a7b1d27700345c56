"""Conversations in Django's admin: what they are, not what they say. Originals are never changed or deleted here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from chat import conversations, erasing, purging, usage
from chat.context import breaker_of
from chat.errors import ChatError
from chat.models import Conversation, Message, Usage
from chat.reading import read_page
from compaction.models import Compaction

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    _ConversationAdmin = admin.ModelAdmin[Conversation]
    _UsageAdmin = admin.ModelAdmin[Usage]
else:  # these classes take no type at run time
    _ConversationAdmin = _UsageAdmin = admin.ModelAdmin

READ_CONTENT = "chat.view_content"
PURGE = "chat.purge_conversation"


@admin.register(Conversation)
class ConversationAdmin(_ConversationAdmin):
    list_display = ("id", "owner", "agent", "people", "messages", "live_tokens", "state", "created_at", "updated_at")
    list_filter = (
        "agent",
        ("deleted_at", admin.EmptyFieldListFilter),
        "archived",
        "paused",
        "created_at",
    )
    list_select_related = ("owner", "agent")
    search_fields = ("=id", "owner__username")
    date_hierarchy = "created_at"
    show_full_result_count = False
    list_per_page = 50
    actions = ("purge",)
    change_form_template = "admin/chat/conversation.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Conversation]:
        return super().get_queryset(request).annotate(people_count=Count("participants"))

    def get_fields(self, request: HttpRequest, obj: Conversation | None = None) -> list[Any]:
        shown = ["id", "owner", "agent", "people", "messages", "live_tokens", "version", "epoch", "state", "pinned"]
        shown += ["archived", "breaker_state", "created_at", "updated_at", "last_answer_at", "deleted_at"]
        # A title is made of the first words that were said.
        return ["title", *shown] if request.user.has_perm(READ_CONTENT) else shown

    def get_readonly_fields(self, request: HttpRequest, obj: Conversation | None = None) -> list[Any]:
        return self.get_fields(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Conversation | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Conversation | None = None) -> bool:
        return False

    def has_purge_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(PURGE)

    def get_urls(self) -> list[URLPattern]:
        content = self.admin_site.admin_view(self.content_view)
        erase = self.admin_site.admin_view(self.erase_view)
        return [
            path("<uuid:object_id>/content/", content, name="chat_conversation_content"),
            path("<uuid:object_id>/erase/<int:message_id>/", erase, name="chat_conversation_erase"),
            *super().get_urls(),
        ]

    @admin.display(description=gettext_lazy("people"))
    def people(self, row: Conversation) -> int:
        return row.people_count  # type: ignore[attr-defined,no-any-return]

    @admin.display(description=gettext_lazy("messages"), ordering="last_position")
    def messages(self, row: Conversation) -> int:
        return row.last_position

    @admin.display(description=gettext_lazy("state"))
    def state(self, row: Conversation) -> str:
        marks = [
            (row.deleted_at is not None, _("deleted")),
            (row.archived, _("archived")),
            (row.paused, _("automatic compaction paused")),
            (breaker_of(row).is_open, _("automatic compaction stopped after failures")),
        ]
        return ", ".join(text for holds, text in marks if holds) or "–"

    @admin.display(description=gettext_lazy("failed compactions in a row"))
    def breaker_state(self, row: Conversation) -> str | SafeString:
        url = reverse("admin:compaction_compaction_changelist")
        failures = breaker_of(row).failures
        return format_html('<a href="{}?q={}">{}</a>', url, row.pk, failures)

    @admin.action(
        description=gettext_lazy("Purge: remove for ever, with all messages and files"), permissions=["purge"]
    )
    def purge(self, request: HttpRequest, rows: QuerySet[Conversation]) -> HttpResponse | None:
        """Asked first; every purge is written down with who did it."""
        chosen = list(rows[:200])
        if "confirmed" not in request.POST:
            shown = {**self.admin_site.each_context(request), "rows": chosen, "title": _("Remove for ever?")}
            return TemplateResponse(request, "admin/chat/purge.html", shown)
        for row in chosen:
            self.log_deletions(request, Conversation.objects.filter(pk=row.pk))
            conversations.hide(row.pk)
            purging.purge_conversation(row.pk)
        self.message_user(request, _("%(count)s conversations are gone.") % {"count": len(chosen)}, messages.SUCCESS)
        return None

    def content_view(self, request: HttpRequest, object_id: UUID) -> HttpResponse:
        """What was said, for those with the permission; looking is written down."""
        if not request.user.has_perm(READ_CONTENT):
            raise PermissionDenied
        conversation = Conversation.objects.filter(pk=object_id).select_related("agent").first()
        if conversation is None:
            raise Http404
        before = request.GET.get("before")
        if before is None:
            self.log_change(request, conversation, [{"changed": {"name": "content", "object": "read", "fields": []}}])
        page = read_page(conversation, "full", before=before, limit=100)
        shown = {
            **self.admin_site.each_context(request),
            "title": str(conversation),
            "conversation": conversation,
            "page": page,
            "may_erase": request.user.has_perm(erasing.PERMISSION),
        }
        return TemplateResponse(request, "admin/chat/content.html", shown)

    def erase_view(self, request: HttpRequest, object_id: UUID, message_id: int) -> HttpResponse:
        """Erase one message: asked first, written down, and never to be had back."""
        if not request.user.has_perm(erasing.PERMISSION):
            raise PermissionDenied
        row = Message.objects.filter(conversation_id=object_id, pk=message_id, is_summary=False).first()
        if row is None:
            raise Http404
        back = HttpResponseRedirect(reverse("admin:chat_conversation_change", args=[object_id]))
        if request.method != "POST":
            shown = {**self.admin_site.each_context(request), "row": row, "title": _("Erase this message for ever?")}
            return TemplateResponse(request, "admin/chat/erase.html", shown)
        try:
            erasing.erase_message(cast("User", request.user), object_id, message_id)
        except ChatError as error:
            self.message_user(request, str(error.message), messages.ERROR)
            return back
        done = [{"deleted": {"name": "message", "object": str(message_id)}}]
        self.log_change(request, Conversation.objects.get(pk=object_id), done)
        self.message_user(request, _("The message is erased."), messages.SUCCESS)
        return back


@admin.register(Usage)
class UsageAdmin(_UsageAdmin):
    """One page of sums over the turns that its filters leave."""

    change_list_template = "admin/chat/usage.html"
    list_display = ("created_at", "requested_by", "state")
    list_filter = ("created_at", "conversation__agent")
    date_hierarchy = "created_at"
    show_full_result_count = False
    list_per_page = 1
    search_fields = ("requested_by__username",)
    actions = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Usage | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Usage | None = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        response = super().changelist_view(request, extra_context)
        found = getattr(response, "context_data", {}).get("cl")
        if found is not None:
            days = list(found.queryset.order_by().values_list("created_at", flat=True).order_by("created_at")[:1])
            summaries = Compaction.objects.filter(created_at__gte=days[0]) if days else Compaction.objects.none()
            response.context_data.update(  # type: ignore[attr-defined]
                lines=usage.by_day(found.queryset),
                total=usage.total(found.queryset),
                summaries=usage.of_summaries(summaries),
                title=_("Usage"),
            )
        return response
