"""The one reader of provider streams (OpenAI-compatible server-sent events), with the habits of all suppliers we know.

Pure: bytes in, events out. A burst of events of one shape, which is what a fast model sends, is read without building
an object for each: the bytes around the text are learnt once, and only the text between them is taken.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

import orjson

from agents.calls import CallAssembly, ToolCallPiece
from agents.errors import sentence
from agents.messages import ToolCall
from agents.rejections import fault_in_stream
from agents.text import StreamCleaner
from agents.thinking import Kind, ThinkSplitter
from agents.usage import Usage

LONGEST_LINE: Final = 16 * 1024 * 1024  # bytes without a line end, after which this is no stream


@dataclass(frozen=True, slots=True)
class TextPiece:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingPiece:
    text: str


@dataclass(frozen=True, slots=True)
class UsageReport:
    usage: Usage


@dataclass(frozen=True, slots=True)
class Finished:
    """The model is done: stop, length, tool_calls, content_filter, or a supplier's own word."""

    reason: str


@dataclass(frozen=True, slots=True)
class StreamFault:
    """The stream ended in an error; everything before it is still good. `retry_after` in seconds."""

    code: str
    message: str
    retryable: bool = False
    retry_after: float | None = None


StreamEvent = TextPiece | ThinkingPiece | ToolCallPiece | UsageReport | Finished | StreamFault

_REASONS = {
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "complete": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "safety": "content_filter",
    "recitation": "content_filter",
    "sensitive": "content_filter",
    "content-filter": "content_filter",
    "refusal": "content_filter",
}
_FAULT_REASONS = {
    "error": "provider_unavailable",
    "network_error": "stream_cut",
    "abort": "stream_cut",
    "insufficient_system_resource": "provider_unavailable",
}
_THINKING_FIELDS = ("reasoning_content", "reasoning", "thinking")
_STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*')
_PADDING = re.compile(rb'"obfuscation"\s*:\s*"([A-Za-z0-9]*)"')
_PROBE = "palimpsest"
_LESSONS = 6  # a supplier whose events differ each time is not studied for ever


@dataclass(slots=True)
class _Template:
    """The bytes around the text in events that carry one piece of text and nothing else.

    `pattern` matches a whole event, where a supplier pads each one with random letters against eavesdroppers.
    """

    kind: Kind
    prefix: bytes
    suffix: bytes
    pattern: re.Pattern[bytes] | None = None

    def texts(self, block: bytes, start: int) -> tuple[list[bytes], int]:
        """The texts of as many such events as follow each other from `start`, and the position after them."""
        texts: list[bytes] = []
        if self.pattern:
            while event := self.pattern.match(block, start):
                texts.append(event[1])
                start = event.end()
            return texts, start
        while block.startswith(self.prefix, start):
            inside = start + len(self.prefix)
            end = block.find(self.suffix, inside)
            if end < 0 or b"\n" in (text := block[inside:end]):
                break
            texts.append(text)
            start = end + len(self.suffix)
        return texts, start


