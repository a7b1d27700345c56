"""Who is asking: a bearer key, or the session of a browser, whose changes need the CSRF token."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from ninja.security import HttpBearer, SessionAuth

from chat.errors import Forbidden
from palimpsest.accounts.keys import user_of_key


class Key(HttpBearer):
    """`Authorization: Bearer KEY`. The middleware has looked the key up already; it is never looked up twice."""

    def authenticate(self, request: HttpRequest, token: str) -> AbstractBaseUser | None:
        if getattr(request, "_dont_enforce_csrf_checks", False) and request.user.is_authenticated:
            return request.user
        return user_of_key(token.strip())


class Session(SessionAuth):
    """The session cookie. Anonymous requests are told to sign in before they are told about CSRF."""

    def __call__(self, request: HttpRequest) -> Any:
        if "Authorization" in request.headers or not request.user.is_authenticated:
            return None
        try:
            return super().__call__(request)
        except Exception as error:
            if getattr(error, "status_code", None) == 403:
                raise Forbidden(
                    _("The form is too old or came from another site. Reload the page and try again."),
                    code="csrf_failed",
                ) from error
            raise


def person(request: HttpRequest) -> Any:
    """The signed-in person of a request that passed authentication."""
    return request.auth  # type: ignore[attr-defined]
