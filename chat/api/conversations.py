"""/conversations: list, make, read, change, delete."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from agents.text import clean
from chat import conversations
from chat.access import access_conversation, conversations_of
from chat.api.answers import LARGEST_PAGE, answer, listing, read_cursor, write_cursor
from chat.api.auth import person
from chat.api.schemas import ConversationChange, ConversationNew, ConversationOut, Page
from chat.errors import Invalid
from chat.models import Conversation
from chat.presenting import present_conversation
from chat.search import matching_titles

router = Router(tags=["conversations"])


class Listing(Schema):
    q: str = ""
    archived: bool = False
    limit: int = 50
    cursor: str | None = None


@router.get("", response=Page[ConversationOut], summary="Your conversations, pinned ones first, then the newest")
def list_conversations(request: HttpRequest, listed: Query[Listing]) -> HttpResponse:
    limit = max(1, min(listed.limit, LARGEST_PAGE))
    rows = conversations_of(person(request)).filter(archived=listed.archived)
    rows = matching_titles(rows, clean(listed.q)) if listed.q.strip() else rows
    rows = _after(rows, listed.cursor) if listed.cursor else rows
    found = list(rows.select_related("agent__channel").order_by("-pinned", "-updated_at", "-id")[: limit + 1])
    shown = found[:limit]
    cursor = _cursor(shown[-1]) if len(found) > limit else None
    return listing([present_conversation(row) for row in shown], cursor)


@router.post("", response={201: ConversationOut}, summary="A new conversation")
def create_conversation(request: HttpRequest, payload: ConversationNew) -> HttpResponse:
    made = conversations.create_conversation(person(request), agent_id=payload.agent, title=payload.title)
    return answer(present_conversation(made), 201)


@router.get("/{uuid:conversation_id}", response=ConversationOut, summary="One conversation")
def read_conversation(request: HttpRequest, conversation_id: UUID) -> HttpResponse:
    return answer(present_conversation(access_conversation(person(request), conversation_id)))


@router.patch("/{uuid:conversation_id}", response=ConversationOut, summary="Change title, agent, pinned, archived")
def change_conversation(request: HttpRequest, conversation_id: UUID, payload: ConversationChange) -> HttpResponse:
    changed = conversations.change_conversation(
        person(request),
        conversation_id,
        title=payload.title,
        agent_id=payload.agent,
        pinned=payload.pinned,
        archived=payload.archived,
    )
    return answer(present_conversation(changed))


@router.delete("/{uuid:conversation_id}", response={204: None}, summary="Delete; its rows and files are purged later")
def delete_conversation(request: HttpRequest, conversation_id: UUID) -> HttpResponse:
    conversations.delete_conversation(person(request), conversation_id)
    return HttpResponse(status=204)


def _cursor(row: Conversation) -> str:
    return write_cursor([row.pinned, row.updated_at.isoformat(), str(row.pk)])


def _after(rows: QuerySet[Conversation], cursor: str) -> QuerySet[Conversation]:
    """Those that come after the cursor's conversation in (pinned, updated_at, id), descending."""
    pinned, updated, key = read_cursor(cursor, 3)
    try:
        when, conversation_id = datetime.fromisoformat(updated), UUID(key)
    except (TypeError, ValueError, AttributeError):
        raise Invalid(code="bad_cursor") from None
    older = Q(updated_at__lt=when) | Q(updated_at=when, id__lt=conversation_id)
    return rows.filter(Q(pinned=False) | older) if pinned else rows.filter(older, pinned=False)
