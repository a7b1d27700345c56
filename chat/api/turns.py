"""/conversations/<id>/turns: what waits is edited and taken back, what runs is stopped, what failed is tried again."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Router

from chat import queueing, turns
from chat.access import access_conversation
from chat.api.answers import answer, listing
from chat.api.auth import person
from chat.api.schemas import Id, Page, Rewrite, TurnOut
from chat.presenting import present_turn
from chat.snapshot import open_turn, queued_turns

router = Router(tags=["turns"])


@router.get("/{uuid:conversation_id}/turns", response=Page[TurnOut], summary="The open turn and those that wait")
def list_turns(request: HttpRequest, conversation_id: UUID) -> HttpResponse:
    conversation = access_conversation(person(request), conversation_id)
    turn, message = open_turn(conversation)
    shown = [present_turn(turn, message)] if turn else []
    return listing(shown + [present_turn(row) for row in queued_turns(conversation)], None)


@router.patch("/{uuid:conversation_id}/turns/{int:turn_id}", response=TurnOut, summary="Rewrite a message that waits")
def edit_queued(request: HttpRequest, conversation_id: UUID, turn_id: Id, payload: Rewrite) -> HttpResponse:
    return answer(present_turn(queueing.edit_queued(person(request), conversation_id, turn_id, payload.content)))


@router.delete(
    "/{uuid:conversation_id}/turns/{int:turn_id}", response={204: None}, summary="Take back a message that waits"
)
def cancel_queued(request: HttpRequest, conversation_id: UUID, turn_id: Id) -> HttpResponse:
    queueing.cancel_queued(person(request), conversation_id, turn_id)
    return HttpResponse(status=204)


@router.post(
    "/{uuid:conversation_id}/turns/{int:turn_id}/stop", response={202: TurnOut}, summary="Stop; what was seen is kept"
)
def stop(request: HttpRequest, conversation_id: UUID, turn_id: Id) -> HttpResponse:
    return answer(present_turn(turns.stop(person(request), conversation_id, turn_id)), 202)
