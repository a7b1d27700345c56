"""Search: conversations by title for the sidebar, messages by their words, whatever a summary stands for."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import QuerySet
from django.db.models.functions import Substr

from chat import search_index
from chat.models import Conversation, Message
from chat.search_index import MOST_HOLDERS
from chat.search_words import Term, folded, searchable, stem, terms_of

LONGEST_QUERY: Final = 400  # characters
MOST_FOUND: Final = 50
LARGE: Final = 5_000  # messages; where there are more, only the words that tell most are looked for
SAMPLED: Final = 40  # messages that tell which words are common there
LONGEST_SAMPLED: Final = 2_000  # characters of each
COMMON: Final = 0.05  # share of them that holds a common word
MOST_RARE, LEAST_SOUGHT = 6, 3  # words looked for: so many that are rare, at least so many of any kind
MOST_TOGETHER: Final = 6  # common words that are looked for together
WEIGHED: Final = 64  # messages whose text is read to put them in order
LONGEST_WEIGHED: Final = 8_000  # characters of each
EXCERPT: Final = 320  # characters
_READ = (
    "conversation_id",
    "position",
    "role",
    "author_name",
    "tool_name",
    "tool_calls",
    "compacted_into_id",
    "retired_at",
    "created_at",
)
_SAID: Final = Substr("content", 1, LONGEST_WEIGHED)  # a message can hold megabytes; its beginning is read
_WORD: Final = re.compile(r"[^\W_]+")
_K1, _B = 1.2, 0.85  # BM25: how soon repetition stops counting, how much length counts against a message
_PERSON = 1.4  # what a person said counts more: answers repeat it at length
_TOGETHER = 0.4  # what two words of the question count more when they stand side by side


@dataclass(frozen=True, slots=True)
class Found:
    """A message that search found, and the part of it where the words stand."""

    message: int
    conversation: UUID
    position: int
    role: str
    author: str
    tool: str
    excerpt: str
    is_compacted: bool
    created_at: datetime
    score: float


def matching_titles(rows: QuerySet[Conversation], query: str) -> QuerySet[Conversation]:
    """Those whose title contains every word of the query, whatever its case; `%` and `_` mean themselves."""
    for word in query[:LONGEST_QUERY].split()[:10]:
        rows = rows.filter(title__icontains=word)
    return rows


def find(
    scope: Sequence[UUID], query: str, *, limit: int = 10, before: int | None = None, roles: Collection[str] = ()
) -> list[Found]:
    """The messages of these conversations that fit a question best, the best first.

    Every original counts, also those a summary stands for; what was replaced by another answer does not.
    `before`: only messages before this position. `roles`: only messages of these.
    """
    terms = terms_of(query[:LONGEST_QUERY])
    if not terms or not scope:
        return []
    weights, candidates = _candidates(scope, terms)
    # By key alone: beside anything else SQLite would rather walk through the whole conversation.
    found = Message.objects.filter(pk__in=candidates).only(*_READ).annotate(said=_SAID)
    looked_for = _Pattern(terms)
    texts = [_Text(row, row.said, looked_for) for row in found if _counts(row, scope, before, roles)]
    texts.sort(key=lambda text: text.row.position or 0, reverse=True)
    if not texts:
        return []
    usual = sum(text.length for text in texts) / len(texts)
    ranked = sorted(texts, key=lambda text: text.score(weights, usual), reverse=True)
    return [text.found(weights, usual) for text in ranked[: min(limit, MOST_FOUND)]]


def _counts(row: Message, scope: Sequence[UUID], before: int | None, roles: Collection[str]) -> bool:
    is_there = row.conversation_id in scope and row.position is not None and row.retired_at is None
    is_asked = row.role in roles if roles else row.role != "system"
    return is_there and is_asked and (before is None or (row.position or 0) < before)


def _candidates(scope: Sequence[UUID], terms: list[Term]) -> tuple[list[float], list[int]]:
    """What each term weighs (the rarer, the more), and the messages whose terms weigh most together."""
    total = max(Message.objects.filter(conversation__in=scope).count() if len(scope) > 1 else _length(scope[0]), 1)
    is_large = total > LARGE
    shares = _shares(scope, terms, total) if is_large else [0.0] * len(terms)
    held = _held(scope, terms, shares, MOST_RARE if is_large else len(terms))
    counts = [_count(held.get(number), share * total) for number, share in enumerate(shares)]
    weights = [math.log(1 + (total - count + 0.5) / (count + 0.5)) for count in counts]
    sums: dict[int, float] = {}
    for number, found in held.items():
        for message in found:
            sums[message] = sums.get(message, 0.0) + weights[number]
    common = [number for number, found in held.items() if len(found) >= MOST_HOLDERS]
    if len(common) == len(held) > 1:  # of each only some holders are known, so those of all are asked for
        for message in search_index.holders_of_all(scope, [terms[number] for number in common[:MOST_TOGETHER]]):
            sums[message] = sums.get(message, 0.0) + sum(weights)
    return weights, heapq.nlargest(WEIGHED, sums, key=lambda message: (sums[message], message))


def _shares(scope: Sequence[UUID], terms: Sequence[Term], total: int) -> list[float]:
    """How large a share of what was said holds each term, told by a few messages from the first to the last."""
    usual = total // len(scope)
    places = range(1, usual + 1, usual // SAMPLED + 1)
    rows = Message.objects.filter(conversation__in=scope, position__in=places)
    texts = rows.values_list(Substr("content", 1, LONGEST_SAMPLED), flat=True)[:SAMPLED]
    looked_for = _Pattern(terms)
    held = Counter(number for text in texts for number in looked_for.places(folded(text)))
    return [held[number] / max(len(texts), 1) for number in range(len(terms))]


def _held(scope: Sequence[UUID], terms: list[Term], shares: Sequence[float], most: int) -> dict[int, set[int]]:
    """The messages that hold the rarest terms, by the term's number; of more terms until there are enough messages.

    A common word costs most to look for and tells least: it only helps to put in order what the rare ones find.
    """
    left = sorted(range(len(terms)), key=shares.__getitem__)
    size = max(min(sum(share < COMMON for share in shares), most), LEAST_SOUGHT)
    held: dict[int, set[int]] = {}
    while left and len(set().union(*held.values())) < WEIGHED:
        sought, left, size = left[:size], left[size:], LEAST_SOUGHT
        held.update(zip(sought, search_index.holders(scope, [terms[number] for number in sought]), strict=True))
        for number in sought:
            beginning = terms[number].beginning()
            if not held[number] and beginning is not None:
                terms[number] = beginning
                held[number] = search_index.holders(scope, [beginning])[0]
    return held


def _count(found: set[int] | None, estimate: float) -> float:
    """How many messages hold a term; beyond a limit nobody counted, and the estimate has to do."""
    return len(found) if found is not None and len(found) < MOST_HOLDERS else max(estimate, MOST_HOLDERS)


def _length(conversation: UUID) -> int:
    return Conversation.objects.filter(pk=conversation).values_list("last_position", flat=True).first() or 0


class _Text:
    """A candidate's text, and where the terms stand in it."""

    def __init__(self, row: Message, said: str, looked_for: _Pattern) -> None:
        self.row = row
        self.text = folded(_told(said, row.tool_calls)[:LONGEST_WEIGHED])
        self.length = len(self.text) + 1
        self.places = looked_for.places(self.text)

    def score(self, weights: Sequence[float], usual: float) -> float:
        """BM25 over this text, with something on top for words that stand together as in the question."""
        score = 0.0
        worn = _K1 * (1 - _B + _B * self.length / usual)
        for number, places in self.places.items():
            score += weights[number] * len(places) * (_K1 + 1) / (len(places) + worn)
        for number, places in self.places.items():
            following = self.places.get(number + 1)
            if following and any(0 < later - place <= 40 for place in places[:20] for later in following[:20]):
                score += _TOGETHER * min(weights[number], weights[number + 1])
        return score * _PERSON if self.row.role == "user" else score

    def found(self, weights: Sequence[float], usual: float) -> Found:
        row = self.row
        return Found(
            row.pk,
            row.conversation_id,
            row.position or 0,
            row.role,
            row.author_name,
            row.tool_name,
            self._excerpt(weights),
            row.compacted_into_id is not None,
            row.created_at,
            round(self.score(weights, usual), 3),
        )

    def _excerpt(self, weights: Sequence[float]) -> str:
        """The stretch where most of what was looked for stands."""
        marks = sorted((place, number) for number, places in self.places.items() for place in places[:50])
        best, start = -1.0, 0
        for index, (place, _number) in enumerate(marks[:200]):
            within = {number for other, number in marks[index : index + 40] if other - place < EXCERPT * 3 // 4}
            worth = sum(weights[number] for number in within)
            if worth > best:
                best, start = worth, place
        start = max(0, start - EXCERPT // 8)
        end = min(len(self.text), start + EXCERPT)
        cut = " ".join(self.text[start:end].split())
        return f"{'…' if start else ''}{cut}{'…' if end < len(self.text) else ''}"


def _told(said: str, calls: Sequence[Any]) -> str:
    return searchable(said, orjson.dumps(calls).decode()) if calls else said


class _Pattern:
    """What is looked for, ready to be found in many texts."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._stems = {stem(term.text): number for number, term in enumerate(terms) if term.kind == "word"}
        self._others = [(number, term.text) for number, term in enumerate(terms) if term.kind != "word"]
        # Only words that begin like one of those sought are looked at more closely. Each beginning is found by itself:
        # that takes a third of the time of one pattern for all. None may begin like another, or words count twice.
        self._beginnings: list[str] = []
        for beginning in sorted(one[: max(3, len(one) - 1)] for one in self._stems):
            if not self._beginnings or not beginning.startswith(self._beginnings[-1]):
                self._beginnings.append(beginning)

    def places(self, text: str) -> dict[int, list[int]]:
        """Where each term stands, by its number."""
        lowered = text.lower().replace("_", " ")
        found: dict[int, list[int]] = {}
        for place, word in self._words(lowered):
            number = self._stems.get(stem(word))
            if number is not None:
                found.setdefault(number, []).append(place)
        for number, other in self._others:
            if places := [match.start() for match in re.finditer(re.escape(other), lowered)]:
                found[number] = places
        return found

    def _words(self, lowered: str) -> Iterator[tuple[int, str]]:
        """Every word that begins like one of those sought, and where."""
        for beginning in self._beginnings:
            place = lowered.find(beginning)
            while place >= 0:
                word = _WORD.match(lowered, place)
                if word and not (place and lowered[place - 1].isalnum()):
                    yield place, word[0]
                place = lowered.find(beginning, place + 1)
