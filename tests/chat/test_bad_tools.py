"""Tools and calls that go wrong, one test each, through a real turn: the answer comes, and the rest is said."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from agents import mcp, tools
from agents.models import McpServer
from agents.tools import LONGEST_RESULT, Tool
from chat.models import Attachment, Message, TurnState
from tests.chat.conftest import Chat
from tests.upstream import Play

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


def _cancelled() -> str:
    raise asyncio.CancelledError


MADE: dict[str, Any] = {
    "text": lambda: "begin" + "x" * 5_000_000 + "end",
    "binary": lambda: b"\x7fELF" + bytes(5_000_000),
    "fine": lambda: "fine",
    "cancelled": _cancelled,
}


@pytest.fixture
def odd() -> Iterator[None]:
    """A tool that gives what its name says."""
    for name, make in MADE.items():
        tools.register(Tool(name, name, NOTHING, lambda arguments, context, make=make: make()))
    yield
    for name in MADE:
        tools.unregister(name)


def called(chat: Chat, *calls: tuple[str, str], offered: Sequence[str] = ()) -> list[Message]:
    """The results of these calls in their order, in a turn that ends as it should; they come as they are ready."""
    chat.conversation.agent.tools = [*MADE, "read_file", *offered]
    chat.conversation.agent.save()
    chat.provider.plays("mock", Play(ttft=0, tps=0, calls=calls), Play(ttft=0, tps=0, text="Done."))
    chat.ended(chat.send("Do it."), seconds=60)
    assert chat.messages()[-1].content == "Done."
    rows = {row.tool_call_id: row for row in chat.messages() if row.role == "tool"}
    (asked,) = [row for row in chat.messages() if row.tool_calls]
    return [rows[call["id"]] for call in asked.tool_calls]


def said_calls(chat: Chat) -> list[dict[str, Any]]:
    """The calls as they are stored, which is as the model wrote them."""
    (asked,) = [row for row in chat.messages() if row.tool_calls]
    return list(asked.tool_calls)


def sent_calls(chat: Chat) -> list[dict[str, Any]]:
    """The calls as the provider got them back."""
    return [call for message in chat.provider.last["messages"] for call in message.get("tool_calls", ())]


def test_a_tool_that_returns_5_mb(worker: None, chat: Chat, odd: None) -> None:
    (result,) = called(chat, ("text", "{}"))

    assert len(result.content) < LONGEST_RESULT + 500
    assert "kept as the file results/text-1.txt" in result.content
    row = Attachment.objects.get(pk=result.metadata["kept"]["attachment"])
    assert row.text == MADE["text"]()
    assert result.metadata["duration_ms"] >= 0


def test_a_tool_that_returns_binary(worker: None, chat: Chat, odd: None) -> None:
    (result,) = called(chat, ("binary", "{}"))

    assert result.content == "[binary content, 5000004 bytes]"
    assert not Attachment.objects.exists()


@pytest.mark.parametrize("arguments", ["{not json", "[1, 2]", '"text"', "null", "{" * 5_000])
def test_arguments_that_are_not_json(worker: None, chat: Chat, odd: None, arguments: str) -> None:
    result, fine = called(chat, ("fine", arguments), ("fine", "{}"))

    assert result.is_error
    assert "JSON" in result.content
    assert fine.content == "fine"
    sent = [call["function"]["arguments"] for call in sent_calls(chat)]
    assert sent == [orjson.dumps({"not_json": arguments[:2_000]}).decode(), "{}"]  # strict providers read them
    assert said_calls(chat)[0]["function"]["arguments"] == arguments


def test_a_tool_name_that_does_not_exist(worker: None, chat: Chat, odd: None) -> None:
    result, fine = called(chat, ("no_such_tool", "{}"), ("fine", "{}"))

    assert result.is_error
    assert "There is no tool “no_such_tool”" in result.content
    assert fine.content == "fine"


def test_a_tool_name_that_no_provider_takes_back(worker: None, chat: Chat, odd: None) -> None:
    result, fine = called(chat, ("functions.fine 好", "{}"), ("fine", "{}"))

    assert "There is no tool “functions.fine 好”" in result.content
    assert fine.content == "fine"
    assert [call["function"]["name"] for call in sent_calls(chat)] == ["functions_fine_", "fine"]
    assert said_calls(chat)[0]["function"]["name"] == "functions.fine 好"


def test_a_tool_that_cancels_itself_harms_its_own_call_alone(worker: None, chat: Chat, odd: None) -> None:
    """As a library of others may: a cancellation nobody asked for is a failure, not the end of the turn."""
    result, fine = called(chat, ("cancelled", "{}"), ("fine", "{}"))

    assert result.is_error
    assert "failed" in result.content
    assert fine.content == "fine"


def test_an_endless_tool_loop(worker: None, chat: Chat, odd: None, settings: Any) -> None:
    settings.TOOL_ROUNDS = 4
    chat.conversation.agent.tools = ["fine"]
    chat.conversation.agent.save()
    chat.provider.plays("mock", Play(ttft=0, tps=0, calls=(("fine", "{}"),)))

    turn = chat.ended(chat.send(), TurnState.FAILED)

    assert (turn.error_code, turn.rounds, turn.retryable) == ("too_many_rounds", 4, True)
    assert "4 times" in turn.error_text
    assert sum(row.role == "tool" for row in chat.messages()) == 4


def test_a_server_of_tools_that_hangs_costs_its_own_call_alone(
    worker: None, chat: Chat, odd: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MCP_STDIO = True
    monkeypatch.setattr(mcp, "CONNECT_SECONDS", 60.0)  # a program may take long to start on a busy machine
    for name, seconds in (("slow", 1), ("quick", 60)):
        program = [sys.executable, "-m", "tests.tools.mcp_server", "stdio"]
        server = McpServer(name=name, transport="stdio", command=program, call_timeout_seconds=seconds)
        server.secrets = {"PYTHONPATH": str(Path(__file__).parents[2])}
        server.tools = [
            {"name": tool, "public": f"{name}__{tool}", "description": tool, "parameters": {"type": "object"}}
            for tool in ("hang", "add")
        ]
        server.save()
    offered = ["slow__hang", "quick__add"]

    hung, added, fine = called(
        chat, ("slow__hang", "{}"), ("quick__add", '{"a": 2, "b": 3}'), ("fine", "{}"), offered=offered
    )

    assert hung.is_error
    assert "“slow” did not answer within 1 seconds" in hung.content
    assert hung.metadata["duration_ms"] >= 1_000
    assert (added.content, fine.content) == ("5", "fine")
