"""Who opens a socket: the person of a session cookie or of a bearer key, and from where they may come."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host
from django.utils import translation

from palimpsest.accounts.keys import key_in, user_of_key

logger = logging.getLogger(__name__)

Scope = dict[str, Any]
Application = Callable[[Scope, Any, Any], Awaitable[Any]]

_DEFAULT_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}


class SocketAuth:
    """Puts the person into `scope["user"]`, in one hop to the database; AnonymousUser where nobody is signed in."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> Any:
        # Not thread-sensitive: connecting sockets need not wait for each other.
        user = await database_sync_to_async(person_of, thread_sensitive=False)(scope)
        return await self.application({**scope, "user": user}, receive, send)


def person_of(scope: Scope) -> User | AnonymousUser:
    """Whose socket this is, asked of the database now; so a socket can be checked again while it is open."""
    key = key_in(header(scope, b"authorization"))
    if key is not None:
        return user_of_key(key) or AnonymousUser()
    cookie = _cookie(scope, settings.SESSION_COOKIE_NAME)
    if not cookie:
        return AnonymousUser()
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(cookie)
    return get_user(request)


class SocketLanguage:
    """Answers a socket in the language its page was drawn in: the one chosen, else the browser's."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> Any:
        with translation.override(language_of(scope)):
            return await self.application(scope, receive, send)


def language_of(scope: Scope) -> str:
    """The language of whoever opens a socket, found as for a page."""
    request = HttpRequest()
    request.COOKIES[settings.LANGUAGE_COOKIE_NAME] = _cookie(scope, settings.LANGUAGE_COOKIE_NAME)
    request.META["HTTP_ACCEPT_LANGUAGE"] = header(scope, b"accept-language")
    return translation.get_language_from_request(request)


class SameOrigin:
    """Refuses sockets that another site's page opens with this site's cookie.

    The origin must be this server's own (scheme, host and port) or one of CSRF_TRUSTED_ORIGINS. A browser always sends
    one; without it only a bearer key is let in, which no browser sends by itself.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> Any:
        reason = refusal_of(scope)
        if reason is None:
            return await self.application(scope, receive, send)
        logger.warning("socket refused: %s", reason, extra={"path": scope.get("path")})
        await receive()
        await send({"type": "websocket.close", "code": 4403})


def refusal_of(scope: Scope) -> str | None:
    """Why a handshake is refused, in words for the log; None where it is fine."""
    host = header(scope, b"host")
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return f"host {host!r} is not in ALLOWED_HOSTS"
    origin = header(scope, b"origin")
    if not origin:
        return None if key_in(header(scope, b"authorization")) else "no Origin header and no bearer key"
    scheme = "https" if _is_secure(scope) else "http"
    allowed = {_address(own) for own in (f"{scheme}://{host}", *settings.CSRF_TRUSTED_ORIGINS)}
    if _address(origin) is None or _address(origin) not in allowed:
        return f"origin {origin!r} is not this site's"
    return None


def header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin1") for key, value in scope.get("headers", ()) if key == name), "")


def _is_secure(scope: Scope) -> bool:
    if settings.TRUSTED_PROXIES and header(scope, b"x-forwarded-proto"):
        return header(scope, b"x-forwarded-proto").split(",")[0].strip() == "https"
    return scope.get("scheme") in ("wss", "https")


def _address(url: str) -> tuple[str, str, int] | None:
    """Scheme, host and port of an origin; None for one that cannot be read, such as "null"."""
    try:
        parts = urlsplit(url.lower())
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname else None


def _cookie(scope: Scope, name: str) -> str:
    try:
        jar = SimpleCookie(header(scope, b"cookie"))
    except CookieError:
        return ""
    return jar[name].value if name in jar else ""
