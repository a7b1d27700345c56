"""The conversation's lock: the only way to change a conversation.

    with locked(conversation_id) as desk:
        ...change rows...
        desk.emit(MessageStored(...))

Send, claim, apply, undo, edit, pin, clear and agent switch each run inside one such short transaction. No model call,
file read or broadcast happens in it: events leave only after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from agents.models import Agent, Channel
from chat import broadcast
from chat.access import RANKS, Person, valid_id
from chat.errors import Forbidden, NotFound
from chat.events import Event, encode
from chat.models import Conversation, Participant
from chat.prepared import Part, Prepared, key, write

_ROWS = Prepared(
    "chat_conversation c JOIN agents_agent a ON a.id = c.agent_id JOIN agents_channel ch ON ch.id = a.channel_id "
    "WHERE c.id = %(id)s",
    Part(Conversation, "c"),
    Part(Agent, "a", ("agent",)),
    Part(Channel, "ch", ("agent", "channel")),
)

_ROWS_OF_A_PERSON = Prepared(
    "chat_conversation c JOIN agents_agent a ON a.id = c.agent_id JOIN agents_channel ch ON ch.id = a.channel_id "
    "JOIN chat_participant p ON p.conversation_id = c.id AND p.user_id = %(user)s WHERE c.id = %(id)s",
    Part(Conversation, "c"),
    Part(Agent, "a", ("agent",)),
    Part(Channel, "ch", ("agent", "channel")),
    Part(Participant, "p", ("_participation",)),
)

_FIELDS = (
    "version",
    "epoch",
    "live_tokens",
    "last_position",
    "base",
    "paused",
    "breaker",
    "last_answer_at",
    "updated_at",
    "title",
    "agent",
    "pinned",
    "archived",
    "deleted_at",
)
LOCKED_FIELDS = {name: "agent_id" if name == "agent" else name for name in _FIELDS}  # field -> attribute


@dataclass(slots=True)
class Desk:
    """What one holder of the lock works on: the locked row, and what is said once it is committed."""

    conversation: Conversation
    frames: list[bytes] = field(default_factory=list)
    afterwards: list[Callable[[], None]] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        """Say a durable event: the version grows by one and the event carries it."""
        self.conversation.version += 1
        self.frames.append(encode(event, self.conversation.pk, self.conversation.version))

    def tell(self, event: Event) -> None:
        """Say an ephemeral event, in order with the durable ones."""
        self.frames.append(encode(event, self.conversation.pk))

    def new_epoch(self) -> None:
        """An already sent prefix changes: the provider's last report no longer measures this request."""
        self.conversation.epoch += 1
        self.conversation.base = None

    def next_position(self) -> int:
        self.conversation.last_position += 1
        return self.conversation.last_position

    def then(self, action: Callable[[], None]) -> None:
        """Do `action` after the commit and after the frames have been handed over."""
        self.afterwards.append(action)


def read_conversation(conversation_id: UUID) -> Conversation:
    """The conversation with its agent and channel as it is now, not locked. Raises NotFound for a missing one."""
    found: list[Conversation] = _ROWS.fetch(id=key(Conversation, conversation_id))
    if not found:
        raise NotFound
    return found[0]


@contextmanager
def locked(conversation_id: UUID | str, *, deleted: bool = False) -> Iterator[Desk]:
    """Lock the conversation's row for one short transaction. Raises NotFound for a missing (or deleted) one."""
    with _transaction(conversation_id, _lock, deleted) as desk:
        yield desk


@contextmanager
def locked_by(user: Person, conversation_id: UUID | str, role: str) -> Iterator[Desk]:
    """`access_conversation` and `locked` in one statement. Raises NotFound for an outsider, Forbidden for less."""
    with _transaction(conversation_id, _lock_for, user, role) as desk:
        yield desk


def _lock(conversation_id: UUID | str, deleted: bool) -> Conversation:
    found: list[Conversation] = _ROWS.fetch(lock="c", id=key(Conversation, conversation_id))
    if not found or (found[0].deleted_at and not deleted):
        raise NotFound
    return found[0]


def _lock_for(conversation_id: UUID | str, user: Person, role: str) -> Conversation:
    valid = valid_id(conversation_id)
    if valid is None or not user.is_active or user.pk is None:
        raise NotFound
    found: list[Conversation] = _ROWS_OF_A_PERSON.fetch(lock="c", id=key(Conversation, valid), user=user.pk)
    if not found or found[0].deleted_at:
        raise NotFound
    conversation = found[0]
    has = conversation.__dict__.pop("_participation").role
    if RANKS[has] < RANKS[role]:
        raise Forbidden
    conversation.accessed_as = has
    return conversation


@contextmanager
def _transaction(conversation_id: UUID | str, lock: Callable[..., Conversation], *how: Any) -> Iterator[Desk]:
    with transaction.atomic():
        conversation = lock(conversation_id, *how)
        desk = Desk(conversation)
        before = {name: getattr(conversation, attribute) for name, attribute in LOCKED_FIELDS.items()}
        yield desk
        if desk.frames:
            conversation.updated_at = timezone.now()
        changed = [
            name for name, attribute in LOCKED_FIELDS.items() if getattr(conversation, attribute) != before[name]
        ]
        if changed:
            write(conversation, changed)
        transaction.on_commit(lambda: _say(desk))


def _say(desk: Desk) -> None:
    if desk.frames:
        broadcast.publish(desk.conversation.pk, desk.frames)
    for action in desk.afterwards:
        action()
