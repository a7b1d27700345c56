"""What an answer leaves in the database: its rounds, the results of its tools, and how it ended.

Every function here takes the conversation's lock, makes sure that the turn is still ours, and says what changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.db.models import F
from django.utils import timezone

from agents import tokens
from agents.messages import Message as Spoken
from agents.messages import ToolCall
from agents.tools import ToolResult
from agents.usage import Usage
from chat import context
from chat.boundary import Outcome, at_boundary
from chat.claiming import Claim, advance, open_answer, own
from chat.events import MessageStored, TokenUpdate, ToolCallMade, ToolResultStored, TurnDone, TurnError, TurnInterrupted
from chat.locking import Desk, locked
from chat.models import Conversation, Message, MessageStatus, Turn, TurnState
from chat.prepared import Part, Prepared, insert, write
from chat.presenting import present_message
from chat.waking import wake
from compaction.models import UNFINISHED_STATES, Compaction
from palimpsest.shutdown import is_stopping

_WRITTEN_OF_THE_TURN = (
    "state",
    "error_code",
    "error_text",
    "retryable",
    "usage",
    "lease_until",
    "finished_at",
)
_ROW = Prepared("chat_message m WHERE m.id = %(message)s", Part(Message, "m"))
_WRITTEN_AT_THE_END = ("content", "thinking", "tool_calls", "status", "token_count", "usage", "metadata", "retired_at")


@dataclass(frozen=True, slots=True)
class Said:
    """What the model said in one call."""

    message: int
    content: str = ""
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    finish_reason: str = ""
    epoch: int = -1  # the conversation's, when the request was made

    @property
    def is_blank(self) -> bool:
        return not (self.content or self.thinking or self.tool_calls)

    def spoken(self) -> Spoken:
        return Spoken("assistant", self.content, tool_calls=self.tool_calls, thinking=self.thinking)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ends: its state, and for a failure the code and a sentence a person can act on."""

    state: str
    code: str = ""
    message: str = ""
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Spent:
    """What a turn has used so far, over all its calls."""

    usage: Usage = field(default_factory=Usage)
    api_calls: int = 0

    def plus(self, usage: Usage | None) -> Spent:
        return Spent(self.usage + usage if usage else self.usage, self.api_calls + 1)

    def to_json(self) -> dict[str, Any]:
        return {**self.usage.to_json(), "api_calls": self.api_calls}

    def current(self) -> dict[str, int]:
        """The `current` part of a token_update."""
        return {
            "input_tokens": self.usage.prompt_tokens,
            "output_tokens": self.usage.completion_tokens,
            "total_tokens": self.usage.total_tokens,
            "api_calls": self.api_calls,
        }


@dataclass(frozen=True, slots=True)
class NextRound:
    """The row of the next call's answer; or, without one, that the turn has to wait for a compaction."""

    message: int | None
    outcome: Outcome


def store_round(claim: Claim, said: Said) -> None:
    """The model asked for tools: its message is complete, and what it asked for is told."""
    count = tokens.count_message(said.spoken())
    with locked(claim.conversation) as desk:
        turn = own(desk, claim)
        Turn.objects.filter(pk=turn.pk).update(has_output=True, rounds=F("rounds") + 1)
        row = _complete(desk, claim, said, MessageStatus.COMPLETE, count)
        desk.emit(MessageStored(present_message(row)))
        for call in said.tool_calls:
            desk.emit(ToolCallMade(claim.turn, said.message, call.id, call.name, call.arguments))


def store_result(claim: Claim, call: ToolCall, result: ToolResult, metadata: dict[str, Any] | None = None) -> None:
    """One tool has answered; `metadata`: how long it took (ms), and the file that holds what is too long to show."""
    parts = [part.to_json() for part in result.parts]
    count = tokens.count_message(
        Spoken("tool", result.content, parts=tuple(result.parts), tool_call_id=call.id, name=call.name)
    )
    with locked(claim.conversation) as desk:
        turn = own(desk, claim)
        row = Message(
            conversation=desk.conversation,
            turn=turn,
            position=desk.next_position(),
            role="tool",
            content=result.content,
            parts=parts,
            tool_call_id=call.id,
            tool_name=call.name,
            is_error=result.is_error,
            token_count=count,
            metadata=metadata or {},
        )
        insert(row)
        desk.conversation.live_tokens += count
        desk.emit(ToolResultStored(claim.turn, present_message(row)))


