"""One session for a whole answer, with real servers that count the calls of a session."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents import mcp, mcp_sessions
from agents.mcp import Address
from agents.tools import ToolError, ToolResult
from tests.tools.test_mcp import ended, program


@pytest.fixture(autouse=True)
def _allowed(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.MCP_STDIO = True
    monkeypatch.setattr(mcp, "CONNECT_SECONDS", 60.0)  # a program may take long to start on a busy machine
    yield
    for turn in list(mcp_sessions._turns):
        mcp_sessions.end_turn(turn)


@pytest.fixture(params=["http", "stdio"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    if request.param == "stdio":
        return program(PID_FILE=str(tmp_path / "pid"))
    return Address("test", mcp.HTTP, url=request.getfixturevalue("http_address"))


def pid(tmp_path: Path) -> int:
    return int((tmp_path / "pid").read_text())


async def call(turn: int, address: Address, tool: str = "count", seconds: float = 60.0, **arguments: Any) -> ToolResult:
    return await mcp_sessions.call_tool(turn, address, tool, arguments, seconds)


async def test_calls_of_a_turn_share_a_session_and_other_turns_have_their_own(address: Address) -> None:
    counted = [(await call(1, address)).content for _ in range(3)]
    other = await call(2, address)
    alone = await mcp.call_tool(address, "count", {}, 60.0)

    assert counted == ["1", "2", "3"]
    assert (other.content, alone.content) == ("1", "1")


async def test_the_sessions_of_a_turn_end_with_it(tmp_path: Path) -> None:
    address = program(PID_FILE=str(tmp_path / "pid"))
    await call(1, address)
    first = pid(tmp_path)

    mcp_sessions.end_turn(1)

    assert await asyncio.to_thread(ended, first)
    assert (await call(1, address)).content == "1"
    assert list(mcp_sessions._turns) == [1]


async def test_parallel_calls_go_one_after_the_other_in_one_session(address: Address) -> None:
    results = await asyncio.gather(*(call(1, address) for _ in range(4)))

    assert sorted(result.content for result in results) == ["1", "2", "3", "4"]


async def test_a_call_that_hangs_harms_itself_alone(address: Address) -> None:
    await call(1, address)
    hanging = asyncio.create_task(call(1, address, "hang", 1.0))
    await asyncio.sleep(0.1)
    waiting = asyncio.create_task(call(1, address))

    with pytest.raises(ToolError, match="did not answer within 1 seconds"):
        await hanging
    assert (await waiting).content == "1"  # a new session
    assert (await call(1, address)).content == "2"


async def test_a_server_that_hangs_in_closing_too_keeps_nobody_waiting(tmp_path: Path) -> None:
    """A program that is stopped can neither answer nor end by itself."""
    address = program(PID_FILE=str(tmp_path / "pid"))
    await call(1, address)
    stopped = pid(tmp_path)
    os.kill(stopped, signal.SIGSTOP)
    began = time.monotonic()

    with pytest.raises(ToolError, match="did not answer within 1 seconds"):
        await call(1, address, seconds=1.0)

    assert time.monotonic() - began < 5
    assert (await call(1, address)).content == "1"
    assert await asyncio.to_thread(ended, stopped)


async def test_a_program_that_dies_harms_its_own_call_alone(tmp_path: Path) -> None:
    address = program(PID_FILE=str(tmp_path / "pid"))
    await call(1, address)

    with pytest.raises(ToolError, match="broke off"):
        await call(1, address, "die")

    assert (await call(1, address)).content == "1"


async def test_a_wrong_call_leaves_the_session_as_it_was(address: Address) -> None:
    await call(1, address)

    assert (await call(1, address, "no_such_tool")).is_error
    assert (await call(1, address, "fail")).is_error
    assert (await call(1, address)).content == "2"


async def test_a_server_that_is_not_there_is_said_and_tried_again(tmp_path: Path) -> None:
    nobody = Address("test", mcp.HTTP, url="http://127.0.0.1:9/mcp")

    for _ in range(2):
        with pytest.raises(ToolError, match="cannot be reached"):
            await call(1, nobody)


async def test_a_call_that_is_given_up_ends_its_session(tmp_path: Path) -> None:
    address = program(PID_FILE=str(tmp_path / "pid"))
    await call(1, address)
    first = pid(tmp_path)
    hanging = asyncio.create_task(call(1, address, "hang"))
    await asyncio.sleep(0.2)

    hanging.cancel()

    assert await asyncio.to_thread(ended, first)
    assert (await call(1, address)).content == "1"
