"""Transcripts, summarisers and counters for the tests of compaction: quick to write, deterministic."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents.messages import ContentPart, Message, ToolCall
from compaction.engine import EngineSettings, SummaryReply, SummaryRequest
from compaction.prompts import SECTIONS
from compaction.transcript import Entry, Transcript


def count(text: str) -> int:
    """A cheap counter (tokens): a quarter of the bytes."""
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


def cost(message: Message) -> int:
    """What a message costs by the cheap counter (tokens)."""
    calls = sum(count(call.name) + count(call.arguments) for call in message.tool_calls)
    return 4 + count(message.content) + calls + sum(part.tokens or count(part.text) for part in message.parts)


def user(text: str, **fields: Any) -> Message:
    return Message(role="user", content=text, **fields)


def assistant(text: str = "", *calls: tuple[str, str] | tuple[str, str, str]) -> Message:
    """An assistant message; each call is (id, tool) or (id, tool, arguments)."""
    made = tuple(ToolCall(call[0], call[1], call[2] if len(call) > 2 else "{}") for call in calls)  # type: ignore[misc]
    return Message(role="assistant", content=text, tool_calls=made)


def result(id_: str, text: str = "done", name: str = "tool") -> Message:
    return Message(role="tool", content=text, tool_call_id=id_, name=name)


def image(name: str = "photo.png", tokens: int = 1_600) -> ContentPart:
    return ContentPart(kind="image", url="data:image/png;base64,AAAA", name=name, width=640, height=480, tokens=tokens)


def entries(messages: Iterable[Message], start: int = 1, **marks: dict[int, Any]) -> tuple[Entry, ...]:
    """Entries at positions from `start` on; `marks` such as pinned={3: True} go by position."""
    made = []
    for position, message in enumerate(messages, start=start):
        fields = {name: values[position] for name, values in marks.items() if position in values}
        made.append(Entry(id=position, position=position, message=message, tokens=cost(message), **fields))
    return tuple(made)


SYSTEM = Message(role="system", content="You are a careful assistant.")


def make_transcript(messages: Iterable[Message], **fields: Any) -> Transcript:
    marks = {name: fields.pop(name) for name in ("pinned", "is_error", "keep", "cleared", "author") if name in fields}
    fields.setdefault("system", (SYSTEM,))
    fields.setdefault("system_tokens", sum(cost(message) for message in fields["system"]))
    return Transcript(live=entries(messages, **marks), **fields)


def make_chat(turns: int, words: int = 60) -> list[Message]:
    """A plain conversation in which every message names something of its own."""
    chat = []
    for turn in range(1, turns + 1):
        filler = "the plan goes on with more of the same work as it was before " * (words // 13 + 1)
        chat.append(user(f"Please look at src/part_{turn}.py and note that Limit{turn} is {turn * 37}. {filler}"))
        chat.append(assistant(f"I looked at src/part_{turn}.py; Limit{turn} is {turn * 37} now. {filler}"))
    return chat


def make_summary(headings: str = "en", body: str = "The work went on as it was planned by all of us.") -> str:
    sections = SECTIONS[headings]  # type: ignore[index]
    return "\n\n".join(f"## {number}. {name}\n{body}" for number, name in enumerate(sections, start=1))


@dataclass
class Scripted:
    """A summariser that gives its answers in turn, the last one for ever, and remembers what it was asked.

    While it writes, what can be done meanwhile is done, unless it is told to hurry.
    """

    replies: Sequence[SummaryReply | str | Exception] = ()
    asked: list[SummaryRequest] = field(default_factory=list)
    hurries: bool = False

    def __call__(self, request: SummaryRequest) -> SummaryReply:
        self.asked.append(request)
        if not self.hurries:
            request.meanwhile()
            request.follow("## 1. What\n- a line that was counted while the rest was written\n- and ha")
        replies = self.replies or (make_summary(),)
        reply = replies[min(len(self.asked), len(replies)) - 1]
        if isinstance(reply, Exception):
            raise reply
        usage = {"prompt_tokens": sum(count(message.content) for message in request.messages), "completion_tokens": 10}
        return reply if isinstance(reply, SummaryReply) else SummaryReply(reply, "stop", usage)

    @property
    def read(self) -> str:
        """Everything it was sent, as one text."""
        return "\n".join(message.content for request in self.asked for message in request.messages)


def settings(window: int = 16_000, **fields: Any) -> EngineSettings:
    return EngineSettings(window=window, **fields)


SHARED = Path(os.environ.get("PALIMPSEST_SHARED_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")


def conversations(name: str) -> Iterator[dict[str, Any]]:
    """The conversations of one file of real transcripts; skips the test where they are not there."""
    path = SHARED / "transcripts" / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is not there: the real transcripts are not part of a plain clone")
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def from_openai(message: dict[str, Any]) -> Message:
    """One message of a transcript file."""
    content = message.get("content")
    return Message(
        role=message["role"],
        content=content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else "",
        tool_calls=tuple(ToolCall.from_openai(call) for call in message.get("tool_calls") or ()),
        tool_call_id=message.get("tool_call_id") or "",
        name=message.get("name") or "",
        thinking=message.get("reasoning_content") or "",
    )


def real_messages(conversation: dict[str, Any]) -> list[Message]:
    return [from_openai(message) for message in conversation["messages"]]
