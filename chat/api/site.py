"""The API itself: its parts, its description, and what it says where there is nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI
from ninja.parser import Parser

from chat.api import (
    agents,
    attachments,
    branches,
    compactions,
    conversations,
    exchange,
    messages,
    participants,
    searching,
    turns,
)
from chat.api.answers import refusal
from chat.api.auth import Key, Session
from chat.api.failures import register_failures


class FastParser(Parser):
    """Bodies read by orjson, which also refuses what JSON does not allow (NaN, lone surrogates)."""

    def parse_body(self, request: HttpRequest) -> Any:
        return orjson.loads(request.body)


api = NinjaAPI(
    title="Palimpsest",
    version="1",
    description="Sign in with a session (changes need the CSRF token) or send `Authorization: Bearer KEY`.",
    openapi_url="/openapi.json",
    docs_url=None,
    urls_namespace="api",
    auth=[Key(), Session()],
    parser=FastParser(),
)
register_failures(api)
api.add_router("/conversations", conversations.router)
for part in (messages, branches, turns, compactions, participants, attachments):
    api.add_router("/conversations", part.router)
api.add_router("/conversations", exchange.conversation_router)
api.add_router("/import", exchange.router)
api.add_router("/search", searching.router)
api.add_router("/agents", agents.router)


def _in_json(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A method that an address does not take is refused in the form of every other error."""

    @wraps(view)
    def answering(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = view(request, *args, **kwargs)
        if response.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
            return response
        allowed = response.get("Allow", "")
        return refusal("method_not_allowed", _("This address takes %s only.") % allowed, 405, Allow=allowed)

    return answering


routes = api.urls[0]
for _route in routes:
    if _route.callback is not None:
        _route.callback = _in_json(_route.callback)


@csrf_exempt
def nothing_here(request: HttpRequest) -> HttpResponse:
    return refusal("not_found", _("There is nothing at this address."), 404)
