"""What the summariser gets to read: old tool output and media become one line. Rows and requests stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agents.messages import ContentPart, Message
from compaction.masking import mask
from compaction.transcript import Entry
from compaction.validate import pair

LONG_RESULT = 200  # characters; shorter results are cheaper than their marker
LONG_ARGUMENTS = 600  # characters of a call's arguments that the summariser reads
_MARKER_TOKENS = 14  # what a marker line costs, roughly and rather more (tokens)


def prune(covered: Sequence[Entry], *, mask_secrets: bool = False) -> tuple[Entry, ...]:
    """The covered entries as the summariser reads them. Half a secret is one too: it is masked before the cut."""
    messages = [entry.message for entry in covered]
    if not any(message.role == "tool" or message.parts or message.tool_calls for message in messages):
        return tuple(covered)
    names = tool_names(covered)
    return tuple(_pruned(entry, names.get(index, ""), mask_secrets) for index, entry in enumerate(covered))


def tool_names(entries: Sequence[Entry]) -> dict[int, str]:
    """The tool behind each result, by index: its own name, else that of the call it answers."""
    names = {}
    callers: dict[int, int] | None = None
    for index, entry in enumerate(entries):
        message = entry.message
        if message.role != "tool":
            continue
        if message.name:
            names[index] = message.name
            continue
        if callers is None:
            callers = pair([other.message for other in entries])
        calls = entries[callers[index]].message.tool_calls if index in callers else ()
        names[index] = next((call.name for call in calls if call.id == message.tool_call_id), "tool")
    return names


def _pruned(entry: Entry, tool: str, mask_secrets: bool) -> Entry:
    message = entry.message
    if message.role == "tool" and not entry.keep and not entry.is_error and len(message.content) > LONG_RESULT:
        marker = f"[tool result cleared: {tool}, {entry.tokens} tokens]"
        return replace(entry, message=Message(role="tool", content=marker, name=tool), tokens=_MARKER_TOKENS)
    if message.parts:
        return _without_media(entry)
    if message.tool_calls:
        return _with_short_arguments(entry, mask_secrets)
    return entry


def _without_media(entry: Entry) -> Entry:
    message = entry.message
    lines = [message.content] if message.content else []
    lines += [part.text if part.kind == "text" else describe(part) for part in message.parts]
    saved = sum(part.tokens for part in message.parts if part.kind != "text")
    bare = replace(message, content="\n".join(lines), parts=())
    tokens = max(len(bare.content) // 4, entry.tokens - saved) + _MARKER_TOKENS * len(message.parts)
    return replace(entry, message=bare, tokens=min(tokens, entry.tokens + _MARKER_TOKENS * len(message.parts)))


def describe(part: ContentPart) -> str:
    """One line that stands for an image or a file."""
    if part.kind == "image":
        size = f", {part.width}x{part.height}" if part.width and part.height else ""
        return f"[image: {part.name or 'unnamed'}{size}]"
    return f"[file: {part.name or 'unnamed'}, {part.tokens} tokens]"


def _with_short_arguments(entry: Entry, mask_secrets: bool) -> Entry:
    message = entry.message
    full = sum(len(call.arguments) for call in message.tool_calls)
    calls = tuple(
        call
        if len(call.arguments) <= LONG_ARGUMENTS
        else replace(call, arguments=_shorten(mask(call.arguments) if mask_secrets else call.arguments))
        for call in message.tool_calls
    )
    short = sum(len(call.arguments) for call in calls)
    if short == full:
        return entry
    text = len(message.content)
    tokens = -(-entry.tokens * (text + short) // (text + full)) + _MARKER_TOKENS
    return replace(entry, message=replace(message, tool_calls=calls), tokens=min(tokens, entry.tokens))


def _shorten(arguments: str) -> str:
    if len(arguments) <= LONG_ARGUMENTS:
        return arguments
    return f"{arguments[:LONG_ARGUMENTS]}… [{len(arguments) - LONG_ARGUMENTS} more characters]"
