"""A conversation on its way out: as a line of JSON that can be imported again, or as Markdown to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from agents.messages import ContentPart, ToolCall
from agents.messages import Message as Spoken
from chat.models import Conversation, Message

ROWS_AT_ONCE: Final = 500


def as_jsonl(conversation: Conversation) -> bytes:
    """One line: {id, title, messages} in OpenAI chat form, originals only, with reported usage."""
    rows = _originals(conversation)
    named = rows.filter(role="user").order_by().values("author_name").distinct()[1:2].exists()
    messages = [_in_openai_form(row, named) for row in rows.iterator(ROWS_AT_ONCE)]
    return orjson.dumps({"id": str(conversation.pk), "title": conversation.title, "messages": messages}) + b"\n"


def as_markdown(conversation: Conversation) -> bytes:
    """The conversation as people read it, tools included."""
    title = conversation.title or _("Conversation")
    blocks = [f"# {_one_line(title)}", _("Agent: %(name)s") % {"name": conversation.agent.name}]
    for row in _originals(conversation).iterator(ROWS_AT_ONCE):
        blocks.extend(_blocks(row, conversation.agent.name))
    return ("\n\n".join(blocks) + "\n").encode()


def _originals(conversation: Conversation) -> QuerySet[Message]:
    rows = Message.objects.filter(conversation=conversation, is_summary=False, position__isnull=False)
    return rows.filter(retired_at__isnull=True).order_by("position")


def _in_openai_form(row: Message, named: bool) -> dict[str, Any]:
    spoken = Spoken(
        role=row.role,  # type: ignore[arg-type]
        content=row.content,
        parts=tuple(ContentPart.from_json(part) for part in row.parts),
        tool_calls=tuple(ToolCall.from_openai(call) for call in row.tool_calls),
        tool_call_id=row.tool_call_id,
        name=row.author_name if named else "",
    )
    message = spoken.to_openai()
    if row.role == "tool" and row.tool_name:
        message["name"] = row.tool_name
    if row.thinking:
        message["reasoning_content"] = row.thinking
    if row.usage:
        message["usage"] = row.usage
    return message


def _blocks(row: Message, agent: str) -> Iterator[str]:
    when = f"{row.created_at:%Y-%m-%d %H:%M}"
    if row.role == "tool":
        yield f"### {_('Result of')} `{row.tool_name or row.tool_call_id}`"
        yield _fenced(row.content)
        return
    who = row.author_name if row.role == "user" else agent if row.role == "assistant" else row.role
    yield f"## {_one_line(who)} · {when}"
    if row.content:
        yield row.content
    for part in row.parts:
        yield f"*[{part.get('kind', '')}: {_one_line(str(part.get('name', '')))}]*"
    for call in row.tool_calls:
        function = call.get("function") or {}
        yield f"### {_('Calls')} `{function.get('name', '')}`"
        yield _fenced(function.get("arguments") or "{}", "json")


def _fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any inside it."""
    longest = max((len(run) for run in "".join(c if c == "`" else " " for c in text).split()), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
