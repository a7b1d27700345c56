"""The offline model: an OpenAI-compatible server of our own on loopback, reached through the client like any other.

It wants its key, checks requests as strictly as real providers do, and answers the same to the same conversation.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import orjson
from aiohttp import web

from agents import tokens
from agents.demo_answers import DemoAnswer, answer
from agents.known_models import DEMO_WINDOWS, max_output_of
from agents.messages import JSON, ContentPart, Message, ToolCall
from agents.text import clean
from agents.tokens import DEFAULT_ENCODING

MODELS = tuple(DEMO_WINDOWS)
TOKENS_PER_SECOND = 80.0
SUMMARY_TOKENS_PER_SECOND = 4_000.0
BURST_SECONDS = 0.0125  # pieces that fall due within this time are sent together
LARGEST_REQUEST = 64 * 1024 * 1024  # bytes
_RATE = web.AppKey("rate", float)
_REPLY_PRIMING = 3  # tokens that begin an answer


class DemoServer:
    """Serves the demo models on loopback to whoever has the key, which is made at each start."""

    def __init__(self, key: str, port: int = 0, tokens_per_second: float = TOKENS_PER_SECOND) -> None:
        self._key = key
        self._port = port
        self._rate = tokens_per_second
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Starts on the running loop; the base URL to give to a channel."""
        app = web.Application(client_max_size=LARGEST_REQUEST, middlewares=[self._check_key])
        app[_RATE] = self._rate
        app.router.add_get("/v1/models", _list_models)
        app.router.add_post("/v1/chat/completions", _complete)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def stop(self) -> None:
        """Ends all answers and frees the port."""
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _check_key(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            return _error(401, "Incorrect API key provided.", code="invalid_api_key")
        try:
            return await handler(request)
        except _RefusedError as refused:
            return _error(refused.status, refused.words, refused.code, refused.param)


class _RefusedError(Exception):
    """A request that is answered with an error, in the words of the original API."""

    def __init__(self, words: str, *, status: int = 400, code: str | None = None, param: str | None = None) -> None:
        super().__init__(words)
        self.words, self.status, self.code, self.param = words, status, code, param


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that was read and found good."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[JSON, ...]
    prompt_tokens: int
    room: int  # tokens the answer may have
    stream: bool
    include_usage: bool
    may_call: bool
    id: str


@dataclass(frozen=True, slots=True)
class _Reply:
    """The answer in the pieces it is streamed in."""

    answer: DemoAnswer
    pieces: tuple[str, ...]
    thinking_pieces: tuple[str, ...]
    finish_reason: str
    usage: JSON


async def _list_models(request: web.Request) -> web.Response:
    listed = [{"id": name, "object": "model", "created": 0, "owned_by": "palimpsest"} for name in MODELS]
    return web.json_response({"object": "list", "data": listed})


async def _complete(request: web.Request) -> web.StreamResponse:
    raw = await request.read()
    # Counting and summarising a long conversation takes a while: not on the loop that others stream from.
    asked, reply = await asyncio.to_thread(_think, raw)
    if not asked.stream:
        return web.json_response(_whole(asked, reply))
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    rate = request.app[_RATE]
    if reply.answer.is_summary:
        rate = max(rate, SUMMARY_TOKENS_PER_SECOND)
    await _stream(response, asked, reply, rate)
    return response


def _think(raw: bytes) -> tuple[_Asked, _Reply]:
    asked = _read(raw)
    made = answer(asked.messages, asked.tools if asked.may_call else (), asked.room)
    pieces = _pieces(made.text)
    finish_reason = "tool_calls" if made.tool_calls else "stop"
    if len(pieces) > asked.room:
        pieces, finish_reason, made = pieces[: asked.room], "length", replace(made, tool_calls=())
    thinking = _pieces(made.thinking)
    call_tokens = tokens.count_message(Message("assistant", tool_calls=made.tool_calls)) if made.tool_calls else 0
    completion = len(pieces) + len(thinking) + call_tokens
    usage = {
        "prompt_tokens": asked.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": asked.prompt_tokens + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": len(thinking)},
    }
    return asked, _Reply(made, pieces, thinking, finish_reason, usage)


async def _stream(response: web.StreamResponse, asked: _Asked, reply: _Reply, rate: float) -> None:
    """Sends the answer at `rate` (tokens a second)."""
    await response.write(_event(asked, {"role": "assistant", "content": ""}))
    deltas = [{"reasoning_content": piece} for piece in reply.thinking_pieces]
    deltas += [{"content": piece} for piece in reply.pieces]
    loop = asyncio.get_running_loop()
    started = loop.time()
    due: list[bytes] = []
    for number, delta in enumerate(deltas):
        due.append(_event(asked, delta))
        wait = started + number / rate - loop.time()
        if wait > BURST_SECONDS / 2 or len(due) > 500:
            await response.write(b"".join(due))
            due = []
            await asyncio.sleep(max(0.0, wait))
    for index, call in enumerate(reply.answer.tool_calls):
        due += [_event(asked, {"tool_calls": [piece]}) for piece in _call_pieces(index, call)]
    due.append(_event(asked, {}, reply.finish_reason))
    if asked.include_usage:
        due.append(_event(asked, None, usage=reply.usage))
    await response.write(b"".join([*due, b"data: [DONE]\n\n"]))


