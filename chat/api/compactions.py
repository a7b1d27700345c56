"""/conversations/<id>/context and …/compactions: how full it is, what was compacted, and the way back."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema

from chat import compacting, context
from chat.access import access_conversation
from chat.api.answers import LARGEST_PAGE, answer, listing
from chat.api.auth import person
from chat.api.schemas import JSON, CompactionNew, CompactionOut, Id, Page
from chat.errors import NotFound
from chat.models import Conversation
from chat.presenting import present_compaction
from chat.snapshot import read_compaction, read_compactions
from compaction.models import Compaction

router = Router(tags=["compactions"])


class Undo(Schema):
    """`confirm`: undo even where the context would no longer fit the window."""

    confirm: bool = False


@router.get("/{uuid:conversation_id}/context", response=JSON, summary="How full the context is, and of what")
def read_context(request: HttpRequest, conversation_id: UUID) -> HttpResponse:
    return answer(context.measure(access_conversation(person(request), conversation_id)).to_event())


@router.get("/{uuid:conversation_id}/compactions", response=Page[CompactionOut], summary="All runs, the newest first")
def list_compactions(
    request: HttpRequest, conversation_id: UUID, before: Id | None = None, limit: int = 50
) -> HttpResponse:
    conversation = access_conversation(person(request), conversation_id)
    limit = max(1, min(limit, LARGEST_PAGE))
    rows, applied = read_compactions(conversation, limit=limit + 1, before=before)
    shown = rows[:limit]
    cursor = str(shown[-1].pk) if len(rows) > limit else None
    return listing([present_compaction(row, newest_applied=applied) for row in shown], cursor)


@router.post(
    "/{uuid:conversation_id}/compactions",
    response={202: CompactionOut},
    summary="Compact now; messages sent meanwhile wait for it",
)
def compact(request: HttpRequest, conversation_id: UUID, payload: CompactionNew) -> HttpResponse:
    row = compacting.request_compaction(person(request), conversation_id, "manual", payload.instructions)
    return answer(_present(row), 202)


@router.get("/{uuid:conversation_id}/compactions/{int:compaction_id}", response=CompactionOut, summary="One run")
def read_one(request: HttpRequest, conversation_id: UUID, compaction_id: Id) -> HttpResponse:
    conversation = access_conversation(person(request), conversation_id)
    return answer(_shown(conversation, compaction_id))


@router.post(
    "/{uuid:conversation_id}/compactions/{int:compaction_id}/undo",
    response={202: CompactionOut},
    summary="Undo the newest one: at once, or at the next boundary of a running turn",
)
def undo(request: HttpRequest, conversation_id: UUID, compaction_id: Id, payload: Undo | None = None) -> HttpResponse:
    conversation = access_conversation(person(request), conversation_id)
    _check(conversation, compaction_id)
    compacting.request_undo(person(request), compaction_id, confirm=payload.confirm if payload else False)
    return answer(_shown(conversation, compaction_id), 202)


@router.post(
    "/{uuid:conversation_id}/compactions/{int:compaction_id}/cancel",
    response={202: CompactionOut},
    summary="End an open run; what waits for it goes on",
)
def cancel(request: HttpRequest, conversation_id: UUID, compaction_id: Id) -> HttpResponse:
    conversation = access_conversation(person(request), conversation_id)
    _check(conversation, compaction_id)
    compacting.cancel(person(request), compaction_id)
    return answer(_shown(conversation, compaction_id), 202)


def _check(conversation: Conversation, compaction_id: Id) -> None:
    """A compaction's number is global: it must be one of this conversation."""
    if not Compaction.objects.filter(conversation=conversation, pk=compaction_id).exists():
        raise NotFound


def _shown(conversation: Conversation, compaction_id: Id) -> JSON:
    row, applied = read_compaction(conversation, compaction_id)
    return present_compaction(row, newest_applied=applied)


def _present(row: Compaction) -> JSON:
    conversation = row.conversation
    return _shown(conversation, row.pk)
