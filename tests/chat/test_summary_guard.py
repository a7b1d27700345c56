"""A summary cannot be deleted under the messages it stands for, by plain SQL either."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction

from chat.models import Conversation
from chat.models import Message as Row
from compaction.models import Compaction
from tests.builders import make_conversation
from tests.chat.scripting import compact, long_chat, small_agent

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def conversation() -> Conversation:
    conversation = make_conversation(long_chat(), agent=small_agent())
    compact(conversation)
    Compaction.objects.update(summary_message=None)  # its own foreign key would keep the summary as well
    return conversation


def delete(conversation: Conversation, *, summaries: bool) -> None:
    rows = Row.objects.filter(conversation=conversation, is_summary=summaries)
    with connection.cursor() as cursor:
        for key in rows.values_list("pk", flat=True):
            cursor.execute("DELETE FROM chat_message WHERE id = %s", [key])


def test_the_database_refuses_to_delete_it(conversation: Conversation) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        delete(conversation, summaries=True)

    assert Row.objects.filter(conversation=conversation, is_summary=True).exists()


def test_so_it_does_when_django_asks(conversation: Conversation) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Row.objects.get(conversation=conversation, is_summary=True).delete()


def test_together_with_its_originals_it_goes(conversation: Conversation) -> None:
    with transaction.atomic():
        delete(conversation, summaries=False)
        delete(conversation, summaries=True)

    assert not Row.objects.filter(conversation=conversation).exists()


def test_undone_it_stands_for_nothing_and_goes(conversation: Conversation) -> None:
    Row.objects.filter(conversation=conversation).update(compacted_into=None, compacted_at=None)

    with transaction.atomic():
        delete(conversation, summaries=True)

    assert not Row.objects.filter(conversation=conversation, is_summary=True).exists()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite makes a table anew to change it")
def test_a_table_that_was_made_anew_is_guarded_again(conversation: Conversation) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER chat_summary_stands")

    call_command("migrate", verbosity=0)

    with pytest.raises(IntegrityError), transaction.atomic():
        delete(conversation, summaries=True)
