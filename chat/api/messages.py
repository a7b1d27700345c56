"""/conversations/<id>/messages: the three views, and saying something."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from chat import sending, viewing
from chat.access import access_conversation
from chat.api.answers import answer, listing
from chat.api.auth import person
from chat.api.schemas import Id, MessageOut, ModelViewOut, Page, Say, SentOut
from chat.presenting import present_message, present_turn
from chat.reading import PAGE, read_originals, read_page, read_summary

router = Router(tags=["messages"])


class Reading(Schema):
    view: Literal["compacted", "full", "model"] = "compacted"
    before: str | None = None
    after: str | None = None
    limit: int = PAGE


class Following(Schema):
    after: str | None = None
    limit: int = PAGE


@router.get(
    "/{uuid:conversation_id}/messages",
    response={200: Page[MessageOut] | ModelViewOut},
    summary="Messages in reading order; view=model is the next request itself",
)
def list_messages(request: HttpRequest, conversation_id: UUID, reading: Query[Reading]) -> HttpResponse:
    conversation = access_conversation(person(request), conversation_id)
    if reading.view == "model":
        return answer(viewing.model_view(conversation, person(request)))
    page = read_page(conversation, reading.view, before=reading.before, after=reading.after, limit=reading.limit)
    return listing([present_message(row) for row in page.rows], page.next)


@router.post(
    "/{uuid:conversation_id}/messages",
    response={202: SentOut, 200: SentOut},
    summary="Say something: stored with its turn, answered by a worker; Idempotency-Key makes a resend harmless",
)
def say(request: HttpRequest, conversation_id: UUID, payload: Say) -> HttpResponse:
    client_id = request.headers.get("Idempotency-Key") or payload.client_id
    sent = sending.send_message(person(request), conversation_id, payload.content, payload.attachments, client_id)
    shown = {
        "message": present_message(sent.message) if sent.message else None,
        "turn": present_turn(sent.turn) if sent.turn else None,
        "command_result": {"command": sent.command.command, "result": sent.command.result} if sent.command else None,
    }
    return answer(shown, 202 if sent.message else 200)


@router.get(
    "/{uuid:conversation_id}/summaries/{int:summary_id}/originals",
    response=Page[MessageOut],
    summary="The messages a summary stands for, from the first on",
)
def originals(request: HttpRequest, conversation_id: UUID, summary_id: Id, following: Query[Following]) -> HttpResponse:
    conversation = access_conversation(person(request), conversation_id)
    summary = read_summary(conversation, summary_id)
    page = read_originals(conversation, summary, after=following.after, limit=following.limit)
    return listing([present_message(row) for row in page.rows], page.next)
