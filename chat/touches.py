"""Which files the calls of a transcript read, wrote or changed, and what they last held as far as the calls tell. Pure.

For files of the conversation's own space the name is all that is needed. Those of other tools (a coding tool's, another
server's) are out of reach when a compaction is put together, so their content is what was last read or written, with
the changes since.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from agents.messages import JSON, ToolCall
from compaction.transcript import Entry

LONGEST_NAME: Final = 300  # characters
LONGEST_ARGUMENTS: Final = 200  # characters of a call that are told
OWN: Final = frozenset({"read_file", "write_file", "edit_file"})

_PATHS: Final = ("path", "file_path", "filepath", "filePath", "filename", "file_name", "file", "target_file")
_CONTENTS: Final = ("content", "contents", "file_text", "text")
_CHANGES: Final = (
    ("old_text", "new_text"),
    ("oldText", "newText"),
    ("old_string", "new_string"),
    ("old_str", "new_str"),
)
_PARTS: Final = ("offset", "limit", "first_line", "last_line", "start_line", "end_line", "view_range", "range")
_READS: Final = re.compile(r"read|view|open|cat|show", re.IGNORECASE)
_REMOVES: Final = re.compile(r"delete|remove|unlink", re.IGNORECASE)
_FILE: Final = re.compile(r"[^\n\r\0]*[^\s/\\]\.\w{1,10}|[^\n\r\0]*[/\\][^\s/\\]+")


@dataclass(slots=True)
class Touch:
    """A file and its last touch. `text`: what it holds as far as is known; `seen_at`: where that was last shown."""

    name: str
    position: int
    tool: str
    arguments: str
    is_own: bool = False
    is_gone: bool = False
    text: str | None = None
    seen_at: int = 0
    reader: str = "read_history"  # the tool that reads such a file again

    @property
    def origin(self) -> str:
        """Turn, tool and arguments, for people and the model."""
        return f"#{self.position}, {self.tool}({self.arguments[:LONGEST_ARGUMENTS]})"


def touched(entries: Sequence[Entry]) -> list[Touch]:
    """The files that calls touched, the last touched first. A call that failed touched nothing."""
    found: dict[str, Touch] = {}
    reader = ""
    for entry, call, result in _calls(entries):
        arguments = _arguments(call)
        name = _name(call, arguments)
        if name:
            before = found.pop(name, None)
            touch = Touch(name, entry.position, call.name, call.arguments, is_own=call.name in OWN)
            if before is not None:
                touch.text, touch.seen_at, touch.is_gone = before.text, before.seen_at, before.is_gone
            if _applies(touch, call.name, arguments, result):
                found[name] = touch
                reader = call.name if _READS.search(call.name) else reader
            elif before is not None:
                found[name] = before
    for touch in found.values():
        touch.reader = reader or touch.reader
    return sorted(found.values(), key=lambda touch: touch.position, reverse=True)


def _applies(touch: Touch, tool: str, arguments: JSON, result: Entry) -> bool:
    """Note what a call did to its file; False for a call that only mentions it."""
    change = next(((old, new) for old, new in _CHANGES if old in arguments and new in arguments), None)
    content = next((arguments[key] for key in _CONTENTS if isinstance(arguments.get(key), str)), None)
    if change is not None:
        old, new = str(arguments[change[0]]), str(arguments[change[1]])
        known = touch.text is not None and old and old in touch.text
        touch.text = touch.text.replace(old, new, 1) if known and touch.text is not None else None
    elif content is not None:
        touch.text, touch.seen_at, touch.is_gone = content, touch.position, False
    elif _REMOVES.search(tool):
        touch.text, touch.is_gone = None, True
    elif _READS.search(tool):
        is_part = any(arguments.get(key) is not None for key in _PARTS)
        if not result.cleared and not (is_part and touch.text is not None):
            touch.text, touch.seen_at = result.message.content, result.position
        touch.is_gone = False
    else:
        return False
    return True


def _calls(entries: Sequence[Entry]) -> Iterator[tuple[Entry, ToolCall, Entry]]:
    """Each call with the result it got, by position: real transcripts use an id more than once."""
    for index, entry in enumerate(entries):
        if not entry.message.tool_calls:
            continue
        results: dict[str, Entry] = {}
        for later in entries[index + 1 :]:
            if later.message.role != "tool":
                break
            results.setdefault(later.message.tool_call_id, later)
        for call in entry.message.tool_calls:
            result = results.get(call.id)
            if result is not None and not result.is_error:
                yield entry, call, result


def _arguments(call: ToolCall) -> JSON:
    try:
        arguments: Any = orjson.loads(call.arguments)
    except ValueError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _name(call: ToolCall, arguments: JSON) -> str:
    """The file that a call is about; empty where it is about none."""
    keys = ("name",) if call.name in OWN else _PATHS
    name = next((value for key in keys if isinstance(value := arguments.get(key), str)), "")
    if not name or len(name) > LONGEST_NAME:
        return ""
    return name if call.name in OWN or _FILE.fullmatch(name) else ""
