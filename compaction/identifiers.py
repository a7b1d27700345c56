"""Finding what must not get lost in a text: names, numbers, paths and links, in any script and without a dictionary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal

Kind = Literal["yes", "no", "name"]

# One pass over the text that always moves on: runs of words in small letters are swallowed whole, with the marks behind
# them, then comes one identifier (first group), one quotation (second group), or a little of what is neither. Nothing
# backtracks (possessive quantifiers, a match at every place it can stop), so that the pass is linear whatever the text
# holds.
_WORD = r"A-Za-z0-9_\u00c0-\u024f\u0370-\u052f"
_TELLING = r"A-Z0-9_\u00c0-\u00de\u0391-\u03a9\u0410-\u042f"
_FOUND = re.compile(
    r"[ ,;:\n'*]*+(?:[a-z]++[.!?:;)]*+[ ,;\n'*]++)*+"
    rf"(?:((?<![{_WORD}./\\@~-])[a-z]*+(?=[{_TELLING}]|[./\\@~-][{_WORD}./\\~])"
    rf"(?:(?<=http)s?://[!-~]++|(?<=https)://[!-~]++|[{_WORD}./\\@~-]++)"
    r"|https?://[!-~]++|[\u30a1-\u30fa\u30fc]{3,}+)"
    r"|[「『《“‘]([^「『《“‘」』》”’\n]{1,40}+)[」』》”’]"
    rf"|[a-z]++(?:[.!?:;)][ \n]++)?|[^{_WORD}./\\@~「『《“‘\u30a1-\u30fa\u30fc-]++|(?s:.)|\Z)"
)
_EDGES = ".-/\\~@_"
_HAS_DIGIT = re.compile(r"\d")
_CODE_NAME = re.compile(r"[a-z0-9][A-Z]|_|[A-Za-z]\d|\d[A-Za-z]")
_FILE_NAME = re.compile(r"[\w@-]+\.[A-Za-z][A-Za-z0-9]{0,5}\Z")
_SENTENCE_ENDS = frozenset('.!?:;*#>|•\n\r\t"“(-。！？：')
MAX_LENGTH = 160  # characters; longer runs are data, not names
_SHORTEST = 4  # characters; no shorter name is looked for inside other words
_MANY = 400  # names; from here on a table of the text's pieces spares most searches
_PIECE = 6  # characters of each


def identifiers(text: str) -> set[str]:
    """Names, numbers, paths and links of a text, each as it stands there."""
    found: set[str] = set()
    for match in _FOUND.finditer(text):
        piece = match.group(1)
        if piece is None:
            if quoted := match.group(2):
                found.add(quoted.strip())
            continue
        if piece[0] > "\u3000":
            found.add(piece)
            continue
        if "://" in piece:
            found.add(piece.rstrip(".,;:!?)]}>'\"")[:MAX_LENGTH])
            continue
        if piece[0] in _EDGES or piece[-1] in _EDGES:
            piece = piece.rstrip(_EDGES) if piece[0] in "/~." else piece.strip(_EDGES)
        if piece in found:
            continue
        kind = _kind(piece)
        if kind == "yes" or (kind == "name" and not _opens_sentence(text, match.start(1))):
            found.add(piece)
    return found


class Finder:
    """The identifiers of texts that come back nearly the same. None goes beyond its line: each line is read once."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}

    def __call__(self, text: str) -> set[str]:
        return set().union(*map(self._of, text.split("\n")))

    def follow(self, text: str) -> None:
        """Reads the whole lines of a text that is still being written."""
        self(text[: text.rfind("\n") + 1])

    def _of(self, line: str) -> set[str]:
        found = self._known.get(line)
        if found is None:
            found = self._known[line] = identifiers(line)
        return found


@lru_cache(maxsize=8_192)
def _kind(word: str) -> Kind:
    """What a word is by itself: number, path, file, code name or abbreviation; a capitalised word; neither."""
    length = len(word)
    if length < 2 or length > MAX_LENGTH:
        return "no"
    if _HAS_DIGIT.search(word):
        return "yes"
    if "/" in word or "\\" in word:
        return "yes" if length > 3 and _is_path(word) else "no"
    if "@" in word or "_" in word:
        return "yes"
    if "." in word:
        return "yes" if _FILE_NAME.match(word) else "no"
    if word.isupper() or _CODE_NAME.search(word):
        return "yes"
    return "name" if length > 2 and word[0].isupper() else "no"


def _opens_sentence(text: str, start: int) -> bool:
    """Whether a capital letter at `start` says no more than that a sentence or a line begins there."""
    before = text[max(0, start - 3) : start].rstrip(" ")
    return not before or before[-1] in _SENTENCE_ENDS


def _is_path(word: str) -> bool:
    """A path rather than two words with a stroke between them (and/or)."""
    return word[0] in "/~.\\" or word.count("/") > 1 or "\\" in word or "." in word or "_" in word or "-" in word


def reachable(wanted: Iterable[str], text: str, find: Callable[[str], set[str]] = identifiers) -> tuple[int, list[str]]:
    """How many of the wanted identifiers stand in a text, and those that do not. `find` may know the text already."""
    wanted = list(wanted)
    there = find(text)
    doubtful = [name for name in wanted if name not in there]
    if not doubtful:
        return len(wanted), []
    inside = _inside(text.casefold(), len(doubtful))
    missing = [name for name in doubtful if _is_short(name) or not inside(name.casefold())]
    return len(wanted) - len(missing), missing


def _inside(text: str, names: int) -> Callable[[str], bool]:
    """A test whether a name stands somewhere in the text, fast for this many names."""
    if names < _MANY:
        return text.__contains__
    pieces = {text[at : at + _PIECE] for at in range(len(text) - _PIECE + 1)}

    def inside(name: str) -> bool:
        its_own = (name[at : at + _PIECE] for at in range(len(name) - _PIECE + 1))
        return pieces.issuperset(its_own) and name in text

    return inside


def _is_short(name: str) -> bool:
    """Too short to be looked for inside other words: 42 is not in 1420."""
    return len(name) < _SHORTEST or name.isdigit()
