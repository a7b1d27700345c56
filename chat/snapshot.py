"""Everything a page needs to draw itself, of one moment. It costs the same whatever the conversation's length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.db import transaction

from chat import context
from chat.access import access_conversation
from chat.errors import NotFound
from chat.events import Snapshot
from chat.models import Conversation, Message, MessageStatus, Participant, Turn, TurnState
from chat.presenting import (
    COMPACTION_HEAVY_FIELDS,
    present_compaction,
    present_conversation,
    present_message,
    present_person,
    present_queue,
    present_turn,
)
from chat.reading import how_many_fit, read_page
from compaction.models import OPEN_STATES, Compaction, State

if TYPE_CHECKING:
    from django.contrib.auth.models import User

JSON = dict[str, Any]

MESSAGES: Final = 50  # the newest ones; older ones are fetched when the reader scrolls
CHARACTERS: Final = 1_000_000  # of them together: fewer where they are long, one where it is longer than that
CARDS: Final = 30
QUEUE: Final = 50
PEOPLE: Final = 200

_ATTEMPTS: Final = 4


def read_snapshot(user: User, conversation_id: UUID | str) -> tuple[Snapshot, int]:
    """The snapshot for this person and the version it was read at; call after joining the conversation's group.

    Read without a lock: when the version is still the same after the last query, no durable change fell in between.
    In a conversation that changes all the time the last try holds the conversation's lock.
    """
    for _attempt in range(_ATTEMPTS):
        conversation = access_conversation(user, conversation_id)
        snapshot = _read(conversation)
        if _version(conversation) == conversation.version:
            return snapshot, conversation.version
    with transaction.atomic():
        Conversation.objects.select_for_update().get(pk=conversation_id)
        conversation = access_conversation(user, conversation_id)
        return _read(conversation), conversation.version


def _version(conversation: Conversation) -> int:
    return Conversation.objects.values_list("version", flat=True).get(pk=conversation.pk)


def _read(conversation: Conversation) -> Snapshot:
    fitting = how_many_fit(conversation, "compacted", limit=MESSAGES, characters=CHARACTERS)
    page = read_page(conversation, "compacted", limit=fitting)
    turn, answer = open_turn(conversation)
    first = page.rows[0].position or 0 if page.rows else 0
    cards, newest_applied = read_compactions(conversation, limit=CARDS)
    opened = next((row for row in cards if row.state in OPEN_STATES), None)
    running = turn is not None and turn.state == TurnState.RUNNING
    return Snapshot(
        conversation=present_conversation(conversation),
        messages=[present_message(row) for row in page.rows],
        next=page.next,
        turn=present_turn(turn, answer) if turn else None,
        queue=present_queue(queued_turns(conversation), running=running, open_compaction=opened),
        compaction=present_compaction(opened, newest_applied=newest_applied) if opened else None,
        compactions=[
            present_compaction(row, newest_applied=newest_applied)
            for row in reversed(cards)
            if _place(row) >= first or row is opened
        ],
        context=context.measure(conversation).to_event(),
        people=read_people(conversation),
    )


def open_turn(conversation: Conversation) -> tuple[Turn | None, Message | None]:
    """The newest turn that was claimed, with the message it writes; None once it is done.

    A failed or interrupted one is shown too: its error and its Retry must survive a reload.
    """
    turns = Turn.objects.filter(conversation=conversation).exclude(state=TurnState.QUEUED)
    turn = turns.order_by("-id").first()
    if turn is None or turn.state == TurnState.DONE:
        return None, None
    answers = Message.objects.filter(conversation=conversation, turn=turn, role="assistant", retired_at__isnull=True)
    if turn.state == TurnState.RUNNING:
        answers = answers.filter(status=MessageStatus.STREAMING)
    return turn, answers.order_by("-id").first()


def queued_turns(conversation: Conversation) -> list[Turn]:
    """The queue in the order in which it will be answered."""
    rows = Turn.objects.filter(conversation=conversation, state=TurnState.QUEUED)
    return list(rows.select_related("user_message").order_by("id")[:QUEUE])


def read_compactions(
    conversation: Conversation, *, limit: int, before: int | None = None
) -> tuple[list[Compaction], int | None]:
    """Compactions, newest first, without what only the engine needs; and the id of the newest applied one."""
    rows = Compaction.objects.filter(conversation=conversation)
    applied = rows.filter(state=State.APPLIED).order_by("-id").values_list("id", flat=True).first()
    if before is not None:
        rows = rows.filter(id__lt=before)
    shown = rows.select_related("summary_message", "requested_by").defer(*COMPACTION_HEAVY_FIELDS)
    return list(shown.order_by("-id")[:limit]), applied


def read_compaction(conversation: Conversation, compaction_id: int) -> tuple[Compaction, int | None]:
    """One compaction as `read_compactions` reads them."""
    rows, applied = read_compactions(conversation, limit=1, before=compaction_id + 1)
    if not rows or rows[0].pk != compaction_id:
        raise NotFound
    return rows[0], applied


def read_people(conversation: Conversation) -> list[JSON]:
    """Everyone in the conversation, the owner first. Who is there now comes with the first `presence` event."""
    rows = Participant.objects.filter(conversation=conversation).select_related("user").order_by("id")[:PEOPLE]
    return [present_person(row) for row in rows]


def _place(row: Compaction) -> int:
    """Where a compaction's card stands in the transcript."""
    return row.covered_to or row.asked_at_position
