"""Servers of tools that remember something between the calls of an answer, in real turns."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agents import mcp, mcp_sessions
from agents.models import McpServer
from chat import turns
from chat.models import TurnState
from tests.chat.conftest import Chat, until
from tests.tools.test_mcp import ended
from tests.upstream import Play

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _allowed(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.MCP_STDIO = True
    monkeypatch.setattr(mcp, "CONNECT_SECONDS", 60.0)  # a program may take long to start on a busy machine


def pid(tmp_path: Path) -> int:
    return int((tmp_path / "pid").read_text())


def remembering(place: Path, **fields: Any) -> McpServer:
    server = McpServer(
        name="memory",
        transport="stdio",
        command=[sys.executable, "-m", "tests.tools.mcp_server", "stdio"],
        call_timeout_seconds=60,
        **fields,
    )
    server.secrets = {"PYTHONPATH": str(ROOT), "PID_FILE": str(place)}
    server.tools = [
        {"name": name, "public": f"memory__{name}", "description": name, "parameters": {"type": "object"}}
        for name in ("count", "hang")
    ]
    server.save()
    return server


def plays(chat: Chat, *rounds: str) -> None:
    chat.conversation.agent.tools = ["memory__count", "memory__hang"]
    chat.conversation.agent.save()
    calls = (Play(ttft=0, tps=0, calls=((f"memory__{name}", "{}"),)) for name in rounds)
    chat.provider.plays("mock", *calls, Play(ttft=0, tps=0, text="Done."))


@pytest.mark.parametrize(("keeps", "counted"), [(True, ["1", "2", "3"]), (False, ["1", "1", "1"])])
def test_a_server_counts_the_calls_of_an_answer_where_it_is_set_so(
    worker: None, chat: Chat, tmp_path: Path, keeps: bool, counted: list[str]
) -> None:
    remembering(tmp_path / "pid", keep_session=keeps)
    plays(chat, "count", "count", "count")

    chat.ended(chat.send(), seconds=60)

    assert [row.content for row in chat.messages() if row.role == "tool"] == counted
    assert ended(pid(tmp_path))
    until(lambda: not mcp_sessions._turns)


def test_a_stop_ends_the_session(worker: None, chat: Chat, tmp_path: Path) -> None:
    remembering(tmp_path / "pid", keep_session=True)
    plays(chat, "count", "hang")
    turn = chat.send()
    until(lambda: any(row.role == "tool" for row in chat.messages()), 60)
    time.sleep(0.3)

    turns.stop(chat.alice, chat.conversation.pk, turn.pk)

    chat.ended(turn, TurnState.STOPPED)
    assert ended(pid(tmp_path))
    until(lambda: not mcp_sessions._turns)