class StreamReader:
    """Feed it what the connection gives, cut anywhere; after `finish()` the calls, usage and reason are complete."""

    def __init__(self, *, split_think: bool = True, model: str = "") -> None:
        self.usage: Usage | None = None
        self.finish_reason = ""
        self.refused = False
        self.ended = False
        self._model = model
        self._unread: list[bytes] = []
        self._unread_size = 0
        self._after_cr = False
        self._lines: list[bytes] = []
        self._event_name = b""
        self._raw = b""
        self._closing = False
        self._templates: dict[Kind, _Template] = {}
        self._lessons = _LESSONS
        self._run: list[str] = []
        self._run_kind: Kind = "text"
        self._out: list[StreamEvent] = []
        self._calls = CallAssembly()
        self._splitter = ThinkSplitter(split_think)
        self._cleaners: dict[Kind, StreamCleaner] = {"text": StreamCleaner(), "thinking": StreamCleaner()}

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls received so far, in order; complete once the stream has finished."""
        return self._calls.finished()

    def feed(self, received: bytes) -> list[StreamEvent]:
        """What these bytes add, in order; consecutive text is one piece. Nothing comes after the end."""
        if self.ended or not received:
            return []
        received = self._with_plain_line_ends(received)
        end = received.rfind(b"\n") + 1
        if not end:
            self._keep(received)
            return self._take()
        self._unread.append(received[:end])
        block = b"".join(self._unread)
        self._unread, self._unread_size = [], 0
        if end < len(received):
            self._keep(received[end:])
        self._read(block)
        return self._take()

    def finish(self) -> list[StreamEvent]:
        """What is left when the connection has ended: the last texts, usage, and the reason or `stream_cut`."""
        if self.ended:
            return []
        block, self._unread = b"".join(self._unread), []
        self._closing = True
        self._read(block + b"\n\n")
        if not self.ended:
            self._conclude(whole=bool(self.finish_reason))
        return self._take()

    # Bytes and lines

    def _with_plain_line_ends(self, received: bytes) -> bytes:
        if self._after_cr and received.startswith(b"\n"):
            received = received[1:]
        self._after_cr = received.endswith(b"\r")
        if b"\r" in received:
            received = received.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return received

    def _keep(self, rest: bytes) -> None:
        self._unread.append(rest)
        self._unread_size += len(rest)
        if self._unread_size > LONGEST_LINE:
            self._unread = []
            self._fault("stream_invalid")

    def _read(self, block: bytes) -> None:
        position, size = 0, len(block)
        while position < size and not self.ended:
            if not self._lines and (after := self._read_run(block, position)) > position:
                position = after
                continue
            end = block.find(b"\n", position)
            self._read_line(block[position:end])
            position = end + 1

    def _read_run(self, block: bytes, position: int) -> int:
        """Reads as many events of a learnt shape as follow; the position after them (the same if there is none)."""
        for template in self._templates.values():
            texts, after = template.texts(block, position)
            if not texts:
                continue
            if (joined := _string(b"".join(texts))) is not None:
                self._add(template.kind, joined)
            else:  # rare: a stray quote or half a surrogate pair among them; read them one by one
                self._raw = b""
                for line in block[position:after].split(b"\n"):
                    self._read_event(_payload(line), b"")
            return after
        return position

    def _read_line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            if len(self._lines) == 1 and self._lines[0].endswith(b"}") and _parsed(self._lines[0]) is not None:
                self._dispatch()  # some forget the blank line between events
            self._lines.append(_payload(line))
            if not self._event_name and len(self._lines) == 1:
                self._raw = line
        elif not line:
            if self._lines:
                self._dispatch()
            self._event_name = b""
        elif line.startswith(b"{") and not self._lines:
            self._raw = b""
            self._read_event(line, b"")  # bare JSON, one object a line
        elif line.startswith(b"event:"):
            self._event_name = line[6:].strip()

    def _dispatch(self) -> None:
        lines, self._lines = self._lines, []
        payload = b"\n".join(lines).strip()
        if len(lines) > 1:
            self._raw = b""
            if _parsed(payload) is None:
                for line in lines:
                    self._read_event(line, self._event_name)
                return
        self._read_event(payload, self._event_name)

    def _read_event(self, payload: bytes, name: bytes) -> None:
        if self.ended or not payload:
            return
        if payload == b"[DONE]":
            self._conclude(whole=True)
            return
        event = _parsed(payload)
        if isinstance(event, list):
            event = event[0] if event else None
        if isinstance(event, dict):
            if event.get("error") or name == b"error":
                self._report(event)
            else:
                self._read_object(event)
        elif name == b"error":
            self._report({"error": {"message": payload.decode("utf-8", "replace")}})
        elif not name and not self._closing:  # at the end it is an event that was cut off, told apart in `finish`
            self._fault("stream_invalid")

    # Objects

    def _read_object(self, event: dict[str, Any]) -> None:
        choices = event.get("choices")
        usage = event.get("usage")
        if not usage and isinstance(groq := event.get("x_groq"), dict):
            usage = groq.get("usage")
        if isinstance(choices, list):
            for choice in choices:
                if isinstance(choice, dict) and not choice.get("index"):
                    usage = usage or choice.get("usage")
                    self._read_choice(choice, learnable=not usage)
        if isinstance(usage, dict) and any(usage.values()):
            self.usage = Usage.from_openai(usage)

    def _read_choice(self, choice: dict[str, Any], *, learnable: bool) -> None:
        delta = choice.get("delta") or choice.get("message")
        if not isinstance(delta, dict):
            delta = {}
        reason = choice.get("finish_reason")
        thought_field = next((name for name in _THINKING_FIELDS if delta.get(name)), "")
        content, calls, refusal = delta.get("content"), delta.get("tool_calls"), delta.get("refusal")
        if learnable and not (reason or calls or refusal):
            self._learn_from(delta, thought_field, content)
        if thought_field:
            self._add_thought(delta[thought_field])
        elif details := delta.get("reasoning_details"):
            self._add_thought(details)
        if content:
            self._add_content(content)
        if refusal and isinstance(refusal, str):
            self.refused = True
            self._add("text", refusal)
        if calls:
            self._add_calls(calls)
        elif function_call := delta.get("function_call"):
            self._add_calls([{"index": 0, "function": function_call}])
        if reason:
            self._read_reason(str(reason), choice)

    def _read_reason(self, reason: str, choice: dict[str, Any]) -> None:
        reason = reason.lower()
        if reason in _FAULT_REASONS:
            if choice.get("error"):
                self._report(choice)
            else:
                self._fault(_FAULT_REASONS[reason])
            return
        self.finish_reason = _REASONS.get(reason, reason)

    def _add_content(self, content: Any) -> None:
        """Content is a text, or a list of parts some of which are thinking."""
        if isinstance(content, str):
            self._add("text", content)
            return
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, str):
                self._add("text", part)
            elif isinstance(part, dict) and part.get("type") in ("thinking", "reasoning"):
                self._add_thought(part.get("thinking") or part.get("reasoning") or part.get("text"))
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                self._add("text", part["text"])

    def _add_thought(self, thought: Any) -> None:
        """Thinking is a text, an object with one, or a list of these."""
        if isinstance(thought, str):
            self._add("thinking", thought)
        elif isinstance(thought, dict):
            self._add_thought(thought.get("text") or thought.get("content") or thought.get("summary"))
        elif isinstance(thought, list):
            for part in thought:
                self._add_thought(part)

    def _add_calls(self, calls: Any) -> None:
        self._flush_run()
        for piece in self._calls.feed(calls):
            last = self._out[-1] if self._out else None
            if isinstance(last, ToolCallPiece) and last.index == piece.index:
                merged = last.arguments + piece.arguments
                self._out[-1] = ToolCallPiece(piece.index, piece.id, piece.name, merged)
            else:
                self._out.append(piece)

    # Learning the shape of events

    def _learn_from(self, delta: dict[str, Any], thought_field: str, content: Any) -> None:
        if not self._raw or not self._lessons or bool(thought_field) == bool(content):
            return
        name = thought_field or "content"
        kind: Kind = "thinking" if thought_field else "text"
        if isinstance(delta[name], str):
            self._lessons -= 1
            if template := _learn(self._raw, name, kind):
                self._templates[kind] = template

    # What goes out

    def _add(self, kind: Kind, text: str) -> None:
        if kind != self._run_kind:
            self._flush_run()
            self._run_kind = kind
        self._run.append(text)

    def _flush_run(self) -> None:
        if not self._run:
            return
        kind = self._run_kind
        text = self._cleaners[kind].feed("".join(self._run))
        self._run = []
        if kind == "thinking":
            self._emit(kind, text)
        else:
            for parted_kind, piece in self._splitter.feed(text):
                self._emit(parted_kind, piece)

    def _emit(self, kind: Kind, text: str) -> None:
        if not text:
            return
        made = TextPiece if kind == "text" else ThinkingPiece
        last = self._out[-1] if self._out else None
        if type(last) is made:
            self._out[-1] = made(last.text + text)
        else:
            self._out.append(made(text))

    def _flush_all(self) -> None:
        self._flush_run()
        self._emit("thinking", self._cleaners["thinking"].flush())
        for kind, piece in self._splitter.feed(self._cleaners["text"].flush()):
            self._emit(kind, piece)
        for kind, piece in self._splitter.flush():
            self._emit(kind, piece)
        if self.usage:
            self._out.append(UsageReport(self.usage))

    def _conclude(self, *, whole: bool) -> None:
        if not whole:
            self._fault("stream_cut")
            return
        self._flush_all()
        if self._calls and self.finish_reason in ("", "stop"):
            self.finish_reason = "tool_calls"
        self.finish_reason = self.finish_reason or "stop"
        self._out.append(Finished(self.finish_reason))
        self.ended = True

    def _report(self, event: dict[str, Any]) -> None:
        error = fault_in_stream(event, model=self._model)
        self._flush_all()
        self._out.append(StreamFault(error.code, error.message, error.retryable, error.retry_after))
        self.ended = True

    def _fault(self, code: str) -> None:
        self._flush_all()
        self._out.append(StreamFault(code, sentence(code, model=self._model), retryable=True))
        self.ended = True

    def _take(self) -> list[StreamEvent]:
        self._flush_run()
        out, self._out = self._out, []
        return out


def _payload(line: bytes) -> bytes:
    """The value of a `data:` line."""
    return line[6:] if line.startswith(b"data: ") else line[5:]


def _parsed(payload: bytes) -> Any:
    """The JSON value, or None. Python's own parser takes what orjson refuses: half a surrogate pair, a raw tab."""
    try:
        return orjson.loads(payload)
    except ValueError:
        pass
    try:
        return json.loads(payload.decode("utf-8", "replace"), strict=False)
    except ValueError:
        return None


def _string(inner: bytes) -> str | None:
    """The text of a JSON string without its quotes, or None if these bytes are none."""
    try:
        text = orjson.loads(b'"' + inner + b'"')
    except ValueError:
        return None
    return text if isinstance(text, str) else None


def _learn(line: bytes, name: str, kind: Kind) -> _Template | None:
    """The template of a line whose delta carries `name` and nothing else that matters; tried out before it is used."""
    match = re.search(rb'"' + name.encode() + rb'"\s*:\s*"', line)
    if not match or not (text := _STRING.match(line, match.end())):
        return None
    prefix, suffix = line[: text.start()], line[text.end() :]
    template = _Template(kind, prefix, suffix + b"\n\n")
    if padding := _PADDING.search(suffix):
        before, after = re.escape(suffix[: padding.start(1)]), re.escape(suffix[padding.end(1) :])
        template.pattern = re.compile(
            b"%b(%b)%b[A-Za-z0-9]*%b\n\n" % (re.escape(prefix), _STRING.pattern, before, after)
        )
    tried = _parsed(_payload(prefix + _PROBE.encode() + suffix))
    try:
        found = tried["choices"][0]["delta"][name]
    except (TypeError, KeyError, IndexError):
        return None
    return template if found == _PROBE else None
