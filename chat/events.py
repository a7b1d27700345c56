"""The protocol: every event a server sends, typed. The browser client and docs/protocol.md are checked against this.

An envelope is `{"type", "conversation", "seq", "data"}`. Durable events carry `seq`, the conversation's version at
their commit; ephemeral ones carry null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

import orjson

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing a browser is told. `type` is its name on the wire, `durable` whether it moves the version."""

    type: ClassVar[str]
    durable: ClassVar[bool] = False


def encode(event: Event, conversation: UUID | str, seq: int | None = None) -> bytes:
    """The frame of `event`, ready to be sent as it is."""
    return orjson.dumps({"type": event.type, "conversation": str(conversation), "seq": seq, "data": event})


# Everything of one moment


@dataclass(frozen=True, slots=True)
class Snapshot(Event):
    """What the page needs to draw itself. `seq` of the envelope is the version the snapshot was read at.

    `messages`: the newest of the compacted view; `next`: the cursor to older ones; `turn`: the open turn with its text
    so far; `queue`: queued turns with their drafts; `compaction`: the open run; `compactions`: the cards in the window.
    """

    type = "snapshot"
    conversation: JSON
    messages: list[JSON]
    next: str | None
    turn: JSON | None
    queue: list[JSON]
    compaction: JSON | None
    compactions: list[JSON]
    context: JSON
    people: list[JSON]


# Durable: messages and turns


@dataclass(frozen=True, slots=True)
class MessageStored(Event):
    """A message was stored or changed (pinned, cleared, retired, given a position)."""

    type = "message"
    durable = True
    message: JSON


@dataclass(frozen=True, slots=True)
class TurnStart(Event):
    type = "turn_start"
    durable = True
    turn: int
    attempt: int
    user_message: int | None
    message: int  # the assistant message that deltas will name


@dataclass(frozen=True, slots=True)
class ToolCallMade(Event):
    type = "tool_call"
    durable = True
    turn: int
    message: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResultStored(Event):
    type = "tool_result"
    durable = True
    turn: int
    message: JSON


@dataclass(frozen=True, slots=True)
class TurnDone(Event):
    """`state` is done or stopped; `message` the stored form of the last assistant message: it decides."""

    type = "turn_done"
    durable = True
    turn: int
    attempt: int
    state: str
    message: JSON | None
    usage: JSON


@dataclass(frozen=True, slots=True)
class TurnInterrupted(Event):
    """`length` (code points) of the stored text: every client cuts to it."""

    type = "turn_interrupted"
    durable = True
    turn: int
    attempt: int
    message: int | None
    length: int


@dataclass(frozen=True, slots=True)
class TurnError(Event):
    type = "turn_error"
    durable = True
    turn: int
    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class Queued(Event):
    """The queue changed: all queued turns with their drafts, and why they wait (a turn, a compaction, or nothing)."""

    type = "queued"
    durable = True
    queue: list[JSON]


# Ephemeral: the stream


@dataclass(frozen=True, slots=True)
class Delta(Event):
    """`offset` counts Unicode code points within that message."""

    type = "delta"
    turn: int
    attempt: int
    message: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta(Event):
    type = "thinking_delta"
    turn: int
    attempt: int
    message: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class TokenUpdate(Event):
    type = "token_update"
    current: JSON
    context: JSON


@dataclass(frozen=True, slots=True)
class Presence(Event):
    type = "presence"
    people: list[JSON]


@dataclass(frozen=True, slots=True)
class Problem(Event):
    """Something the person asked for could not be done."""

    type = "error"
    code: str
    message: str
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class CommandResult(Event):
    """The answer to /help or /context, shown to the person who typed it and stored nowhere."""

    type = "command_result"
    command: str
    result: JSON
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class Pong(Event):
    type = "pong"
    version: int


# Compaction


@dataclass(frozen=True, slots=True)
class CompactionStart(Event):
    type = "compaction_start"
    durable = True
    id: int
    reason: str
    message_count: int
    blocking: bool


@dataclass(frozen=True, slots=True)
class CompactionProgress(Event):
    type = "compaction_progress"
    id: int
    stage: str
    fraction: float


@dataclass(frozen=True, slots=True)
class CompactionDone(Event):
    """Sent after the commit. `state` says `ready` where the result still waits for the next boundary."""

    type = "compaction_done"
    durable = True
    id: int
    success: bool
    compacted_count: int
    keep_recent_count: int
    summary_message_id: int | None
    summary_content: str
    tokens_before: int
    tokens_after: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class CompactionFailed(Event):
    type = "compaction_error"
    durable = True
    id: int
    message: str
    code: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class CompactionSkipped(Event):
    """A refusal. Its sentence, like that of a failure, is in the language of the process that found out; the run read
    over HTTP or in a snapshot explains itself in the reader's."""

    type = "compaction_skipped"
    durable = True
    id: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class CompactionUndone(Event):
    type = "compaction_undone"
    durable = True
    id: int


@dataclass(frozen=True, slots=True)
class ConversationChanged(Event):
    """Title, agent, people or another property changed."""

    type = "conversation"
    durable = True
    conversation: JSON


def _all(kind: type[Event]) -> list[type[Event]]:
    return [found for sub in kind.__subclasses__() for found in (sub, *_all(sub))]


EVENTS: dict[str, type[Event]] = {event.type: event for event in _all(Event)}
CLIENT_COMMANDS = ("chat", "compact", "cancel", "stop", "sync", "typing", "ping")
