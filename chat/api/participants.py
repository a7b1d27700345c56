"""/conversations/<id>/participants and …/invitations: who takes part."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Router

from chat import people
from chat.access import access_conversation
from chat.api.answers import answer, listing
from chat.api.auth import person
from chat.api.schemas import Id, InvitationNew, InvitationOut, Page, PersonNew, PersonOut, RoleChange
from chat.models import Invitation, Role
from chat.presenting import JSON, present_person

router = Router(tags=["people"])


@router.get("/{uuid:conversation_id}/participants", response=Page[PersonOut], summary="Who takes part")
def list_people(request: HttpRequest, conversation_id: UUID) -> HttpResponse:
    conversation = access_conversation(person(request), conversation_id)
    return listing([present_person(row) for row in people.list_people(conversation)], None)


@router.post("/{uuid:conversation_id}/participants", response={201: PersonOut}, summary="Invite by user name")
def invite(request: HttpRequest, conversation_id: UUID, payload: PersonNew) -> HttpResponse:
    row = people.invite(person(request), conversation_id, payload.username, payload.role)
    return answer(present_person(row), 201)


@router.patch("/{uuid:conversation_id}/participants/{int:user_id}", response=PersonOut, summary="Give another role")
def change_role(request: HttpRequest, conversation_id: UUID, user_id: Id, payload: RoleChange) -> HttpResponse:
    return answer(present_person(people.change_role(person(request), conversation_id, user_id, payload.role)))


@router.delete("/{uuid:conversation_id}/participants/{int:user_id}", response={204: None}, summary="Remove, or leave")
def remove(request: HttpRequest, conversation_id: UUID, user_id: Id) -> HttpResponse:
    people.remove(person(request), conversation_id, user_id)
    return HttpResponse(status=204)


@router.get("/{uuid:conversation_id}/invitations", response=Page[InvitationOut], summary="Links that still work")
def list_invitations(request: HttpRequest, conversation_id: UUID) -> HttpResponse:
    conversation = access_conversation(person(request), conversation_id, Role.OWNER)
    return listing([_present(row, None) for row in people.open_invitations(conversation)], None)


@router.post("/{uuid:conversation_id}/invitations", response={201: InvitationOut}, summary="A link, shown this once")
def create_invitation(request: HttpRequest, conversation_id: UUID, payload: InvitationNew) -> HttpResponse:
    row, token = people.create_invitation(person(request), conversation_id, role=payload.role, days=payload.days)
    return answer(_present(row, request.build_absolute_uri(reverse("join", args=[token]))), 201)


@router.delete(
    "/{uuid:conversation_id}/invitations/{int:invitation_id}", response={204: None}, summary="Make a link stop working"
)
def revoke_invitation(request: HttpRequest, conversation_id: UUID, invitation_id: Id) -> HttpResponse:
    people.revoke_invitation(person(request), conversation_id, invitation_id)
    return HttpResponse(status=204)


def _present(row: Invitation, link: str | None) -> JSON:
    return {
        "id": row.pk,
        "role": row.role,
        "link": link,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "uses": row.uses,
    }
