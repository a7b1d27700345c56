"""Tools of others: servers that speak the Model Context Protocol, over streamable HTTP or as a program on this machine.

Every listing and every call is a session of its own, within its own time, on a loop of its own thread: a server that
hangs, dies or floods harms that call and nothing else. (Where a server is set so, the calls of an answer share one, see
`agents/mcp_sessions.py`.) This module knows no database; `agents/mcp_tools.py` makes tools
of what an administrator connected.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import orjson
from django.conf import settings
from django.utils.translation import gettext as _

from agents.messages import JSON, ContentPart
from agents.text import clean
from agents.tools import ToolError, ToolResult

if TYPE_CHECKING:
    import httpx
    from mcp import ClientSession, types

logger = logging.getLogger("palimpsest.mcp")

T = TypeVar("T")

CONNECT_SECONDS = 10.0  # until a server has said who it is
LIST_SECONDS = 20.0  # until it has listed its tools, after that
CLOSE_SECONDS = 6.0  # a program gets to end by itself
LARGEST_ANSWER = 25 * 1024 * 1024  # bytes of one answer over HTTP
MOST_TOOLS = 128  # of a server
MOST_PAGES = 20
MOST_PROGRAMS = 8  # at once in a process, for a single call each
MOST_LASTING = 32  # at once in a process, each for a whole answer
_SHOWN = 300  # characters of what a server says went wrong

HTTP, STDIO = "http", "stdio"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is. `secrets` are headers over HTTP and the environment of a program; they show nowhere."""

    name: str
    transport: str
    url: str = ""
    command: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Found:
    """A tool as a server describes it; nothing of it was checked yet."""

    name: str
    description: str
    parameters: JSON


class ServerError(ToolError):
    """A server could not do what was asked; one sentence says why."""


async def call_tool(address: Address, tool: str, arguments: JSON, seconds: float) -> ToolResult:
    """Calls a tool, from any loop; raises ServerError. `seconds` is the longest wait for the answer once connected."""

    return await at_home(in_session(address, calling(tool, arguments), seconds))


def calling(tool: str, arguments: JSON) -> Callable[[ClientSession], Awaitable[ToolResult]]:
    """What calls a tool in an open session."""

    async def call(session: ClientSession) -> ToolResult:
        from mcp import types

        params = types.CallToolRequestParams(name=tool, arguments=arguments)
        request = types.ClientRequest(types.CallToolRequest(params=params))
        return _as_result(await session.send_request(request, types.CallToolResult))

    return call


def list_tools(address: Address) -> list[Found]:
    """The tools of a server, for an administrator's click; raises ServerError."""

    async def read(session: ClientSession) -> list[Found]:
        from mcp import types

        found: list[Found] = []
        cursor: str | None = None
        for _page in range(MOST_PAGES):
            page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            found += [Found(tool.name, tool.description or tool.title or "", tool.inputSchema) for tool in page.tools]
            cursor = page.nextCursor
            if not cursor or len(found) >= MOST_TOOLS:
                break
        return found[:MOST_TOOLS]

    work = in_session(address, read, LIST_SECONDS)
    future = asyncio.run_coroutine_threadsafe(work, _home().loop)
    try:
        return future.result(CONNECT_SECONDS + LIST_SECONDS + CLOSE_SECONDS + 2)
    except TimeoutError:
        future.cancel()
        raise too_slow(address, CONNECT_SECONDS + LIST_SECONDS) from None


# One session


async def in_session(
    address: Address, use: Callable[[ClientSession], Awaitable[T]], seconds: float, *, lasting: bool = False
) -> T:
    """Connect, use, close; whatever goes wrong becomes a ServerError that names the server.

    `lasting`: other calls may follow in this session, so its program does not take the place of a single call's.
    """
    breaks, made = _Breaks(), list[T]()
    try:
        async with asyncio.timeout(CONNECT_SECONDS) as limit, _session(address, breaks, lasting) as session:
            try:
                made.append(await breaks.unless_broken(_used(session, use, breaks, limit, seconds)))
            finally:
                if not limit.expired():
                    limit.reschedule(asyncio.get_running_loop().time() + CLOSE_SECONDS)
    except TimeoutError:
        failure = too_slow(address, seconds if breaks.is_connected else CONNECT_SECONDS)
    except (Exception, BaseExceptionGroup) as error:
        failure = failure_of(address, _cause(error))
    if made:  # an answer that is there counts, however the server took the end
        return made[0]
    raise failure


