"""Reading plain text for the demo model: language, sentences, and what stands out (names, numbers, paths, links)."""

from __future__ import annotations

import re
from collections import Counter

_HAN = re.compile(r"[\u3400-\u9fff]")
_LETTER = re.compile(r"[^\W\d_]")
_SENTENCE = re.compile(r"[^\n.!?。！？；]+(?:[.!?。！？；](?!\s|$|[^\x00-\x7f])[^\n.!?。！？；]*)*[.!?。！？；]*")
_LINK = re.compile(r"https?://[^\s<>\"'）)\]，。；]+")
_PATH = re.compile(r"(?<![\w/])(?:~|\.{1,2})?/?(?:[\w@.-]+/)+[\w@.-]+|\b[\w-]+\.[a-zA-Z][a-zA-Z0-9]{0,5}\b(?!\()")
_QUOTED = re.compile(r"[「『《“‘]([^」』》”’\n]{1,40})[」』》”’]|\"([^\"\n]{1,40})\"|`([^`\n]{1,60})`")
_MARKED = re.compile(r"[A-Za-z0-9_À-ɏЀ-ӿ][\w@./:%+-]*")
_PLAIN_WORD = re.compile(r"[^\W\d_]{4,}")
_COMMON_WORDS = (
    "about after again all also and any are because been before being both could does doing done each even every "
    "for from gets give going had has have having her here him his how into its just know like made make many "
    "more most much must need only other our over please really same say she should some such tell than that the "
    "their them then there these they thing think this those through time very want was well were what when where "
    "which while who why will with would your yours"
)
_COMMON = frozenset(_COMMON_WORDS.split())


def is_chinese(text: str) -> bool:
    """Whether a text reads as Chinese; one sign says about as much as three letters."""
    han = len(_HAN.findall(text))
    return han > 0 and han * 3 >= len(_LETTER.findall(text)) - han


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text, without marks that open a line."""
    found = (match.group().strip().lstrip("-*#>•· ").strip() for match in _SENTENCE.finditer(text))
    return [sentence for sentence in found if len(sentence) > 1]


def links_and_paths(text: str) -> list[str]:
    """Links, paths and file names, each once, in the order they come."""
    links = [link.rstrip(".,;:!?") for link in _LINK.findall(text)]
    rest = _LINK.sub(" ", text)
    paths = [path.rstrip(".") for path in _PATH.findall(rest) if not path.replace(".", "").isdigit()]
    return list(dict.fromkeys([*links, *paths]))


def names(text: str) -> list[str]:
    """What stands out in a text: names, numbers, code words, quotations, links and paths, each once, in order."""
    found = dict.fromkeys(links_and_paths(text))
    text = _LINK.sub(" ", text)
    for match in _QUOTED.finditer(text):
        found[next(group for group in match.groups() if group)] = None
    for match in _MARKED.finditer(text):
        word = match.group().strip("./:-+_@")
        if _stands_out(word, text, match.start()):
            found[word] = None
    return [name for name in found if name]


def _stands_out(word: str, text: str, start: int) -> bool:
    if len(word) < 2:
        return False
    if any(sign.isdigit() for sign in word) or "_" in word or "@" in word or word.isupper():
        return True
    if re.search(r"[a-z][A-Z]", word):
        return True
    before = text[:start].rstrip(" ")[-1:]
    return word[0].isupper() and bool(before) and before not in '.!?:;\n*#>|•"“(-。！？：'


def key_words(text: str, most: int = 6) -> list[str]:
    """The words a text is about: what stands out, then its longer words, the frequent first."""
    words = Counter(word.lower() for word in _PLAIN_WORD.findall(text) if word.isascii())
    plain = [word for word, _ in words.most_common() if word not in _COMMON]
    chinese = list(re.findall(r"[\u3400-\u9fff]{2,6}", text)) if is_chinese(text) else []
    standing = names(text)
    rest = [word for word in (*chinese, *plain) if word not in {name.lower() for name in standing}]
    return list(dict.fromkeys([*standing, *rest]))[:most]


def best_match(question: str, texts: list[str]) -> str:
    """The sentence of the texts that shares the weightiest words with a question, or nothing."""
    wanted = _bag(question)
    seen: Counter[str] = Counter()
    candidates: list[tuple[str, set[str]]] = []
    for text in texts:
        for sentence in sentences(text):
            bag = _bag(sentence)
            seen.update(bag)
            candidates.append((sentence, bag))
    best, best_weight = "", 0.0
    for sentence, bag in candidates:
        weight = sum(1.0 / seen[word] for word in wanted & bag) if sentence not in question else 0.0
        if len(wanted & bag) >= min(2, len(wanted)) and weight and weight >= best_weight:
            best, best_weight = sentence, weight
    return best


def _bag(text: str) -> set[str]:
    """Words of weight, and pairs of Chinese signs."""
    plain = {word.lower() for word in re.findall(r"[^\W_]{3,}", text) if word.isascii()} - _COMMON
    signs = "".join(_HAN.findall(text))
    return plain | {signs[at : at + 2] for at in range(len(signs) - 1)}


def clip(text: str, longest: int) -> str:
    """A text on one line, at most this many characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"
