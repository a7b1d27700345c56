"""A queued turn becomes a running one: at a boundary, under the conversation's lock, by compare-and-set.

The lease runs on the database's clock, so that machines whose clocks differ agree on who is alive.
"""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

from django.db.models import DateTimeField, ExpressionWrapper
from django.db.models.expressions import Combinable
from django.db.models.functions import Now

from agents.models import Agent
from chat.boundary import at_boundary
from chat.errors import NotFound
from chat.events import MessageStored, TurnError, TurnStart
from chat.locking import Desk, locked
from chat.models import SAID_NOTHING, Conversation, Message, MessageStatus, Turn, TurnState
from chat.prepared import Part, Prepared, clock, executed, insert, write
from chat.presenting import present_message
from chat.queueing import announce_queue, open_turns

_OWN = Prepared(
    "chat_turn t WHERE t.id = %(turn)s AND t.attempt = %(attempt)s AND t.state = 'running' AND t.worker = %(worker)s",
    Part(Turn, "t"),
)

LEASE_SECONDS = 15
HEARTBEAT_SECONDS = 5


class LostTurn(Exception):
    """The turn is no longer ours: somebody else runs it, or has ended it. Stop at once and write nothing."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to answer one turn, and what the answer needs to know. `message` is the row the answer goes into."""

    turn: int
    attempt: int
    conversation: UUID
    message: int
    agent: Agent
    user: int | None
    who: str
    continues: bool
    created_at: datetime
    earlier_answers: int  # to the same question
    row: Conversation = field(compare=False, repr=False)  # as it was when the turn was claimed


@lru_cache(maxsize=1)
def _worker(pid: int) -> str:
    return f"{socket.gethostname()[:100]}:{pid}:{secrets.token_hex(4)}"


def worker_name() -> str:
    """Who this process is in `Turn.worker`; unique among all processes, also after a restart."""
    return _worker(os.getpid())


def lease() -> Combinable:
    """When a heartbeat of this moment runs out, by the database's clock."""
    return ExpressionWrapper(Now() + timedelta(seconds=LEASE_SECONDS), output_field=DateTimeField())


def claim_next(conversation_id: UUID) -> Claim | None:
    """Claim the next queued turn of a conversation, if one may run now."""
    try:
        with locked(conversation_id) as desk:
            return advance(desk)
    except NotFound:
        return None


def advance(desk: Desk) -> Claim | None:
    """Do what waits for a boundary, then claim the next queued turn. Nothing happens while a turn runs."""
    waiting = open_turns(desk.conversation)
    if any(turn.state == TurnState.RUNNING for turn in waiting):
        return None
    while True:
        turn = waiting.pop(0) if waiting else None
        outcome = at_boundary(desk, running=None, waiting=turn)
        if turn is None:
            return None
        if outcome.refusal is not None:
            _refuse(desk, turn, *outcome.refusal)
            continue
        if not outcome.proceed:
            _hold(desk, turn, outcome.waits_for.pk if outcome.waits_for else None)
            return None
        return _claim(desk, turn)


def own(desk: Desk, claim: Claim) -> Turn:
    """The turn, if it is still ours; call with the lock held, before every write. Raises LostTurn."""
    found: list[Turn] = _OWN.fetch(turn=claim.turn, attempt=claim.attempt, worker=worker_name())
    if not found:
        raise LostTurn
    return found[0]


def _claim(desk: Desk, turn: Turn) -> Claim | None:
    claim = (
        "UPDATE chat_turn SET state = 'running', attempt = attempt + 1, worker = %s, waits_for_id = NULL, "  # noqa: S608
        f"claimed_at = {clock()}, heartbeat_at = {clock()}, lease_until = {clock(LEASE_SECONDS)} "
        "WHERE id = %s AND state = 'queued' AND attempt = %s"
    )
    with executed(claim, [worker_name(), turn.pk, turn.attempt]) as cursor:
        if not cursor.rowcount:
            return None
    turn.attempt += 1
    asked_before = turn.user_message is not None and turn.user_message.position is not None
    place_question(desk, turn)
    answer = _answer_of(turn) if turn.attempt > 1 else None
    answer = answer or open_answer(desk, turn)
    desk.emit(TurnStart(turn.pk, turn.attempt, turn.user_message_id, answer.pk))
    return Claim(
        turn=turn.pk,
        attempt=turn.attempt,
        conversation=desk.conversation.pk,
        message=answer.pk,
        agent=desk.conversation.agent,
        user=turn.requested_by_id,
        who=turn.user_message.author_name if turn.user_message else "-",
        continues=turn.continues,
        created_at=turn.created_at,
        earlier_answers=count_answers(turn.user_message) if asked_before and turn.user_message else 0,
        row=desk.conversation,
    )


def place_question(desk: Desk, turn: Turn) -> None:
    """The draft of a turn becomes an original: from here on it has a position and never changes."""
    draft = turn.user_message
    if draft is None or draft.position is not None:
        return
    draft.position = desk.next_position()
    draft.turn = turn
    write(draft, ["position", "turn"])
    desk.conversation.live_tokens += draft.token_count
    desk.emit(MessageStored(present_message(draft)))


def open_answer(desk: Desk, turn: Turn) -> Message:
    """The row that the next answer of this turn is written into."""
    row = Message(
        conversation=desk.conversation,
        turn=turn,
        position=desk.next_position(),
        role="assistant",
        status=MessageStatus.STREAMING,
    )
    insert(row)
    return row


def count_answers(question: Message) -> int:
    """How many turns have answered this question with something."""
    rows = Message.objects.filter(turn__user_message=question, role="assistant", turn__continues=False)
    rows = rows.exclude(status=MessageStatus.STREAMING).exclude(SAID_NOTHING)
    return rows.values("turn_id").distinct().count()


def _answer_of(turn: Turn) -> Message | None:
    """The row of an earlier attempt that showed nothing: it is used again."""
    return Message.objects.filter(turn=turn, status=MessageStatus.STREAMING).order_by("-id").first()


def _refuse(desk: Desk, turn: Turn, code: str, message: str) -> None:
    """A turn that cannot run fails with the reason; its question is kept and can be retried."""
    place_question(desk, turn)
    Turn.objects.filter(pk=turn.pk).update(
        state=TurnState.FAILED, error_code=code, error_text=str(message), retryable=True, finished_at=Now()
    )
    desk.emit(TurnError(turn.pk, code, str(message), retryable=True))


def _hold(desk: Desk, turn: Turn, compaction: int | None) -> None:
    """The turn waits for a compaction; people see why."""
    if turn.waits_for_id != compaction:
        Turn.objects.filter(pk=turn.pk).update(waits_for=compaction)
        announce_queue(desk)
