"""The tools of connected servers in the registry, under names of their own: `server__tool`.

The rows are the truth. Every process compares its registry with them when an agent that has such tools is asked, with
one small statement, so that what an administrator changes holds everywhere without a restart.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import orjson
from django.conf import settings

from agents import mcp, mcp_sessions, tools
from agents.messages import JSON
from agents.models import McpServer
from agents.text import clean
from agents.tools import Tool, ToolContext, ToolResult

logger = logging.getLogger("palimpsest.mcp")

SEPARATOR = "__"
LONGEST_NAME = 64  # characters that providers take
LONGEST_DESCRIPTION = 2_000  # characters
LARGEST_SCHEMA = 20_000  # bytes
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]+")

_Stamp = tuple[bool, tuple[tuple[int, datetime], ...]]
_lock = threading.Lock()
_stamp: _Stamp | None = None
_registered: set[str] = set()


def keep_current(names: Iterable[str]) -> None:
    """Bring the registry up to date where these tools (an agent's) include some of a server; else nothing is read."""
    if any(SEPARATOR in name for name in names):
        refresh()


def refresh() -> None:
    """Make the registry agree with the connected servers."""
    global _stamp
    enabled = McpServer.objects.filter(enabled=True).order_by("id")
    stamp = (bool(settings.MCP_STDIO), tuple(enabled.values_list("id", "updated_at")))
    if stamp == _stamp:
        return
    with _lock:
        made = {tool.name: tool for server in enabled if _is_allowed(server) for tool in tools_of(server)}
        for name in _registered - made.keys():
            tools.unregister(name)
        for tool in made.values():
            tools.register(tool, replace=True)
        _registered.clear()
        _registered.update(made)
        _stamp = stamp


def tools_of(server: McpServer) -> list[Tool]:
    """The tools of a server as they were listed last."""
    return [_tool(server, stored) for stored in server.tools]


def read_tools(server: McpServer) -> list[str]:
    """Ask a server for its tools and store them. Returns the names of those that cannot be used; raises ToolError."""
    taken: dict[str, JSON] = {}
    refused: list[str] = []
    for found in mcp.list_tools(address_of(server)):
        public = public_name(server.name, found.name)
        if public in taken or not _is_usable(found.parameters):
            refused.append(clean(found.name)[:100])
            continue
        description = clean(found.description).strip()[:LONGEST_DESCRIPTION]
        taken[public] = {
            "name": found.name,
            "public": public,
            "description": description or found.name,
            "parameters": found.parameters,
        }
    server.note_tools(list(taken.values()))
    return refused


def address_of(server: McpServer) -> mcp.Address:
    """Where the server is, with its secrets in the clear, for the call alone."""
    return mcp.Address(server.name, server.transport, server.url, tuple(server.command), server.secrets)


def public_name(server: str, tool: str) -> str:
    """A name that every provider takes and that names the server; one that had to change carries a hash."""
    plain = f"{server}{SEPARATOR}{_UNSAFE.sub('_', tool)}"
    if plain == f"{server}{SEPARATOR}{tool}" and len(plain) <= LONGEST_NAME:
        return plain
    digest = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:6]
    return f"{plain[: LONGEST_NAME - 7]}_{digest}"


def server_of(tool: str) -> str:
    """The server that a registered tool is of; empty for one of our own."""
    return tool.partition(SEPARATOR)[0] if tool in _registered else ""


def _tool(server: McpServer, stored: JSON) -> Tool:
    address, name, seconds = address_of(server), str(stored["name"]), float(server.call_timeout_seconds)
    keeps = server.keep_session
    longest = seconds + mcp.CONNECT_SECONDS + mcp.CLOSE_SECONDS

    async def run(arguments: JSON, context: ToolContext) -> ToolResult:
        logger.info(
            "mcp %s: %s called for user %s in conversation %s, turn %s",
            address.name,
            name,
            context.user_id,
            context.conversation_id,
            context.turn_id,
        )
        if keeps and context.turn_id is not None:
            return await mcp_sessions.call_tool(context.turn_id, address, name, arguments, seconds)
        return await mcp.call_tool(address, name, arguments, seconds)

    return Tool(
        stored["public"],
        stored["description"],
        stored["parameters"],
        run,
        clearable=server.clearable,
        keep=server.keep_results,
        timeout_seconds=longest * (mcp_sessions.LONGEST_QUEUE if keeps else 1),
    )


def _is_allowed(server: McpServer) -> bool:
    return server.transport != mcp.STDIO or bool(settings.MCP_STDIO)


def _is_usable(parameters: Any) -> bool:
    """Whether arguments can be checked against it, and a request carry it."""
    from agents import json_schema  # 0.1 s, which a start need not wait for

    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        return False
    try:
        return len(orjson.dumps(parameters)) <= LARGEST_SCHEMA and json_schema.is_schema(parameters)
    except TypeError:
        return False
