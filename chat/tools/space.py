"""The files of a conversation as its tools see them: by name, the newest of a name counts, nothing else is in reach.

Every file is an immutable row; writing adds one. So a file is what the conversation's messages, as they stand, made of
it: an answer that was replaced takes its files with it, and undoing or compacting changes none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary

from django.db.models import QuerySet

from agents.text import clean
from agents.tokens import count_text
from agents.tools import ToolContext, ToolError
from chat import files
from chat.errors import ChatError
from chat.extracting import Extracted
from chat.models import Attachment, AttachmentKind, Conversation, Message

LONGEST_PATH = 200  # characters
DEEPEST = 10  # folders
LONGEST_FILE = 1_000_000  # characters that a tool may write
_READ = (  # neither the text of a file nor that of its message
    "name",
    "kind",
    "mime",
    "size",
    "token_cost",
    "width",
    "height",
    "pages",
    "file",
    "created_at",
    "message__position",
    "message__role",
    "message__author_name",
)
MOST_NAMED = 20  # names that are suggested


def rows(conversation_id: UUID) -> QuerySet[Attachment]:
    """What was sent or written here and not replaced since, oldest first, without the text."""
    sent = Attachment.objects.filter(
        conversation=conversation_id, message__position__isnull=False, message__retired_at__isnull=True
    )
    return sent.select_related("message").only(*_READ).order_by("created_at", "id")


def newest(conversation_id: UUID) -> dict[str, Attachment]:
    """The files by name, in the order in which they were last changed."""
    found: dict[str, Attachment] = {}
    for row in rows(conversation_id):
        found.pop(row.name, None)
        found[row.name] = row
    return found


def find(conversation_id: UUID, name: str) -> Attachment:
    """The newest file of a name; raises ToolError with the names there are."""
    path = normalised(name)
    there = newest(conversation_id)
    if path in there:
        return there[path]
    alike = [known for known in there if known.lower() == path.lower() or known.rsplit("/", 1)[-1] == path]
    if len(alike) == 1:
        return there[alike[0]]
    named = ", ".join([*alike, *(known for known in reversed(there) if known not in alike)][:MOST_NAMED])
    raise ToolError(f"There is no file {path}. Files: {named or 'none'}.")


def normalised(name: str) -> str:
    """A path inside the conversation's space; raises ToolError for one that leads out of it."""
    parts = [part for part in clean(name).replace("\\", "/").split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ToolError(f"{name[:LONGEST_PATH]} leads out of this conversation's files. Use a plain name.")
    path = "/".join(part.strip() for part in parts)
    if not path or any(ord(character) < 32 for character in path):
        raise ToolError("Give the file a name, such as notes.md.")
    if len(path) > LONGEST_PATH or len(parts) > DEEPEST:
        raise ToolError(f"The name is too long: at most {LONGEST_PATH} characters and {DEEPEST} folders.")
    return path


def write(context: ToolContext, name: str, text: str) -> Attachment:
    """A new version of a text file, made by the message that called for it."""
    if len(text) > LONGEST_FILE:
        raise ToolError(f"The file is too long: at most {LONGEST_FILE} characters.")
    conversation = Conversation.objects.get(pk=context.conversation_id)
    text = clean(text)
    found = Extracted(AttachmentKind.TEXT, "text/plain", text.encode(), text, count_text(text))
    try:
        files.check_room(conversation, len(found.content))
    except ChatError as error:
        raise ToolError(str(error.message)) from error
    return files.store(conversation, None, normalised(name), found, message=caller(context), is_path=True)


@contextmanager
def alone(conversation_id: UUID) -> Iterator[None]:
    """Tools that change files run side by side in one round, in one process: one after the other, none is lost."""
    with _locks_lock:
        lock = _locks.setdefault(conversation_id, _Lock())
    with lock.lock:
        yield


def caller(context: ToolContext) -> Message | None:
    """The message that made the call, which is the newest of its turn that calls anything."""
    if context.turn_id is None:
        return None
    said = Message.objects.filter(turn=context.turn_id, role="assistant", position__isnull=False)
    return said.exclude(tool_calls=[]).order_by("-position").first()


class _Lock:
    """A lock that a weak dictionary can hold."""

    def __init__(self) -> None:
        self.lock: Any = threading.Lock()


_locks: WeakValueDictionary[UUID, _Lock] = WeakValueDictionary()
_locks_lock = threading.Lock()
