"""The page of the chat. It is a shell: what it shows comes through the socket and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import get_language
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie

from agents.models import Agent
from chat import files, people
from chat.access import access_conversation
from chat.api.schemas import LONGEST_MESSAGE
from chat.errors import ChatError
from chat.presenting import present_agent

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@login_required
@never_cache
@ensure_csrf_cookie
def home(request: HttpRequest) -> HttpResponse:
    """A new conversation, with the others beside it."""
    return _shell(request, None)


@login_required
@never_cache
@ensure_csrf_cookie
def conversation(request: HttpRequest, conversation_id: UUID) -> HttpResponse:
    """One conversation, for those who are part of it."""
    try:
        access_conversation(request.user, conversation_id)
    except ChatError as error:
        raise Http404(str(error.message)) from error
    return _shell(request, conversation_id)


@login_required
@never_cache
def join(request: HttpRequest, token: str) -> HttpResponse:
    """An invitation link: shows what one is invited to; joining is a POST, so that no preview of a link joins."""
    try:
        if request.method == "POST":
            return redirect("conversation", people.accept_invitation(cast("User", request.user), token).pk)
        invitation = people.read_invitation(token)
    except ChatError as error:
        return render(request, "chat/join.html", {"problem": error.message}, status=error.status)
    return render(request, "chat/join.html", {"invitation": invitation})


def _shell(request: HttpRequest, conversation_id: UUID | None) -> HttpResponse:
    return render(request, "chat/app.html", {"boot": boot(request, conversation_id)})


def _agents() -> QuerySet[Agent]:
    """Who can be chosen on the page of a new conversation."""
    return Agent.objects.select_related("channel").filter(enabled=True, channel__enabled=True).order_by("pk")[:100]


def boot(request: HttpRequest, conversation_id: UUID | None) -> dict[str, Any]:
    """What the page's code knows before it asks for anything; the template puts it in with `json_script`."""
    return {
        "conversation": str(conversation_id) if conversation_id else None,
        "user": {
            "id": request.user.pk,
            "name": request.user.get_username(),
            "is_staff": getattr(request.user, "is_staff", False),
        },
        "language": get_language(),
        "agents": [] if conversation_id else [present_agent(row) for row in _agents()],
        "limits": {
            "message": LONGEST_MESSAGE,
            "file_bytes": files.LARGEST_FILE,
            "files": files.MOST_FILES_OF_A_MESSAGE,
        },
    }
