"""Parts a `<think>` block at the very start of an answer from the answer itself, piece by piece."""

from __future__ import annotations

from typing import Literal

OPENING = ("<think>", "<thinking>")
CLOSING = {"<think>": "</think>", "<thinking>": "</thinking>"}

Kind = Literal["text", "thinking"]


class ThinkSplitter:
    """Some models write their reasoning into the content: `<think>…</think>` first, then the answer.

    Only at the start: a `<think>` further on is part of what the model says.
    """

    __slots__ = ("_closing", "_held", "_state")

    def __init__(self, enabled: bool = True) -> None:
        self._state: Literal["start", "inside", "after", "through"] = "start" if enabled else "through"
        self._held = ""
        self._closing = ""

    @property
    def is_through(self) -> bool:
        """Whether everything to come is plain text."""
        return self._state == "through"

    def feed(self, text: str) -> list[tuple[Kind, str]]:
        """The piece, parted; what might be half a tag waits."""
        if self._state == "through":
            return [("text", text)]
        self._held += text
        parted: list[tuple[Kind, str]] = []
        while self._held and self._step(parted):
            pass
        return [(kind, piece) for kind, piece in parted if piece]

    def flush(self) -> list[tuple[Kind, str]]:
        """What still waits when nothing more will come."""
        held, self._held = self._held, ""
        kind: Kind = "thinking" if self._state == "inside" else "text"
        self._state = "through"
        return [(kind, held)] if held else []

    def _step(self, parted: list[tuple[Kind, str]]) -> bool:
        """One step; False when more text is needed first."""
        if self._state == "start":
            return self._open(parted)
        if self._state == "inside":
            return self._close(parted)
        rest = self._held.lstrip("\n\r ") if self._state == "after" else self._held
        self._held = ""
        if rest:
            self._state = "through"
            parted.append(("text", rest))
        return False

    def _open(self, parted: list[tuple[Kind, str]]) -> bool:
        start = self._held.lstrip()
        for tag in OPENING:
            if start.startswith(tag):
                self._state, self._closing, self._held = "inside", CLOSING[tag], start[len(tag) :].lstrip("\n")
                return True
        if any(tag.startswith(start) for tag in OPENING):
            return False
        self._state = "through"
        return True

    def _close(self, parted: list[tuple[Kind, str]]) -> bool:
        thinking, found, rest = self._held.partition(self._closing)
        if found:
            parted.append(("thinking", thinking.rstrip("\n")))
            self._state, self._held = "after", rest
            return True
        keep = _half_tag(self._held, self._closing)
        parted.append(("thinking", self._held[: len(self._held) - keep]))
        self._held = self._held[len(self._held) - keep :]
        return False


def _half_tag(text: str, tag: str) -> int:
    """How many characters at the end of the text could begin the tag."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:size])), 0)
