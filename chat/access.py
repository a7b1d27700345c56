"""The only door to a conversation: pages, HTTP, sockets, admin actions and tasks for a person all come through here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Union
from uuid import UUID

from django.db.models import F, QuerySet

from agents.models import Agent, Channel
from chat.errors import Forbidden, NotFound
from chat.models import Conversation, Participant, Role
from chat.prepared import Part, Prepared, key

if TYPE_CHECKING:
    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser

Person = Union["AbstractBaseUser", "AnonymousUser"]

_ROWS = Prepared(
    "chat_participant p JOIN chat_conversation c ON c.id = p.conversation_id "
    "JOIN agents_agent a ON a.id = c.agent_id JOIN agents_channel ch ON ch.id = a.channel_id "
    "WHERE p.user_id = %(user)s AND p.conversation_id = %(conversation)s AND c.deleted_at IS NULL",
    Part(Participant, "p"),
    Part(Conversation, "c", ("conversation",)),
    Part(Agent, "a", ("conversation", "agent")),
    Part(Channel, "ch", ("conversation", "agent", "channel")),
)

RANKS: Final[dict[str, int]] = {Role.VIEWER: 0, Role.MEMBER: 1, Role.OWNER: 2}


def access_conversation(user: Person, conversation_id: UUID | str, role: str = Role.VIEWER) -> Conversation:
    """The conversation, with its agent and channel, for a person who has at least `role` in it; one query.

    An outsider cannot tell a conversation that is not theirs from one that does not exist: both raise NotFound.
    Too small a role raises Forbidden. `accessed_as` of the result is the person's role.
    """
    participation = _participation(user, conversation_id)
    if participation is None:
        raise NotFound
    if RANKS[participation.role] < RANKS[role]:
        raise Forbidden
    participation.conversation.accessed_as = participation.role
    return participation.conversation


def role_of(user: Person, conversation_id: UUID | str) -> str | None:
    """The person's role, None for an outsider or a deleted conversation: the cheap check of a socket."""
    valid = valid_id(conversation_id)
    if valid is None or not user.is_active or user.pk is None:
        return None
    rows = Participant.objects.filter(user_id=user.pk, conversation_id=valid, conversation__deleted_at__isnull=True)
    return rows.values_list("role", flat=True).first()


def conversations_of(user: Person) -> QuerySet[Conversation]:
    """The conversations a person takes part in, each with their role as `accessed_as`; deleted ones are left out."""
    if not user.is_active or user.pk is None:
        return Conversation.objects.none()
    rows = Conversation.objects.filter(participants__user_id=user.pk, deleted_at__isnull=True)
    return rows.annotate(accessed_as=F("participants__role"))  # type: ignore[no-redef]


def _participation(user: Person, conversation_id: UUID | str) -> Participant | None:
    valid = valid_id(conversation_id)
    if valid is None or not user.is_active or user.pk is None:
        return None
    rows: list[Participant] = _ROWS.fetch(user=user.pk, conversation=key(Conversation, valid))
    return rows[0] if rows else None


def valid_id(value: UUID | str) -> UUID | None:
    """The id of a conversation as it came from outside; None where it is none."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError):
        return None
