"""A transcript: what compaction works on. Built by `chat/history.py` from rows, by tests from literals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agents.messages import Message
from agents.values import value
from compaction.validate import complete_pairs


@value
class Entry:
    """One stored message with the marks compaction needs; `tokens` is its raw o200k count (tokens).

    `turn` is the id of the turn the message belongs to (None for imported ones); `author` the name of the person.
    `cleared` messages already read as `[Old tool result content cleared]` in `message`.
    """

    id: int
    position: int
    message: Message
    tokens: int
    pinned: bool = False
    cleared: bool = False
    is_error: bool = False
    keep: bool = False  # the tool's results are kept through compactions
    turn: int | None = None
    author: str = ""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The exact messages an applied compaction puts before the live ones, and where its summary stands.

    `messages` = summary, acknowledgement, verbatim copies, restored state; `tokens` is their raw count (tokens).
    `summary` is the bare summary text; `verbatim_ids` the originals that are repeated word for word.
    """

    messages: tuple[Message, ...]
    summary: str
    tokens: int
    covered_to: int
    generation: int = 1
    verbatim_ids: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "messages": [message.to_json() for message in self.messages],
            "summary": self.summary,
            "tokens": self.tokens,
            "covered_to": self.covered_to,
            "generation": self.generation,
            "verbatim_ids": list(self.verbatim_ids),
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Prefix:
        return cls(
            messages=tuple(Message.from_json(message) for message in stored["messages"]),
            summary=stored["summary"],
            tokens=stored["tokens"],
            covered_to=stored["covered_to"],
            generation=stored["generation"],
            verbatim_ids=tuple(stored["verbatim_ids"]),
        )


@dataclass(frozen=True, slots=True)
class Transcript:
    """Everything the next request is made of, in reading order.

    request = system + prefix + pinned_covered + live. `system_tokens` and `tool_tokens` are raw counts (tokens).
    `earlier` holds the originals behind `prefix` when they fit the summariser (a rebuild), else it is empty
    and the summary of `prefix` is updated.
    """

    live: tuple[Entry, ...]
    system: tuple[Message, ...] = ()
    system_tokens: int = 0
    tool_tokens: int = 0
    prefix: Prefix | None = None
    pinned_covered: tuple[Entry, ...] = ()
    earlier: tuple[Entry, ...] = ()
    tools: tuple[dict[str, Any], ...] = field(default=())

    @property
    def tokens(self) -> int:
        """Raw tokens of the whole request."""
        prefix = self.prefix.tokens if self.prefix else 0
        entries = sum([entry.tokens for entry in (*self.pinned_covered, *self.live)])
        return self.system_tokens + self.tool_tokens + prefix + entries

    def request(self) -> tuple[Message, ...]:
        """The messages of the next request: a function of what is stored and nothing else, valid for any history."""
        prefix = self.prefix.messages if self.prefix else ()
        entries = (entry.message for entry in (*self.pinned_covered, *self.live))
        return complete_pairs((*self.system, *prefix, *entries))
