"""A fast OpenAI-compatible provider on loopback, for the bench, the chaos and the tests: one process, no dependencies
of the product's request path. `bench/plays.py` lists what a model's name can ask for.

    python -m bench.upstream --port 9100

GET /v1/models, POST /v1/chat/completions; for the tests GET /last, /requests, /stats and POST /clear.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import httptools
import orjson

from bench import plays, summaries
from bench.plays import Play
from bench.streams import Stream

REMEMBERED = 400  # requests kept for the tests


@dataclass(slots=True)
class Request:
    """One request as it came, and what became of it. Times are CLOCK_MONOTONIC (seconds)."""

    body: dict[str, Any]
    headers: dict[str, str]
    at: float
    is_summary: bool = False
    written: int = 0  # tokens
    outcome: str = "open"  # done, error, cut, aborted
    ended: float | None = None

    def end(self, outcome: str) -> None:
        self.outcome, self.ended = outcome, time.monotonic()

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Upstream:
    """The provider's state. `scripted` holds plays a test handed in, by model: one a request, the last one stays."""

    default: Play = plays.DEFAULT
    key: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    requests: deque[Request] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    count: int = 0
    tokens: int = 0
    scripted: dict[str, list[Play]] = field(default_factory=dict)
    tries: dict[tuple[str, str], int] = field(default_factory=dict)
    connections: set[Connection] = field(default_factory=set)
    server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listens, and returns the base URL."""
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Connection(self), self.host, self.port, backlog=2048)
        self.port = self.server.sockets[0].getsockname()[1]
        return self.base_url

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}/v1"

    async def stop(self) -> None:
        if self.server:
            self.server.close()
        for connection in list(self.connections):
            connection.transport.abort()

    def play_of(self, body: dict[str, Any]) -> Play:
        model = str(body.get("model", ""))
        if script := self.scripted.get(model):
            return script.pop(0) if len(script) > 1 else script[0]
        return plays.read(model, self.default)

    def clear(self) -> None:
        self.requests.clear()
        self.tries.clear()
        self.scripted.clear()

    def stats(self) -> dict[str, Any]:
        used = os.times()
        is_open = sum(request.outcome == "open" for request in self.requests)
        return {"requests": self.count, "tokens": self.tokens, "open": is_open, "cpu": used.user + used.system}


class Connection(asyncio.Protocol):
    """One client's connection; HTTP/1.1, one request after another."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.loop = asyncio.get_running_loop()
        self.parser: Any = None
        self.url, self.body, self.headers = b"", bytearray(), {}
        self.request: Request | None = None
        self.stream: Stream | None = None
        self.timer: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's is no subclass
        self.parser = httptools.HttpRequestParser(self)
        self.upstream.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.upstream.connections.discard(self)
        self.forget()
        if self.request and self.request.outcome == "open":
            self.request.end("aborted")

    def forget(self) -> None:
        if self.timer:
            self.timer.cancel()
        self.timer = self.stream = None

    def data_received(self, received: bytes) -> None:
        try:
            self.parser.feed_data(received)
        except httptools.HttpParserError:
            self.transport.close()

    def pause_writing(self) -> None:
        if self.stream:
            self.stream.is_paused = True

    def resume_writing(self) -> None:
        if self.stream and self.stream.is_paused:
            self.stream.is_paused = False
            self.stream.go_on()

    # httptools

    def on_message_begin(self) -> None:
        self.url, self.body, self.headers = b"", bytearray(), {}

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        path = self.url.partition(b"?")[0]
        if path == b"/v1/chat/completions":
            self.complete()
        elif path == b"/v1/models":
            self.models()
        elif path == b"/last":
            self.answer(200, self.upstream.requests[-1].to_json() if self.upstream.requests else {})
        elif path == b"/requests":
            self.answer(200, [request.to_json() for request in self.upstream.requests])
        elif path == b"/stats":
            self.answer(200, self.upstream.stats())
        elif path == b"/clear":
            self.upstream.clear()
            self.answer(200, {})
        else:
            self.refuse(404, "There is nothing here.", "invalid_request_error", None)

    # answers

    def answer(self, status: int, content: Any, extra: bytes = b"") -> None:
        body = orjson.dumps(content)
        head = b"HTTP/1.1 %d -\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n"
        self.transport.write(head % (status, len(body), extra) + body)

    def refuse(self, status: int, words: str, kind: str, code: str | None, retry_after: str = "") -> None:
        extra = f"Retry-After: {retry_after}\r\n".encode() if retry_after else b""
        self.answer(status, {"error": {"message": words, "type": kind, "param": None, "code": code}}, extra)
        if self.request:
            self.request.end("error")

    def has_key(self) -> bool:
        given = self.headers.get("authorization", "").removeprefix("Bearer ")
        return given == self.upstream.key if self.upstream.key else given != "wrong"

    def models(self) -> None:
        if not self.has_key():
            self.request = None
            self.refuse(401, "Incorrect API key provided.", "invalid_request_error", "invalid_api_key")
            return
        names = ["mock", "mock-ttft20-tps50-n200", "mock-ttft0-tps0-n1000", *self.upstream.scripted]
        self.answer(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in names]})

    def complete(self) -> None:
        try:
            body = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            self.request = None
            self.refuse(400, "The body is not JSON.", "invalid_request_error", None)
            return
        upstream = self.upstream
        upstream.count += 1
        self.request = Request(body, dict(self.headers), time.monotonic())
        upstream.requests.append(self.request)
        play = upstream.play_of(body)
        size = _prompt_tokens(body, len(self.body), play.exact)
        if self._is_refused(play, body, size):
            return
        if play.hang == 0:
            return
        messages = body.get("messages") or []
        if summaries.is_summary_request(messages):
            self.request.is_summary = True
            play = _summary_play(play, body)
        if play.summary == "err":
            self.refuse(503, "The summariser is away.", "server_error", None)
            return
        self.stream = Stream(self, play, body, size, upstream.count)
        self.stream.begin()

    def _is_refused(self, play: Play, body: dict[str, Any], size: int) -> bool:
        if not self.has_key() or (play.status == 401):
            self.refuse(401, "Incorrect API key provided.", "invalid_request_error", "invalid_api_key")
            return True
        if play.status and self._fails_now(play, body):
            kind, code = _ERRORS.get(play.status, ("server_error", None))
            if play.error_body is not None:
                self.answer(play.status, play.error_body)
                self.request and self.request.end("error")
            else:
                wait = play.retry_after if play.status in (429, 503) else ""
                self.refuse(play.status, f"This request ends with {play.status}.", kind, code, wait)
            return True
        if play.ctx >= 0 and size > play.ctx:
            words = (
                f"This model's maximum context length is {play.ctx} tokens. However, your messages resulted in "
                f"{size} tokens. Please reduce the length of the messages."
            )
            self.refuse(400, words, "invalid_request_error", "context_length_exceeded")
            return True
        if play.strict and (fault := fault_of(body.get("messages") or [])):
            self.refuse(400, fault, "invalid_request_error", None)
            return True
        return False

    def _fails_now(self, play: Play, body: dict[str, Any]) -> bool:
        if play.failures < 0:
            return True
        messages = body.get("messages") or [{}]
        key = (str(body.get("model")), str(messages[-1].get("content"))[:200])
        self.upstream.tries[key] = self.upstream.tries.get(key, 0) + 1
        return self.upstream.tries[key] <= play.failures


