"""Servers of tools: connected and tested by an administrator, their secrets never read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from agents import mcp, mcp_tools, tools
from agents.models import McpServer
from tests.admin.conftest import Pages
from tests.builders import make_agent

pytestmark = pytest.mark.django_db

SECRET = "Bearer very-secret-1234"


@pytest.fixture(autouse=True)
def _server(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the server lists, without a server: `tests/tools/test_mcp.py` has real ones."""
    monkeypatch.setattr(mcp, "list_tools", lambda address: [mcp.Found("find", "Finds things.", {"type": "object"})])
    monkeypatch.setattr(tools, "_registry", dict(tools._registry))
    monkeypatch.setattr(mcp_tools, "_registered", set())
    monkeypatch.setattr(mcp_tools, "_stamp", None)


@pytest.fixture
def servers(pages_of: Callable[..., Pages]) -> Pages:
    return pages_of(
        "agents/mcpserver",
        name="archive",
        transport="http",
        url="http://127.0.0.1:9/mcp",
        command="",
        new_secrets="",
        call_timeout_seconds="30",
        clearable="on",
        enabled="on",
    )


def test_headers_are_stored_encrypted_and_shown_nowhere(servers: Pages) -> None:
    servers.add(new_secrets=f"Authorization: {SECRET}\nX-Team: blue")

    server = McpServer.objects.get()
    assert server.secrets == {"Authorization": SECRET, "X-Team": "blue"}
    assert "secret" not in server.secrets_encrypted
    assert "very-secret" not in servers.shown(server)


def test_an_empty_field_keeps_them_a_tick_removes_them_and_another_address_clears_them(servers: Pages) -> None:
    servers.add(new_secrets=f"Authorization: {SECRET}", _test="1")
    server = McpServer.objects.get()
    servers.change(server)
    assert McpServer.objects.get().secrets == {"Authorization": SECRET}
    assert McpServer.objects.get().tools

    page = servers.change(server, url="http://elsewhere:9/mcp")
    assert McpServer.objects.get().secrets == {}
    assert McpServer.objects.get().tools == []
    assert "were cleared" in page

    servers.change(server, new_secrets="X-Key: a", url="http://elsewhere:9/mcp")
    servers.change(server, remove_secrets="on", url="http://elsewhere:9/mcp")
    assert McpServer.objects.get().secrets == {}


@pytest.mark.parametrize("line", ["nonsense", "Bad Name: x", "X: a\x01b", "X:"])
def test_what_is_no_header_is_refused_without_repeating_it(servers: Pages, line: str) -> None:
    page = servers.add(new_secrets=f"{line} {SECRET if line == 'nonsense' else ''}")

    assert not McpServer.objects.exists()
    assert "Line 1 is not" in page


def test_the_test_lists_the_tools_and_agents_can_have_them(root: Client, servers: Pages) -> None:
    page = servers.add(_test="1")

    assert ": connected. Its tools: archive__find" in page
    assert "Finds things." in page
    agent = make_agent()
    page = root.get(f"/admin/agents/agent/{agent.pk}/change/").content.decode()
    assert page.index("Built in") < page.index("search_history") < page.index("Tool server “archive”")
    assert page.index("Tool server “archive”") < page.index("archive__find – Finds things.")


def test_a_server_that_cannot_be_reached_says_so(servers: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: mcp.Address) -> list[mcp.Found]:
        raise mcp.ServerError("The server cannot be reached.")

    monkeypatch.setattr(mcp, "list_tools", refuse)
    server = McpServer.objects.create(name="archive", url="http://127.0.0.1:9/mcp")

    assert "cannot be reached" in servers.change(server, _test="1")
    assert "cannot be reached" in servers.act("test_connection", server)


@pytest.mark.parametrize("name", ["", "Upper", "two__parts", "with space", "x" * 21, "-a"])
def test_names_stand_before_tools_names_and_are_short(servers: Pages, name: str) -> None:
    servers.add(name=name)
    assert not McpServer.objects.exists()


@pytest.mark.parametrize(("allowed", "stored"), [(True, 1), (False, 0)])
def test_programs_only_where_the_setting_allows_them(servers: Pages, settings: Any, allowed: bool, stored: int) -> None:
    settings.MCP_STDIO = allowed

    servers.add(transport="stdio", url="", command="python3\n-m\nserver\n-m", new_secrets="TOKEN=a=b")

    assert McpServer.objects.filter(command=["python3", "-m", "server", "-m"]).count() == stored
    if allowed:
        assert McpServer.objects.get().secrets == {"TOKEN": "a=b"}


def test_a_command_is_asked_for_only_where_programs_are_allowed(root: Client, servers: Pages, settings: Any) -> None:
    settings.MCP_STDIO = False
    assert 'type="hidden" name="command"' in root.get(f"{servers.list}add/").content.decode()
    settings.MCP_STDIO = True
    assert '<textarea name="command"' in root.get(f"{servers.list}add/").content.decode()


def test_an_address_or_a_command_is_needed(servers: Pages, settings: Any) -> None:
    settings.MCP_STDIO = True
    servers.add(url="")
    servers.add(transport="stdio", command=" \n")
    assert not McpServer.objects.exists()


def test_others_than_administrators_do_not_see_them(clerk: Client) -> None:
    assert clerk.get("/admin/agents/mcpserver/").status_code == 403
