"""The queue of a conversation: turns that wait, with their drafts, in the order in which they will be answered."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from agents import tokens
from agents.messages import ContentPart
from agents.messages import Message as Spoken
from agents.text import clean
from chat.access import access_conversation
from chat.errors import Conflict, Forbidden, Invalid, NotFound
from chat.events import Queued
from chat.locking import Desk, locked
from chat.models import Conversation, Message, Role, Turn, TurnState
from chat.prepared import Part, Prepared, key
from chat.presenting import present_queue

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LONGEST_QUEUE = 50


_OPEN = Prepared(
    "chat_turn t LEFT JOIN chat_message m ON m.id = t.user_message_id WHERE t.conversation_id = %(conversation)s "
    f"AND t.state IN ('queued', 'running') ORDER BY t.id LIMIT {LONGEST_QUEUE}",
    Part(Turn, "t"),
    Part(Message, "m", ("user_message",)),
)


def open_turns(conversation: Conversation) -> list[Turn]:
    """The turn that runs and those that wait, with their questions, in the order in which they are answered."""
    rows: list[Turn] = _OPEN.fetch(conversation=key(Conversation, conversation.pk))
    return rows


def announce_queue(desk: Desk) -> list[Turn]:
    """Tell everyone what waits and why. Returns the queued turns."""
    rows = open_turns(desk.conversation)
    queued = [row for row in rows if row.state == TurnState.QUEUED]
    waited_for = next((row.waits_for for row in queued if row.waits_for_id is not None), None)
    shown = present_queue(queued, running=len(queued) < len(rows), open_compaction=waited_for)
    desk.emit(Queued(shown))
    return queued


def edit_queued(user: User, conversation_id: UUID | str, turn_id: int, content: str) -> Turn:
    """Rewrite a message that still waits. Once its turn has started it is an original and Conflict is raised."""
    content = clean(content).strip("\n")
    access_conversation(user, conversation_id, Role.MEMBER)
    with locked(conversation_id) as desk:
        turn, draft = _queued(desk, user, turn_id)
        if draft is None or draft.position is not None:
            raise Conflict(code="turn_started")
        if not content and not draft.parts:
            raise Invalid
        draft.content = content
        draft.token_count = count_question(content, draft.parts)
        draft.save(update_fields=["content", "token_count"])
        announce_queue(desk)
    return turn


def cancel_queued(user: User, conversation_id: UUID | str, turn_id: int) -> None:
    """Take a waiting turn out of the queue. Its draft goes with it, unless its question was asked before (a retry)."""
    access_conversation(user, conversation_id, Role.MEMBER)
    with locked(conversation_id) as desk:
        turn, draft = _queued(desk, user, turn_id)
        _remove(turn, draft)
        announce_queue(desk)


def _remove(turn: Turn, draft: Message | None) -> None:
    turn.delete()
    if draft is not None and draft.position is None:
        draft.delete()


def _queued(desk: Desk, user: User, turn_id: int) -> tuple[Turn, Message | None]:
    """A queued turn of this person with its question; the owner may also take back what others queued."""
    turn = Turn.objects.filter(conversation=desk.conversation, pk=turn_id).select_related("user_message").first()
    if turn is None:
        raise NotFound
    if turn.state != TurnState.QUEUED:
        raise Conflict(code="turn_started")
    if turn.requested_by_id not in (None, user.pk) and desk.conversation.owner_id != user.pk:
        raise Forbidden
    return turn, turn.user_message


def count_question(content: str, parts: list[dict[str, object]]) -> int:
    """The raw o200k count of a person's message with its files (tokens)."""
    spoken = tuple(ContentPart.from_json(part) for part in parts)
    return tokens.count_message(Spoken("user", content, parts=spoken))
