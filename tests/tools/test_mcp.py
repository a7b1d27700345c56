"""Tools of others, through real servers: over streamable HTTP and as a program, healthy, hanging, dying and lying."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents import mcp, mcp_tools, tools
from agents.mcp import Address
from agents.messages import ToolCall
from agents.models import McpServer
from agents.tools import ToolContext, ToolError, ToolResult, run_call
from chat import offered
from chat.clearing import _is_clearable
from tests.builders import make_agent, make_conversation
from tests.tools.conftest import PROGRAM, ROOT


@pytest.fixture(autouse=True)
def _allowed(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are allowed, and what a test registers is gone after it."""
    settings.MCP_STDIO = True
    monkeypatch.setattr(mcp, "CONNECT_SECONDS", 60.0)  # a program may take long to start on a busy machine
    monkeypatch.setattr(mcp, "LIST_SECONDS", 60.0)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(tools, "_registry", dict(tools._registry))
    monkeypatch.setattr(mcp_tools, "_registered", set())
    monkeypatch.setattr(mcp_tools, "_stamp", None)


def program(name: str = "test", **environment: str) -> Address:
    return Address(name, mcp.STDIO, command=(*PROGRAM, "stdio"), secrets={"PYTHONPATH": str(ROOT), **environment})


@pytest.fixture(params=["http", "stdio"])
def address(request: pytest.FixtureRequest) -> Address:
    if request.param == "stdio":
        return program()
    return Address("test", mcp.HTTP, url=request.getfixturevalue("http_address"))


def call(address: Address, tool: str, seconds: float = 60.0, **arguments: Any) -> ToolResult:
    return async_to_sync(mcp.call_tool)(address, tool, arguments, seconds)


def connected(url: str, **fields: Any) -> McpServer:
    """A server as an administrator connects it, with its tools read."""
    server = McpServer.objects.create(name="test", url=url, **fields)
    mcp_tools.read_tools(server)
    return server


def use(name: str, arguments: str = "{}", allowed: Any = None) -> ToolResult:
    context = ToolContext("conversation-1", 17, 4)
    allowed = allowed or [tool.name for tool in tools.all_tools()]
    return async_to_sync(run_call)(ToolCall("call_1", name, arguments), context, allowed)


