"""Reading conversations in OpenAI chat form, one a line, and saying what is wrong with a bad one. No database."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from django.utils.translation import gettext as _

from agents.messages import ContentPart, Message, ToolCall
from agents.text import clean
from chat.extracting import Extracted, FileRefused, extract

JSON = dict[str, Any]

LONGEST_LINE = 64 * 1024 * 1024  # bytes
MOST_MESSAGES = 100_000  # of one conversation
LONGEST_TITLE = 80  # characters, where the first question becomes the title

_ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


class BadLine(Exception):
    """Why a line is no conversation: a sentence, without the line's number."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An image that came inside a message, to be kept as a file: the message's index and the place among its parts."""

    message: int
    part: int
    name: str
    found: Extracted


@dataclass(slots=True)
class Spoken:
    """A conversation as it was read. `usage` by message index, as its provider reported it; shown, never a base."""

    messages: list[Message]
    title: str = ""
    usage: dict[int, JSON] = field(default_factory=dict)
    pictures: list[Picture] = field(default_factory=list)


def lines_of(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Numbered lines; None for one that is longer than any conversation may be. One line is in memory at a time."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE and not line.endswith(b"\n"):
            while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
            yield number, None
        elif line.strip():
            yield number, line


def read_line(line: bytes | None) -> Spoken:
    """One line as a conversation; raises BadLine with the reason."""
    if line is None:
        raise BadLine(_("the line is longer than %(mb)d MB") % {"mb": LONGEST_LINE // 1024 // 1024})
    stored = _json(line)
    messages = stored.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadLine(_("“messages” is missing, empty, or not a list"))
    if len(messages) > MOST_MESSAGES:
        raise BadLine(_("more than %(most)d messages") % {"most": MOST_MESSAGES})
    spoken = Spoken([])
    waiting: dict[str, int] = {}
    for index, message in enumerate(messages):
        try:
            read = _message(message, index, spoken)
            _check_pair(read, waiting)
        except BadLine as fault:
            raise BadLine(_("message %(number)d: %(why)s") % {"number": index, "why": fault}) from None
        spoken.messages.append(read)
    spoken.title = _title(stored, spoken.messages)
    _read_usage(stored, spoken)
    return spoken


def _json(line: bytes) -> JSON:
    try:
        stored = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise BadLine(_("the line is not UTF-8")) from None
    except (ValueError, RecursionError) as error:
        raise BadLine(_("the line is not JSON (%(why)s)") % {"why": str(error)[:120]}) from None
    if not isinstance(stored, dict):
        raise BadLine(_("the line is not a JSON object"))
    return stored


def _message(stored: Any, index: int, spoken: Spoken) -> Message:
    if not isinstance(stored, dict):
        raise BadLine(_("not an object"))
    said = stored.get("role")
    role = _ROLES.get(said) if isinstance(said, str) else None
    if role is None:
        raise BadLine(
            _("the role %(role)s is not system, user, assistant or tool") % {"role": _short(stored.get("role"))}
        )
    calls = tuple(map(_call, _list(stored, "tool_calls"))) if role == "assistant" else ()
    thinking = _text(stored.get("reasoning_content") or stored.get("reasoning") or "", "reasoning_content")
    content, parts = _content(stored.get("content"), index, spoken)
    if content is None:
        if role != "assistant" or not (calls or thinking):
            raise BadLine(_("“content” is missing"))
        content = ""
    return Message(
        role=role,  # type: ignore[arg-type]
        content=content,
        parts=parts,
        tool_calls=calls,
        tool_call_id=_text(stored.get("tool_call_id") or "", "tool_call_id") if role == "tool" else "",
        name=_text(stored.get("name") or "", "name"),
        thinking=thinking,
    )


def _content(stored: Any, index: int, spoken: Spoken) -> tuple[str | None, tuple[ContentPart, ...]]:
    """The text, None where there is none, and what is not plain text."""
    if stored is None or isinstance(stored, str):
        return (None if stored is None else clean(stored)), ()
    if not isinstance(stored, list):
        raise BadLine(_("“content” is neither text nor a list of parts"))
    texts = [
        part.get("text") for part in stored if isinstance(part, dict) and part.get("type") in ("text", "input_text")
    ]
    images = [part for part in stored if isinstance(part, dict) and part.get("type") == "image_url"]
    if len(texts) + len(images) < len(stored) or not all(isinstance(text, str) for text in texts):
        raise BadLine(_("a part of “content” is neither text nor an image"))
    parts = tuple(_image(part, index, number, spoken) for number, part in enumerate(images))
    return clean("\n\n".join(str(text) for text in texts)), parts


def _image(part: JSON, index: int, number: int, spoken: Spoken) -> ContentPart:
    address = part.get("image_url")
    url = address.get("url") if isinstance(address, dict) else address
    if not isinstance(url, str) or not url:
        raise BadLine(_("an image has no address"))
    name = f"image-{index}-{number + 1}"
    if not url.startswith("data:"):
        return ContentPart(kind="text", text=f"[image: {clean(url)[:500]}]")
    try:
        spoken.pictures.append(Picture(index, number, name, extract(base64.b64decode(url.partition(",")[2]))))
    except (binascii.Error, ValueError, FileRefused):
        raise BadLine(_("an image cannot be read")) from None
    return ContentPart(kind="image", name=name)


def _call(stored: Any) -> ToolCall:
    function = stored.get("function") if isinstance(stored, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise BadLine(_("a tool call names no function"))
    if not isinstance(stored.get("id"), str) or not stored["id"]:
        raise BadLine(_("a tool call has no id"))
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    return ToolCall(clean(stored["id"]), clean(function["name"]), clean(arguments))


def _check_pair(message: Message, waiting: dict[str, int]) -> None:
    """Every result needs a call before it that still waits for one; ids come back in real conversations."""
    for call in message.tool_calls:
        waiting[call.id] = waiting.get(call.id, 0) + 1
    if message.role == "tool":
        if not waiting.get(message.tool_call_id):
            raise BadLine(_("a tool's result without its call (%(id)s)") % {"id": _short(message.tool_call_id)})
        waiting[message.tool_call_id] -= 1


def _title(stored: JSON, messages: list[Message]) -> str:
    title = stored.get("title")
    if not isinstance(title, str) or not title.strip():
        title = next(
            (message.content for message in messages if message.role == "user" and message.content.strip()), ""
        )
    line = " ".join(clean(title).split())
    return line if len(line) <= LONGEST_TITLE else f"{line[: LONGEST_TITLE - 1].rstrip()}…"


def _read_usage(stored: JSON, spoken: Spoken) -> None:
    """Reported usage: `meta.usage` as a table of fields and rows, or a message's own. The rest is left out."""
    meta = stored.get("meta")
    table = meta.get("usage") if isinstance(meta, dict) else None
    fields, rows = (table.get("fields"), table.get("rows")) if isinstance(table, dict) else (None, None)
    if isinstance(fields, list) and isinstance(rows, list):
        for row in rows:
            values = dict(zip(fields, row, strict=False)) if isinstance(row, list) else {}
            _note(spoken, values.pop("message", None), values)
    for index, message in enumerate(stored["messages"]):
        _note(spoken, index, message.get("usage"))


def _note(spoken: Spoken, index: Any, values: Any) -> None:
    if not isinstance(index, int) or not 0 <= index < len(spoken.messages) or not isinstance(values, dict):
        return
    numbers = {clean(name): value for name, value in values.items() if _is_count(value) and isinstance(name, str)}
    if numbers:
        spoken.usage[index] = numbers


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12


def _text(stored: Any, name: str) -> str:
    if not isinstance(stored, str):
        raise BadLine(_("“%(name)s” is not text") % {"name": name})
    return clean(stored)


def _list(stored: JSON, name: str) -> list[Any]:
    value = stored.get(name) or []
    if not isinstance(value, list):
        raise BadLine(_("“%(name)s” is not a list") % {"name": name})
    return value


def _short(value: Any) -> str:
    text = clean(str(value))
    return f"“{text[:40]}…”" if len(text) > 40 else f"“{text}”"
