"""The chat app."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ChatConfig(AppConfig):
    name = "chat"
    verbose_name = _("Chat")

    def ready(self) -> None:
        from chat import search_index, summary_guard
        from chat.broadcast import publish_to_user
        from chat.tools import register_all
        from palimpsest.accounts.access import on_access_lost

        search_index.connect()
        summary_guard.connect()
        register_all()
        on_access_lost(lambda user_id: publish_to_user(user_id, {"type": "recheck"}))
