"""A real MCP server for the tests: `python -m tests.tools.mcp_server stdio|http`. Over HTTP it says its port."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from weakref import WeakKeyDictionary

import anyio
from mcp.server.fastmcp import Context, FastMCP, Image

server = FastMCP("test")

if place := os.environ.get("PID_FILE"):
    Path(place).write_text(str(os.getpid()))


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(name="notes.read")
def read_notes() -> str:
    """Reads the notes."""
    return "The seal is at the harbour."


@server.tool()
def large() -> str:
    """Says very much."""
    return "begin" + "x" * 5_000_000 + "end"


@server.tool(structured_output=False)
def picture() -> list[object]:
    """Shows a picture."""
    from io import BytesIO

    from PIL import Image as Drawn

    out = BytesIO()
    Drawn.new("RGB", (64, 48), "teal").save(out, "PNG")
    return ["a seal", Image(data=out.getvalue(), format="png")]


@server.tool()
async def hang() -> str:
    """Never answers."""
    await anyio.sleep(3_600)
    return "late"


_counts: WeakKeyDictionary[object, int] = WeakKeyDictionary()


@server.tool()
def count(context: Context) -> int:  # type: ignore[type-arg]
    """Counts the calls of this session."""
    _counts[context.session] = _counts.get(context.session, 0) + 1
    return _counts[context.session]


@server.tool()
def die() -> str:
    """Ends the server at once."""
    os._exit(3)


@server.tool()
def fail() -> str:
    """Goes wrong."""
    raise ValueError("the archive is locked")


@server.tool()
def secret(context: Context) -> str:  # type: ignore[type-arg]
    """Says what it was given to prove who asks."""
    request = context.request_context.request
    return str(request.headers.get("authorization")) if request is not None else os.environ.get("TOKEN", "none")


@server.tool()
def surroundings() -> str:
    """The names of its environment."""
    return " ".join(sorted(os.environ))


def serve_http() -> None:
    import uvicorn

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(16)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    server.run("stdio") if sys.argv[1] == "stdio" else serve_http()
