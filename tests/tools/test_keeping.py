"""What a tool gave and a model cannot take as it is becomes a file of the conversation."""

from __future__ import annotations

import asyncio
import base64
import io
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from PIL import Image

from agents import json_schema
from agents.messages import JSON, ContentPart, Message
from agents.tools import Tool, ToolContext, ToolResult, all_tools
from chat.copying import copy_originals
from chat.models import Attachment, Conversation
from chat.models import Message as Row
from chat.tools import keeping
from tests.builders import make_conversation
from tests.tools.conftest import Use, turn_in

pytestmark = pytest.mark.django_db

ALLOWED = [tool.name for tool in all_tools()]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    async def here(work: Any, *arguments: Any) -> Any:
        return await sync_to_async(work)(*arguments)

    monkeypatch.setattr(keeping, "run_in_db", here)
    monkeypatch.setattr(asyncio, "to_thread", here)


def keep(conversation: Conversation, result: ToolResult, allowed: Any = ALLOWED) -> tuple[ToolResult, JSON]:
    turn = turn_in(conversation)
    context = ToolContext(conversation.pk, conversation.owner_id, turn.pk)
    return async_to_sync(keeping.keep)(context, "shop__prices", result, allowed)


def picture(**extra: Any) -> ContentPart:
    out = io.BytesIO()
    Image.new("RGB", (3_000, 60), "teal").save(out, "JPEG", **extra)
    return ContentPart("image", url=f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}")


def test_a_long_result_is_kept_as_a_file_that_is_read_in_pieces(use: Use) -> None:
    conversation = make_conversation(["hello"])
    whole = "\n".join(f"price {number}: {number * 7}" for number in range(400_000))

    result, metadata = keep(conversation, ToolResult("shortened", whole=whole, duration_ms=12))

    assert "kept as the file results/shop__prices-1.txt" in result.content
    assert "Read it in pieces with read_file" in result.content
    assert not result.whole
    assert metadata["duration_ms"] == 12
    assert metadata["kept"]["name"] == "results/shop__prices-1.txt"
    read = use(conversation, "read_file", name="results/shop__prices-1.txt", first_line=300_000, last_line=300_001)
    assert "price 299999: 2099993" in read.content


def test_without_the_reading_tool_people_are_named() -> None:
    result, _ = keep(make_conversation(["hello"]), ToolResult("short", whole="x" * 100_000), allowed=["shop__prices"])

    assert "read_file" not in result.content
    assert "people here can open it" in result.content


def test_binary_that_is_a_document_is_kept_and_other_binary_is_not() -> None:
    conversation = make_conversation(["hello"])

    result, metadata = keep(conversation, ToolResult("[binary content, 500 bytes]", whole=b"\x7fELF" + bytes(496)))

    assert result.content == "[binary content, 500 bytes]"
    assert metadata == {"duration_ms": 0}
    assert not Attachment.objects.exists()


def test_images_of_tools_are_drawn_anew_and_lose_their_metadata() -> None:
    conversation = make_conversation(["hello"])
    exif = Image.Exif()
    exif[0x010E] = "secret place"

    result, _ = keep(conversation, ToolResult("seen", parts=(picture(exif=exif),)))

    (part,) = result.parts
    row = Attachment.objects.get()
    assert (part.attachment, part.width, part.tokens) == (str(row.pk), 2_048, 1_600)
    assert b"secret place" not in base64.b64decode(part.url.partition(",")[2])


@pytest.mark.parametrize(
    "url", ["https://example.org/a.png", "data:image/png;base64,AAAA", "data:text/html;base64,PGE+"]
)
def test_what_is_no_image_is_said_and_left_out(url: str) -> None:
    result, _ = keep(make_conversation(["hello"]), ToolResult("seen", parts=(ContentPart("image", url=url),)))

    assert result.parts == ()
    assert "cannot be shown" in result.content


def test_a_conversation_that_is_full_still_gets_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chat.files.MOST_FILES", 0)

    result, _ = keep(make_conversation(["hello"]), ToolResult("short", whole="x" * 100_000, parts=(picture(),)))

    assert (result.content, result.parts) == ("short", ())


def test_a_fork_has_the_kept_file_too() -> None:
    conversation = make_conversation(["hello"])
    result, metadata = keep(conversation, ToolResult("short", whole="x" * 100_000))
    conversation.refresh_from_db()
    position = conversation.last_position + 1
    row = Row.objects.create(
        conversation=conversation,
        position=position,
        role="tool",
        tool_call_id="call_1",
        content=result.content,
        metadata=metadata,
    )

    made = copy_originals(conversation.owner, conversation, position)

    copied = Row.objects.get(conversation=made, role="tool")
    assert copied.metadata["kept"]["attachment"] != row.metadata["kept"]["attachment"]
    assert Attachment.objects.get(conversation=made, pk=copied.metadata["kept"]["attachment"]).size == 100_000


def test_the_images_of_tools_come_once_into_a_fork() -> None:
    conversation = make_conversation(["hello"])
    result, _ = keep(conversation, ToolResult("seen", parts=(picture(),)))
    conversation.refresh_from_db()
    said = Message("tool", "seen", parts=result.parts, tool_call_id="call_1")
    position = conversation.last_position + 1
    Row.objects.create(
        conversation=conversation, position=position, role="tool", parts=[part.to_json() for part in said.parts]
    )

    made = copy_originals(conversation.owner, conversation, position)

    assert Attachment.objects.filter(conversation=made).count() == 1


@pytest.mark.parametrize("tool", all_tools(), ids=lambda tool: tool.name)
def test_every_tools_parameters_are_a_schema_of_an_object(tool: Tool) -> None:
    assert json_schema.is_schema(tool.parameters)
    assert tool.parameters["type"] == "object"
