"""Long histories made in the database, and what work on them costs there (asked of the clerk)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

JSON = dict[str, Any]

_VOCABULARY = (
    "deploy staging cluster budget review ticket invoice customer latency region backup window schedule "
    "contract renewal pipeline index shard replica token limit answer question number because between after "
    "before report table column value change request branch merge commit release rollback alert metric"
)
_WORDS = tuple(_VOCABULARY.split())


def conversations(owner: str, agent: str, count: int) -> list[str]:
    """Empty conversations."""
    from django.contrib.auth.models import User

    from agents.models import Agent
    from chat.models import Conversation, Participant, Role

    user, chosen = User.objects.get(username=owner), Agent.objects.get(name=agent)
    made = Conversation.objects.bulk_create(Conversation(owner=user, agent=chosen, title="Bench") for _ in range(count))
    Participant.objects.bulk_create(Participant(conversation=row, user=user, role=Role.OWNER) for row in made)
    return [str(row.pk) for row in made]


def history(owner: str, agent: str, count: int, words: int, covered: int = 0) -> str:
    """A conversation of `count` messages of `words` words each; the first `covered` stand behind a summary."""
    from django.contrib.auth.models import User

    from agents.models import Agent
    from tests.builders import make_conversation

    texts = [_text(number, words) for number in range(count)]
    row = make_conversation(
        texts, owner=User.objects.get(username=owner), agent=Agent.objects.get(name=agent), title="Bench"
    )
    if covered:
        _cover(row, covered)
    return str(row.pk)


def _text(number: int, words: int) -> str:
    return f"{number}: " + " ".join(_WORDS[(number * 7 + word * 5) % len(_WORDS)] for word in range(words)) + "."


def _cover(conversation: Any, covered: int) -> None:
    """What an applied compaction leaves behind."""
    from django.db.models import Sum
    from django.utils import timezone

    from agents.messages import Message as Spoken
    from chat.models import Message
    from compaction.models import Compaction, State
    from compaction.transcript import Prefix

    now = timezone.now()
    text = "The summary of what was said before. " * 40
    rows = Message.objects.filter(conversation=conversation, position__lte=covered)
    summary = Message.objects.create(
        conversation=conversation, position=covered, role="user", content=text, is_summary=True, token_count=330
    )
    rows.exclude(pk=summary.pk).update(compacted_at=now, compacted_into=summary)
    spoken = (Spoken("user", text), Spoken("assistant", "Understood."))
    prefix = Prefix(spoken, text, tokens=340, covered_to=covered)
    Compaction.objects.create(
        conversation=conversation,
        reason="auto",
        strategy="balanced",
        state=State.APPLIED,
        covered_from=1,
        covered_to=covered,
        covered_count=covered,
        prefix=prefix.to_json(),
        summary_message=summary,
        applied_at=now,
    )
    live = Message.objects.filter(conversation=conversation, compacted_into__isnull=True, is_summary=False)
    conversation.live_tokens = live.aggregate(total=Sum("token_count"))["total"] or 0
    conversation.save()


def session(user: str) -> JSON:
    """A signed-in browser's cookie."""
    from importlib import import_module

    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.auth.models import User

    person = User.objects.get(username=user)
    store = import_module(settings.SESSION_ENGINE).SessionStore()
    store[SESSION_KEY] = str(person.pk)
    store[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    store[HASH_SESSION_KEY] = person.get_session_auth_hash()
    store.save()
    return {"name": settings.SESSION_COOKIE_NAME, "value": store.session_key}


_LAST_WRITE = 'UPDATE "chat_conversation"'  # what the commit of a compaction ends with; after it comes the meter
_SUMMARISER_SECONDS = 0.3  # models take longer to write a summary
_PIECES = 50  # in which it arrives


class _Statements:
    """Counts what is sent to the database."""

    def __init__(self) -> None:
        self.count = 0
        self.texts: list[str] = []

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self.count += 1
        self.texts.append(sql)
        return execute(sql, params, many, context)


def compaction_cost(owner: str, agent: str, count: int, words: int, rounds: int) -> list[JSON]:
    """What one compaction of `count` messages costs outside the summariser's call, each round anew (ms, statements)."""
    history(owner, agent, 40, 40)  # imports and plans are warm afterwards
    return [_one_compaction(history(owner, agent, count, words)) for _ in range(rounds)]


def _one_compaction(conversation: str) -> JSON:
    from unittest import mock

    from django.contrib.auth.models import User
    from django.db import connection

    from agents.provider import Completion, CompletionRequest, TextPiece
    from agents.usage import Usage
    from bench import summaries
    from chat import compacting, compaction_runs
    from chat.models import Conversation
    from compaction.models import Compaction

    asked = thought = ended = 0.0

    async def summarise(call: CompletionRequest, watch: Any) -> Completion:
        """A model that takes its time, as every one does: what is done meanwhile holds nobody up."""
        nonlocal asked, thought
        began, worked = time.perf_counter(), time.thread_time()
        text = summaries.write([message.to_openai() for message in call.messages], call.max_output_tokens or 1)
        thought = time.thread_time() - worked
        for number in range(_PIECES):
            watch(TextPiece(text[len(text) * number // _PIECES : len(text) * (number + 1) // _PIECES]))
            await asyncio.sleep(began + _SUMMARISER_SECONDS * (number + 1) / _PIECES - time.perf_counter())
        asked = time.perf_counter() - began
        return Completion(text, (), Usage(prompt_tokens=1, completion_tokens=1), "stop")

    def store(*result: Any) -> None:
        """To the meter after the commit; nobody waits for what the process clears away then."""
        nonlocal ended
        really_store(*result)
        ended = time.perf_counter()

    really_store = compaction_runs.store
    row = Conversation.objects.get(pk=conversation)
    tokens = row.live_tokens
    with mock.patch("chat.compacting.start_task", create=True), mock.patch("chat.tasks.compact.delay"):
        compacting.request_compaction(User.objects.get(pk=row.owner_id), conversation, "manual")
    run = Compaction.objects.filter(conversation=conversation).order_by("-id")[0]
    statements = _Statements()
    with (
        mock.patch.object(compaction_runs, "_complete", summarise),
        mock.patch.object(compaction_runs, "store", store),
        connection.execute_wrapper(statements),
    ):
        began, worked = time.perf_counter(), time.process_time()
        compaction_runs.run_here(run.pk)
        took, worked = (ended or time.perf_counter()) - began, time.process_time() - worked
    run.refresh_from_db()
    to_the_commit = 1 + max((i for i, sql in enumerate(statements.texts) if sql.startswith(_LAST_WRITE)), default=-1)
    return {
        "ms": (took - asked) * 1000,
        "processor_ms": (worked - thought) * 1000,
        "statements": to_the_commit or statements.count,
        "statements_after": statements.count - to_the_commit if to_the_commit else 0,
        "state": f"{run.state} {run.error_code}".strip(),
        "tokens": tokens,
        "texts": [text[:160] for text in statements.texts],
    }


def decision_cost(owner: str, agent: str, counts: list[int], rounds: int) -> list[JSON]:
    """Deciding that no compaction is needed, in conversations of these lengths (ms, statements)."""
    return [_one_decision(history(owner, agent, count, 20), rounds) | {"messages": count} for count in counts]


def _one_decision(conversation: str, rounds: int) -> JSON:
    from django.db import connection

    from chat import boundary
    from chat.locking import locked

    took, statements = [], _Statements()
    for number in range(rounds + 3):
        with locked(conversation) as desk:
            statements = _Statements()
            with connection.execute_wrapper(statements):
                began = time.perf_counter()
                outcome = boundary.at_boundary(desk, running=None, waiting=None)
                if number >= 3:
                    took.append((time.perf_counter() - began) * 1000)
        assert outcome.started is None
    return {"ms": sorted(took)[len(took) // 2], "statements": statements.count}
