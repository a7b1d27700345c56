"""The call to a model: opened with patience, read raw, closed at once when nobody listens any more."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import orjson

from agents import clients
from agents.calls import ToolCallPiece
from agents.errors import AgentsError, ProviderError
from agents.failures import failure_in_stream, failure_of_call, output_limit, refused_parameter
from agents.messages import Message, ToolCall
from agents.requests import CompletionRequest, Endpoint, body, encode
from agents.sse import (
    Finished,
    StreamEvent,
    StreamFault,
    StreamReader,
    TextPiece,
    ThinkingPiece,
    UsageReport,
)
from agents.usage import Usage

__all__ = [
    "AnswerStream",
    "Completion",
    "CompletionRequest",
    "ConnectionReport",
    "Endpoint",
    "Finished",
    "ProviderPool",
    "StreamEvent",
    "StreamFault",
    "TextPiece",
    "ThinkingPiece",
    "ToolCallPiece",
    "Usage",
    "UsageReport",
    "test_connection",
]

logger = logging.getLogger(__name__)

LONGEST_WAIT = 20.0  # between two attempts (seconds); a provider that asks for more is not waited for
FIRST_WAIT = 0.5
DRAIN_SECONDS = 0.05
LARGEST_WHOLE_ANSWER = 64 * 1024 * 1024  # bytes of an answer that is not streamed


_WITHHELD = Finished("content_filter")


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage | None
    finish_reason: str
    thinking: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionReport:
    """What testing a connection found: `models` the provider lists, and a sentence for the administrator."""

    ok: bool
    message: str
    code: str = ""
    models: tuple[str, ...] = ()
    latency_ms: int = 0


class ProviderPool:
    """All calls to models of one event loop; remembers which parameters an endpoint does not take."""

    def __init__(self) -> None:
        self._clients = clients.Clients()
        self._refused: dict[tuple[str, str], frozenset[str]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def stream(self, request: CompletionRequest) -> AnswerStream:
        """The answer as it comes: `async with pool.stream(request) as answer: async for event in answer: …`.

        Raises `ProviderError` when the call fails, also in mid-stream, after all events that came before.
        """
        return AnswerStream(self, request)

    async def complete(
        self, request: CompletionRequest, watch: Callable[[StreamEvent], None] | None = None
    ) -> Completion:
        """The whole answer, streamed underneath so that `watch` sees progress and cancelling takes effect at once."""
        text: list[str] = []
        thinking: list[str] = []
        async with self.stream(request) as answer:
            async for event in answer:
                if isinstance(event, TextPiece):
                    text.append(event.text)
                elif isinstance(event, ThinkingPiece):
                    thinking.append(event.text)
                if watch:
                    watch(event)
        return Completion(
            text="".join(text),
            tool_calls=answer.tool_calls,
            usage=answer.usage,
            finish_reason=answer.finish_reason,
            thinking="".join(thinking),
            refused=answer.refused,
        )

    async def test(self, endpoint: Endpoint) -> ConnectionReport:
        """Lists the provider's models and has the endpoint's one say a word: a list alone often needs no key."""
        started = time.monotonic()
        models: tuple[str, ...] = ()
        try:
            try:
                models = await self._models(endpoint)
            except ProviderError as error:
                if error.code in ("provider_auth", "provider_unreachable", "redirected", "provider_forbidden"):
                    raise
            hello = (Message("user", "Reply with the word OK."),)
            request = CompletionRequest(endpoint, hello, max_output_tokens=16, timeout_seconds=60, attempts=1)
            await self.complete(request)
        except AgentsError as error:
            return ConnectionReport(False, error.message, error.code, models, _milliseconds(started))
        return ConnectionReport(True, "", "", models, _milliseconds(started))

    async def aclose(self) -> None:
        """Closes all connections; running streams end with an error."""
        await self._clients.aclose()

    async def _models(self, endpoint: Endpoint) -> tuple[str, ...]:
        import httpx2

        try:
            with self._clients.use(endpoint) as client:
                answer = await client.get(
                    "/models",
                    cast_to=httpx2.Response,
                    options={"timeout": clients.timeouts(20), "headers": clients.call_headers(endpoint)},
                )
            listed = orjson.loads(answer.content)
        except ValueError:
            return ()
        except Exception as error:
            raise failure_of_call(error, endpoint) from error
        lines = listed.get("data") or listed.get("models") if isinstance(listed, dict) else listed
        names = (line.get("id") or line.get("name") for line in lines or () if isinstance(line, dict))
        return tuple(str(name) for name in names if name)

    def _refused_by(self, endpoint: Endpoint) -> frozenset[str]:
        return self._refused.get((endpoint.base_url, endpoint.model), frozenset())

    def _remember_refused(self, endpoint: Endpoint, name: str) -> None:
        self._refused[endpoint.base_url, endpoint.model] = self._refused_by(endpoint) | {name}
        logger.info("%s at %s does not take %s; left out from now on", endpoint.model, endpoint.base_url, name)

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError("A ProviderPool belongs to one event loop; make another for this one.")


class AnswerStream:
    """An answer on its way. Leaving the `async with`, `aclose()` or cancelling drops the connection at once."""

    def __init__(self, pool: ProviderPool, request: CompletionRequest) -> None:
        self._pool = pool
        self._request = request
        self._reader = StreamReader(model=request.endpoint.model)
        self._events: deque[StreamEvent] = deque()
        self._failure: ProviderError | None = None
        self._resources = ExitStack()
        self._response: Any = None
        self._bytes: Any = None
        self._opening: asyncio.Future[None] | None = None
        self._attempt = 0
        self._begun = False  # whether anybody was given anything
        self._spoke = False  # whether there was more than thinking
        self._closed = False
        self._deadline = time.monotonic() + request.deadline_seconds if request.deadline_seconds else None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self._reader.tool_calls

    @property
    def usage(self) -> Usage | None:
        return self._reader.usage

    @property
    def finish_reason(self) -> str:
        return self._reader.finish_reason

    @property
    def refused(self) -> bool:
        return self._reader.refused

    async def __aenter__(self) -> AnswerStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AnswerStream:
        return self

    async def __anext__(self) -> StreamEvent:
        if not self._events:
            try:
                await self._fill()
            except BaseException:
                await self.aclose()
                raise
        if not self._events:
            await self.aclose()
            raise StopAsyncIteration
        self._begun = True
        return self._events.popleft()

    async def aclose(self) -> None:
        """Ends the call and its connection now; may be called from any task of the loop, and more than once."""
        self._closed = True
        if self._opening:
            self._opening.cancel()
        await self._let_go()

    async def _fill(self) -> None:
        """Reads until there are events, or the end; raises the failure once everything before it was given out."""
        while not self._events and not self._closed:
            if self._failure:
                raise self._failure
            if self._reader.ended:
                return
            await self._read_more()

    async def _read_more(self) -> None:
        """Opens the call if it is not open, and reads once; a failure before the first event may be tried again."""
        try:
            if self._response is None:
                await self._open()
                if self._closed:
                    return
            received = await self._within_deadline(anext(self._bytes, b""))
            events = self._reader.feed(received) if received else self._reader.finish()
        except AgentsError:
            raise
        except Exception as error:
            if self._closed:
                return
            # What the connection gave before it broke is kept, half a line too.
            events = [event for event in self._reader.finish() if not isinstance(event, StreamFault)]
            self._failure = failure_in_stream(error, self._request.endpoint)
        for event in events:
            if isinstance(event, StreamFault):
                self._failure = ProviderError(
                    event.code, event.message, retryable=event.retryable, retry_after=event.retry_after
                )
            elif event == _WITHHELD and not self._spoke:
                self._failure = ProviderError("content_filtered", model=self._request.endpoint.model)
            else:
                self._spoke = self._spoke or isinstance(event, (TextPiece, ToolCallPiece))
                self._events.append(event)
        if self._failure and not self._begun and not self._events:
            failure, self._failure = self._failure, None
            await self._wait_before_retry(failure)
            self._reader = StreamReader(model=self._request.endpoint.model)

    async def _open(self) -> None:
        """Sends the request until it is accepted: without what the provider refuses, and later when it is busy."""
        endpoint = self._request.endpoint
        self._pool._check_loop()
        without = set(self._pool._refused_by(endpoint))
        while not self._closed:
            sent = body(self._request, without)
            try:
                await self._send_or_stop(sent)
                return
            except AgentsError as error:
                failure = error
            except Exception as error:
                failure = failure_of_call(error, endpoint)
                if limit := output_limit(error, self._request.max_output_tokens):
                    self._request = replace(self._request, max_output_tokens=limit)
                    continue
                if name := refused_parameter(error, frozenset(sent)):
                    without.add(name)
                    self._pool._remember_refused(endpoint, name)
                    continue
            await self._wait_before_retry(failure)

    async def _send_or_stop(self, sent: dict[str, Any]) -> None:
        """Sends as a task of its own, so that `aclose()` ends it too while the provider is still silent."""
        self._opening = asyncio.ensure_future(self._within_deadline(self._send(sent)))
        try:
            await self._opening
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._closed or (task and task.cancelling()):
                raise
        finally:
            self._opening = None

    async def _send(self, sent: dict[str, Any]) -> None:
        import httpx2

        client = self._resources.enter_context(self._pool._clients.use(self._request.endpoint))
        # As bytes and for the bare response: the SDK's `chat.completions.create` walks through every message, 147 ms
        # of the loop for a thousand of them, and then would build an object for every event.
        self._response = await client.post(
            "/chat/completions",
            cast_to=httpx2.Response,
            content=encode(sent),
            stream=True,
            options={
                "headers": clients.call_headers(self._request.endpoint),
                "timeout": clients.timeouts(self._request.timeout_seconds),
            },
        )
        kind = self._response.headers.get("content-type", "")
        if "text/html" in kind:
            raise ProviderError("not_an_api", model=self._request.endpoint.model)
        self._bytes = self._whole() if "json" in kind and "ndjson" not in kind else self._response.aiter_bytes()

    async def _whole(self) -> Any:
        """An answer that came as one JSON object though a stream was asked for, on one line."""
        parts, size = [], 0
        async for part in self._response.aiter_bytes():
            parts.append(part)
            size += len(part)
            if size > LARGEST_WHOLE_ANSWER:
                raise ProviderError("stream_invalid")
        yield b"data: " + b" ".join(b"".join(parts).split(b"\n")) + b"\n\n"

    async def _within_deadline(self, work: Any) -> Any:
        if self._deadline is None:
            return await work
        try:
            async with asyncio.timeout(max(0.0, self._deadline - time.monotonic())) as limit:
                return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ProviderError("provider_timeout", model=self._request.endpoint.model) from error

    async def _wait_before_retry(self, failure: AgentsError) -> None:
        """Waits as long as the provider asks, or raises the failure when another attempt makes no sense."""
        self._attempt += 1
        wait = failure.retry_after
        if wait is None:
            wait = FIRST_WAIT * 2 ** (self._attempt - 1) * random.uniform(0.8, 1.2)
        late = self._deadline is not None and time.monotonic() + wait > self._deadline
        if not failure.retryable or self._attempt >= self._request.attempts or wait > LONGEST_WAIT or late:
            raise failure
        endpoint = self._request.endpoint
        logger.info("%s at %s: %s, again in %.1f s", endpoint.model, endpoint.base_url, failure.code, wait)
        await self._let_go()
        await asyncio.sleep(wait)

    async def _let_go(self) -> None:
        """Gives the connection back if the answer was read to its end, else drops it."""
        response, self._response = self._response, None
        unread, self._bytes = self._bytes, None
        try:
            if response is not None:
                if self._reader.ended and not self._failure:
                    await _drain(unread)
                await response.aclose()
        except Exception:
            logger.debug("closing the connection to %s failed", self._request.endpoint.base_url, exc_info=True)
        finally:
            self._resources.close()


async def _drain(unread: Any) -> None:
    """Reads the few bytes after the last event: a connection with nothing unread can serve the next call."""
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in unread:
                pass


def test_connection(endpoint: Endpoint) -> ConnectionReport:
    """`ProviderPool.test` for code that has no event loop, such as an administrator's click."""

    async def test() -> ConnectionReport:
        pool = ProviderPool()
        try:
            return await pool.test(endpoint)
        finally:
            await pool.aclose()

    return asyncio.run(test())


def _milliseconds(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
