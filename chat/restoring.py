"""What a compaction puts back beside its summary: the files the conversation touched last, as they are now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agents.tools import ToolError
from chat.models import Attachment, AttachmentKind, Conversation
from chat.tools import space
from chat.touches import Touch, touched
from compaction.case import EngineSettings, open_case
from compaction.errors import CompactionError
from compaction.restore import MAX_FILES, Restorable, RestoredFile
from compaction.transcript import Entry, Transcript


@dataclass(frozen=True, slots=True)
class _Last:
    """A file and where it was last touched; `row` where it is one of the conversation's own."""

    name: str
    position: int
    origin: str
    row: Attachment | None = None
    touch: Touch | None = None


def restorable(conversation: Conversation, transcript: Transcript, settings: EngineSettings) -> Restorable:
    """Files that leave the context, the last touched first. Images need no reading: the engine has them in messages."""
    touches = touched(transcript.live)
    has_files = any(part.kind == "file" for entry in transcript.live for part in entry.message.parts)
    if not (touches or has_files or transcript.prefix):
        return ()
    covered = _covered(transcript, settings)
    if not covered:
        return ()
    files = [*_of_space(conversation, transcript, covered, touches), *_of_others(covered, touches)]
    newest = sorted(files, key=lambda file: file.position, reverse=True)[:MAX_FILES]
    return [_restored(file) for file in newest]


def _of_space(
    conversation: Conversation, transcript: Transcript, covered: Sequence[Entry], touches: Sequence[Touch]
) -> list[_Last]:
    """The conversation's own files that are not shown by a message that stays; a name that is no file any more too."""
    there = space.newest(conversation.pk)
    end, shown = covered[-1].position, _shown(transcript, covered)
    used = {_path(touch.name): touch for touch in reversed(touches) if touch.is_own}
    found = []
    for name, row in there.items():
        message, touch = row.message, used.pop(name, None)
        if row.kind == AttachmentKind.IMAGE or row.message_id in shown or (touch and touch.seen_at > end):
            continue
        position = message.position or 0 if message else 0
        if touch is not None and touch.position >= position:
            found.append(_Last(name, touch.position, touch.origin, row))
        else:
            found.append(_Last(name, position, f"#{position}, {message.author_name or message.role}", row))  # type: ignore[union-attr]
    gone = [touch for name, touch in used.items() if name not in there and touch.position <= end]
    return found + [_Last(touch.name, touch.position, touch.origin) for touch in gone]


def _of_others(covered: Sequence[Entry], touches: Sequence[Touch]) -> list[_Last]:
    """Files of other tools, unless a message that stays shows what they hold."""
    end = covered[-1].position
    return [
        _Last(touch.name, touch.position, touch.origin, touch=touch)
        for touch in touches
        if not touch.is_own and touch.seen_at <= end and (touch.text is not None or touch.is_gone)
    ]


def _restored(file: _Last) -> RestoredFile:
    if file.row is not None:
        return RestoredFile(file.name, file.row.text, file.row.token_cost, file.origin)
    touch = file.touch
    if touch is None or touch.is_gone or touch.text is None:
        return RestoredFile(file.name, None, origin=file.origin)
    return RestoredFile(
        file.name, touch.text, origin=f"{file.origin}; as the tools last showed it", reader=touch.reader
    )


def _covered(transcript: Transcript, settings: EngineSettings) -> tuple[Entry, ...]:
    try:
        return open_case(transcript, settings, ()).cut.covered
    except CompactionError:
        return ()  # the engine will say so itself


def _shown(transcript: Transcript, covered: Sequence[Entry]) -> set[int]:
    """Messages with files that stay in the context anyway."""
    gone = {entry.id for entry in covered}
    return {entry.id for entry in transcript.live if entry.message.parts and entry.id not in gone}


def _path(name: str) -> str:
    try:
        return space.normalised(name)
    except ToolError:
        return name
