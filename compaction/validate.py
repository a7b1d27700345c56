"""Whether a provider would accept a list of messages, and how any stored history is made into one it accepts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import orjson

from agents.messages import Message, ToolCall

NO_RESULT = "[no result: interrupted]"
NOT_JSON = "not_json"  # the argument under which a request repeats what was no JSON object
LONGEST_REPEATED = 2_000  # characters of it
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_UNSAFE_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]+")


def fault(messages: Sequence[Message]) -> str:
    """What a provider would refuse these messages for; empty where nothing is wrong.

    Every call is followed directly by its one result, every result follows its call, ids are unique, nothing is blank.
    """
    waiting: set[str] = set()
    seen: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                return f"message {index} is the result of no call before it"
            waiting.discard(message.tool_call_id)
            continue
        if waiting:
            return f"a call before message {index} has no result"
        if not message.content and message.role == "assistant" and _is_blank(message):
            return f"message {index} is blank"
        for call in message.tool_calls:
            if not call.id or call.id in seen:
                return f"message {index} repeats a call id"
            seen.add(call.id)
            waiting.add(call.id)
    return "the last call has no result" if waiting else ""


def complete_pairs(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The same messages as a request every provider accepts; deterministic, and unchanged where nothing is wrong.

    Results move behind their call; a result belongs to the nearest assistant message before it that still waits for
    one of that id, because ids come back in long histories; a turn that uses an id again ends the wait of earlier ones.
    A call that was interrupted gets `NO_RESULT`, a result whose call is gone (a pinned one) gets a bare call in front
    of it, an id used before gets a number, and assistant messages that say nothing are left out.
    """
    if not fault(messages):
        return tuple(messages)
    results, orphans = _assign_results(messages)
    ids = _Ids()
    request: list[Message] = []
    for index, message in enumerate(messages):
        if message.role == "tool":
            if index in orphans:
                request.extend(ids.unique(_bare_call(message), [message]))
        elif message.tool_calls:
            request.extend(ids.unique(message, [_result(messages, at) for at in results[index]]))
        elif message.role != "assistant" or not _is_blank(message):
            request.append(message)
    return tuple(request)


def with_readable_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The same messages, with calls that providers take back; unchanged where nothing is wrong.

    A model may write arguments that are no JSON object, or a name with signs that no tool has. The call got an error
    result, but sent back as it was it would make strict providers refuse this conversation for ever.
    """
    if all(_is_readable(call) for message in messages for call in message.tool_calls):
        return tuple(messages)
    return tuple(
        replace(message, tool_calls=tuple(map(_readable, message.tool_calls))) if message.tool_calls else message
        for message in messages
    )


def merge_neighbours(messages: Sequence[Message]) -> tuple[Message, ...]:
    """For suppliers that insist on alternating roles: neighbours of one role become one message; tool rounds stay."""
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        if last is not None and last.role == message.role and message.role != "tool" and not last.tool_calls:
            merged[-1] = replace(
                last,
                content="\n\n".join(text for text in (last.content, message.content) if text),
                parts=last.parts + message.parts,
                tool_calls=message.tool_calls,
                name=last.name if last.name == message.name else "",
            )
        else:
            merged.append(message)
    return tuple(merged)


def pair(messages: Sequence[Message]) -> dict[int, int]:
    """For each tool message its assistant message, as indices; results whose call is not there are missing."""
    results, _ = _assign_results(messages)
    return {at: caller for caller, places in results.items() for at in places if at is not None}


def _assign_results(messages: Sequence[Message]) -> tuple[dict[int, list[int | None]], set[int]]:
    """For each message with calls the index of every call's result (None: none); and the results left over."""
    results: dict[int, list[int | None]] = {}
    waiting: dict[str, list[tuple[int, int]]] = {}  # by call id: (caller, slot), the newest caller's first slot last
    asked_in: dict[str, int] = {}  # by call id: the turn of its newest caller
    orphans: set[int] = set()
    turn = 0
    for index, message in enumerate(messages):
        if message.role == "user":
            turn += 1
        elif message.tool_calls:
            results[index] = [None] * len(message.tool_calls)
            for slot in range(len(message.tool_calls) - 1, -1, -1):
                id_ = message.tool_calls[slot].id
                if asked_in.get(id_) != turn:  # used again in a later turn: what was interrupted before stays so
                    waiting[id_], asked_in[id_] = [], turn
                waiting[id_].append((index, slot))
        elif message.role == "tool":
            if places := waiting.get(message.tool_call_id):
                caller, slot = places.pop()
                results[caller][slot] = index
            else:
                orphans.add(index)
    return results, orphans


class _Ids:
    """Gives every call of a request an id of its own."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def unique(self, caller: Message, results: list[Message | None]) -> list[Message]:
        """A round: the assistant message and one result for each of its calls, under ids not used before."""
        ids = [self._free(call.id) for call in caller.tool_calls]
        calls = tuple(replace(call, id=id_) for call, id_ in zip(caller.tool_calls, ids, strict=True))
        answers = [
            Message(role="tool", content=NO_RESULT, tool_call_id=id_, name=call.name)
            if result is None
            else (result if result.tool_call_id == id_ else replace(result, tool_call_id=id_))
            for call, id_, result in zip(calls, ids, results, strict=True)
        ]
        return [caller if calls == caller.tool_calls else replace(caller, tool_calls=calls), *answers]

    def _free(self, wanted: str) -> str:
        name, number = wanted or "call", 2
        free = name
        while free in self._used:
            free, number = f"{name}_{number}", number + 1
        self._used.add(free)
        return free


def _result(messages: Sequence[Message], at: int | None) -> Message | None:
    return None if at is None else messages[at]


def _bare_call(result: Message) -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(id=result.tool_call_id, name=result.name or "tool"),))


def _is_readable(call: ToolCall) -> bool:
    if not _NAME.fullmatch(call.name):
        return False
    try:
        return isinstance(orjson.loads(call.arguments), dict)
    except ValueError:
        return False


def _readable(call: ToolCall) -> ToolCall:
    if _is_readable(call):
        return call
    name = _UNSAFE_IN_NAME.sub("_", call.name)[:64] or "unknown"
    if _is_readable(replace(call, name=name)):
        return replace(call, name=name)
    written = orjson.dumps({NOT_JSON: call.arguments[:LONGEST_REPEATED]}).decode()
    return replace(call, name=name, arguments=written)


def _is_blank(message: Message) -> bool:
    return not message.content and not message.parts and not message.tool_calls
