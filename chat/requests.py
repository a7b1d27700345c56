"""What a browser may ask over its socket, typed. Anything else is answered with an error event."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class _Data(BaseModel):
    model_config = ConfigDict(extra="ignore")


class ChatData(_Data):
    content: str = ""
    attachments: list[UUID] = Field(default_factory=list, max_length=50)
    client_id: str | None = Field(default=None, min_length=1, max_length=100)


class CompactData(_Data):
    instructions: str = Field(default="", max_length=10_000)
    client_id: str | None = Field(default=None, max_length=100)


class CancelData(_Data):
    """A queued turn, or an open compaction."""

    turn: int | None = None
    compaction: int | None = None


class StopData(_Data):
    turn: int


class SyncData(_Data):
    """What a client misses of an open answer; without a turn, a new snapshot."""

    turn: int | None = None
    message: int | None = None
    offset: int = Field(default=0, ge=0)
    thinking_offset: int | None = Field(default=None, ge=0)


class TypingData(_Data):
    typing: bool = True


class PingData(_Data):
    pass


class _Envelope(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Chat(_Envelope):
    type: Literal["chat"]
    data: ChatData


class Compact(_Envelope):
    type: Literal["compact"]
    data: CompactData = CompactData()


class Cancel(_Envelope):
    type: Literal["cancel"]
    data: CancelData


class Stop(_Envelope):
    type: Literal["stop"]
    data: StopData


class Sync(_Envelope):
    type: Literal["sync"]
    data: SyncData = SyncData()


class Typing(_Envelope):
    type: Literal["typing"]
    data: TypingData = TypingData()


class Ping(_Envelope):
    type: Literal["ping"]
    data: PingData = PingData()


Request = Chat | Compact | Cancel | Stop | Sync | Typing | Ping

parse = TypeAdapter[Request](Annotated[Request, Field(discriminator="type")]).validate_json