_ERRORS: dict[int, tuple[str, str | None]] = {
    404: ("invalid_request_error", "model_not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}


def fault_of(messages: list[dict[str, Any]]) -> str:
    """Why a strict provider refuses these messages; nothing where it takes them."""
    if not messages or messages[-1].get("role") not in ("user", "tool"):
        return "The last message must be a user's or a tool's."
    waiting: list[str] = []
    for number, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                return f"messages[{number}]: a tool's result must follow the call it answers."
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return f"messages[{number}]: tool calls {waiting} have no result."
        if role not in ("system", "user", "assistant"):
            return f"messages[{number}]: unknown role."
        waiting = [call["id"] for call in message.get("tool_calls") or []]
        if role != "assistant" and not message.get("content"):
            return f"messages[{number}]: no content."
    return f"Tool calls {waiting} have no result." if waiting else ""


def _prompt_tokens(body: dict[str, Any], size: int, exact: bool) -> int:
    if not exact:
        return size // 4
    from agents.tokens import count_text

    return count_text(orjson.dumps(body.get("messages")).decode())


def _summary_play(play: Play, body: dict[str, Any]) -> Play:
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or 4_000
    text = summaries.write(body["messages"], int(limit))
    spoilt = {
        "empty": ("", "stop"),
        "cut": (text[: len(text) // 2], "length"),
        "junk": ("I am sorry, I cannot.", "stop"),
    }
    text, finish = spoilt.get(play.summary, (text, "stop"))
    return replace(play, text=text, finish=finish, tps=0, ttft=play.sumwait, think=0, tool=0, calls=())


async def _serve(upstream: Upstream) -> None:
    print(f"provider at {await upstream.start()}", flush=True)
    assert upstream.server
    await upstream.server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="A fast OpenAI-compatible provider for tests and measurements.")
    parser.add_argument("--port", type=int, default=9100)
    parser.add_argument("--key", default="")
    options = parser.parse_args()
    upstream = Upstream(key=options.key, port=options.port)
    import uvloop

    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(upstream))


if __name__ == "__main__":
    main()
