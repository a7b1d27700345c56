"""How django-allauth behaves here."""

from __future__ import annotations

from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings
from django.http import HttpRequest


class Accounts(DefaultAccountAdapter):  # type: ignore[misc]
    """Sign-up is open only where the site says so; the first administrator comes in by a link (see `first.py`)."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return settings.SIGNUP == "open"
