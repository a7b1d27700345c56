"""Running a model's calls: nothing a model or a tool does wrong raises, and everything is bounded."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from agents import tools
from agents.messages import ContentPart, ToolCall
from agents.tools import Tool, ToolContext, ToolError, ToolResult, run_call

CONTEXT = ToolContext(conversation_id="c", user_id=1, turn_id=2)
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "count": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["fast", "slow"]},
        "range": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_registry", {})


def make(run: Any, **changes: Any) -> Tool:
    return tools.register(Tool("read", "Reads a file.", PARAMETERS, run, **changes))


async def call(arguments: str = '{"path": "a"}', name: str = "read", allowed: Any = ("read",)) -> ToolResult:
    return await run_call(ToolCall("call_1", name, arguments), CONTEXT, allowed)


async def test_a_call_reaches_its_tool_with_arguments_and_context() -> None:
    seen: list[Any] = []

    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        seen.append((arguments, context))
        return "content"

    make(run)
    result = await call('{"path": "a", "count": 2}')
    assert (result.content, result.is_error) == ("content", False)
    assert seen == [({"path": "a", "count": 2}, ToolContext("c", 1, 2, "call_1"))]


async def test_plain_functions_run_side_by_side_in_threads() -> None:
    together = threading.Barrier(3, timeout=10)  # breaks unless all three are running at once

    def run(arguments: Any, context: Any) -> str:
        together.wait()
        time.sleep(0.02)
        return "done"

    make(run)
    results = await asyncio.gather(call(), call(), call())
    assert [result.content for result in results] == ["done"] * 3
    assert results[0].duration_ms >= 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("{path: a}", "not valid JSON"),
        ("[1]", "one JSON object"),
        ('"a"', "one JSON object"),
        ("", "lacks 'path'"),
        ("{}", "lacks 'path'"),
        ('{"path": 1}', "path must be of type string"),
        ('{"path": "a", "count": "2"}', "count must be of type integer"),
        ('{"path": "a", "count": 0}', "count: minimum 1"),
        ('{"path": "a", "mode": "slowly"}', "mode must be one of ['fast', 'slow']"),
        ('{"path": "a", "range": [1, "b"]}', "range.1 must be of type integer"),
        ('{"path": "a", "foo": 1}', "may only hold count, mode, path, range"),
        ('{"path": "' + "a" * 2_100_000 + '"}', "too long"),
    ],
)
async def test_wrong_arguments_become_a_sentence_for_the_model(arguments: str, words: str) -> None:
    make(lambda arguments, context: "never")
    result = await call(arguments)
    assert result.is_error
    assert words in result.content
    assert len(result.content) < 1000


async def test_a_reference_in_a_schema_is_never_fetched() -> None:
    parameters = {"type": "object", "properties": {"path": {"$ref": "http://127.0.0.1:9/secret.json"}}}
    tools.register(Tool("far", "", parameters, lambda arguments, context: "ran"))
    result = await call(name="far", allowed=("far",))
    assert (result.content, result.is_error) == ("ran", False)
    local = {"type": "object", "properties": {"path": {"$ref": "#/$defs/name"}}, "$defs": {"name": {"type": "integer"}}}
    tools.register(Tool("near", "", local, lambda arguments, context: "ran"))
    assert "must be of type integer" in (await call(name="near", allowed=("near",))).content


async def test_unknown_and_forbidden_tools_name_those_that_are_there() -> None:
    make(lambda arguments, context: "x")
    for name, allowed in (("write", ("read",)), ("read", ()), ("x" * 5000, ("read",))):
        result = await call(name=name, allowed=allowed)
        assert result.is_error
        assert "no tool" in result.content
        assert len(result.content) < 1000
    assert "read" in (await call(name="write")).content


async def test_a_slow_tool_is_stopped() -> None:
    async def run(arguments: Any, context: Any) -> str:
        await asyncio.sleep(30)
        return ""

    make(run, timeout_seconds=0.1)
    result = await call()
    assert result.is_error
    assert "0.1 seconds" in result.content


async def test_a_failing_tool_tells_no_internals_and_a_tool_error_tells_its_sentence(caplog: Any) -> None:
    def run(arguments: Any, context: Any) -> str:
        raise ToolError("There is no such file.") if arguments["path"] == "a" else KeyError("secret detail")

    make(run)
    assert await call() == ToolResult("There is no such file.", is_error=True)
    result = await call('{"path": "b"}')
    assert result.is_error
    assert "secret detail" not in result.content
    assert "secret detail" in caplog.text


async def test_cancelling_reaches_the_tool() -> None:
    stopped = asyncio.Event()

    async def run(arguments: Any, context: Any) -> str:
        try:
            await asyncio.sleep(30)
        finally:
            stopped.set()
        return ""

    make(run)
    task = asyncio.create_task(call())
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert stopped.is_set()


@pytest.mark.parametrize(
    ("made", "content"),
    [
        (b"bytes", "bytes"),
        (b"\xff\x00\xfe", "[binary content, 3 bytes]"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (None, ""),
        ("a\0\ud800", "a\ufffd\ufffd"),
        (ToolResult("seen", parts=(ContentPart("image", url="data:x"),)), "seen"),
    ],
)
async def test_whatever_a_tool_returns_becomes_clean_text(made: Any, content: str) -> None:
    make(lambda arguments, context: made)
    result = await call()
    assert (result.content, result.is_error) == (content, False)


async def test_five_megabytes_are_shortened_to_both_ends() -> None:
    make(lambda arguments, context: "begin" + "x" * 5_000_000 + "end")
    result = await call()
    assert len(result.content) < tools.LONGEST_RESULT + 100
    assert result.content.startswith("begin")
    assert result.content.endswith("end")
    assert "characters left out" in result.content


def test_registry() -> None:
    known = make(lambda arguments, context: "x")
    assert tools.register(known) is known
    assert (tools.tool("read"), tools.tool("nothing"), tools.all_tools()) == (known, None, (known,))
    assert tools.schemas(["nothing", "read"]) == (
        {"type": "function", "function": {"name": "read", "description": "Reads a file.", "parameters": PARAMETERS}},
    )
    other = Tool("read", "Other.", PARAMETERS, lambda arguments, context: "y")
    with pytest.raises(ValueError, match="already"):
        tools.register(other)
    tools.register(other, replace=True)
    assert tools.tool("read") is other
    tools.unregister("read")
    assert tools.all_tools() == ()


@pytest.mark.parametrize("name", ["", "has space", "a" * 65, "naïve", "a/b"])
def test_names_that_no_provider_takes(name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        tools.register(Tool(name, "", PARAMETERS, lambda arguments, context: ""))
