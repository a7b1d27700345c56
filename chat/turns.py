"""What people do to a turn that waits or runs: stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from django.db.models.functions import Now
from django.utils import timezone

from chat import broadcast
from chat.access import access_conversation
from chat.claiming import place_question
from chat.ending import Ending, end_turn
from chat.errors import NotFound
from chat.locking import Desk, locked
from chat.models import Message, MessageStatus, Role, Turn, TurnState
from chat.waking import wake

if TYPE_CHECKING:
    from django.contrib.auth.models import User

__all__ = ["stop", "wake"]


def stop(user: User, conversation_id: UUID | str, turn_id: int) -> Turn:
    """Stop a turn and keep what was seen. Its worker hears of it at once, or with its next checkpoint."""
    access_conversation(user, conversation_id, Role.MEMBER)
    with locked(conversation_id) as desk:
        turn = Turn.objects.filter(conversation=desk.conversation, pk=turn_id).first()
        if turn is None:
            raise NotFound
        if turn.state == TurnState.RUNNING:
            Turn.objects.filter(pk=turn.pk).update(stop_requested_at=Now())
            desk.then(lambda: broadcast.publish_to_worker(turn.worker, {"type": "turn.stop", "turn": turn_id}))
        elif turn.state == TurnState.QUEUED:
            _stop_queued(desk, turn)
    return turn


def _stop_queued(desk: Desk, turn: Turn) -> None:
    """A turn that waits will not be answered; its question becomes part of the conversation."""
    place_question(desk, turn)
    open_rows = Message.objects.filter(turn=turn, status=MessageStatus.STREAMING)
    open_rows.update(status=MessageStatus.INTERRUPTED, retired_at=timezone.now())
    end_turn(desk, turn, Ending(TurnState.STOPPED), None, {})
    desk.then(lambda: wake(desk.conversation.pk))
