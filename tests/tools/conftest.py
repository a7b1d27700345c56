"""A conversation, and its tools as a turn calls them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from asgiref.sync import async_to_sync, sync_to_async

from agents.messages import ToolCall
from agents.tools import ToolContext, ToolResult, all_tools, run_call
from chat.models import Conversation, Message, Turn, TurnState

Use = Callable[..., ToolResult]

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "tests.tools.mcp_server")


@pytest.fixture(scope="session")
def http_address() -> Iterator[str]:
    """A server of tools in its own process, over streamable HTTP."""
    process = subprocess.Popen([*PROGRAM, "http"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
    finally:
        process.kill()
        process.wait()


def turn_in(conversation: Conversation) -> Turn:
    """A turn whose newest message has called something."""
    turn = Turn.objects.create(
        conversation=conversation, state=TurnState.DONE, requested_by=conversation.owner, attempt=1
    )
    conversation.refresh_from_db()
    conversation.last_position += 1
    conversation.save()
    Message.objects.create(
        conversation=conversation,
        turn=turn,
        position=conversation.last_position,
        role="assistant",
        tool_calls=[{"id": "call_1", "type": "function", "function": {"name": "write_file", "arguments": "{}"}}],
    )
    return turn


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Calls a tool in a conversation; the database is used from the test's own thread."""

    async def here(work: Any, *arguments: Any) -> Any:
        return await sync_to_async(work)(*arguments)

    monkeypatch.setattr("chat.tools.running.run_in_db", here)

    def call(conversation: Conversation, tool: str, turn: Turn | None = None, /, **arguments: Any) -> ToolResult:
        turn = turn or turn_in(conversation)
        context = ToolContext(conversation.pk, conversation.owner_id, turn.pk)
        asked = ToolCall("call_1", tool, orjson.dumps(arguments).decode())
        return async_to_sync(run_call)(asked, context, [known.name for known in all_tools()])

    return call
