"""Rows become messages here and nowhere else: the next request, and what compaction works on, as a function of rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson
from django.db import connection
from django.db.models import QuerySet, TextField
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast

from agents import tokens
from agents.messages import ContentPart, Message, ToolCall
from agents.requests import with_images_apart
from agents.text import clean
from chat import offered
from chat.models import LIVE, Conversation, MessageStatus
from chat.models import Message as Row
from chat.prepared import executed, key, streamed
from compaction.microcompact import CLEARED
from compaction.transcript import Entry, Prefix, Transcript
from compaction.validate import complete_pairs, with_readable_calls

CLEARED_TOKENS = tokens.MESSAGE_OVERHEAD + 7  # what a cleared result costs in a request (tokens)

# What an entry is made of. Plain values instead of model objects, and JSON as text that is read only where there is
# any: a request of 2,000 messages is built in milliseconds.
_NAMES = (
    "id",
    "position",
    "role",
    "author_name",
    "content",
    "parts",
    "tool_calls",
    "tool_call_id",
    "tool_name",
    "is_error",
    "thinking",
    "token_count",
    "pinned",
    "cleared_at",
    "turn_id",
)
_JSON = ("parts", "tool_calls")
_BOOLEAN = ("is_error", "pinned")
COLUMNS: tuple[str | Combinable, ...] = tuple(Cast(name, TextField()) if name in _JSON else name for name in _NAMES)
CONTENT = _NAMES.index("content")
_BATCH = 200  # rows that entries are made of while the next ones are on their way
# Providers refuse these in a name.
_UNSAFE_IN_NAME = re.compile(r"[\s<|\\/>]+")

Values = tuple[Any, ...]


def _column(name: str) -> str:
    if name in _JSON:
        return f"CAST(m.{name} AS TEXT)"
    # Of a bare column of this kind SQLite's module would have Django convert every value.
    return f"m.{name} IS TRUE" if name in _BOOLEAN else f"m.{name}"


# The request of every turn is made from these two: as text, since building querysets would take longer than reading.
_SELECTED = ", ".join(_column(name) for name in _NAMES)
_LIVE = (
    "FROM chat_message m WHERE m.conversation_id = %(conversation)s AND NOT m.is_summary "
    "AND m.position IS NOT NULL AND m.retired_at IS NULL AND m.compacted_into_id IS NULL "
    "AND m.status <> 'streaming' ORDER BY m.position"
)
_PEOPLE_AND_PREFIX = """SELECT
  (SELECT COUNT(*) FROM (SELECT 1 FROM chat_participant p WHERE p.conversation_id = %(conversation)s LIMIT 2) two),
  (SELECT CAST(c.prefix AS TEXT) FROM compaction_compaction c
    WHERE c.conversation_id = %(conversation)s AND c.state = 'applied' ORDER BY c.id DESC LIMIT 1)"""


def live_rows(conversation: Conversation) -> QuerySet[Row]:
    """The live messages in order, without the summary that stands for the others and the answer being written."""
    rows = Row.objects.filter(LIVE, conversation=conversation, is_summary=False)
    return rows.exclude(status=MessageStatus.STREAMING).order_by("position")


def live_values(conversation: Conversation) -> list[Values]:
    """The same as `read` gives them, in a statement whose plan is kept."""
    with executed(f"SELECT {_SELECTED} {_LIVE}", {"conversation": key(Conversation, conversation.pk)}) as cursor:
        found: list[Values] = cursor.fetchall()
    return found


def live_batches(conversation: Conversation, *besides: str) -> Iterator[list[Values]]:
    """The same for many rows: worked on while the database still sends; `besides` are more columns at the end."""
    sql = f"SELECT {', '.join([_SELECTED, *besides])} {_LIVE}"
    return streamed(sql, {"conversation": key(Conversation, conversation.pk)}, _BATCH)


def pinned_covered_rows(conversation: Conversation) -> QuerySet[Row]:
    """Pinned messages that a summary stands for: they stay in the request all the same."""
    return Row.objects.filter(
        conversation=conversation,
        pinned=True,
        compacted_into__isnull=False,
        retired_at__isnull=True,
        position__isnull=False,
        is_summary=False,
    ).order_by("position")


def request_for(conversation: Conversation) -> tuple[tuple[Message, ...], tuple[dict[str, Any], ...]]:
    """The messages and tool schemas of the next request, valid for every provider: no clock and no file is read."""
    transcript = load_transcript(conversation)
    messages = with_readable_calls(complete_pairs(transcript.request()))
    has_images = any(part.kind == "image" for message in messages for part in message.parts)
    if has_images and not conversation.agent.can_see:
        messages = _without_images(messages)
    return with_images_apart(messages), transcript.tools


def _without_images(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """For a model that cannot see: a line in the place of each image, so that it knows what was there."""
    return tuple(
        replace(message, parts=tuple(map(_named, message.parts))) if message.parts else message for message in messages
    )


def _named(part: ContentPart) -> ContentPart:
    if part.kind != "image":
        return part
    size = f", {part.width}x{part.height}" if part.width else ""
    return ContentPart("text", f"[image: {part.name or 'without a name'}{size}; this model cannot see images]")


def load_transcript(conversation: Conversation, *, pending: Sequence[Row] = ()) -> Transcript:
    """Everything the next request is made of; `pending` are drafts that would be claimed next."""
    of = {"conversation": key(Conversation, conversation.pk)}
    with executed(_PEOPLE_AND_PREFIX, of) as cursor:
        people, stored = cursor.fetchone()
    named = people > 1  # only then does the model read who said what
    made = orjson.loads(stored) if stored else None
    prefix = Prefix.from_json(made) if made else None
    keep = offered.kept_tools(conversation.agent)
    live = entries_of(live_values(conversation), named=named, keep=keep)
    pinned = read(pinned_covered_rows(conversation)) if prefix else ()
    drafts = _drafts(conversation, pending, named)
    schemas = offered.schemas(conversation.agent)
    system = offered.system_messages(conversation.agent)
    return Transcript(
        live=(*live, *drafts),
        system=system,
        system_tokens=offered.system_tokens(conversation.agent),
        tool_tokens=tokens.count_tools(schemas),
        prefix=prefix,
        pinned_covered=entries_of(pinned, named=named, keep=keep),
        tools=schemas,
    )


def originals(conversation: Conversation) -> QuerySet[Row]:
    """Every message that a summary stands for, in order."""
    covered = Row.objects.filter(conversation=conversation, is_summary=False, compacted_into__isnull=False)
    return covered.filter(retired_at=None).order_by("position")


def read(rows: QuerySet[Row], columns: Sequence[str | Combinable] = COLUMNS) -> list[Values]:
    """The columns that entries are made of as the database gives them: converting each value would double the time."""
    sql, values = rows.values_list(*columns).query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        found: list[Values] = cursor.fetchall()
    return found


def entries_of(
    values: Iterable[Values], *, named: bool = False, keep: frozenset[str] = frozenset()
) -> tuple[Entry, ...]:
    """Rows, read with `read` or as `values_list(*COLUMNS)`, as entries in the order given.

    `keep`: tools whose results stay whole.
    """
    return tuple([_entry(row, named, keep) for row in values])


def _drafts(conversation: Conversation, pending: Sequence[Row], named: bool) -> tuple[Entry, ...]:
    made = []
    for number, row in enumerate(pending, start=1):
        values = {name: getattr(row, name) for name in _NAMES}
        values["position"] = conversation.last_position + number
        made.append(tuple(orjson.dumps(value) if name in _JSON else value for name, value in values.items()))
    return entries_of(made, named=named)


def _entry(values: Values, named: bool, keep: frozenset[str]) -> Entry:
    (
        id_,
        position,
        role,
        author,
        content,
        parts,
        calls,
        call_id,
        tool,
        is_error,
        thinking,
        count,
        pinned,
        cleared,
        turn,
        *_,
    ) = values
    cleared_result = cleared is not None and role == "tool"
    if cleared_result:
        content, parts, count = CLEARED, "[]", CLEARED_TOKENS
    name = tool if role == "tool" else (_UNSAFE_IN_NAME.sub("_", author)[:64] if named and role == "user" else "")
    message = Message(
        role,
        content,
        tuple([ContentPart.from_json(part) for part in orjson.loads(parts)]) if len(parts) > 2 else (),
        tuple([ToolCall.from_openai(call) for call in orjson.loads(calls)]) if len(calls) > 2 else (),
        call_id,
        name,
        "" if cleared is not None else thinking,
    )
    # SQLite has no booleans of its own.
    marks = bool(pinned), cleared_result, bool(is_error), tool in keep
    return Entry(id_, position, message, count, *marks, turn, author)


def new_row(conversation: Conversation, message: Message, *, position: int | None, **columns: Any) -> Row:
    """An unsaved row of a message: cleaned, and counted as it will be sent."""
    message = cleaned(message)
    fields: dict[str, Any] = {
        "role": message.role,
        "content": message.content,
        "parts": [part.to_json() for part in message.parts],
        "tool_calls": [call.to_openai() for call in message.tool_calls],
        "tool_call_id": message.tool_call_id,
        "tool_name": message.name if message.role == "tool" else "",
        "author_name": message.name if message.role == "user" else "",
        "thinking": message.thinking,
        "token_count": tokens.count_message(message),
    }
    return Row(conversation=conversation, position=position, **{**fields, **columns})


def cleaned(message: Message) -> Message:
    """The message with every text through the one cleaner."""
    return Message(
        role=message.role,
        content=clean(message.content),
        parts=tuple(ContentPart.from_json(_cleaned_values(part.to_json())) for part in message.parts),
        tool_calls=tuple(ToolCall(*map(clean, (call.id, call.name, call.arguments))) for call in message.tool_calls),
        tool_call_id=clean(message.tool_call_id),
        name=clean(message.name),
        thinking=clean(message.thinking),
    )


def _cleaned_values(stored: dict[str, Any]) -> dict[str, Any]:
    return {name: clean(value) if isinstance(value, str) else value for name, value in stored.items()}
