"""Every page and API path needs a session or a key; the few exceptions are marked with `login_not_required`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _

from palimpsest.accounts import access
from palimpsest.accounts.keys import key_in, user_of_key

Respond = Callable[[HttpRequest], HttpResponse]

# What a key may not do for its owner: administer the site, change the password.
_SESSION_ONLY = ("/admin/", "/accounts/")


def refusal(code: str, message: str, status: int) -> JsonResponse:
    """An error in the form that every API path answers."""
    return JsonResponse({"code": code, "message": message}, status=status)


class BearerKeys:
    """Signs in the owner of the key in `Authorization: Bearer`, for this request alone."""

    def __init__(self, get_response: Respond) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        key = key_in(request.headers.get("Authorization", ""))
        if key is None or request.path_info.startswith(_SESSION_ONLY):
            return self.get_response(request)
        user = user_of_key(key)
        if user is None:
            return refusal("invalid_key", _("This API key is not known here, or was revoked."), 401)
        request.user = user
        # A browser never sends this header by itself, so there is no request to forge.
        request._dont_enforce_csrf_checks = True  # type: ignore[attr-defined]
        return self.get_response(request)


class SignInRequired(LoginRequiredMiddleware):
    """Sends people to the sign-in page, and tells scripts 401."""

    def handle_no_permission(self, request: HttpRequest, view_func: Any) -> Any:
        if request.path_info.startswith("/api/"):
            return refusal("sign_in", _("Sign in, or send a key: Authorization: Bearer KEY."), 401)
        return super().handle_no_permission(request, view_func)


class AccessWatch:
    """Tells who lost access once the response is made: a sign-out ends the session only after its signal."""

    def __init__(self, get_response: Respond) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with access.told_at_the_end():
            return self.get_response(request)
