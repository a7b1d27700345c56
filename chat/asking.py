"""What a socket asks of the database: each one function call on a database thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from chat import broadcast, compacting, queueing, requests, sending, turns
from chat.commands import Result
from chat.errors import Invalid
from chat.events import Delta, ThinkingDelta, encode
from chat.models import Message, MessageStatus, Participant, TurnState
from chat.snapshot import read_snapshot
from palimpsest.accounts.asgi import person_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User

JSON = dict[str, Any]

SIGN_IN = 4401
FORBIDDEN = 4403


def snapshot(user: User, conversation: UUID) -> tuple[bytes, list[JSON]]:
    """The snapshot's frame, and the people in it."""
    found, version = read_snapshot(user, conversation)
    return encode(found, conversation, version), found.people


def version(user: User, conversation: UUID) -> int | None:
    """The conversation's version; None for a person who is no longer in it."""
    rows = Participant.objects.filter(
        user_id=user.pk, conversation_id=conversation, conversation__deleted_at__isnull=True
    )
    return rows.values_list("conversation__version", flat=True).first()


def rights(scope: JSON, user: User, conversation: UUID) -> int | None:
    """The code to close this socket with; None where the person is signed in and still part of the conversation."""
    person = person_of(scope)
    if person.pk != user.pk or not person.is_active:
        return SIGN_IN
    return None if version(user, conversation) is not None else FORBIDDEN


def do(user: User, conversation: UUID, request: requests.Request) -> Result | None:
    """What changes something. Every function called here checks the person's role itself."""
    match request:
        case requests.Chat(data=data):
            return sending.send_message(user, conversation, data.content, data.attachments, data.client_id).command
        case requests.Compact(data=data):
            compacting.request_compaction(user, conversation, "manual", data.instructions)
        case requests.Cancel(data=data) if data.turn is not None:
            queueing.cancel_queued(user, conversation, data.turn)
        case requests.Cancel(data=data) if data.compaction is not None:
            compacting.cancel(user, data.compaction)
        case requests.Stop(data=data):
            turns.stop(user, conversation, data.turn)
        case _:
            raise Invalid
    return None


def sync(conversation: UUID, wanted: requests.SyncData, channel: str) -> list[bytes] | None:
    """What a client misses of an open answer: from the database, the rest from the turn's worker.

    None where the answer has ended: then the snapshot tells all.
    """
    turn, message = wanted.turn or 0, wanted.message or 0
    rows = Message.objects.filter(pk=message, conversation=conversation, turn=turn)
    found = rows.values_list("status", "content", "thinking", "turn__state", "turn__attempt", "turn__worker").first()
    if found is None or found[0] != MessageStatus.STREAMING or found[3] != TurnState.RUNNING:
        return None
    _status, content, thinking, _state, attempt, worker = found
    frames, offsets = [], []
    known = ((ThinkingDelta, thinking, wanted.thinking_offset), (Delta, content, wanted.offset))
    for event, text, asked in known:
        offset = len(text) if asked is None else asked
        if text[offset:]:
            frames.append(encode(event(turn, attempt, message, offset, text[offset:]), conversation))
        offsets.append(max(offset, len(text)))
    broadcast.publish_to_worker(
        worker,
        {
            "type": "turn.sync",
            "turn": turn,
            "message": message,
            "thinking_offset": offsets[0],
            "offset": offsets[1],
            "reply": channel,
        },
    )
    return frames
