"""Pinned messages stay in every request word for word: no summariser reads them, no compaction removes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from chat.access import access_conversation
from chat.applying import tell_context
from chat.errors import ChatError, NotFound
from chat.events import MessageStored
from chat.locking import locked
from chat.models import Message, Role
from chat.presenting import present_message

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MOST_PINS: Final = 50  # of a conversation


class CannotPin(ChatError):
    code = "cannot_pin"
    status = 409
    message = _("Only what a person or the agent said can be pinned, not a tool's work.")


class TooManyPins(ChatError):
    code = "too_many_pins"
    status = 409
    message = _("As many messages are pinned as can be. Unpin one first.")


def pin(user: User, conversation_id: UUID | str, message_id: int, *, pinned: bool) -> Message:
    """Pin a message, or unpin it. Where a summary stands for it, the request's prefix changes: a new epoch."""
    access_conversation(user, conversation_id, Role.MEMBER)
    with locked(conversation_id) as desk:
        rows = Message.objects.filter(conversation=desk.conversation, is_summary=False, position__isnull=False)
        row = rows.filter(pk=message_id, retired_at__isnull=True).first()
        if row is None:
            raise NotFound
        if row.pinned == pinned:
            return row
        if pinned:
            _check(row, rows.filter(pinned=True).count())
        row.pinned = pinned
        row.save(update_fields=["pinned"])
        if row.compacted_into_id is not None:
            desk.new_epoch()
            desk.then(lambda: tell_context(desk.conversation.pk))
        desk.emit(MessageStored(present_message(row)))
    return row


def _check(row: Message, held: int) -> None:
    if row.role not in ("user", "assistant") or row.tool_calls:
        raise CannotPin
    if held >= MOST_PINS:
        raise TooManyPins
