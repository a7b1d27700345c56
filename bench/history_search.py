"""How well and how fast the search in a conversation's history finds: `python -m bench.history_search`.

Asks the questions that come with long recorded conversations, and counts how often a message that holds the evidence is
among the first ten. Then asks the same, three times, in one conversation of 100,000 messages that says all of them over
and over. The database is the one of DATABASE_URL, which must be empty or of no value; without it, SQLite in a temporary
folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SETS = ("beam_100k", "longmemeval_3")
FIRST = 10
MESSAGES = 100_000
ROUNDS = 3
Question = tuple[Any, str, set[int]]  # conversation, question, positions of the evidence


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("transcripts", type=Path, help="the folder with beam_100k.jsonl and longmemeval_3.jsonl")
    options.add_argument("--messages", type=int, default=MESSAGES)
    given = options.parse_args()
    folder = tempfile.mkdtemp(prefix="palimpsest-search-")
    os.environ.update(PALIMPSEST_DATA=folder, DJANGO_SETTINGS_MODULE="palimpsest.settings", LOG_LEVEL="WARNING")
    try:
        _prepare()
        _measure(given.transcripts, given.messages)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prepare() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def _measure(folder: Path, messages: int) -> None:
    from django.db import connection

    database = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[connection.vendor]
    asked = []
    for name in SETS:
        questions = list(_questions(folder / f"{name}.jsonl"))
        found, taken = _ask(questions)
        print(f"{database}: {name}: {found} of {len(questions)} = {found / len(questions):.0%} {_times(taken)}")
        asked += questions
    large, places = _large(list(dict.fromkeys(key for key, _, _ in asked)), messages)
    again = [(large, asking, {at for one in evidence for at in places[key, one]}) for key, asking, evidence in asked]
    for _ in range(ROUNDS):
        found, taken = _ask(again)
        print(f"{database}: in {messages:,} messages: {found} of {len(again)} {_times(taken)}")


def _questions(file: Path) -> Iterator[Question]:
    """The questions of a file that have evidence, with its conversations imported as a person would."""
    from chat.importing import import_lines
    from tests.builders import make_agent, make_user

    user, agent = make_user(), make_agent(name=f"search {time.time_ns()}")
    with file.open("rb") as lines:
        imported = [one.conversation for one in import_lines(lines, user, agent)]
    for conversation, line in zip(imported, file.read_text().splitlines(), strict=True):
        assert conversation is not None
        for qa in json.loads(line)["qa"]:
            if qa["evidence"]:
                yield conversation.pk, qa["question"], {index + 1 for index in qa["evidence"]}


def _ask(questions: list[Question]) -> tuple[int, list[float]]:
    """How many questions find their evidence, and how long each search took (seconds)."""
    from chat import search

    found, taken = 0, []
    for conversation, question, evidence in questions:
        started = time.perf_counter()
        hits = search.find([conversation], question, limit=FIRST)
        taken.append(time.perf_counter() - started)
        found += bool(evidence & {hit.position for hit in hits})
    return found, sorted(taken)


def _large(sources: list[Any], count: int) -> tuple[Any, dict[tuple[Any, int], range]]:
    """One conversation in which these are said over and over, and where each of their messages stands in it."""
    from chat.models import Conversation, Message

    one = Conversation.objects.get(pk=sources[0])
    made = Conversation.objects.create(owner=one.owner, agent=one.agent, last_position=count)
    rows = Message.objects.filter(conversation__in=sources).order_by("id")
    said = list(rows.values_list("role", "content", "token_count"))
    for start in range(0, count, 5_000):
        Message.objects.bulk_create(
            Message(conversation=made, position=number + 1, role=role, content=content, token_count=tokens)
            for number in range(start, min(start + 5_000, count))
            for role, content, tokens in [said[number % len(said)]]
        )
    first = enumerate(rows.values_list("conversation_id", "position"), start=1)
    return made.pk, {place: range(number, count + 1, len(said)) for number, place in first}


def _times(taken: list[float]) -> str:
    middle, late, longest = (taken[int((len(taken) - 1) * share)] * 1000 for share in (0.5, 0.95, 1))
    return f"(time per search: median {middle:.0f} ms, 95 of 100 within {late:.0f} ms, the longest {longest:.0f} ms)"


if __name__ == "__main__":
    main()
