"""The people of a conversation: invited by name or by link, given a role, removed."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from agents.text import clean
from chat import broadcast
from chat.access import access_conversation
from chat.conversations import announce
from chat.errors import ChatError, Forbidden, NotFound
from chat.locking import Desk, locked
from chat.models import Conversation, Invitation, Participant, Role

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MOST_PEOPLE: Final = 100
MOST_INVITATIONS: Final = 50  # links that are open at the same time


class NoSuchPerson(ChatError):
    code = "no_such_person"
    status = 422
    message = _("Nobody here has this user name. Check its spelling, or send an invitation link.")


class TooManyPeople(ChatError):
    code = "too_many_people"
    status = 409
    message = _("This conversation has as many people or invitations as it can have.")


class OwnerStays(ChatError):
    code = "owner_stays"
    status = 409
    message = _("The owner cannot leave or change roles. Delete the conversation instead.")


class InvitationOver(ChatError):
    code = "invitation_over"
    status = 410
    message = _("This invitation has expired or was withdrawn. Ask for a new one.")


def invite(user: User, conversation_id: UUID | str, username: str, role: str) -> Participant:
    """Add a person by user name, or give a person who is there already another role. The owner's right."""
    access_conversation(user, conversation_id, Role.OWNER)
    person = get_user_model().objects.filter(username=clean(username).strip(), is_active=True).first()
    if person is None:
        raise NoSuchPerson
    with locked(conversation_id) as desk:
        return _join(desk, person, role, change=True)


def change_role(user: User, conversation_id: UUID | str, person_id: int, role: str) -> Participant:
    """Make a member a viewer or the other way round; their open sockets notice at once."""
    access_conversation(user, conversation_id, Role.OWNER)
    with locked(conversation_id) as desk:
        row = _participant(desk, person_id)
        return _join(desk, row.user, role, change=True)


def remove(user: User, conversation_id: UUID | str, person_id: int) -> None:
    """Take a person out, or leave oneself. Their sockets are closed.

    Links that still work are withdrawn with somebody who was taken out: they could come back by one.
    """
    role = access_conversation(user, conversation_id).accessed_as
    if role != Role.OWNER and user.pk != person_id:
        raise Forbidden
    with locked(conversation_id) as desk:
        row = _participant(desk, person_id)
        if row.role == Role.OWNER:
            raise OwnerStays
        row.delete()
        if user.pk != person_id:
            Invitation.objects.filter(_works(), conversation=desk.conversation).update(revoked_at=timezone.now())
        if _count(desk) == 1:
            desk.new_epoch()  # alone again: the model no longer reads who said what
        announce(desk, people=True)
        desk.then(lambda: recheck(person_id))


def list_people(conversation: Conversation) -> list[Participant]:
    rows = Participant.objects.filter(conversation=conversation).select_related("user").order_by("id")
    return list(rows[:MOST_PEOPLE])


def create_invitation(user: User, conversation_id: UUID | str, *, role: str, days: int) -> tuple[Invitation, str]:
    """A link for whoever gets it: the invitation and its token, which nobody can read again later."""
    conversation = access_conversation(user, conversation_id, Role.OWNER)
    if open_invitations(conversation)[MOST_INVITATIONS - 1 : MOST_INVITATIONS]:
        raise TooManyPeople
    token = secrets.token_urlsafe(24)
    row = Invitation.objects.create(
        conversation=conversation,
        role=role,
        digest=_digest(token),
        created_by=user,
        expires_at=timezone.now() + timedelta(days=days),
    )
    return row, token


def open_invitations(conversation: Conversation) -> list[Invitation]:
    """The links that still work, newest first."""
    rows = Invitation.objects.filter(_works(), conversation=conversation)
    return list(rows.order_by("-id")[:MOST_INVITATIONS])


def revoke_invitation(user: User, conversation_id: UUID | str, invitation_id: int) -> None:
    """Make a link stop working; whoever joined through it stays."""
    conversation = access_conversation(user, conversation_id, Role.OWNER)
    rows = Invitation.objects.filter(conversation=conversation, pk=invitation_id, revoked_at__isnull=True)
    if not rows.update(revoked_at=timezone.now()):
        raise NotFound


def read_invitation(token: str) -> Invitation:
    """The invitation behind a link that still works, with its conversation and who made it."""
    rows = Invitation.objects.select_related("conversation", "created_by")
    row = rows.filter(_works(), digest=_digest(token), conversation__deleted_at__isnull=True).first()
    if row is None:
        raise InvitationOver
    return row


def accept_invitation(user: User, token: str) -> Conversation:
    """Join through a link. Who is part of the conversation already keeps their role."""
    invitation = read_invitation(token)
    with locked(invitation.conversation_id) as desk:
        if not Invitation.objects.filter(_works(), pk=invitation.pk).update(uses=F("uses") + 1):
            raise InvitationOver
        participant = _join(desk, user, invitation.role, change=False)
        desk.conversation.accessed_as = participant.role
        return desk.conversation


def recheck(user_id: int) -> None:
    """Tell a person's sockets to look at their rights again: those without any close."""
    broadcast.publish_to_user(user_id, {"type": "recheck"})


def _join(desk: Desk, person: User, role: str, *, change: bool) -> Participant:
    """Call with the lock held."""
    row = Participant.objects.filter(conversation=desk.conversation, user=person).first()
    if row is not None and (row.role == role or not change):
        return row
    if row is not None:
        if row.role == Role.OWNER:
            raise OwnerStays
        row.role = role
        row.save(update_fields=["role"])
        desk.then(lambda: recheck(person.pk))
    else:
        row = _add(desk, person, role)
    announce(desk, people=True)
    return row


def _add(desk: Desk, person: User, role: str) -> Participant:
    count = _count(desk)
    if count >= MOST_PEOPLE:
        raise TooManyPeople
    if count == 1:
        desk.new_epoch()  # from now on the model reads who said what: the prefix changes
    return Participant.objects.create(conversation=desk.conversation, user=person, role=role)


def _participant(desk: Desk, person_id: int) -> Participant:
    rows = Participant.objects.select_related("user").filter(conversation=desk.conversation, user_id=person_id)
    row = rows.first()
    if row is None:
        raise NotFound
    return row


def _count(desk: Desk) -> int:
    return Participant.objects.filter(conversation=desk.conversation).count()


def _works() -> Q:
    return Q(revoked_at__isnull=True, expires_at__gt=timezone.now())


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
