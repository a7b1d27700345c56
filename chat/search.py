"""Search: conversations by title for the sidebar, messages by their words, whatever a summary stands for."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import orjson
from django.db.models import QuerySet

from chat import search_index
from chat.models import Conversation, Message
from chat.search_index import MOST_HOLDERS
from chat.search_words import Term, folded, searchable, stem, terms_of

LONGEST_QUERY: Final = 400  # characters
MOST_FOUND: Final = 50
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
    "content",
    "tool_calls",
    "compacted_into_id",
    "retired_at",
    "created_at",
)
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
    rows = [row for row in Message.objects.filter(pk__in=candidates).only(*_READ) if _counts(row, scope, before, roles)]
    looked_for = _Pattern(terms)
    texts = [_Text(row, looked_for) for row in sorted(rows, key=lambda row: row.position or 0, reverse=True)]
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
    held = search_index.holders(scope, terms)
    for number, term in enumerate(terms):
        beginning = term.beginning()
        if not held[number] and beginning is not None:
            terms[number] = beginning
            held[number] = search_index.holders(scope, [beginning])[0]
    total = max(Message.objects.filter(conversation__in=scope).count() if len(scope) > 1 else _length(scope[0]), 1)
    weights = [math.log(1 + (total - len(found) + 0.5) / (len(found) + 0.5)) for found in held]
    sums: dict[int, float] = {}
    for weight, found in zip(weights, held, strict=True):
        for message in found:
            sums[message] = sums.get(message, 0.0) + weight
    common = [number for number, found in enumerate(held) if len(found) >= MOST_HOLDERS]
    if len(common) == len(terms) > 1:  # of each only some holders are known, so those of all are asked for
        for message in search_index.holders_of_all(scope, [terms[number] for number in common[:MOST_TOGETHER]]):
            sums[message] = sums.get(message, 0.0) + sum(weights)
    return weights, heapq.nlargest(WEIGHED, sums, key=lambda message: (sums[message], message))


def _length(conversation: UUID) -> int:
    return Conversation.objects.filter(pk=conversation).values_list("last_position", flat=True).first() or 0


class _Text:
    """A candidate's text, and where the terms stand in it."""

    def __init__(self, row: Message, looked_for: _Pattern) -> None:
        self.row = row
        self.text = folded(_told(row)[:LONGEST_WEIGHED])
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


def _told(row: Message) -> str:
    if not row.tool_calls:
        return row.content
    return searchable(row.content, orjson.dumps(row.tool_calls).decode())


class _Pattern:
    """What is looked for, ready to be found in many texts."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._stems = {stem(term.text): number for number, term in enumerate(terms) if term.kind == "word"}
        self._others = [(number, term.text) for number, term in enumerate(terms) if term.kind != "word"]
        # Only words that begin like one of those sought are looked at more closely.
        beginnings = sorted({re.escape(one[: max(3, len(one) - 1)]) for one in self._stems})
        self._words = re.compile(rf"\b(?:{'|'.join(beginnings)})[^\W_]*") if beginnings else None

    def places(self, text: str) -> dict[int, list[int]]:
        """Where each term stands, by its number."""
        lowered = text.lower().replace("_", " ")
        found: dict[int, list[int]] = {}
        for match in self._words.finditer(lowered) if self._words else ():
            number = self._stems.get(stem(match[0]))
            if number is not None:
                found.setdefault(number, []).append(match.start())
        for number, other in self._others:
            if places := [match.start() for match in re.finditer(re.escape(other), lowered)]:
                found[number] = places
        return found
