"""Which script and language a conversation is held in, from its letters alone; no dictionary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

Script = Literal["latin", "han", "kana", "hangul", "cyrillic", "arabic", "other", ""]
Headings = Literal["en", "zh"]

_SCRIPTS: tuple[tuple[Script, re.Pattern[str]], ...] = (
    ("latin", re.compile(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]+")),
    ("han", re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")),
    ("kana", re.compile(r"[\u3041-\u30ff]+")),
    ("hangul", re.compile(r"[\uac00-\ud7af\u1100-\u11ff]+")),
    ("cyrillic", re.compile(r"[\u0400-\u052f]+")),
    ("arabic", re.compile(r"[\u0600-\u06ff]+")),
    ("other", re.compile(r"[\u0370-\u03ff\u0590-\u05ff\u0900-\u0e7f]+")),
)
# A syllable or word sign says as much as several letters of an alphabet.
_WEIGHT = {"han": 3, "kana": 2, "hangul": 2}
# Code, links and bracketed remarks say nothing about the language. Words are tried from their start alone and never
# backtracked into, so that a long run of letters costs no more than its length.
_CODE = re.compile(r"```[^`]*```|`[^`\n]*`|(?<![!-~])[^\s/\\_<>{}=\x80-\uffff]*+[/\\_<>{}=][!-~]*+|\[[^\]\n]{0,200}\]")
_CODE_SIGNS = "`/\\_<>{}=["  # none of these, no code

SAMPLE_MESSAGES = 80
SAMPLE_CHARACTERS = 240
_ENOUGH_LETTERS = 20
_ENOUGH_LATIN = re.compile(rf"(?:[A-Za-z][^A-Za-z]*+){{{_ENOUGH_LETTERS}}}")
_ENOUGH_WORDS = 150
_COMPARED = 12_000  # characters of each side
_SHORT_WORD = re.compile(r"\b[^\W\d_]{1,4}\b")
_COMMON_WORDS = 40
_SAME_LANGUAGE_SHARE = 0.15


def script_of(text: str) -> Script:
    """The script most of the prose is written in; empty where there is hardly any prose."""
    return _script(_prose(text))


def _prose(text: str) -> str:
    """Without code, links and bracketed remarks; looked for only where a sign of them is."""
    return _CODE.sub(" ", text) if any(sign in text for sign in _CODE_SIGNS) else text


def _script(prose: str) -> Script:
    if prose.isascii():
        return "latin" if _ENOUGH_LATIN.search(prose) else ""
    letters = {script: sum(map(len, pattern.findall(prose))) * _WEIGHT.get(script, 1) for script, pattern in _SCRIPTS}
    if sum(letters.values()) < _ENOUGH_LETTERS:
        return ""
    if letters["kana"] * 5 > letters["han"]:  # Japanese mixes both, Chinese has no kana
        letters["kana"] += letters["han"]
        letters["han"] = 0
    return max(letters, key=lambda script: letters[script])


def sample(texts: Iterable[str]) -> str:
    """Enough of a conversation to tell its language: the beginnings of its last messages."""
    newest = list(texts)[-SAMPLE_MESSAGES:]
    return "\n".join(text[:SAMPLE_CHARACTERS] for text in newest)


def headings_for(script: Script) -> Headings:
    """The language of the fixed headings: Chinese for Chinese conversations, English for all others."""
    return "zh" if script == "han" else "en"


@lru_cache(maxsize=4)
def prose_of_conversation(conversation: str) -> tuple[Script, list[str]]:
    """The script people write in and their short words; kept, so that it can be looked at ahead of any summary."""
    return _prose_of(conversation)


def _prose_of(text: str) -> tuple[Script, list[str]]:
    prose = _prose(text[:_COMPARED])
    return _script(prose), _SHORT_WORD.findall(prose.casefold())


def same_language(conversation: str, summary: str) -> bool:
    """Whether two texts read as one language. Script first; within one script the share of common short words.

    The commonest short words of a text are its grammar (articles, prepositions), which another language does not
    share. With too little text of either nothing is held against it.
    """
    ours, our_words = prose_of_conversation(conversation)
    theirs, their_words = _prose_of(summary)
    if not ours or not theirs:
        return True
    if ours != theirs:
        return False
    if ours in ("han", "kana", "hangul") or min(len(our_words), len(their_words)) < _ENOUGH_WORDS:
        return True
    common = {word for word, _ in Counter(our_words).most_common(_COMMON_WORDS)}
    shared = sum(word in common for word in their_words)
    return shared >= _SAME_LANGUAGE_SHARE * len(their_words)
