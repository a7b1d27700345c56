"""Another way on: edit and resend, answer again, choose an earlier answer, fork, pin, retry."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Router

from chat import branching, pinning
from chat.access import role_of
from chat.api.answers import answer
from chat.api.auth import person
from chat.api.schemas import AnswersOut, BranchOut, Command, ConversationOut, Id, MessageOut, Pin, Rewrite, TurnOut
from chat.branching import Branch
from chat.models import Role
from chat.presenting import JSON, present_conversation, present_message, present_turn

router = Router(tags=["branches"])


class Retry(Command):
    """`continues`: what was said so far stays and is gone on with."""

    continues: bool = False


@router.post(
    "/{uuid:conversation_id}/messages/{int:message_id}/edit",
    response={202: BranchOut},
    summary="Say it differently; where a summary stands for it, in a new conversation",
)
def edit(request: HttpRequest, conversation_id: UUID, message_id: Id, payload: Rewrite) -> HttpResponse:
    branch = branching.edit_message(person(request), conversation_id, message_id, payload.content, payload.attachments)
    return answer(_present(branch, person(request)), 202)


@router.post(
    "/{uuid:conversation_id}/messages/{int:message_id}/regenerate",
    response={202: BranchOut},
    summary="Answer again; the earlier answer can be chosen again",
)
def regenerate(request: HttpRequest, conversation_id: UUID, message_id: Id) -> HttpResponse:
    branch = branching.regenerate(person(request), conversation_id, message_id)
    return answer(_present(branch, person(request)), 202)


@router.post(
    "/{uuid:conversation_id}/messages/{int:message_id}/fork",
    response={201: ConversationOut},
    summary="A new conversation with everything up to this message; of a replaced one, as it was then",
)
def fork(request: HttpRequest, conversation_id: UUID, message_id: Id) -> HttpResponse:
    return answer(present_conversation(branching.fork(person(request), conversation_id, message_id), Role.OWNER), 201)


@router.post(
    "/{uuid:conversation_id}/messages/{int:message_id}/pin",
    response=MessageOut,
    summary="Pin or unpin: a pinned message stays in the request word for word",
)
def pin(request: HttpRequest, conversation_id: UUID, message_id: Id, payload: Pin | None = None) -> HttpResponse:
    pinned = payload.pinned if payload else True
    return answer(present_message(pinning.pin(person(request), conversation_id, message_id, pinned=pinned)))


@router.get(
    "/{uuid:conversation_id}/messages/{int:message_id}/answers",
    response=AnswersOut,
    summary="All answers to one question",
)
def answers(request: HttpRequest, conversation_id: UUID, message_id: Id) -> HttpResponse:
    found = branching.earlier_answers(person(request), conversation_id, message_id)
    shown = [
        {"turn": each.turn.pk, "chosen": each.chosen, "messages": [present_message(row) for row in each.messages]}
        for each in found
    ]
    return answer({"items": shown, "next": None})


@router.post(
    "/{uuid:conversation_id}/turns/{int:turn_id}/retry", response={202: TurnOut}, summary="Try again, or go on"
)
def retry(request: HttpRequest, conversation_id: UUID, turn_id: Id, payload: Retry | None = None) -> HttpResponse:
    continues = payload.continues if payload else False
    turn = branching.retry(person(request), conversation_id, turn_id, continues=continues)
    return answer(present_turn(turn), 202)


@router.post(
    "/{uuid:conversation_id}/turns/{int:turn_id}/choose",
    response=TurnOut,
    summary="Go on from an earlier answer to the newest question",
)
def choose(request: HttpRequest, conversation_id: UUID, turn_id: Id) -> HttpResponse:
    return answer(present_turn(branching.choose_answer(person(request), conversation_id, turn_id)))


def _present(branch: Branch, user: Any) -> JSON:
    role = role_of(user, branch.conversation.pk) or ""
    return {
        "turn": present_turn(branch.turn),
        "conversation": present_conversation(branch.conversation, role),
        "is_new": branch.is_new,
    }
