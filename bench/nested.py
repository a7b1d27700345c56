"""Whether facts fade when a conversation is compacted again and again: python -m bench.nested

Real conversations with questions and the messages that answer them are played message by message and compacted whenever
the trigger is reached. After 1, 3 and 10 compactions every question whose evidence is covered by then is looked at: do
the key words of the evidence stand in the next request, and does a search of the originals find it? The summaries are
written by the offline demo model, so that the figures are the engine's and can be had again anywhere.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

STAGES = (1, 3, 10)
FILES = (("beam_1m", 128_000), ("longmemeval_3", 24_000))
SEARCHED = 10  # originals that a search gives back
_ROW = "{:14} {:>4} {:>10} {:>11} {:>10} {:>7} {:>11} {:>16}"
_ENOUGH = 0.8  # of the key words in the request: the fact is there
_WORD = re.compile(r"[^\W_]+(?:[.'’-][^\W_]+)*")
_KEY_LENGTH = 5  # characters; shorter words are grammar, numbers excepted
_MOST_KEYS = 12
SHARED = Path(os.environ.get("PALIMPSEST_SHARED_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")


@dataclass(frozen=True, slots=True)
class Question:
    """One question: its words, the positions of the messages that answer it, and the key words they hold."""

    text: str
    evidence: tuple[int, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """How one question fares at one stage."""

    in_request: float  # share of its key words
    by_search: bool
    is_early: bool  # all its evidence was covered by the first compaction


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="the folder that holds transcripts/")
    parser.add_argument("--strategy", default="balanced")
    parser.add_argument("--rebuild", action="store_true", help="hand the originals in, as far as they fit the window")
    options = parser.parse_args()
    without_project()
    print(_ROW.format("file", "run", "questions", "in request", "by search", "either", "first part", "first by search"))
    for name, window in FILES:
        path = options.data / "transcripts" / f"{name}.jsonl"
        if not path.exists():
            sys.exit(f"{path} is not there: the real transcripts are not part of a plain clone")
        stages: dict[int, list[Found]] = {stage: [] for stage in STAGES}
        for line in path.read_text(encoding="utf-8").splitlines():
            for stage, found in _play(json.loads(line), window, options.strategy, options.rebuild):
                stages[stage].append(found)
        for stage, found in stages.items():
            _print_row(name, stage, found)


def without_project() -> None:
    """The engine needs no project: only a folder for the vocabulary, and sentences left untranslated."""
    from django.conf import settings

    if not settings.configured:
        data = os.environ.get("PALIMPSEST_DATA") or str(Path(__file__).resolve().parents[1] / "var")
        settings.configure(USE_I18N=False, PALIMPSEST_DATA=data)


def _print_row(name: str, stage: int, found: Sequence[Found]) -> None:
    early = [each for each in found if each.is_early]
    print(
        _ROW.format(
            name,
            stage,
            len(found),
            _share([each.in_request for each in found]),
            _share([each.by_search for each in found]),
            _share([each.by_search or each.in_request >= _ENOUGH for each in found]),
            _share([each.in_request for each in early]),
            _share([each.by_search for each in early]),
        )
    )


def _share(values: Sequence[float]) -> str:
    return f"{100 * sum(values) / len(values):.0f} %" if values else "-"


def _play(conversation: dict[str, Any], window: int, strategy: str, rebuild: bool) -> Iterator[tuple[int, Found]]:
    """The conversation from its first message on; yields how every question fares at each stage."""
    from agents.tokens import count_message
    from compaction.engine import CompactionError, EngineSettings, compact
    from compaction.transcript import Entry, Transcript

    messages = [_message(message) for message in conversation["messages"]]
    entries = [Entry(at, at, message, count_message(message)) for at, message in enumerate(messages)]
    questions = list(_questions(conversation, [message.content for message in messages]))
    settings = EngineSettings(window=window, strategy=strategy)
    now = Transcript(live=())
    tokens, covered, compactions, first = 0, 0, 0, 0
    for entry in entries:
        now = replace(now, live=(*now.live, entry))
        tokens += entry.tokens
        if entry.message.role != "assistant" or tokens < (settings.thresholds.auto or 0):
            continue
        earlier = tuple(entries[:covered]) if rebuild else ()
        try:
            plan = compact(replace(now, earlier=earlier), settings, demo_model)
        except CompactionError:  # a giant newest message: the next boundary tries again
            continue
        now = replace(now, live=plan.kept, prefix=plan.prefix)
        tokens, covered, compactions = plan.tokens_after, plan.covered_to + 1, compactions + 1
        first = first or covered
        if compactions in STAGES:
            request = "\n".join(message.content for message in plan.request(now)).casefold()
            search = _Search([entry.message.content for entry in entries[:covered]])
            for question in questions:
                if max(question.evidence) < covered:
                    yield compactions, _look(question, request, search, first)


def _message(given: dict[str, Any]) -> Any:
    from agents.messages import Message

    return Message(role=given["role"], content=given["content"] or "")


def demo_model(request: Any) -> Any:
    from agents.demo_summary import form_of, summarise
    from compaction.engine import SummaryReply

    form = form_of(request.messages, request.max_output_tokens)
    assert form is not None
    return SummaryReply(summarise(request.messages, form))


def _questions(conversation: dict[str, Any], texts: Sequence[str]) -> Iterator[Question]:
    """The questions whose answer says something rare that stands in the evidence."""
    holders = Counter(word for text in texts for word in _keys(text))
    rare = max(3, len(texts) // 100)
    for asked in conversation.get("qa") or ():
        evidence = tuple(at for at in asked.get("evidence") or () if isinstance(at, int) and at < len(texts))
        there = _keys(" ".join(texts[at] for at in evidence))
        words = _keys(f"{asked['answer']} {asked['question']}")
        keys = tuple(word for word in words if word in there and holders[word] <= rare)
        if keys:
            yield Question(asked["question"], evidence, keys[:_MOST_KEYS])


def _keys(text: str) -> dict[str, None]:
    """Words of some length and numbers, in order."""
    words = (word.casefold() for word in _WORD.findall(text))
    return {word: None for word in words if len(word) >= _KEY_LENGTH or word[0].isdigit()}


def _look(question: Question, request: str, search: _Search, first: int) -> Found:
    there = sum(key in request for key in question.keys)
    hits = search.best(question.text)
    return Found(
        there / len(question.keys), any(at in hits for at in question.evidence), max(question.evidence) < first
    )


class _Search:
    """A plain ranking of originals by the words of a question (BM25), as `search_history` has from the database."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [Counter(word.casefold() for word in _WORD.findall(text)) for text in texts]
        self._lengths = [sum(text.values()) for text in self._texts]
        self._mean = sum(self._lengths) / max(1, len(self._lengths))
        self._holders = Counter(word for text in self._texts for word in text)

    def best(self, question: str) -> set[int]:
        words = set(_keys(question))
        scores = [(self._score(words, at), -at) for at in range(len(self._texts))]
        return {-at for score, at in sorted(scores, reverse=True)[:SEARCHED] if score > 0}

    def _score(self, words: set[str], at: int) -> float:
        text, total = self._texts[at], 0.0
        for word in words:
            if times := text.get(word, 0):
                rare = math.log(1 + (len(self._texts) - self._holders[word] + 0.5) / (self._holders[word] + 0.5))
                total += rare * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * self._lengths[at] / self._mean))
        return total


if __name__ == "__main__":
    main()
