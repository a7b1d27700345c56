"""list_files, read_file, search_files, write_file, edit_file: the conversation's own files and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import UUID

from agents.messages import JSON
from agents.tools import Tool, ToolContext, ToolError, ToolResult
from chat.files import part_of
from chat.models import Attachment, AttachmentKind, Conversation
from chat.tools import space
from chat.tools.running import in_database

MOST_LISTED = 200
LONGEST_READ = 40_000  # characters of one read
MOST_LINES = 1_000
MOST_MATCHES = 60
LONGEST_LINE = 300  # characters of a line that a search shows
SEARCH_SECONDS = 5.0


def list_files(arguments: JSON, context: ToolContext) -> str:
    """The files by name, the last changed first."""
    there = list(reversed(space.newest(context.conversation_id).values()))
    if not there:
        return "There are no files in this conversation."
    lines = [_entry(row) for row in there[:MOST_LISTED]]
    left = len(there) - MOST_LISTED
    return "\n".join(lines + ([f"and {left} more"] if left > 0 else []))


def read_file(arguments: JSON, context: ToolContext) -> ToolResult:
    """A file, or some of its lines."""
    row = space.find(context.conversation_id, arguments["name"])
    if row.kind == AttachmentKind.IMAGE:
        return _seen(row, context)
    if not row.text:
        return ToolResult(f"{row.name} holds no text.")
    if "offset" in arguments:
        return ToolResult(_from_character(row, arguments["offset"]))
    return ToolResult(_from_line(row, arguments.get("first_line", 1), arguments.get("last_line")))


def search_files(arguments: JSON, context: ToolContext) -> str:
    """The lines of files that hold a text, whatever its case."""
    wanted: str = arguments["text"].lower()
    until = time.monotonic() + SEARCH_SECONDS
    there = space.newest(context.conversation_id)
    only = space.normalised(arguments["name"]).lower() if arguments.get("name") else ""
    keys = [row.pk for name, row in there.items() if only in name.lower()]
    found: list[str] = []
    for key in reversed(keys):
        row = _holding(key, wanted)
        for line in _matches(row, wanted) if row else ():
            found.append(line)
            if len(found) > MOST_MATCHES:
                return "\n".join([*found[:MOST_MATCHES], "[more were found; look for something rarer]"])
        if time.monotonic() > until:
            return "\n".join([*found, "[the search was stopped after some seconds; name a file to look in]"])
    return "\n".join(found) or f"No file holds “{arguments['text'][:100]}”."


def write_file(arguments: JSON, context: ToolContext) -> str:
    """A new file, or a new version of one."""
    with space.alone(context.conversation_id):
        row = space.write(context, arguments["name"], arguments["content"])
    return f"Wrote {row.name}: {_lines_of(row.text)} lines, {row.size} bytes."


def edit_file(arguments: JSON, context: ToolContext) -> str:
    """One place of a text file changed, or all that read the same."""
    old, new = arguments["old_text"], arguments["new_text"]
    with space.alone(context.conversation_id):
        row = space.find(context.conversation_id, arguments["name"])
        if row.kind != AttachmentKind.TEXT:
            raise ToolError(f"{row.name} is no text file. Write its text to a new file instead.")
        count = row.text.count(old)
        if not count:
            raise ToolError(f"{row.name} does not hold old_text. Read the file and copy the place exactly.")
        if count > 1 and not arguments.get("all"):
            raise ToolError(f"{row.name} holds old_text {count} times. Give more of the text around it, or set all.")
        space.write(context, row.name, row.text.replace(old, new))
    return f"Changed {count} place{'s' if count > 1 else ''} in {row.name}."


# Reading


def _seen(row: Attachment, context: ToolContext) -> ToolResult:
    agent = Conversation.objects.select_related("agent__channel").get(pk=context.conversation_id).agent
    if not agent.can_see:
        raise ToolError(f"{row.name} is an image, and this model cannot see images.")
    return ToolResult(f"{row.name}, {row.width}x{row.height}", parts=(part_of(row),))


def _from_line(row: Attachment, first: int, last: int | None) -> str:
    lines = row.text.split("\n")
    if first > len(lines):
        raise ToolError(f"{row.name} has only {len(lines)} lines.")
    wanted = min(last or len(lines), len(lines), first + MOST_LINES - 1)
    taken: list[str] = []
    size = 0
    for line in lines[first - 1 : max(first, wanted)]:
        if size + len(line) > LONGEST_READ and taken:
            break
        taken.append(line)
        size += len(line) + 1
    if size > LONGEST_READ:
        return _from_character(row, sum(len(line) + 1 for line in lines[: first - 1]))
    reached = first + len(taken) - 1
    head = f"{row.name}, lines {first}-{reached} of {len(lines)}:\n"
    rest = (
        f"\n[read on with first_line={reached + 1}]" if reached < len(lines) and (last or reached + 1) > reached else ""
    )
    return head + "\n".join(taken) + rest


def _from_character(row: Attachment, offset: int) -> str:
    """For files whose lines are too long to be read by line."""
    if offset >= len(row.text):
        raise ToolError(f"{row.name} has only {len(row.text)} characters.")
    end = min(len(row.text), offset + LONGEST_READ)
    rest = f"\n[read on with offset={end}]" if end < len(row.text) else ""
    return f"{row.name}, characters {offset}-{end} of {len(row.text)}:\n{row.text[offset:end]}{rest}"


def _holding(key: UUID, wanted: str) -> Attachment | None:
    """A file that may hold a text in lower case. Databases differ in what is the same letter outside ASCII."""
    rows = Attachment.objects.filter(pk=key)
    return (rows.filter(text__icontains=wanted) if wanted.isascii() else rows).first()


def _matches(row: Attachment, wanted: str) -> Iterator[str]:
    for number, line in enumerate(row.text.split("\n"), start=1):
        at = line.lower().find(wanted)
        if at >= 0:
            start = max(0, at - LONGEST_LINE // 3)
            yield f"{row.name}:{number}: {line[start : start + LONGEST_LINE].strip()}"


def _entry(row: Attachment) -> str:
    if row.kind == AttachmentKind.IMAGE:
        return f"{row.name} (image, {row.width}x{row.height})"
    pages = f", {row.pages} pages" if row.pages else ""
    return f"{row.name} ({row.kind}, {row.size} bytes{pages}, {row.token_cost} tokens)"


def _lines_of(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") if text else 0)


def _schema(required: str, **properties: JSON) -> JSON:
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


_NAME = {"type": "string", "description": "Name of a file, such as report/notes.md"}

TOOLS = (
    Tool("list_files", "List the files of this conversation.", _schema(""), in_database(list_files), by_default=True),
    Tool(
        "read_file",
        "Read a file of this conversation, whole or from one line to another. Images are shown.",
        _schema(
            "name",
            name=_NAME,
            first_line={"type": "integer", "minimum": 1},
            last_line={"type": "integer", "minimum": 1},
            offset={"type": "integer", "minimum": 0, "description": "Character to begin at, for very long lines"},
        ),
        in_database(read_file),
        by_default=True,
    ),
    Tool(
        "search_files",
        "Find the lines of this conversation's files that hold a text, whatever its case.",
        _schema(
            "text",
            text={"type": "string", "minLength": 1, "maxLength": 400},
            name={"type": "string", "description": "Only files whose name holds this"},
        ),
        in_database(search_files),
        by_default=True,
    ),
    Tool(
        "write_file",
        "Write a text file of this conversation. An existing file of that name gets a new version.",
        _schema("name content", name=_NAME, content={"type": "string"}),
        in_database(write_file),
        clearable=False,
    ),
    Tool(
        "edit_file",
        "Replace a piece of a text file. old_text must stand in the file exactly once, unless all is true.",
        _schema(
            "name old_text new_text",
            name=_NAME,
            old_text={"type": "string", "minLength": 1},
            new_text={"type": "string"},
            all={"type": "boolean"},
        ),
        in_database(edit_file),
        clearable=False,
    ),
)
