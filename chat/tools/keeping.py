"""What a tool gave and a model cannot take as it is: kept as a file of the conversation, images drawn anew.

A result of megabytes is shortened for the model; the whole of it becomes a file that it reads in pieces. Images of
other people's servers go through the same narrow door as uploads: another process, smaller, without metadata.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import re
from collections.abc import Collection
from dataclasses import replace

from agents.messages import JSON, ContentPart
from agents.tokens import count_text
from agents.tools import ToolContext, ToolResult
from chat import files
from chat.errors import ChatError
from chat.extracting import Extracted, FileRefused, extract
from chat.loop import run_in_db
from chat.models import Attachment, AttachmentKind, Conversation
from chat.tools import space

logger = logging.getLogger("palimpsest.tools")

FOLDER = "results"
COUNTED = 200_000  # characters that are counted exactly; the rest in proportion
_DATA_URL = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,")
_ENDINGS = {"application/pdf": "pdf", "text/plain": "txt", "image/png": "png", "image/jpeg": "jpg"}


async def keep(
    context: ToolContext, tool: str, result: ToolResult, allowed: Collection[str] = ()
) -> tuple[ToolResult, JSON]:
    """The result as it is stored, and what its message notes beside it: how long it took (ms), the file it is in.

    A result that cannot be kept is given to the model all the same.
    """
    metadata: JSON = {"duration_ms": result.duration_ms}
    try:
        if result.whole:
            result, metadata["kept"] = await _keep_whole(context, tool, result, allowed)
        if any(_is_foreign(part) for part in result.parts):
            result = await _keep_images(context, tool, result)
    except ChatError as refused:
        logger.info("tool %s: its result is not kept: %s", tool, refused.code)
        result = replace(result, parts=tuple(part for part in result.parts if not _is_foreign(part)))
    metadata = {name: value for name, value in metadata.items() if value is not None}
    return replace(result, whole=""), metadata


async def _keep_whole(
    context: ToolContext, tool: str, result: ToolResult, allowed: Collection[str]
) -> tuple[ToolResult, JSON | None]:
    found = await asyncio.to_thread(_read, result.whole)
    if found is None:
        return result, None
    row: Attachment = await run_in_db(_store, context, tool, found)
    how = "Read it in pieces with read_file." if "read_file" in allowed else "The people here can open it."
    size = f"{len(row.text)} characters" if row.text else f"{row.size} bytes"
    note = f"[The whole result is kept as the file {row.name}, {size}. {how}]"
    kept = {"kind": "file", "name": row.name, "size": row.size, "attachment": str(row.pk)}
    return replace(result, content=f"{result.content}\n{note}"), kept


def _read(whole: str | bytes) -> Extracted | None:
    """A text as it is; of bytes what an upload of them would be, None where that would be refused."""
    if isinstance(whole, str):
        tokens = count_text(whole[:COUNTED]) * len(whole) // min(len(whole), COUNTED)
        return Extracted(AttachmentKind.TEXT, "text/plain", whole.encode(), whole, tokens)
    try:
        return extract(whole)
    except FileRefused:
        return None


async def _keep_images(context: ToolContext, tool: str, result: ToolResult) -> ToolResult:
    parts: list[ContentPart] = []
    notes: list[str] = []
    for part in result.parts:
        if not _is_foreign(part):
            parts.append(part)
            continue
        try:
            found = await asyncio.to_thread(_drawn_anew, part)
        except FileRefused as refused:
            notes.append(f"[An image of this result cannot be shown: {refused.message}]")
            continue
        parts.append(await run_in_db(_as_part, context, tool, found))
    return replace(result, content="\n".join([result.content, *notes]).strip(), parts=tuple(parts))


def _is_foreign(part: ContentPart) -> bool:
    """An image that is no file of this conversation yet."""
    return part.kind == "image" and not part.attachment


def _drawn_anew(part: ContentPart) -> Extracted:
    head = _DATA_URL.match(part.url)
    if head is None:  # an address would be fetched by the provider: nobody here has seen what is there
        raise FileRefused("file_type")
    try:
        content = base64.b64decode(part.url[head.end() :], validate=False)
    except (binascii.Error, ValueError):
        raise FileRefused("file_broken") from None
    if len(content) > files.LARGEST_FILE:
        raise FileRefused("file_too_costly")
    found = extract(content)
    if found.kind != AttachmentKind.IMAGE:
        raise FileRefused("file_type")
    return found


def _as_part(context: ToolContext, tool: str, found: Extracted) -> ContentPart:
    return files.part_of(_store(context, tool, found))


def _store(context: ToolContext, tool: str, found: Extracted) -> Attachment:
    """A file of the message that made the call, under a name of its own."""
    conversation = Conversation.objects.get(pk=context.conversation_id)
    files.check_room(conversation, len(found.content))
    with space.alone(context.conversation_id):
        begin = f"{FOLDER}/{tool}-"
        number = Attachment.objects.filter(conversation=conversation, name__startswith=begin).count() + 1
        name = f"{begin}{number}.{_ENDINGS.get(found.mime, 'bin')}"
        return files.store(conversation, None, name, found, message=space.caller(context), is_path=True)
