"""Puts streamed tool calls together: in pieces or whole, with empty, missing or reused ids and indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import orjson

from agents.messages import ToolCall
from agents.text import StreamCleaner, clean


@dataclass(frozen=True, slots=True)
class ToolCallPiece:
    """A piece of a tool call: `index` counts the calls of this answer, `arguments` is what was added."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class _Slot:
    """One call being put together; `named` tells whether its id came from the provider."""

    index: int
    id: str
    named: bool
    name: str = ""
    arguments: str = ""
    cleaner: StreamCleaner = field(default_factory=StreamCleaner)

    def is_complete(self) -> bool:
        """Whether the arguments so far are a whole JSON object, after which nothing can follow."""
        return self.arguments.rstrip().endswith("}") and _is_json(self.arguments)


class CallAssembly:
    """Collects the `tool_calls` of the deltas of one answer."""

    __slots__ = ("_by_index", "_slots")

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}

    def __bool__(self) -> bool:
        return bool(self._slots)

    def feed(self, calls: Any) -> Iterator[ToolCallPiece]:
        """The pieces that a delta's `tool_calls` adds."""
        calls = calls if isinstance(calls, list) else [calls]
        for place, call in enumerate(calls):
            if not isinstance(call, dict):
                continue
            # Several calls in one delta without an index are told apart by their place.
            index = call.get("index", place if len(calls) > 1 else None)
            if piece := self._add(call, index if isinstance(index, int) else None):
                yield piece

    def finished(self) -> tuple[ToolCall, ...]:
        """The calls as they stand; nameless ones are left out, since nothing could run them."""
        return tuple(
            ToolCall(slot.id, slot.name, slot.arguments + slot.cleaner.flush() or "{}")
            for slot in self._slots
            if slot.name
        )

    def _add(self, call: dict[str, Any], index: int | None) -> ToolCallPiece | None:
        inner = call.get("function")
        function = inner if isinstance(inner, dict) else call
        call_id, name = _text(call.get("id")), _text(function.get("name"))
        arguments = _arguments(function.get("arguments"))
        slot = self._slot(index, call_id, name, arguments)
        if call_id and not slot.named:
            slot.id, slot.named = call_id, True
        if _repeats(slot, arguments):
            return None
        # A name comes whole, and some repeat it with every piece; only before the arguments can it come in parts.
        if name and not slot.name:
            slot.name = name
        elif name and name != slot.name and not slot.arguments and not call_id:
            slot.name += name
        arguments = slot.cleaner.feed(arguments)
        slot.arguments += arguments
        return ToolCallPiece(slot.index, slot.id, slot.name, arguments)

    def _slot(self, index: int | None, call_id: str, name: str, arguments: str) -> _Slot:
        if index is not None:
            slot = self._by_index.get(index)
        else:
            slot = next((slot for slot in self._slots if call_id and slot.id == call_id), None)
            if slot is None and self._slots and not call_id:
                slot = self._slots[-1]
        if slot is None or _begins_another(slot, call_id, name, arguments):
            slot = _Slot(len(self._slots), call_id or f"call_{uuid4().hex[:24]}", bool(call_id))
            self._slots.append(slot)
        if index is not None:
            self._by_index[index] = slot
        return slot


def _begins_another(slot: _Slot, call_id: str, name: str, arguments: str) -> bool:
    """Whether a piece that points to this slot opens a new call: some number all parallel calls 0."""
    if not name:
        return False
    if call_id and slot.named:
        # A new id on every piece of one call is also seen: only a call that could be finished is followed by another.
        return call_id != slot.id and (not slot.arguments.strip() or slot.is_complete())
    return (
        slot.is_complete()
        and arguments.lstrip().startswith("{")
        and (name != slot.name or not _repeats(slot, arguments))
    )


def _repeats(slot: _Slot, arguments: str) -> bool:
    """Whether the finished arguments are sent once more as a whole."""
    return len(arguments) > 2 and arguments.strip() == slot.arguments.strip() and slot.is_complete()


def _arguments(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else orjson.dumps(arguments).decode()


def _text(value: Any) -> str:
    return clean(value) if isinstance(value, str) else ""


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True