def next_round(claim: Claim, is_open: int | None = None, after: int | None = None) -> NextRound:
    """Between two rounds: a boundary, then the row of the next answer, unless one `is_open` already.

    It is not before the compaction `after` has ended, well or not.
    """
    with locked(claim.conversation) as desk:
        turn = own(desk, claim)
        if after is not None and Compaction.objects.filter(pk=after, state__in=UNFINISHED_STATES).exists():
            return NextRound(None, Outcome(proceed=False))
        outcome = at_boundary(desk, running=turn, waiting=None)
        if outcome.refusal is not None or not outcome.proceed:
            return NextRound(None, outcome)
        if is_open is not None:
            return NextRound(is_open, outcome)
        row = open_answer(desk, turn)
        desk.emit(MessageStored(present_message(row)))
        return NextRound(row.pk, outcome)


@dataclass(frozen=True, slots=True)
class Finished:
    """What follows a turn: the claim of the next one, and the conversation as it was committed."""

    following: Claim | None
    conversation: Conversation


def finish(claim: Claim, said: Said | None, ending: Ending, spent: Spent, *, go_on: bool = True) -> Finished:
    """End the turn with everything that was shown, then do what waits for the boundary."""
    count = tokens.count_message(said.spoken()) if said else 0
    is_stopped = ending.state == TurnState.STOPPED
    with locked(claim.conversation) as desk:
        turn = own(desk, claim)
        row = _complete(desk, claim, said, _status(ending), count, stopped=is_stopped) if said else None
        end_turn(desk, turn, ending, row, spent.to_json())
        following = None
        if is_stopping() or not go_on:
            desk.then(lambda: wake(claim.conversation))
        else:
            following = advance(desk)
    return Finished(following, desk.conversation)


def hand_back(claim: Claim) -> None:
    """Nothing was shown yet and this process ends: another one may answer."""
    with locked(claim.conversation) as desk:
        turn = own(desk, claim)
        queue_again(turn)
        desk.then(lambda: wake(claim.conversation))


def queue_again(turn: Turn, *, waits_for: int | None = None) -> None:
    """The turn waits to be claimed again; call with the lock held. Its attempt stays, so that the next is higher."""
    Turn.objects.filter(pk=turn.pk).update(
        state=TurnState.QUEUED, worker="", lease_until=None, heartbeat_at=None, waits_for=waits_for
    )


def end_turn(desk: Desk, turn: Turn, ending: Ending, row: Message | None, usage: dict[str, Any]) -> None:
    """Set the state of a turn and say so; call with the lock held. `row` is its last assistant message."""
    turn.state, turn.usage, turn.lease_until, turn.finished_at = ending.state, usage, None, timezone.now()
    turn.error_code, turn.error_text, turn.retryable = ending.code, ending.message, ending.retryable
    write(turn, _WRITTEN_OF_THE_TURN)
    desk.conversation.last_answer_at = turn.finished_at
    if ending.state == TurnState.INTERRUPTED:
        length = len(row.content) if row else 0
        desk.emit(TurnInterrupted(turn.pk, turn.attempt, row.pk if row else None, length))
        return
    shown = present_message(row) if row else None
    if ending.state == TurnState.FAILED:
        if shown:
            desk.emit(MessageStored(shown))
        desk.emit(TurnError(turn.pk, ending.code, ending.message, ending.retryable))
        return
    desk.emit(TurnDone(turn.pk, turn.attempt, ending.state, shown, usage))


def token_update(conversation: Conversation, current: dict[str, int]) -> TokenUpdate:
    """The meter as it stands."""
    return TokenUpdate(current, context.measure(conversation).to_event())


def _complete(desk: Desk, claim: Claim, said: Said, status: str, count: int, *, stopped: bool = False) -> Message:
    """The open message gets its final text, in the transaction that says so. One that says nothing is put away."""
    row: Message = _ROW.fetch(message=said.message)[0]
    row.content = said.content
    row.thinking = said.thinking
    row.tool_calls = [call.to_openai() for call in said.tool_calls]
    row.status = status
    row.usage = said.usage.to_json() if said.usage else None
    if said.finish_reason not in ("", "stop", "tool_calls"):
        row.metadata = {**row.metadata, "finish_reason": said.finish_reason}
    if stopped:
        row.metadata = {**row.metadata, "stopped": True}
    if claim.earlier_answers and not said.tool_calls:
        row.metadata = {**row.metadata, "earlier_answers": claim.earlier_answers}
    if said.is_blank:
        row.retired_at = timezone.now()
    else:
        row.token_count = count
        desk.conversation.live_tokens += count
    write(row, _WRITTEN_AT_THE_END)
    if said.usage is not None and row.position is not None and said.epoch == desk.conversation.epoch:
        context.note_usage(desk, said.usage, row.position, claim.agent.channel_id, claim.agent.model_name)
    return row


def _status(ending: Ending) -> str:
    match ending.state:
        case TurnState.DONE:
            return MessageStatus.COMPLETE
        case TurnState.FAILED:
            return MessageStatus.FAILED
        case _:
            return MessageStatus.INTERRUPTED
