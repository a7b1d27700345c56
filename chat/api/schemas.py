"""What scripts send and get. Answers are made in `chat/presenting.py`; a test holds both together."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

from ninja import Schema
from pydantic import ConfigDict, Field, StringConstraints

T = TypeVar("T")
JSON = dict[str, Any]
Id = Annotated[int, Field(ge=0, le=2**63 - 1)]  # as large as a column

LONGEST_MESSAGE = 2_000_000  # characters; a longer text belongs into a file
LONGEST_INSTRUCTIONS = 2_000  # characters


class Command(Schema):
    """What a client sends: unknown fields are refused, so that a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid")


class Problem(Schema):
    code: str
    message: str


class Page(Schema, Generic[T]):
    items: list[T]
    next: str | None


# Conversations


class AgentOut(Schema):
    id: int
    name: str
    description: str
    context_window: int
    model: str
    sees_images: bool
    enabled: bool


class ConversationOut(Schema):
    id: UUID
    title: str
    agent: AgentOut
    pinned: bool
    archived: bool
    role: Literal["owner", "member", "viewer"]
    version: int
    epoch: int
    created_at: datetime
    updated_at: datetime


class ConversationNew(Command):
    agent: Id | None = None
    title: Annotated[str, StringConstraints(max_length=200)] = ""


class ConversationChange(Command):
    title: Annotated[str, StringConstraints(max_length=200)] | None = None
    agent: Id | None = None
    pinned: bool | None = None
    archived: bool | None = None


# Messages and turns


class AuthorOut(Schema):
    id: int | None
    name: str


class MessageOut(Schema):
    id: int
    position: int | None
    role: str
    author: AuthorOut | None
    content: str
    parts: list[JSON]
    tool_calls: list[JSON]
    tool_call_id: str
    tool_name: str
    is_error: bool
    thinking: str
    status: Literal["complete", "streaming", "interrupted", "failed"]
    token_count: int
    is_summary: bool
    compacted_at: datetime | None
    compacted_into: int | None
    pinned: bool
    cleared_at: datetime | None
    retired_at: datetime | None
    turn: int | None
    client_id: str | None
    usage: JSON | None
    metadata: JSON
    created_at: datetime


class ModelViewOut(Schema):
    messages: list[JSON]
    kinds: list[Literal["system", "user", "assistant", "tool", "summary", "acknowledgement", "carried", "images"]]
    tools: list[JSON]
    tokens: JSON


class FailureOut(Schema):
    code: str
    message: str
    retryable: bool


class ReasonOut(Schema):
    code: str
    message: str


class TurnOut(Schema):
    id: int
    state: Literal["queued", "running", "done", "stopped", "failed", "interrupted"]
    attempt: int
    user_message: int | None
    message: int | None
    text: str
    thinking: str
    rounds: int
    error: FailureOut | None
    created_at: datetime


class Say(Command):
    content: Annotated[str, StringConstraints(max_length=LONGEST_MESSAGE)] = ""
    attachments: Annotated[list[UUID], Field(max_length=20)] = []
    client_id: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None


class SentOut(Schema):
    message: MessageOut | None
    turn: TurnOut | None
    command_result: JSON | None


class BranchOut(Schema):
    """The turn that answers now; `is_new` where it does so in a new conversation."""

    turn: TurnOut
    conversation: ConversationOut
    is_new: bool


class AnswerOut(Schema):
    turn: int
    chosen: bool
    messages: list[MessageOut]


class AnswersOut(Schema):
    items: list[AnswerOut]
    next: str | None


class Rewrite(Command):
    content: Annotated[str, StringConstraints(max_length=LONGEST_MESSAGE)]
    attachments: Annotated[list[UUID], Field(max_length=20)] | None = None


class Pin(Command):
    pinned: bool = True


# Compactions


class CompactionOut(Schema):
    id: int
    reason: str
    strategy: str
    generation: int
    state: str
    blocking: bool
    stage: str
    fraction: float
    asked_at_position: int
    covered_from: int | None
    covered_to: int | None
    compacted_count: int
    keep_recent_count: int
    summary_message_id: int | None
    summary_content: str
    tokens_before: int | None
    tokens_after: int | None
    gain: int | None
    floor: int | None
    quality: JSON
    channel_name: str
    model: str
    usage: JSON
    cost: float | None
    duration_ms: int | None
    error: FailureOut | None
    fallback: ReasonOut | None
    requested_by: str | None
    instructions: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    applied_at: datetime | None
    undone_at: datetime | None
    undo_requested_at: datetime | None
    can_undo: bool


class CompactionNew(Command):
    instructions: Annotated[str, StringConstraints(max_length=LONGEST_INSTRUCTIONS)] = ""


# People and files


class PersonOut(Schema):
    id: int
    name: str
    role: Literal["owner", "member", "viewer"]
    online: bool
    typing: bool


class PersonNew(Command):
    username: Annotated[str, StringConstraints(min_length=1, max_length=150)]
    role: Literal["member", "viewer"] = "member"


class RoleChange(Command):
    role: Literal["member", "viewer"]


class InvitationNew(Command):
    role: Literal["member", "viewer"] = "member"
    days: Annotated[int, Field(ge=1, le=30)] = 7


class InvitationOut(Schema):
    id: int
    role: str
    link: str | None
    created_at: datetime
    expires_at: datetime
    uses: int


class AttachmentOut(Schema):
    id: UUID
    name: str
    kind: str
    mime: str
    size: int
    sha256: str
    tokens: int
    sent_tokens: int
    width: int
    height: int
    pages: int
    message: int | None
    owner: int | None
    created_at: datetime


class FoundOut(Schema):
    """A message that search found, with where it stands."""

    conversation: UUID
    conversation_title: str
    message: int
    position: int
    role: str
    author: str
    tool: str
    excerpt: str
    compacted: bool
    created_at: datetime


class ImportedOut(Schema):
    conversations: list[ConversationOut]
    problems: list[JSON]