async def _used(
    session: ClientSession,
    use: Callable[[ClientSession], Awaitable[T]],
    breaks: _Breaks,
    limit: asyncio.Timeout,
    seconds: float,
) -> T:
    """The greeting, within the time to connect; then the work, within its own."""
    await session.initialize()
    breaks.is_connected = True
    limit.reschedule(asyncio.get_running_loop().time() + seconds)
    return await use(session)


class _Breaks:
    """Notes the first thing that goes wrong beside a request: the library tells nobody who waits for an answer."""

    def __init__(self) -> None:
        self.is_connected = False
        self._noted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def note(self, error: Exception) -> None:
        if not self._noted.done():
            self._noted.set_exception(error)

    async def handle(self, message: Any) -> None:
        """What a session does with messages nobody asked for."""
        if isinstance(message, Exception):
            self.note(message)

    async def unless_broken(self, work: Awaitable[T]) -> T:
        """The work's result, or what broke meanwhile."""
        task = asyncio.ensure_future(work)
        try:
            both: set[asyncio.Future[Any]] = {task, self._noted}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._noted.result()
            return await task
        finally:
            task.cancel()
            if not self._noted.cancel():
                self._noted.exception()  # looked at, so that nobody complains


@asynccontextmanager
async def _session(address: Address, breaks: _Breaks, lasting: bool) -> AsyncIterator[ClientSession]:
    from mcp import ClientSession, types

    who = types.Implementation(name="palimpsest", version="1")
    async with (
        _streams(address, breaks, lasting) as (read, write),
        ClientSession(read, write, client_info=who, message_handler=breaks.handle) as session,
    ):
        yield session


@asynccontextmanager
async def _streams(address: Address, breaks: _Breaks, lasting: bool) -> AsyncIterator[Any]:
    async with _program(address, lasting) if address.transport == STDIO else _web(address, breaks) as streams:
        yield streams


@asynccontextmanager
async def _web(address: Address, breaks: _Breaks) -> AsyncIterator[Any]:
    import httpx
    from mcp.client.streamable_http import streamable_http_client

    async def bound(response: httpx.Response) -> None:
        is_answer = response.request.method == "POST"
        response.stream = _bounded(cast("httpx.AsyncByteStream", response.stream), breaks, is_answer)

    timeouts = httpx.Timeout(CONNECT_SECONDS, read=None)  # the session's own time bounds reading
    async with (
        httpx.AsyncClient(
            headers=dict(address.secrets),
            timeout=timeouts,
            event_hooks={"response": [bound]},
            follow_redirects=False,
            verify=_trust(),
        ) as client,
        streamable_http_client(address.url, http_client=client) as (read, write, _session_id),
    ):
        yield read, write


@lru_cache(maxsize=1)
def _trust() -> ssl.SSLContext:
    """Whom we trust; made once, since reading the certificates takes longer than a call."""
    import httpx

    return httpx.create_ssl_context()


