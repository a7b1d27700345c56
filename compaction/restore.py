"""What is put back after a compaction: the files last touched and the newest images, within a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agents.messages import ContentPart
from compaction import prompts
from compaction.language import Headings
from compaction.stages.prune import tool_names
from compaction.transcript import Entry, Prefix

MAX_FILES = 5
FILE_TOKENS = 5_000
MAX_IMAGES = 3
NAMED_IMAGES = 12  # the newest that are named at all
RESTORED_TOKENS = 25_000
IMAGE_TOKENS = 1_600
_REFERENCE_TOKENS = 60


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """A file as read at assembly. `text` None: it is gone; `origin`: turn, tool and arguments of the last touch."""

    name: str
    text: str | None
    tokens: int = 0
    origin: str = ""
    reader: str = "read_file"  # the tool that reads it again


@dataclass(frozen=True, slots=True)
class RestoredImage:
    """An image of a covered message; `origin` tells turn, tool and arguments it came from."""

    part: ContentPart
    origin: str = ""


Restorable = Sequence[RestoredFile | RestoredImage]


@dataclass(frozen=True, slots=True)
class RestoredState:
    """What the prefix carries: text for files and image origins, and the image parts, oldest first."""

    text: str = ""
    parts: tuple[ContentPart, ...] = ()
    tokens: int = 0
    files: int = 0
    images: int = 0


def restored_budget(window: int) -> int:
    """All restored state together (tokens): 25,000, or a quarter of a small window."""
    return min(RESTORED_TOKENS, window // 4)


def restore(restorable: Restorable, budget: int, headings: Headings, count: Callable[[str], int]) -> RestoredState:
    """Builds the restored state within `budget` (tokens). Files come newest first, images oldest first.

    Images come before files where both do not fit: no tool can look at them again. What does not fit is named, a file
    with the tool that reads it; a file that is gone is said to be gone.
    """
    images, omitted, left = _images_within(restorable, budget)
    blocks: list[str] = []
    files = [entry for entry in restorable if isinstance(entry, RestoredFile)][:MAX_FILES]
    for file in files:
        block, tokens = _file_block(file, min(FILE_TOKENS, left), count)
        if tokens > left:
            break
        blocks.append(block)
        left -= tokens
    text = [f"{prompts.FILES[headings]}\n\n" + "\n\n".join(blocks)] if blocks else []
    if omitted:
        text.append(f"{prompts.OMITTED_IMAGES[headings]} " + "; ".join(image.origin for image in omitted))
    if images:
        lines = "\n".join(f"{number}. {image.origin}" for number, image in enumerate(images, start=1))
        text.append(f"{prompts.IMAGES[headings]}\n{lines}")
    return RestoredState(
        text="\n\n".join(text),
        parts=tuple(image.part for image in images),
        tokens=budget - left,
        files=len(blocks),
        images=len(images),
    )


def _file_block(file: RestoredFile, allowed: int, count: Callable[[str], int]) -> tuple[str, int]:
    """A file in full where `allowed` tokens do, else a reference to it; with what it costs (tokens)."""
    origin = f" ({file.origin})" if file.origin else ""
    if file.text is None:
        return f"`{file.name}`{origin}: this file no longer exists.", _REFERENCE_TOKENS
    tokens = (file.tokens or count(file.text)) + _REFERENCE_TOKENS
    if tokens > allowed:
        return (
            f"`{file.name}`{origin}: too large to repeat ({tokens - _REFERENCE_TOKENS} tokens); "
            f"read it with `{file.reader}`.",
            _REFERENCE_TOKENS,
        )
    mark = prompts.Fence.around(file.text)
    return f"`{file.name}`{origin}:\n{mark.wrap('FILE', file.text)}", tokens


def _images_within(restorable: Restorable, left: int) -> tuple[list[RestoredImage], list[RestoredImage], int]:
    """The newest images that fit, oldest first; those that are only named; and what is left of the budget (tokens)."""
    known = [entry for entry in restorable if isinstance(entry, RestoredImage)][-NAMED_IMAGES:]
    chosen: list[RestoredImage] = []
    for image in reversed(known[-MAX_IMAGES:]):
        cost = (image.part.tokens or IMAGE_TOKENS) + _REFERENCE_TOKENS
        if cost > left:
            break
        part = image.part if image.part.tokens else replace(image.part, tokens=IMAGE_TOKENS)
        chosen.append(replace(image, part=part))
        left -= cost
    return chosen[::-1], known[: len(known) - len(chosen)], left


def images_of(entries: Sequence[Entry]) -> list[RestoredImage]:
    """The newest images of these entries, oldest first, each with where it came from."""
    if not any(entry.message.parts for entry in entries):
        return []
    names = tool_names(entries)
    found: list[RestoredImage] = []
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        for part in reversed(entry.message.parts):
            if part.kind == "image" and len(found) < NAMED_IMAGES:
                found.append(RestoredImage(part, _origin(entries, index, names.get(index, ""), part)))
        if len(found) >= NAMED_IMAGES:
            break
    return found[::-1]


def carried_images(prefix: Prefix) -> list[RestoredImage]:
    """The images an earlier compaction had restored, with the lines that told where they came from."""
    carried = []
    for message in prefix.messages:
        if not message.parts:
            continue
        header = next((title for title in prompts.IMAGES.values() if title in message.content), None)
        lines = message.content.rpartition(header)[2].strip().split("\n") if header else []
        for number, part in enumerate(message.parts):
            origin = lines[number].partition(". ")[2] if number < len(lines) else part.name
            carried.append(RestoredImage(part, origin))
    return carried


def _origin(entries: Sequence[Entry], index: int, tool: str, part: ContentPart) -> str:
    entry = entries[index]
    name = f"{part.name or 'image'}, #{entry.position}"
    if entry.message.role != "tool":
        return f"{name}, {entry.author or entry.message.role}"
    for before in range(index - 1, -1, -1):
        for call in entries[before].message.tool_calls:
            if call.id == entry.message.tool_call_id:
                return f"{name}, {tool}({call.arguments[:200]})"
    return f"{name}, {tool}"
