"""One answer of the fast provider, written token by token as its play says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import orjson

from bench.plays import Play

if TYPE_CHECKING:
    from bench.upstream import Connection

_PER_WRITE = 96  # tokens of an unlimited stream in one write
_SENTENCES = (
    "the answer begins with what was asked and goes on to say how it can be done step by step "
    "so that whoever reads it can follow along and see each part for themselves"
)
_WORDS = tuple(_SENTENCES.split())


def microseconds() -> int:
    return time.monotonic_ns() // 1000


class Stream:
    """One answer on its way: written token by token, or all at once where the request does not stream."""

    def __init__(self, connection: Connection, play: Play, body: dict[str, Any], prompt_tokens: int, number: int):
        self.connection, self.play, self.loop = connection, play, connection.loop
        self.is_streaming = bool(body.get("stream"))
        self.wants_usage = play.usage and (
            not self.is_streaming or bool((body.get("stream_options") or {}).get("include_usage"))
        )
        self.calls = _calls(play, body, number)
        self.texts = None if play.text is None else _pieces(play.text)
        self.n = 0 if self.calls and not play.calls else play.n if self.texts is None else len(self.texts)
        if self.calls and self.texts is None:
            self.n = 0
        self.finish = "tool_calls" if self.calls else play.finish
        self.usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": self.n + play.think + 12 * len(self.calls),
            "total_tokens": prompt_tokens + self.n + play.think + 12 * len(self.calls),
        }
        if play.think:
            self.usage["completion_tokens_details"] = {"reasoning_tokens": play.think}
        self.head = {"id": f"chatcmpl-{number}", "created": int(time.time()), "model": body.get("model")}
        self.before, self.after = self._event({"content": "\0"}).split(b"\\u0000")
        self.at = 0
        self.is_paused = False
        self.gap = 1 / play.tps if play.tps else 0.0

    def begin(self) -> None:
        self.starts = self.loop.time() + self.play.ttft / 1000
        if not self.is_streaming:
            wait = self.play.ttft / 1000 + self.n * self.gap
            self.connection.timer = self.loop.call_later(wait, self._answer_whole)
            return
        self.connection.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" + _framed(self._event({"role": "assistant", "content": ""}))
        )
        self.connection.timer = self.loop.call_at(self.starts, self._first)

    def _first(self) -> None:
        if self.play.think:
            thoughts = [_framed(self._event({"reasoning_content": f" thought{i}"})) for i in range(self.play.think)]
            self.connection.transport.write(b"".join(thoughts))
        self.go_on()

    def go_on(self) -> None:
        """Writes every token that is due; a loop that came late catches up in one write."""
        if self.is_paused:
            return
        until = min(self.n, self.at + _PER_WRITE)
        if self.gap:
            until = min(self.n, int((self.loop.time() - self.starts) / self.gap + 1e-6) + 1)
        for stop in (self.play.cut, self.play.hang, self.play.fail):
            if stop > 0:
                until = min(until, stop)
        now = microseconds()
        out = b"".join([self._token(i, now) for i in range(self.at, until)])
        self.connection.upstream.tokens += until - self.at
        self.at = until
        if self.connection.request:
            self.connection.request.written = until
        if self._breaks_off(out):
            return
        if self.at >= self.n:
            self._end(out)
            return
        self.connection.transport.write(out)
        if self.gap:
            self.connection.timer = self.loop.call_at(self.starts + self.at * self.gap, self.go_on)
        elif not self.is_paused:
            self.connection.timer = self.loop.call_soon(self.go_on)

    def _breaks_off(self, out: bytes) -> bool:
        """The ways a stream does not end well."""
        play, transport, request = self.play, self.connection.transport, self.connection.request
        if self.at == play.hang:
            transport.write(out)
            return True
        if self.at == play.cut:
            transport.write(out + b'40\r\ndata: {"id"')
            transport.close()
            outcome = "cut"
        elif self.at == play.fail:
            error = {"error": {"message": "The model stopped working.", "type": "server_error", "code": 500}}
            transport.write(out + _framed(b"data: " + orjson.dumps(error) + b"\n\n") + b"0\r\n\r\n")
            outcome = "error"
        else:
            return False
        if request:
            request.end(outcome)
        self.connection.forget()
        return True

    def _end(self, out: bytes) -> None:
        events = []
        if self.calls:
            numbered = [{"index": i, **call} for i, call in enumerate(self.calls)]
            events.append(self._event({"role": "assistant", "tool_calls": numbered}))
        events.append(self._event({}, self.finish))
        if self.wants_usage:
            events.append(b"data: " + orjson.dumps({**self._frame(), "choices": [], "usage": self.usage}) + b"\n\n")
        events.append(b"data: [DONE]\n\n")
        if self.connection.request:
            self.connection.request.end("done")
        self.connection.forget()
        self.connection.transport.write(out + b"".join(map(_framed, events)) + b"0\r\n\r\n")

    def _answer_whole(self) -> None:
        text = (
            "".join(self.texts) if self.texts is not None else "".join(f" k{i}@{microseconds()}" for i in range(self.n))
        )
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if self.calls:
            message["tool_calls"] = self.calls
        whole = {**self.head, "object": "chat.completion"}
        whole["choices"] = [{"index": 0, "message": message, "finish_reason": self.finish}]
        if self.wants_usage:
            whole["usage"] = self.usage
        self.connection.forget()
        if self.connection.request:
            self.connection.request.written = self.n
            self.connection.request.end("done")
        self.connection.answer(200, whole)

    def _token(self, i: int, now: int) -> bytes:
        if self.texts is not None:
            return _framed(self._event({"content": self.texts[i]}))
        if self.play.prose:
            word = _WORDS[i % len(_WORDS)].encode()
            text = word.capitalize() if i % 16 == 0 else b" " + word + (b". " if i % 16 == 15 else b"")
        else:
            text = b" k%d@%d%b" % (i, now, b"x" * self.play.w)
        return b"%x\r\n%b%b%b\r\n" % (len(self.before) + len(text) + len(self.after), self.before, text, self.after)

    def _frame(self) -> dict[str, Any]:
        return {**self.head, "object": "chat.completion.chunk"}

    def _event(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return b"data: " + orjson.dumps({**self._frame(), "choices": choices}) + b"\n\n"


def _framed(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def _pieces(text: str) -> list[str]:
    """A text in pieces of about a token."""
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def _calls(play: Play, body: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """The tool calls this answer makes: the scripted ones, or `tool` calls of the first tool for `rounds` rounds."""
    named = list(play.calls)
    if not named and play.tool:
        messages = body.get("messages") or []
        since = next((i for i in range(len(messages), 0, -1) if messages[i - 1].get("role") == "user"), 0)
        rounds_made = sum(bool(message.get("tool_calls")) for message in messages[since:])
        tools = body.get("tools") or []
        if tools and rounds_made < play.rounds:
            named = [(tools[0]["function"]["name"], "{}")] * play.tool
    return [
        {"id": f"call_{number}_{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(named)
    ]