def _bounded(stream: httpx.AsyncByteStream, breaks: _Breaks, is_answer: bool) -> httpx.AsyncByteStream:
    """The body of an answer, until it is larger than any answer should be.

    One that breaks off is noted, unless its events have ids: then the library asks for the rest.
    """
    import httpx

    class Bounded(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size, goes_on = 0, not is_answer
            try:
                async for piece in stream:
                    size += len(piece)
                    goes_on = goes_on or b"\nid:" in piece or piece.startswith(b"id:")
                    if size > LARGEST_ANSWER:
                        goes_on = False
                        raise httpx.ReadError("the answer is too large")
                    yield piece
            except httpx.TransportError as error:
                if not goes_on:
                    breaks.note(error)
                raise

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


@asynccontextmanager
async def _program(address: Address, lasting: bool) -> AsyncIterator[Any]:
    """A program started for this session, with an environment of its own: none of ours goes there."""
    from mcp.client.stdio import StdioServerParameters, stdio_client

    if not settings.MCP_STDIO:
        raise ServerError(_("Programs on this machine are not allowed as servers; MCP_STDIO allows them."))
    command, *arguments = address.command or ("",)
    parameters = StdioServerParameters(
        command=command, args=arguments, env=dict(address.secrets), encoding_error_handler="replace"
    )
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        try:
            async with _home().places(lasting), stdio_client(parameters, errlog=said) as streams:
                yield streams
        except (Exception, BaseExceptionGroup):
            _log_last_words(address, said)
            raise


def _log_last_words(address: Address, said: TextIO) -> None:
    said.seek(0, os.SEEK_END)
    said.seek(max(0, said.tell() - 2_000))
    if words := said.read().strip():
        logger.warning("mcp %s: its last words on stderr: %s", address.name, words[-1_000:])


# What comes back


def _as_result(made: types.CallToolResult) -> ToolResult:
    """Texts joined, images as parts, everything else named."""
    texts: list[str] = []
    parts: list[ContentPart] = []
    for block in made.content:
        match block.type:
            case "text":
                texts.append(block.text)
            case "image":
                parts.append(_image(block.data, block.mimeType))
            case "resource":
                _take_resource(block.resource, texts, parts)
            case "resource_link":
                texts.append(f"[resource {block.name}: {block.uri}]")
            case kind:
                texts.append(f"[{kind}: not shown here]")
    if not texts and made.structuredContent is not None:
        texts.append(orjson.dumps(made.structuredContent, default=str).decode())
    return ToolResult("\n".join(texts), is_error=bool(made.isError), parts=tuple(parts))


def _take_resource(resource: Any, texts: list[str], parts: list[ContentPart]) -> None:
    mime = resource.mimeType or ""
    if (text := getattr(resource, "text", None)) is not None:
        texts.append(f"[resource {resource.uri}]\n{text}")
    elif mime.startswith("image/"):
        parts.append(_image(resource.blob, mime))
    else:
        texts.append(f"[resource {resource.uri}: binary, {len(resource.blob) * 3 // 4} bytes]")


def _image(data: str, mime: str) -> ContentPart:
    return ContentPart("image", url=f"data:{mime};base64,{data}", mime=mime)


def _cause(error: BaseException) -> BaseException:
    """The first real error: task groups wrap theirs."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def failure_of(address: Address, error: BaseException) -> ServerError:
    """What went wrong, as a sentence. Raises what must not be swallowed."""
    import httpx
    from mcp import McpError

    if isinstance(error, ServerError):
        return error
    if not isinstance(error, Exception):
        raise error
    why = clean(str(error))[:_SHOWN]
    logger.warning("mcp %s: %s: %s", address.name, type(error).__name__, why)
    named = {"server": address.name, "why": why}
    if isinstance(error, httpx.HTTPStatusError):
        named["why"] = str(error.response.status_code)
        return ServerError(_("The server “%(server)s” refused: HTTP %(why)s.") % named)
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, OSError)):
        return ServerError(_("The server “%(server)s” cannot be reached.") % named)
    if isinstance(error, httpx.TransportError):
        return ServerError(_("The server “%(server)s” broke off: %(why)s.") % named)
    if isinstance(error, McpError) and "closed" not in why.lower():
        return ServerError(_("The server “%(server)s” says: %(why)s") % named)
    return ServerError(_("The server “%(server)s” broke off or answered with something else than MCP.") % named)


def too_slow(address: Address, seconds: float) -> ServerError:
    """No answer within this time (seconds)."""
    logger.warning("mcp %s: no answer within %g s", address.name, seconds)
    named = {"server": address.name, "seconds": f"{seconds:g}"}
    return ServerError(_("The server “%(server)s” did not answer within %(seconds)s seconds.") % named)


# The loop


class _Home:
    """An event loop on a thread of its own: what servers send is parsed there, not where answers stream."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._programs = asyncio.Semaphore(MOST_PROGRAMS)
        self._lasting = asyncio.Semaphore(MOST_LASTING)
        threading.Thread(target=self.loop.run_forever, name="mcp-loop", daemon=True).start()

    def places(self, lasting: bool) -> asyncio.Semaphore:
        """Where a program waits for its turn to be started."""
        return self._lasting if lasting else self._programs


async def at_home(work: Coroutine[Any, Any, T]) -> T:
    """The result of work that is done on the loop of this module; from any loop."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _home().loop))


def home_soon(work: Coroutine[Any, Any, object]) -> None:
    """Have work done there, and do not wait; from any thread."""
    asyncio.run_coroutine_threadsafe(work, _home().loop)


_starting = threading.Lock()
_current: _Home | None = None


def _home() -> _Home:
    """This process's, made on first use; a fork makes its own."""
    global _current
    with _starting:
        if _current is None or _current.pid != os.getpid():
            _current = _Home()
        return _current