def _call_pieces(index: int, call: ToolCall) -> Iterator[JSON]:
    """A call in pieces: its id and name first, then the arguments in parts."""
    yield {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
    for start in range(0, len(call.arguments), 12):
        yield {"index": index, "function": {"arguments": call.arguments[start : start + 12]}}


def _event(asked: _Asked, delta: JSON | None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": asked.id, "object": "chat.completion.chunk", "created": 0, "model": asked.model}
    return b"data: " + orjson.dumps({**head, "choices": choices, **more}) + b"\n\n"


def _whole(asked: _Asked, reply: _Reply) -> JSON:
    message: JSON = {"role": "assistant", "content": "".join(reply.pieces)}
    if reply.thinking_pieces:
        message["reasoning_content"] = "".join(reply.thinking_pieces)
    if reply.answer.tool_calls:
        message["tool_calls"] = [call.to_openai() for call in reply.answer.tool_calls]
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    head = {"id": asked.id, "object": "chat.completion", "created": 0, "model": asked.model}
    return {**head, "choices": [choice], "usage": reply.usage}


def _pieces(text: str) -> tuple[str, ...]:
    """The text token by token; a sign that takes several tokens comes with the last of them."""
    if not text:
        return ()
    encoding = tokens.encoding(DEFAULT_ENCODING)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return tuple(decoder.decode(part) for part in encoding.decode_tokens_bytes(encoding.encode_ordinary(text)))


# Reading a request


def _read(raw: bytes) -> _Asked:
    try:
        body = orjson.loads(raw)
    except ValueError:
        raise _RefusedError("We could not parse the JSON body of your request.") from None
    if not isinstance(body, dict):
        raise _RefusedError("The body of the request must be a JSON object.")
    model = body.get("model")
    if model not in DEMO_WINDOWS:
        raise _RefusedError(f"The model `{model}` does not exist.", status=404, code="model_not_found", param="model")
    messages = _messages(body.get("messages"))
    _check_pairs(messages)
    tools = tuple(tool for tool in body.get("tools") or () if isinstance(tool, dict))
    prompt_tokens = sum(map(_cost, messages)) + tokens.count_tools(tools) + _REPLY_PRIMING
    window = DEMO_WINDOWS[model]
    if prompt_tokens >= window:
        raise _RefusedError(
            f"This model's maximum context length is {window} tokens. However, your messages resulted in "
            f"{prompt_tokens} tokens. Please reduce the length of the messages.",
            code="context_length_exceeded",
            param="messages",
        )
    longest = min(max_output_of(model) or window, window - prompt_tokens)
    asked_for = body.get("max_completion_tokens") or body.get("max_tokens")
    room = min(asked_for, longest) if isinstance(asked_for, int) else longest
    options = body.get("stream_options") or {}
    return _Asked(
        model=model,
        messages=messages,
        tools=tools,
        prompt_tokens=prompt_tokens,
        room=max(1, room),
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        may_call=body.get("tool_choice") != "none",
        id=f"chatcmpl-demo-{hashlib.sha256(raw).hexdigest()[:16]}",
    )


def _messages(given: Any) -> tuple[Message, ...]:
    if not isinstance(given, list) or not given:
        raise _RefusedError("[] is too short - 'messages'", param="messages")
    messages = []
    for at, message in enumerate(given):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("system", "developer", "user", "assistant", "tool"):
            raise _RefusedError(f"Invalid value: '{role}'.", param=f"messages[{at}].role")
        messages.append(_message(message, "system" if role == "developer" else role))
    return tuple(messages)


def _message(given: JSON, role: Any) -> Message:
    content = given.get("content")
    parts = content if isinstance(content, list) else []
    texts = [str(part.get("text") or "") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    images = [ContentPart("image") for part in parts if isinstance(part, dict) and part.get("type") == "image_url"]
    return Message(
        role=role,
        content=clean(content if isinstance(content, str) else "\n".join(texts)),
        parts=tuple(images),
        tool_calls=tuple(ToolCall.from_openai(call) for call in given.get("tool_calls") or ()),
        tool_call_id=str(given.get("tool_call_id") or ""),
        name=str(given.get("name") or ""),
    )


def _check_pairs(messages: Sequence[Message]) -> None:
    """Every call has its result right behind it and every result its call, as real providers insist."""
    waiting: list[str] = []
    for at, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                raise _RefusedError(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceding message with "
                    "'tool_calls'.",
                    param=f"messages.[{at}].role",
                )
            waiting.remove(message.tool_call_id)
            continue
        _check_answered(waiting, at)
        waiting = [call.id for call in message.tool_calls]
    _check_answered(waiting, len(messages))


def _check_answered(waiting: Sequence[str], at: int) -> None:
    if waiting:
        raise _RefusedError(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
            param=f"messages.[{at}].role",
        )


@lru_cache(maxsize=4096)
def _cost(message: Message) -> int:
    return tokens.count_message(message)


def _error(status: int, words: str, code: str | None = None, param: str | None = None) -> web.Response:
    error = {"message": words, "type": "invalid_request_error", "param": param, "code": code}
    return web.json_response({"error": error}, status=status)
