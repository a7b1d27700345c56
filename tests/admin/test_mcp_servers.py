"""Servers of tools: connected and tested by an administrator, their secrets never read back."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agents import mcp, mcp_tools, tools
from agents.models import McpServer
from tests.builders import make_agent

pytestmark = pytest.mark.django_db

SECRET = "Bearer very-secret-1234"
ADD = "/admin/agents/mcpserver/add/"


@pytest.fixture(autouse=True)
def _server(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the server lists, without a server: `tests/tools/test_mcp.py` has real ones."""
    monkeypatch.setattr(mcp, "list_tools", lambda address: [mcp.Found("find", "Finds things.", {"type": "object"})])
    monkeypatch.setattr(tools, "_registry", dict(tools._registry))
    monkeypatch.setattr(mcp_tools, "_registered", set())
    monkeypatch.setattr(mcp_tools, "_stamp", None)


def _form(**fields: Any) -> dict[str, Any]:
    return {
        "name": "archive",
        "transport": "http",
        "url": "http://127.0.0.1:9/mcp",
        "command": "",
        "new_secrets": "",
        "call_timeout_seconds": "30",
        "clearable": "on",
        "enabled": "on",
        **fields,
    }


def _path(server: McpServer) -> str:
    return f"/admin/agents/mcpserver/{server.pk}/change/"


def test_headers_are_stored_encrypted_and_shown_nowhere(root: Client) -> None:
    root.post(ADD, _form(new_secrets=f"Authorization: {SECRET}\nX-Team: blue"))

    server = McpServer.objects.get()
    assert server.secrets == {"Authorization": SECRET, "X-Team": "blue"}
    assert "secret" not in server.secrets_encrypted
    for page in (_path(server), "/admin/agents/mcpserver/", f"/admin/agents/mcpserver/{server.pk}/history/"):
        assert "very-secret" not in root.get(page).content.decode()


def test_an_empty_field_keeps_them_a_tick_removes_them_and_another_address_clears_them(root: Client) -> None:
    root.post(ADD, _form(new_secrets=f"Authorization: {SECRET}", _test="1"))
    server = McpServer.objects.get()
    root.post(_path(server), _form())
    assert McpServer.objects.get().secrets == {"Authorization": SECRET}
    assert McpServer.objects.get().tools

    page = root.post(_path(server), _form(url="http://elsewhere:9/mcp"), follow=True).content.decode()
    assert McpServer.objects.get().secrets == {}
    assert McpServer.objects.get().tools == []
    assert "were cleared" in page

    root.post(_path(server), _form(new_secrets="X-Key: a", url="http://elsewhere:9/mcp"))
    root.post(_path(server), _form(remove_secrets="on", url="http://elsewhere:9/mcp"))
    assert McpServer.objects.get().secrets == {}


@pytest.mark.parametrize("line", ["nonsense", "Bad Name: x", "X: a\x01b", "X:"])
def test_what_is_no_header_is_refused_without_repeating_it(root: Client, line: str) -> None:
    page = root.post(ADD, _form(new_secrets=f"{line} {SECRET if line == 'nonsense' else ''}")).content.decode()

    assert not McpServer.objects.exists()
    assert "Line 1 is not" in page


def test_the_test_lists_the_tools_and_agents_can_have_them(root: Client) -> None:
    page = root.post(ADD, _form(_test="1"), follow=True).content.decode()

    assert ": connected. Its tools: archive__find" in page
    assert "Finds things." in page
    agent = make_agent()
    assert "archive__find – Finds things." in root.get(f"/admin/agents/agent/{agent.pk}/change/").content.decode()


def test_a_server_that_cannot_be_reached_says_so(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: mcp.Address) -> list[mcp.Found]:
        raise mcp.ServerError("The server cannot be reached.")

    monkeypatch.setattr(mcp, "list_tools", refuse)
    server = McpServer.objects.create(name="archive", url="http://127.0.0.1:9/mcp")
    listed = {"action": "test_connection", "_selected_action": server.pk}

    assert "cannot be reached" in root.post(_path(server), _form(_test="1"), follow=True).content.decode()
    assert "cannot be reached" in root.post("/admin/agents/mcpserver/", listed, follow=True).content.decode()


@pytest.mark.parametrize("name", ["", "Upper", "two__parts", "with space", "x" * 21, "-a"])
def test_names_stand_before_tools_names_and_are_short(root: Client, name: str) -> None:
    root.post(ADD, _form(name=name))
    assert not McpServer.objects.exists()


@pytest.mark.parametrize(("allowed", "stored"), [(True, 1), (False, 0)])
def test_programs_only_where_the_setting_allows_them(root: Client, settings: Any, allowed: bool, stored: int) -> None:
    settings.MCP_STDIO = allowed
    program = _form(transport="stdio", url="", command="python3\n-m\nserver\n-m", new_secrets="TOKEN=a=b")

    root.post(ADD, program)

    assert McpServer.objects.filter(command=["python3", "-m", "server", "-m"]).count() == stored
    if allowed:
        assert McpServer.objects.get().secrets == {"TOKEN": "a=b"}


def test_an_address_or_a_command_is_needed(root: Client, settings: Any) -> None:
    settings.MCP_STDIO = True
    root.post(ADD, _form(url=""))
    root.post(ADD, _form(transport="stdio", command=" \n"))
    assert not McpServer.objects.exists()


def test_others_than_administrators_do_not_see_them(clerk: Client) -> None:
    assert clerk.get("/admin/agents/mcpserver/").status_code == 403
