"""A summariser that answers as told, in place of the provider; everything around it is real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock
from uuid import UUID

from agents.messages import Message
from agents.provider import Endpoint
from chat import compacting, compaction_runs, history
from chat.boundary import Outcome, at_boundary
from chat.locking import locked
from chat.models import Conversation, Turn
from chat.models import Message as Row
from compaction.engine import SummaryReply, SummaryRequest
from compaction.models import Compaction
from tests.builders import make_agent
from tests.compaction.builders import Scripted

Reply = SummaryReply | str | Exception


@contextmanager
def summariser(*replies: Reply, during: Callable[[], Any] | None = None) -> Iterator[Scripted]:
    """Runs ask this one. `during` is called while the summary is being written: what people do meanwhile."""
    scripted = Scripted(replies)

    def ask(run: compaction_runs.Run, endpoint: Endpoint, request: SummaryRequest) -> SummaryReply:
        if during is not None:
            during()
        return scripted(request)

    # The heart beats on a thread of its own, which cannot see what a test's open transaction holds: it would take every
    # run for lost. Heartbeats have tests of their own.
    with mock.patch.object(compaction_runs.Run, "ask", ask), mock.patch.object(compaction_runs, "beat"):
        yield scripted


def compact(conversation: Conversation, *replies: Reply, **options: Any) -> Compaction:
    """Ask for a compaction as its owner would, and run it here."""
    during = options.pop("during", None)
    row = compacting.request_compaction(conversation.owner, conversation.pk, **options)
    with summariser(*replies, during=during):
        compaction_runs.run_here(row.pk)
    row.refresh_from_db()
    conversation.refresh_from_db()
    return row


def request(conversation: Conversation) -> tuple[Message, ...]:
    """The next request as it stands in the database."""
    return history.request_for(Conversation.objects.select_related("agent__channel").get(pk=conversation.pk))[0]


def long_chat(turns: int = 30, words: int = 60) -> list[str]:
    """A chat worth compacting: each turn says something of its own."""
    chat = []
    for turn in range(turns):
        filler = " ".join(f"word{turn}x{number}" for number in range(words))
        chat.append(f"Please look at src/part_{turn}.py. {filler}")
        chat.append(f"I looked at src/part_{turn}.py and it holds {turn * 37} lines. {filler}")
    return chat


def originals(conversation: Conversation) -> list[tuple[Any, ...]]:
    """Every word that was ever said, with nothing a compaction may change."""
    rows = Row.objects.filter(conversation=conversation, is_summary=False).order_by("id")
    return list(rows.values_list("id", "position", "role", "content", "parts", "tool_calls", "token_count", "pinned"))


def reload(conversation_id: UUID) -> Conversation:
    return Conversation.objects.select_related("agent__channel").get(pk=conversation_id)


# auto 22,400, block 27,404; a turn of long_chat() has about 515 tokens.
def small_agent(**fields: Any) -> Any:
    return make_agent(window=32_000, **fields)


def boundary(conversation: Conversation, **turns: Any) -> Outcome:
    with locked(conversation.pk) as desk:
        return at_boundary(desk, **{"running": None, "waiting": None, **turns})


def make_turn(conversation: Conversation, text: str = "and now?", **fields: Any) -> Turn:
    draft = history.new_row(conversation, Message("user", text), position=None, author=conversation.owner)
    draft.save()
    return Turn.objects.create(conversation=conversation, user_message=draft, **fields)
