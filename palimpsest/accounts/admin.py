"""People and their keys in Django's admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from palimpsest.accounts.access import access_lost
from palimpsest.accounts.keys import make_key
from palimpsest.accounts.models import ApiKey

if TYPE_CHECKING:
    _KeyAdmin = admin.ModelAdmin[ApiKey]
    _UserAdmin = DjangoUserAdmin[User]
else:  # these classes take no type at run time
    _KeyAdmin = admin.ModelAdmin
    _UserAdmin = DjangoUserAdmin

admin.site.site_header = admin.site.site_title = "Palimpsest"
admin.site.index_title = gettext_lazy("Administration")
admin.site.unregister(User)


@admin.register(User)
class UserAdmin(_UserAdmin):
    """People. One who owns conversations is switched off, not deleted: deleting would take the originals along."""

    list_display = ("username", "email", "is_active", "is_staff", "is_superuser", "last_login")

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        if obj is not None and obj.conversations.exists():
            return False
        return super().has_delete_permission(request, obj)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Names those who cannot be deleted, so that a selection of many says why it stops."""
        gone, counts, permissions, protected = super().get_deleted_objects(objs, request)
        owners = [user for user in objs if user.conversations.exists()]
        text = _("%(user)s owns conversations. Switch the account off, or purge the conversations first.")
        return gone, counts, permissions, [*protected, *(text % {"user": user} for user in owners)]


@admin.register(ApiKey)
class ApiKeyAdmin(_KeyAdmin):
    """Keys are made and revoked. A key is shown once, when it is made."""

    list_display = ("hint_shown", "user", "name", "created_at", "last_used_at", "revoked_at")
    list_filter = (("revoked_at", admin.EmptyFieldListFilter), "created_at")
    list_select_related = ("user",)
    search_fields = ("user__username", "name", "hint")
    autocomplete_fields = ("user",)
    fields = ("user", "name")
    actions = ("revoke",)

    def has_change_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        key = make_key(obj.user, obj.name)
        made = ApiKey.objects.filter(user=obj.user).order_by("-id").first()
        obj.pk = made.pk if made else None
        text = format_html("{} <code>{}</code>", _("Copy this key now, it is never shown again:"), key)
        self.message_user(request, text, messages.WARNING)

    def log_addition(self, request: HttpRequest, obj: ApiKey, message: Any) -> Any:
        obj.refresh_from_db()
        return super().log_addition(request, obj, message)

    @admin.display(description=gettext_lazy("begins with"), ordering="hint")
    def hint_shown(self, key: ApiKey) -> str:
        return f"{key.hint}…"

    @admin.action(description=gettext_lazy("Revoke"), permissions=["add"])
    def revoke(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        users = set(keys.filter(revoked_at__isnull=True).values_list("user_id", flat=True))
        count = keys.filter(revoked_at__isnull=True).update(revoked_at=timezone.now())
        for user in users:
            access_lost(user)
        self.message_user(request, _("%(count)s keys revoked.") % {"count": count}, messages.SUCCESS)
