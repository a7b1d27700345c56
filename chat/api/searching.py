"""/search: messages by their words, in one conversation or in all one takes part in."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from chat import search
from chat.access import access_conversation, conversations_of
from chat.api.answers import listing
from chat.api.auth import person
from chat.api.schemas import FoundOut, Page
from chat.presenting import present_found

router = Router(tags=["search"])

MOST_CONVERSATIONS = 200  # searched at once, the newest


class Wanted(Schema):
    q: str
    conversation: UUID | None = None
    limit: int = 20


@router.get("", response=Page[FoundOut], summary="Messages that fit best, compacted originals included")
def search_messages(request: HttpRequest, wanted: Query[Wanted]) -> HttpResponse:
    if wanted.conversation is not None:
        conversation = access_conversation(person(request), wanted.conversation)
        titles = {conversation.pk: conversation.title}
    else:
        newest = conversations_of(person(request)).order_by("-updated_at").values_list("pk", "title")
        titles = dict(newest[:MOST_CONVERSATIONS])
    limit = max(1, min(wanted.limit, search.MOST_FOUND))
    found = search.find(list(titles), wanted.q, limit=limit)
    return listing([present_found(row, titles[row.conversation]) for row in found], None)
