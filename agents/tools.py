"""The registry of tools, and the one way a model's call is run: checked, in time, of bounded size, never raising."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from django.utils.translation import gettext as _

from agents.messages import JSON, ContentPart, ToolCall
from agents.text import clean

logger = logging.getLogger(__name__)

LONGEST_RESULT = 60_000  # characters of a result the model is given
LONGEST_WHOLE = 10_000_000  # characters or bytes of a result that are handed on to be kept
LONGEST_ARGUMENTS = 2_000_000  # characters of arguments that are read at all
MOST_PARTS = 10
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where a call belongs: what a tool may see is decided by its conversation and person."""

    conversation_id: Any
    user_id: int | None
    turn_id: int | None = None
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave: text for the model, images beside it, and how long it took (ms).

    `whole` is the complete result where `content` is not: a text that was shortened, or bytes that are no text.
    """

    content: str
    is_error: bool = False
    parts: tuple[ContentPart, ...] = ()
    duration_ms: int = field(default=0, compare=False)
    whole: str | bytes = field(default="", compare=False, repr=False)


class ToolError(Exception):
    """Raised by a tool to tell the model, in one sentence, why it cannot do what was asked."""


Run = Callable[[JSON, ToolContext], Awaitable[ToolResult | str] | ToolResult | str]


@dataclass(frozen=True, slots=True)
class Tool:
    """Something a model can call. `run(arguments, context)` may be a coroutine function; others run in a thread.

    `clearable`: its old results may be cleared after idleness. `keep`: its results stay whole through compactions.
    `by_default`: a new agent has it until an administrator takes it away.
    """

    name: str
    description: str
    parameters: JSON
    run: Run
    clearable: bool = True
    keep: bool = False
    timeout_seconds: float = 30.0
    by_default: bool = False

    def schema(self) -> JSON:
        """The tool as the chat-completions API takes it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


_registry: dict[str, Tool] = {}


def register(tool: Tool, *, replace: bool = False) -> Tool:
    """Makes a tool known under its name; a second one of that name is a mistake unless it is to replace the first."""
    if not _NAME.fullmatch(tool.name):
        raise ValueError(f"{tool.name!r} is no name for a tool: letters, digits, _ and -, at most 64")
    known = _registry.get(tool.name)
    if known is not None and known != tool and not replace:
        raise ValueError(f"a tool named {tool.name} is registered already")
    _registry[tool.name] = tool
    return tool


def unregister(name: str) -> None:
    """Forgets a tool, as when the server it lives on is disconnected."""
    _registry.pop(name, None)


def tool(name: str) -> Tool | None:
    """The tool of this name, if there is one."""
    return _registry.get(name)


def all_tools() -> tuple[Tool, ...]:
    """Every tool, by name."""
    return tuple(_registry[name] for name in sorted(_registry))


def schemas(names: Iterable[str]) -> tuple[JSON, ...]:
    """The schemas of these tools in this order; unknown names are left out."""
    return tuple(known.schema() for name in names if (known := _registry.get(name)))


async def run_call(call: ToolCall, context: ToolContext, allowed: Collection[str]) -> ToolResult:
    """Runs what the model asked for. Every mistake, the model's or the tool's, is a result that says what was wrong."""
    known = _registry.get(call.name)
    if known is None or call.name not in allowed:
        return _fault(_unknown(call.name, allowed))
    started = time.monotonic()
    try:
        arguments = read_arguments(call.arguments, known)
        async with asyncio.timeout(known.timeout_seconds):
            result = _bounded(await _run(known, arguments, replace(context, call_id=call.id)))
    except ToolError as error:
        result = _fault(str(error))
    except TimeoutError:
        logger.warning("tool %s: stopped after %s s", known.name, known.timeout_seconds)
        seconds = f"{known.timeout_seconds:g}"
        result = _fault(
            _("“%(tool)s” was stopped after %(seconds)s seconds.") % {"tool": known.name, "seconds": seconds}
        )
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            raise
        logger.exception("tool %s failed", known.name)
        result = _fault(_("“%(tool)s” failed because of a mistake of its own.") % {"tool": known.name})
    return replace(result, duration_ms=round((time.monotonic() - started) * 1000))


def read_arguments(text: str, known: Tool) -> JSON:
    """The arguments of a call, valid by the tool's schema; raises ToolError with sentences the model can act on."""
    from agents import json_schema  # 0.1 s, which a start need not wait for

    if len(text) > LONGEST_ARGUMENTS:
        raise ToolError(_("The arguments are too long (%(size)s characters).") % {"size": len(text)})
    try:
        arguments = orjson.loads(text) if text.strip() else {}
    except ValueError as error:
        raise ToolError(
            _("The arguments of “%(tool)s” are not valid JSON (%(why)s). Call it again with one JSON object.")
            % {"tool": known.name, "why": error}
        ) from None
    if not isinstance(arguments, dict):
        raise ToolError(_("The arguments of “%(tool)s” must be one JSON object.") % {"tool": known.name})
    if faults := json_schema.faults(arguments, known.parameters):
        raise ToolError(
            _("The arguments of “%(tool)s” do not fit: %(faults)s. Call it again with this corrected.")
            % {"tool": known.name, "faults": "; ".join(faults)}
        )
    return arguments


def _is_cancelled() -> bool:
    """Whether somebody cancelled this call; a tool's own library may raise the same out of its own affairs."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _run(known: Tool, arguments: JSON, context: ToolContext) -> Any:
    if inspect.iscoroutinefunction(known.run):
        return await known.run(arguments, context)
    made = await asyncio.to_thread(known.run, arguments, context)
    return await made if inspect.isawaitable(made) else made


def _bounded(made: Any) -> ToolResult:
    """A tool's result as clean text of bounded length, whatever the tool returned."""
    result = made if isinstance(made, ToolResult) else ToolResult("")
    given = result.content if result is made else made
    text = clean(_as_text(given))
    whole: str | bytes = result.whole or (text if len(text) > LONGEST_RESULT else "")
    if isinstance(given, (bytes, bytearray)) and not _is_text(given):
        whole = bytes(given) if len(given) <= LONGEST_WHOLE else b""
    elif isinstance(whole, str):
        whole = shorten(clean(whole), LONGEST_WHOLE)
    return replace(result, content=shorten(text), parts=tuple(result.parts[:MOST_PARTS]), whole=whole)


def shorten(text: str, longest: int = LONGEST_RESULT) -> str:
    """The beginning and the end of a long text, with a line between them that says how much was left out."""
    if len(text) <= longest:
        return text
    head, tail = longest * 3 // 4, longest // 4
    left_out = _("[… %(count)s characters left out …]") % {"count": len(text) - head - tail}
    return f"{text[:head]}\n{left_out}\n{text[-tail:]}"


def _is_text(value: bytes | bytearray) -> bool:
    """Whether bytes are text: UTF-8 without control characters that no text has."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return not _CONTROL.search(value[:65_536])


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return value.decode() if _is_text(value) else _("[binary content, %(size)s bytes]") % {"size": len(value)}
    return "" if value is None else orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _unknown(name: str, allowed: Collection[str]) -> str:
    offered = ", ".join(sorted(name for name in allowed if name in _registry)) or _("none")
    return _("There is no tool “%(tool)s”. Tools you can call: %(offered)s.") % {
        "tool": name[:200],
        "offered": offered,
    }


def _fault(sentence: str) -> ToolResult:
    return ToolResult(shorten(clean(sentence)), is_error=True)