def ended(pid: int, seconds: float = 30.0) -> bool:
    """Whether a process is gone, or goes within this time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


# A server that is well


def test_tools_are_listed_and_called(address: Address) -> None:
    listed = {found.name: found for found in mcp.list_tools(address)}

    assert listed["add"].description == "Adds two numbers."
    assert listed["add"].parameters["required"] == ["a", "b"]
    assert call(address, "add", a=2, b=40) == ToolResult("42")


def test_a_tool_that_goes_wrong_gives_an_error_result(address: Address) -> None:
    result = call(address, "fail")

    assert result.is_error
    assert "the archive is locked" in result.content


def test_a_picture_comes_as_a_part(address: Address) -> None:
    result = call(address, "picture")

    assert result.content == "a seal"
    assert result.parts[0].url.startswith("data:image/png;base64,")


def test_secrets_reach_their_server_and_nothing_else_of_ours_does(http_address: str) -> None:
    over_http = Address("test", mcp.HTTP, url=http_address, secrets={"Authorization": "Bearer xyzzy"})

    assert call(over_http, "secret").content == "Bearer xyzzy"
    assert call(program(TOKEN="xyzzy"), "secret").content == "xyzzy"
    assert "xyzzy" not in repr(over_http)
    os.environ["PALIMPSEST_TEST_SECRET"] = "plugh"
    try:
        assert "PALIMPSEST_TEST_SECRET" not in call(program(), "surroundings").content
    finally:
        del os.environ["PALIMPSEST_TEST_SECRET"]


# A server that is not


def test_a_server_that_hangs_costs_its_own_call_alone(address: Address) -> None:
    with ThreadPoolExecutor(2) as threads:
        hanging = threads.submit(call, address, "hang", 2.0)
        assert call(address, "add", a=1, b=2).content == "3"
        with pytest.raises(ToolError, match="did not answer within 2 seconds"):
            hanging.result()

    assert call(address, "add", a=1, b=2).content == "3"


def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    place = tmp_path / "pid"

    with pytest.raises(ToolError, match="did not answer"):
        call(program(PID_FILE=str(place)), "hang", 1.0)

    assert ended(int(place.read_text()))


def test_a_program_that_dies_is_said_to_have_broken_off(tmp_path: Path) -> None:
    place = tmp_path / "pid"

    with pytest.raises(ToolError, match="broke off"):
        call(program(PID_FILE=str(place)), "die")

    assert ended(int(place.read_text()))


def test_a_server_that_dies_in_mid_call_is_said_to_have_broken_off() -> None:
    process = subprocess.Popen([*PROGRAM, "http"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = Address("test", mcp.HTTP, url=f"http://127.0.0.1:{int(process.stdout.readline())}/mcp")
    try:
        with pytest.raises(ToolError, match="broke off"):
            call(address, "die")
        with pytest.raises(ToolError, match="cannot be reached"):
            call(address, "add", a=1, b=2)
    finally:
        process.kill()
        process.wait()


class _Odd(BaseHTTPRequestHandler):
    """Answers every request with what the test said."""

    status, kind, body = 200, "text/html", b"<p>Hello</p>"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.status)
        self.send_header("Content-Type", self.kind)
        self.send_header("Location", "http://127.0.0.1:9/mcp")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "something else than MCP"),
        ({"kind": "application/json", "body": b"{}"}, "something else than MCP"),
        ({"status": 401}, "HTTP 401"),
        ({"status": 500}, "HTTP 500"),
        ({"status": 302}, "HTTP 302"),
    ],
)
def test_what_is_no_server_is_said_to_be_none(answer: dict[str, Any], words: str) -> None:
    with HTTPServer(("127.0.0.1", 0), type("Odd", (_Odd,), answer)) as odd:
        threading.Thread(target=odd.serve_forever, daemon=True).start()
        try:
            with pytest.raises(ToolError, match=words):
                mcp.list_tools(Address("odd", mcp.HTTP, url=f"http://127.0.0.1:{odd.server_port}/mcp"))
        finally:
            odd.shutdown()


def test_an_answer_without_end_is_cut_off(http_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "LARGEST_ANSWER", 100_000)

    with pytest.raises(ToolError, match="broke off"):
        call(Address("test", mcp.HTTP, url=http_address), "large")


def test_a_program_that_is_none(settings: Any) -> None:
    with pytest.raises(ToolError, match="cannot be reached"):
        call(Address("none", mcp.STDIO, command=("/no/such/program",)), "add")

    settings.MCP_STDIO = False
    with pytest.raises(ToolError, match="not allowed"):
        call(program(), "add")


# In the registry


@pytest.mark.django_db
def test_its_tools_are_named_after_it_and_offered_to_the_agents_that_have_them(http_address: str) -> None:
    connected(http_address)
    with_it = make_agent(tools=["test__add", "search_history"])
    without = make_agent(tools=["search_history"])

    assert [schema["function"]["name"] for schema in offered.schemas(with_it)] == ["test__add", "search_history"]
    assert [schema["function"]["name"] for schema in offered.schemas(without)] == ["search_history"]
    assert use("test__add", '{"a": 2, "b": 3}').content == "5"
    assert "must be of type integer" in use("test__add", '{"a": "2", "b": 3}').content
    assert "no tool" in use("test__add", '{"a": 2, "b": 3}', allowed=["search_history"]).content


@pytest.mark.django_db
def test_an_agent_without_such_tools_costs_no_statement() -> None:
    agent = make_agent(tools=["search_history"])

    with CaptureQueriesContext(connection) as queries:
        offered.schemas(agent)
    assert len(queries) == 0


@pytest.mark.django_db
def test_a_name_that_providers_refuse_is_made_one_they_take(http_address: str) -> None:
    server = connected(http_address)
    public = {stored["name"]: stored["public"] for stored in server.tools}

    assert public["add"] == "test__add"
    assert public["notes.read"].startswith("test__notes_read_")
    mcp_tools.refresh()
    assert use(public["notes.read"]).content == "The seal is at the harbour."
    assert len(mcp_tools.public_name("a" * 20, "b" * 100)) == 64
    assert mcp_tools.public_name("a", "x" * 90 + "1") != mcp_tools.public_name("a", "x" * 90 + "2")


@pytest.mark.django_db
def test_a_server_that_is_switched_off_or_deleted_takes_its_tools_along(http_address: str) -> None:
    server = connected(http_address)
    agent = make_agent(tools=["test__add"])
    assert offered.schemas(agent)

    server.enabled = False
    server.save()
    assert not offered.schemas(agent)

    server.enabled = True
    server.save()
    assert offered.schemas(agent)
    server.delete()
    assert not offered.schemas(agent)


@pytest.mark.django_db
def test_programs_are_offered_only_while_they_are_allowed(settings: Any, http_address: str) -> None:
    server = connected(http_address)
    McpServer.objects.filter(pk=server.pk).update(transport=mcp.STDIO, command=["x"])
    agent = make_agent(tools=["test__add"])
    assert offered.schemas(agent)

    settings.MCP_STDIO = False
    assert not offered.schemas(agent)


@pytest.mark.django_db
def test_clearable_and_kept_as_the_administrator_set_it(http_address: str) -> None:
    server = connected(http_address)
    agent = make_agent(tools=["test__add"])
    assert (offered.kept_tools(agent), _is_clearable("test__add")) == (frozenset(), True)

    server.clearable, server.keep_results = False, True
    server.save()
    assert (offered.kept_tools(agent), _is_clearable("test__add")) == (frozenset({"test__add"}), False)


@pytest.mark.django_db
def test_who_asked_stands_in_the_log(http_address: str, caplog: pytest.LogCaptureFixture) -> None:
    connected(http_address)
    mcp_tools.refresh()

    with caplog.at_level("INFO", logger="palimpsest.mcp"):
        use("test__add", '{"a": 2, "b": 3}')

    assert "mcp test: add called for user 17 in conversation conversation-1, turn 4" in caplog.text


@pytest.mark.django_db
def test_an_agent_knows_the_cost_of_such_tools(http_address: str) -> None:
    connected(http_address)
    conversation = make_conversation(["hello"], agent=make_agent(tools=["test__add"]))

    assert offered.tool_tokens(conversation.agent) > 20


@pytest.mark.django_db
def test_tools_that_are_too_large_or_broken_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    described = [
        mcp.Found("fine", "", {"type": "object"}),
        mcp.Found("huge", "", {"type": "object", "description": "x" * 30_000}),
        mcp.Found("broken", "", {"type": "nonsense"}),
        mcp.Found("list", "", {"type": "array"}),
        mcp.Found("fine", "twice", {"type": "object"}),
    ]
    monkeypatch.setattr(mcp, "list_tools", lambda address: described)
    server = McpServer.objects.create(name="odd", url="http://127.0.0.1:9/mcp")

    assert mcp_tools.read_tools(server) == ["huge", "broken", "list", "fine"]
    assert [tool.name for tool in mcp_tools.tools_of(server)] == ["odd__fine"]
    assert orjson.dumps(server.tools)
