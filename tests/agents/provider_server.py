"""A real provider on loopback for tests: it answers by script and writes down what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Script = Callable[["Provider", web.Request], Awaitable[web.StreamResponse]]


def event(text: str, finish: str | None = None) -> bytes:
    delta = {"content": text} if text else {}
    body = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


END = event("", "stop") + b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\ndata: [DONE]\n\n'


class Provider:
    """Answers call number n with the n-th script, and all later ones with the last."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = scripts
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.asked = asyncio.Event()
        self.closed = asyncio.Event()
        self.connections: set[Any] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        self.connections.add(request.transport)
        self.asked.set()
        script = self.scripts[min(len(self.bodies), len(self.scripts)) - 1]
        try:
            return await script(self, request)
        except (asyncio.CancelledError, ConnectionError):
            self.closed.set()
            raise

    async def models(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") == "Bearer wrong":
            return web.json_response({"error": {"message": "Incorrect API key provided: wrong"}}, status=401)
        return web.json_response({"data": [{"id": "m"}, {"id": "n"}]})


@asynccontextmanager
async def provider(*scripts: Script) -> AsyncIterator[tuple[Provider, str]]:
    """The provider and its base URL."""
    made = Provider(*scripts)
    app = web.Application(client_max_size=10**8)
    app.router.add_post("/v1/chat/completions", made.answer)
    app.router.add_get("/v1/models", made.models)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield made, f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def begin(request: web.Request, kind: str = "text/event-stream") -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": kind})
    await response.prepare(request)
    return response


def say(*pieces: str, end: bytes = END, pause: float = 0.0) -> Script:
    """Streams the pieces."""

    async def script(self: Provider, request: web.Request) -> web.StreamResponse:
        response = await begin(request)
        for piece in pieces:
            await response.write(event(piece))
            await asyncio.sleep(pause)
        await response.write(end)
        return response

    return script


def refuse(status: int, body: Any = None, headers: dict[str, str] | None = None, kind: str = "") -> Script:
    """Answers an error."""

    async def script(self: Provider, request: web.Request) -> web.StreamResponse:
        if isinstance(body, str):
            return web.Response(status=status, text=body, headers=headers, content_type=kind or "text/plain")
        return web.json_response(body or {"error": {"message": "no"}}, status=status, headers=headers)

    return script


def hang(*pieces: str) -> Script:
    """Streams the pieces, then says nothing more; with none, not even that it has heard."""

    async def script(self: Provider, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if pieces:
            await response.prepare(request)
        for piece in pieces:
            await response.write(event(piece))
        await asyncio.sleep(60)
        return response

    return script


def cut(*pieces: str, half: bytes = b"") -> Script:
    """Streams the pieces and drops the connection."""

    async def script(self: Provider, request: web.Request) -> web.StreamResponse:
        response = await begin(request)
        for piece in pieces:
            await response.write(event(piece))
        if half:
            await response.write(half)
        await asyncio.sleep(0.02)
        assert request.transport is not None
        request.transport.abort()
        return response

    return script


def disconnect() -> Script:
    """Drops the connection without an answer."""

    async def script(self: Provider, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    return script
