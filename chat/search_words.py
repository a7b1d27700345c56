"""Words as search knows them: what of a text is indexed, and what of a question is looked for. No database.

Languages written without spaces are indexed by pairs of characters; everything else by words, whose endings the
database takes off (both do it for English). A word that is found nowhere is tried again by its beginning, which does
for the inflections of other languages.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

# Han, kana, hangul, Thai, Lao, Myanmar, Khmer: as a class of regular expressions, the same for Python and PostgreSQL.
UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
_RUN: Final = re.compile(f"[{UNSPACED}]+")
_WORD: Final = re.compile(r"[^\W_]+")

LONGEST_INDEXED: Final = 2_000_000  # characters of a message
MOST_TERMS: Final = 32  # of a question
LONGEST_WORD: Final = 60
SHORTEST_BEGINNING: Final = 4  # characters of a word that is tried by its beginning

# Words that say nothing about what is looked for.
_STOP: Final = (
    "a about above after again all also am an and any are as at be because been before being between both but by can "
    "could did do does doing down during each ever few for from further had has have having he her here hers him his "
    "how i if in into is it its just let like many me mentioned might more most much must my no nor not now of off on "
    "once only or other our out over own please previously said same shall she should so some such tell than that the "
    "their them then there these they this those through to too told under until up us very was we were what when "
    "where which while who whom whose why will with would yes you your yours "
    "d ll m re s t ve don doesn didn isn wasn aren weren won couldn shouldn wouldn hasn haven hadn"
)
STOP_WORDS: Final = frozenset(_STOP.split())

Kind = Literal["word", "beginning", "pair"]


@dataclass(frozen=True, slots=True)
class Term:
    """One thing to look for: a word, the beginning of a word, or a pair of characters."""

    text: str
    kind: Kind = "word"

    def beginning(self) -> Term | None:
        """What to try where the word itself is nowhere; None where nothing is left to take off."""
        if self.kind != "word" or len(self.text) <= SHORTEST_BEGINNING or self.text.isdecimal():
            return None
        return Term(self.text[: max(SHORTEST_BEGINNING, len(self.text) * 3 // 4)], "beginning")


def scope_word(conversation: str) -> str:
    """The word that stands in the index for a conversation; no stemmer takes anything off it."""
    return f"c{conversation.replace('-', '').lower()}q"


def indexed(conversation: str, content: str, tool_calls: str) -> str:
    """What the index keeps of a message: its words and pairs with those of its calls' arguments (JSON text)."""
    text = folded(searchable(content, tool_calls)[:LONGEST_INDEXED])
    if text.isascii():
        return f"{scope_word(conversation)} {text}"
    return " ".join([scope_word(conversation), _RUN.sub(" ", text), *pairs(text)])


def searchable(content: str, tool_calls: str) -> str:
    """The text of a message and of what it calls."""
    if len(tool_calls) <= 2:
        return content
    calls = json.loads(tool_calls)
    arguments = (str((call.get("function") or {}).get("arguments") or "") for call in calls)
    return " ".join([content, *(text.replace("\\n", " ").replace("\\t", " ") for text in arguments)])


def folded(text: str) -> str:
    """One form for the several in which a character can be written."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def pairs(text: str) -> set[str]:
    """Neighbouring characters of text without spaces; the last of a run also alone, so that one can be looked for."""
    return {run[n : n + 2] for run in _RUN.findall(text) for n in range(len(run))}


def terms_of(query: str) -> list[Term]:
    """What to look for, in the order asked; words that say nothing only where there are no others."""
    text = folded(query).lower()
    found = dict.fromkeys(_terms(text))
    telling = [term for term in found if term.text not in STOP_WORDS]
    return (telling or list(found))[:MOST_TERMS]


def _terms(text: str) -> Iterator[Term]:
    end = 0
    for run in _RUN.finditer(text):
        yield from _words(text[end : run.start()])
        end = run.end()
        if len(run[0]) == 1:
            yield Term(run[0], "beginning")
        yield from (Term(run[0][n : n + 2], "pair") for n in range(len(run[0]) - 1))
    yield from _words(text[end:])


def _words(text: str) -> Iterator[Term]:
    for word in _WORD.findall(text):
        yield Term(word[:LONGEST_WORD])


_ENDINGS: Final = ("ations", "ation", "ments", "ment", "ingly", "ings", "edly", "ies", "ied", "ing", "ers", "ed", "es")
_SHORT_ENDINGS: Final = ("er", "ly", "s", "y", "e")


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """A word without its ending, roughly: enough to weigh what the database found, which finds by a better stemmer."""
    for endings in (_ENDINGS, _SHORT_ENDINGS):
        for ending in endings:
            if word.endswith(ending) and len(word) - len(ending) >= 3:
                word = word[: -len(ending)]
                break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word
