"""What a compaction and a decision ask of the database: the same few statements at any length."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import close_old_connections, connection, connections
from django.test.utils import CaptureQueriesContext

from chat import compacting, compaction_runs
from chat.boundary import at_boundary
from chat.locking import locked
from chat.models import Conversation
from chat.models import Message as Row
from compaction.models import Compaction, State
from tests.builders import make_agent, make_conversation, make_user
from tests.chat.scripting import long_chat, small_agent, summariser


def statements(queries: CaptureQueriesContext) -> list[str]:
    """Without what only marks a transaction."""
    marks = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK")
    return [query["sql"] for query in queries.captured_queries if not query["sql"].startswith(marks)]


@pytest.mark.django_db
@pytest.mark.parametrize("turns", [30, 150])
def test_a_compaction_takes_nine_statements_whatever_the_length(turns: int) -> None:
    conversation = make_conversation(long_chat(turns), agent=make_agent(window=turns * 1100))
    row = compacting.request_compaction(conversation.owner, conversation.pk)

    with summariser(), CaptureQueriesContext(connection) as queries:
        compaction_runs.run_here(row.pk)

    row.refresh_from_db()
    assert row.state == State.APPLIED
    assert len(statements(queries)) <= 9, statements(queries)


@pytest.mark.django_db
@pytest.mark.parametrize("turns", [2, 150])
def test_deciding_that_none_is_needed_takes_two_statements_whatever_the_length(turns: int) -> None:
    conversation = make_conversation(long_chat(turns), agent=make_agent(window=1_000_000))

    with locked(conversation.pk) as desk, CaptureQueriesContext(connection) as queries:
        assert at_boundary(desk, running=None, waiting=None).proceed

    assert len(statements(queries)) == 2


def at_once(*jobs: Any) -> list[Any]:
    """Run jobs on threads that start together; returns what they returned or raised."""
    start = threading.Barrier(len(jobs))
    results: list[Any] = [None] * len(jobs)

    def work(number: int) -> None:
        start.wait()
        try:
            results[number] = jobs[number]()
        except Exception as error:
            results[number] = error
        finally:
            close_old_connections()
            connections.close_all()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


@pytest.mark.django_db(transaction=True)
def test_25_two_tabs_or_two_people_that_ask_at_once_get_the_same_run() -> None:
    bob = make_user("bob")
    conversation = make_conversation(long_chat(), agent=small_agent(), people=[(bob, "member")])

    def ask() -> Compaction:
        return compacting.request_compaction(conversation.owner, conversation.pk)

    rows = at_once(ask, ask, ask, lambda: compacting.request_compaction(bob, conversation.pk))

    assert {row.pk for row in rows} == {Compaction.objects.get().pk}


@pytest.mark.django_db(transaction=True)
def test_two_workers_that_take_a_run_at_once_apply_it_once() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compacting.request_compaction(conversation.owner, conversation.pk)

    with summariser():
        at_once(*[lambda: compaction_runs.run_here(row.pk)] * 3)

    row.refresh_from_db()
    assert (row.state, row.attempt) == (State.APPLIED, 1)
    assert Row.objects.filter(is_summary=True).count() == 1


@pytest.mark.django_db(transaction=True)
def test_cancel_and_commit_at_once_leave_either_all_or_nothing() -> None:
    for _ in range(5):
        conversation = make_conversation(long_chat(), agent=small_agent())
        row = compacting.request_compaction(conversation.owner, conversation.pk)
        with summariser():
            at_once(
                lambda: compaction_runs.run_here(row.pk),  # noqa: B023
                lambda: compacting.cancel(conversation.owner, row.pk),  # noqa: B023
            )
        row.refresh_from_db()
        covered = Row.objects.filter(conversation=conversation, compacted_into__isnull=False).count()
        epoch = Conversation.objects.get(pk=conversation.pk).epoch
        assert (row.state, bool(covered), epoch) in ((State.APPLIED, True, 1), (State.CANCELLED, False, 0))


@pytest.mark.django_db(transaction=True)
def test_undo_asked_twice_at_once_is_done_once() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compacting.request_compaction(conversation.owner, conversation.pk)
    with summariser():
        compaction_runs.run_here(row.pk)

    def undo() -> Compaction:
        return compacting.request_undo(conversation.owner, row.pk, confirm=True)

    at_once(undo, undo, undo)

    row.refresh_from_db()
    assert row.state == State.UNDONE
    assert Conversation.objects.get(pk=conversation.pk).epoch == 2
