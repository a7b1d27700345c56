"""Statements of the quick ways: in batches, and sent ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from chat import prepared
from chat.models import Conversation
from tests.builders import make_conversation

COUNTED = "SELECT m.position FROM chat_message m WHERE m.conversation_id = %(id)s ORDER BY m.position"
DIVIDED = "SELECT 1 / (8 - m.position) FROM chat_message m WHERE m.conversation_id = %(id)s ORDER BY m.position"
NOT_NULL = "UPDATE chat_message SET content = NULL WHERE conversation_id = %(id)s"
needs_postgresql = pytest.mark.skipif(connection.vendor != "postgresql", reason="needs PostgreSQL")
pytestmark = pytest.mark.django_db


@pytest.fixture
def conversation() -> Conversation:
    return make_conversation([f"message {number}" for number in range(10)])


def of(conversation: Conversation) -> dict[str, Any]:
    return {"id": prepared.key(Conversation, conversation.pk)}


@transaction.atomic
def _write_and_fail(conversation: Conversation) -> None:
    with prepared.sent_ahead():
        prepared.write(conversation, ["title"])
        with prepared.executed(NOT_NULL, of(conversation)):
            pass


def wrapped(seen: list[str]) -> Callable[..., Any]:
    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    return wrapper


def test_batches_hold_all_rows_in_their_order(conversation: Conversation) -> None:
    batches = list(prepared.streamed(COUNTED, of(conversation), 4))

    assert [position for batch in batches for (position,) in batch] == list(range(1, 11))
    if connection.vendor == "postgresql":
        assert [len(batch) for batch in batches] == [4, 4, 2]


def test_a_statement_in_batches_is_seen_by_whoever_watches_statements(conversation: Conversation) -> None:
    seen: list[str] = []

    with connection.execute_wrapper(wrapped(seen)):
        list(prepared.streamed(COUNTED, of(conversation), 4))

    assert seen == [COUNTED]


def test_batches_that_nobody_wants_any_more_leave_the_connection_in_order(conversation: Conversation) -> None:
    batches = prepared.streamed(COUNTED, of(conversation), 2)
    next(batches)
    batches.close()

    assert Conversation.objects.filter(pk=conversation.pk).exists()


@needs_postgresql
@pytest.mark.parametrize("size", [4, 20], ids=["in a later batch", "in the first batch"])
def test_an_error_of_a_statement_in_batches_is_djangos(conversation: Conversation, size: int) -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        list(prepared.streamed(DIVIDED, of(conversation), size))

    assert Conversation.objects.filter(pk=conversation.pk).exists()


def test_an_error_of_what_was_sent_ahead_undoes_the_transaction(conversation: Conversation) -> None:
    conversation.title = "another"

    with pytest.raises(DatabaseError):
        _write_and_fail(conversation)

    conversation.refresh_from_db()
    assert conversation.title != "another"


def test_what_is_sent_ahead_right_after_batches_has_all_its_rows(conversation: Conversation) -> None:
    for _ in range(2):  # the second time its plan is kept
        list(prepared.streamed(COUNTED, of(conversation), 4))
        with prepared.sent_ahead(), prepared.executed(COUNTED, of(conversation)) as cursor:
            assert len(cursor.fetchall()) == 10


def test_what_is_sent_ahead_right_after_batches_that_nobody_wants_has_all_its_rows(conversation: Conversation) -> None:
    for _ in range(2):
        batches = prepared.streamed(COUNTED, of(conversation), 4)
        next(batches)
        batches.close()
        with prepared.sent_ahead(), prepared.executed(COUNTED, of(conversation)) as cursor:
            assert len(cursor.fetchall()) == 10


@needs_postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("size", [4, 20], ids=["in a later batch", "in the first batch"])
def test_what_is_sent_ahead_right_after_batches_that_failed_has_all_its_rows(
    conversation: Conversation, size: int
) -> None:
    for _ in range(2):
        with pytest.raises(DatabaseError):
            list(prepared.streamed(DIVIDED, of(conversation), size))
        with prepared.sent_ahead(), prepared.executed(COUNTED, of(conversation)) as cursor:
            assert len(cursor.fetchall()) == 10


@needs_postgresql
def test_a_kept_statement_is_planned_once(conversation: Conversation) -> None:
    if connection.settings_dict["OPTIONS"]["prepare_threshold"] is None:
        pytest.skip("DATABASE_PREPARE=0")
    plans = "SELECT SUM(generic_plans), SUM(custom_plans) FROM pg_prepared_statements WHERE statement LIKE %s"
    for _ in range(3):
        with prepared.executed(f"{COUNTED} -- planned once", of(conversation)):
            pass

    with connection.cursor() as cursor:
        cursor.execute(plans, ["%-- planned once"])
        assert cursor.fetchone() == (3, 0)


@pytest.mark.django_db(transaction=True)
def test_sending_ahead_opens_a_connection_that_was_given_back(conversation: Conversation) -> None:
    connection.close()

    with prepared.sent_ahead(), prepared.executed(COUNTED, of(conversation)) as cursor:
        assert len(cursor.fetchall()) == 10


@pytest.mark.parametrize(("version", "is_written"), [(0, True), (7, False)])
def test_a_guarded_write_that_was_sent_ahead_says_whether_it_counted(
    conversation: Conversation, version: int, is_written: bool
) -> None:
    conversation.title = "another"

    with transaction.atomic(), prepared.sent_ahead():
        with prepared.executed(COUNTED, of(conversation)):
            pass
        assert prepared.write(conversation, ["title"], version=version) == is_written

    conversation.refresh_from_db()
    assert (conversation.title == "another") == is_written
