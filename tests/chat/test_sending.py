"""A message comes in: stored once, whatever happens to the wake-up call."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.models import Agent
from chat import claiming, commands, prepared, queueing, sending, waking
from chat.access import access_conversation
from chat.errors import Forbidden, NotFound
from chat.locking import locked
from chat.models import Conversation, Message, Role, Turn
from tests.builders import make_conversation, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Conversations for which a worker was woken."""
    calls: list[str] = []
    monkeypatch.setattr(waking, "ring", lambda conversation: calls.append(str(conversation)))
    return calls


@pytest.fixture
def conversation(woken: list[str]) -> Conversation:
    return make_conversation(owner=make_user("alice"))


@pytest.fixture
def alice(conversation: Conversation) -> User:
    return conversation.owner


def statements(captured: CaptureQueriesContext) -> list[str]:
    """Those that a transaction of its own would send too."""
    return [query["sql"] for query in captured if "SAVEPOINT" not in query["sql"]]


def test_a_message_waits_as_a_draft(conversation: Conversation, alice: User) -> None:
    sent = sending.send_message(alice, conversation.pk, "hello\ud800 there\0")

    assert sent.message
    assert sent.turn
    assert sent.message.content == "hello\ufffd there\ufffd"
    assert (sent.message.position, sent.turn.state, sent.turn.attempt) == (None, "queued", 0)
    assert sent.message.token_count > 0


def test_the_same_client_id_gives_the_first_result(conversation: Conversation, alice: User) -> None:
    first = sending.send_message(alice, conversation.pk, "hello", client_id="one")
    again = sending.send_message(alice, conversation.pk, "hello", client_id="one")

    assert first.message
    assert first.turn
    assert again.message
    assert again.turn
    assert (again.message.pk, again.turn.pk, again.is_new) == (first.message.pk, first.turn.pk, False)
    assert Message.objects.count() == Turn.objects.count() == 1


def test_a_worker_is_woken_after_the_commit(
    conversation: Conversation, alice: User, woken: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        sending.send_message(alice, conversation.pk, "hello")
        assert woken == []
    assert woken == [str(conversation.pk)]


def test_a_broker_that_is_away_fails_nobody(
    conversation: Conversation,
    alice: User,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> None:
    def refuse(*_: object) -> None:
        raise ConnectionError

    monkeypatch.setattr(waking, "ring", refuse)

    with django_capture_on_commit_callbacks(execute=True):
        sent = sending.send_message(alice, conversation.pk, "hello")

    assert sent.turn


@pytest.mark.parametrize("content", ["", "  \n "])
def test_nothing_is_not_sent(conversation: Conversation, alice: User, content: str) -> None:
    with pytest.raises(sending.NothingToSend):
        sending.send_message(alice, conversation.pk, content)


def test_viewers_and_outsiders_do_not_send(conversation: Conversation) -> None:
    viewer, outsider = make_user(), make_user()
    conversation.participants.create(user=viewer, role=Role.VIEWER)

    with pytest.raises(Forbidden):
        sending.send_message(viewer, conversation.pk, "hello")
    with pytest.raises(NotFound):
        sending.send_message(outsider, conversation.pk, "hello")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/help", commands.Command("help")),
        ("/compact", commands.Command("compact")),
        ("  /compact keep the SQL", commands.Command("compact", "keep the SQL")),
        ("/Compact\nkeep\nthis", commands.Command("compact", "keep\nthis")),
        ("/usr/bin is a folder", None),
        ("/helpful", None),
        ("what is /help", None),
    ],
)
def test_commands(text: str, command: commands.Command | None) -> None:
    assert commands.parse(text) == command


def test_a_command_is_answered_and_stored_nowhere(conversation: Conversation, alice: User) -> None:
    sent = sending.send_message(alice, conversation.pk, "/context")

    assert sent.command
    assert sent.command.result["max_tokens"] == conversation.agent.context_window
    assert not Message.objects.exists()


def test_the_way_to_the_first_token_takes_few_statements(conversation: Conversation, alice: User) -> None:
    with CaptureQueriesContext(connection) as sent:
        sending.send_message(alice, conversation.pk, "hello", client_id="one")
    with CaptureQueriesContext(connection) as claimed:
        assert claiming.claim_next(conversation.pk)

    assert len(statements(sent)) <= 5
    assert len(statements(claimed)) <= 8


def test_a_title_comes_from_the_first_message(conversation: Conversation, alice: User) -> None:
    sending.send_message(alice, conversation.pk, "\nHow do I bake bread?\nWith yeast.")
    sending.send_message(alice, conversation.pk, "And rolls?")

    conversation.refresh_from_db()
    assert conversation.title == "How do I bake bread?"


def test_only_one_turn_runs(conversation: Conversation, alice: User) -> None:
    sending.send_message(alice, conversation.pk, "one")
    sending.send_message(alice, conversation.pk, "two")

    assert claiming.claim_next(conversation.pk)
    assert claiming.claim_next(conversation.pk) is None


def test_rows_of_prepared_statements_are_what_the_orm_reads(conversation: Conversation, alice: User) -> None:
    """The same objects with the same values, JSON and times included."""
    conversation.breaker, conversation.base = {"failures": 2}, {"tokens": 5}
    conversation.save()
    sent = sending.send_message(alice, conversation.pk, "hello")
    assert sent.message
    assert sent.turn
    stored = Conversation.objects.select_related("agent__channel").get(pk=conversation.pk)

    with locked(conversation.pk) as desk:
        _assert_same(desk.conversation, stored)
        _assert_same(desk.conversation.agent, stored.agent)
        _assert_same(desk.conversation.agent.channel, stored.agent.channel)
    _assert_same(access_conversation(alice, conversation.pk), stored, besides={"accessed_as"})
    _assert_same(queueing.open_turns(stored)[0], Turn.objects.get())
    _assert_same(sent.message, Message.objects.get())
    _assert_same(sent.turn, Turn.objects.get())


def test_a_prepared_write_stores_what_save_would(conversation: Conversation) -> None:
    agent: Agent = conversation.agent
    agent.tools, agent.temperature = ["a", "b"], None

    prepared.write(agent, ["tools", "temperature"])

    _assert_same(agent, Agent.objects.get(pk=agent.pk))


def test_a_prepared_write_counts_only_where_the_row_is_what_it_was(conversation: Conversation) -> None:
    conversation.title = "late"

    assert not prepared.write(conversation, ["title"], version=conversation.version + 1)
    assert Conversation.objects.get().title != "late"
    assert prepared.write(conversation, ["title"], version=conversation.version)
    assert Conversation.objects.get().title == "late"


def _assert_same(one: Any, other: Any, besides: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    left_out = {"_state", "_stored_address", *besides}
    assert {k: v for k, v in vars(one).items() if k not in left_out} == {
        k: v for k, v in vars(other).items() if k not in left_out
    }
