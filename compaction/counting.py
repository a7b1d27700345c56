"""Counting texts that come back nearly the same: what was counted once is not counted again."""

from __future__ import annotations

import re
from collections.abc import Callable

Count = Callable[[str], int]

# Behind a line break o200k_base always begins a new piece, unless white space or a stroke follows: counted line by line
# a text has as many tokens as in one go.
_LINE = re.compile(r"(?<=\n)(?=[^\s/])")


class Counter:
    """Tokens of a text, added up from its lines; each different line is counted once."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return sum(map(self._tokens, _LINE.split(text)))

    def _tokens(self, piece: str) -> int:
        tokens = self._known.get(piece)
        if tokens is None:
            tokens = self._known[piece] = self._count(piece)
        return tokens
