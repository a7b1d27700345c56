"""Counting texts that come back nearly the same: what was counted once is not counted again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Count = Callable[[str], int]

# Behind a line break o200k_base always begins a new piece, unless white space or a stroke follows: counted line by line
# a text has as many tokens as in one go.
_LINE = re.compile(r"(?<=\n)(?=[^\s/])")
_BEGINS_LINE = re.compile(r"[^\s/]")


class Counter:
    """Tokens of a text, added up from its lines; each different line is counted once."""

    def __init__(self, count: Count, known: Mapping[str, int] | None = None) -> None:
        self._count = count
        self._known = dict(known or {})
        self._kept: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        for lines, tokens in self._kept.items():
            before, found, after = text.partition(lines)
            if found and (not before or before[-1] == "\n") and _BEGINS_LINE.match(after):
                return self(before) + tokens + self(after)
        return sum(map(self._tokens, _LINE.split(text)))

    def keep(self, text: str) -> None:
        """Counts a text that will stand in longer ones: there its lines are found as a whole, the last by itself."""
        lines = text[: text.rfind("\n") + 1]
        if _BEGINS_LINE.match(lines):
            self._kept[lines] = self(lines)
        self(text[len(lines) :])

    def follow(self, text: str) -> None:
        """Counts the whole lines of a text that is still being written."""
        self(text[: text.rfind("\n") + 1])

    @property
    def known(self) -> Mapping[str, int]:
        """The lines that were counted, with what each costs (tokens)."""
        return self._known

    def _tokens(self, piece: str) -> int:
        tokens = self._known.get(piece)
        if tokens is None:
            tokens = self._known[piece] = self._count(piece)
        return tokens
