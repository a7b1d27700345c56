"""Every exception as an answer: the right status, a code for programs, a sentence for people."""

from __future__ import annotations

import logging
import uuid
from http import HTTPStatus
from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from agents.errors import AgentsError
from chat.api.answers import refusal
from chat.errors import ChatError
from compaction.errors import CompactionError

log = logging.getLogger("palimpsest.api")

# What is not the fault of the request as such, but of the state in which it came.
_CONFLICTS = HTTPStatus.CONFLICT


def register_failures(api: NinjaAPI) -> None:
    """Teach the API to answer every kind of exception."""
    api.add_exception_handler(ChatError, _chat)
    api.add_exception_handler(CompactionError, _compaction)
    api.add_exception_handler(AgentsError, _agents)
    api.add_exception_handler(ValidationError, _validation)
    api.add_exception_handler(AuthenticationError, _sign_in)
    api.add_exception_handler(HttpError, _http)
    api.add_exception_handler(Http404, _missing)
    api.add_exception_handler(RequestDataTooBig, _too_large)
    api.add_exception_handler(SuspiciousOperation, _suspicious)
    api.add_exception_handler(Exception, _unknown)


def _chat(request: HttpRequest, error: Any) -> HttpResponse:
    return refusal(error.code, error.message, error.status)


def _compaction(request: HttpRequest, error: Any) -> HttpResponse:
    return refusal(error.code, error.message, _CONFLICTS)


def _agents(request: HttpRequest, error: Any) -> HttpResponse:
    return refusal(error.code, error.message, HTTPStatus.BAD_GATEWAY)


def _validation(request: HttpRequest, error: Any) -> HttpResponse:
    """Names the field and what is wrong with it, for the first few of them."""
    found = [_field(problem) for problem in error.errors[:3]]
    return refusal("invalid", " ".join(found) or _("The request has the wrong form."), 422)


def _field(problem: dict[str, Any]) -> str:
    places = [str(place) for place in problem.get("loc", ()) if place not in ("body", "query", "path", "payload")]
    return f"{'.'.join(places)}: {problem.get('msg', '')}." if places else f"{problem.get('msg', '')}."


def _sign_in(request: HttpRequest, error: Any) -> HttpResponse:
    return refusal("sign_in", _("Sign in, or send a key: Authorization: Bearer KEY."), 401, WWW_Authenticate="Bearer")


def _http(request: HttpRequest, error: Any) -> HttpResponse:
    if error.status_code == HTTPStatus.BAD_REQUEST:
        return refusal("bad_json", _("The body of the request is not valid JSON."), 400)
    return refusal(f"http_{error.status_code}", str(error), error.status_code)


def _missing(request: HttpRequest, error: Any) -> HttpResponse:
    return refusal("not_found", _("There is nothing at this address."), 404)


def _too_large(request: HttpRequest, error: Any) -> HttpResponse:
    return refusal("too_large", _("The request is too large."), 413)


def _suspicious(request: HttpRequest, error: Any) -> HttpResponse:
    return refusal("bad_request", _("The request cannot be understood."), 400)


def _unknown(request: HttpRequest, error: Any) -> HttpResponse:
    """A fault of ours: logged with a number that the person can name."""
    number = uuid.uuid4().hex[:12]
    who = getattr(getattr(request, "auth", None), "pk", None)
    log.error("fault %s: %s %s, person %s", number, request.method, request.path, who, exc_info=error)
    sentence = _("Something went wrong on our side. Try again; if it stays, tell your administrator this number: %s")
    return refusal("fault", sentence % number, 500)
