"""The prefix that stands for what was compacted, put together and checked as part of the whole next request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agents.messages import Message
from compaction import prompts
from compaction.counting import Count
from compaction.errors import CompactionError
from compaction.language import Headings
from compaction.restore import RestoredState
from compaction.transcript import Entry, Prefix, Transcript
from compaction.validate import complete_pairs, fault

MESSAGE_OVERHEAD = 4  # what a message costs beside its text (tokens)


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Messages of people repeated word for word behind the summary; `ids` also holds those whole in the summary."""

    text: str = ""
    ids: tuple[int, ...] = ()
    tokens: int = 0


def assemble(
    summary: str,
    headings: Headings,
    *,
    covered_to: int,
    generation: int,
    count: Count,
    verbatim: Verbatim | None = None,
    restored: RestoredState | None = None,
) -> Prefix:
    """Summary and acknowledgement, then what is carried over and its acknowledgement, so that roles alternate."""
    verbatim = verbatim or Verbatim()
    restored = restored or RestoredState()
    messages = [
        Message(role="user", content=f"{prompts.FRAME[headings]}\n\n{summary}"),
        Message(role="assistant", content=prompts.ACKNOWLEDGEMENT[headings]),
    ]
    carried = [text for text in (verbatim.text, restored.text) if text]
    if carried or restored.parts:
        content = "\n\n".join([prompts.CARRIED[headings], *carried])
        messages.append(Message(role="user", content=content, parts=restored.parts))
        messages.append(Message(role="assistant", content=prompts.CARRIED_ACKNOWLEDGEMENT[headings]))
    return Prefix(
        messages=tuple(messages),
        summary=summary,
        tokens=sum(_tokens(message, count) for message in messages),
        covered_to=covered_to,
        generation=generation,
        verbatim_ids=verbatim.ids,
    )


def _tokens(message: Message, count: Count) -> int:
    return MESSAGE_OVERHEAD + count(message.content) + sum(part.tokens or count(part.text) for part in message.parts)


def next_request(transcript: Transcript, prefix: Prefix, kept: Sequence[Entry]) -> tuple[Message, ...]:
    """The request after the compaction: system prompt, the new prefix, covered pins, and what stays."""
    entries = (entry.message for entry in (*transcript.pinned_covered, *kept))
    return complete_pairs((*transcript.system, *prefix.messages, *entries))


def check(transcript: Transcript, request: Sequence[Message]) -> None:
    """Raises `request_invalid` unless the request is one a provider accepts and all that must survive is in it."""
    if why := validate(request):
        raise CompactionError("request_invalid", why=why)
    if tuple(request[: len(transcript.system)]) != transcript.system:
        raise CompactionError("request_invalid", why="the system prompt is missing")
    newest = next((entry for entry in reversed(transcript.live) if entry.message.role == "user"), None)
    pins = [entry for entry in (*transcript.pinned_covered, *transcript.live) if entry.pinned]
    for entry in (*([newest] if newest else []), *pins):
        if not _stands_in(request, entry.message):
            raise CompactionError("request_invalid", why=f"message #{entry.position} is missing or altered")


def _stands_in(request: Sequence[Message], message: Message) -> bool:
    """Whether it is there word for word; the newest are looked at first."""
    return any(
        other.content == message.content and other.role == message.role and other.parts == message.parts
        for other in reversed(request)
    )


def validate(request: Sequence[Message]) -> str:
    """What is wrong with a request; empty where nothing is."""
    if not any(message.role == "user" for message in request):
        return "there is no message of a person in it"
    return fault(request)
