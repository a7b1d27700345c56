"""The accounts app."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AccountsConfig(AppConfig):
    name = "palimpsest.accounts"
    label = "accounts"
    verbose_name = _("Access")

    def ready(self) -> None:
        from palimpsest.accounts import signals  # noqa: F401 - connects them
