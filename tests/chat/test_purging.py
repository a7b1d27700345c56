"""A deleted conversation goes with all it holds, whatever stands for what in it."""

from __future__ import annotations

import pytest
from django.utils import timezone

from chat import compacting
from chat.models import Conversation
from chat.models import Message as Row
from chat.purging import purge_conversation
from tests.builders import add_messages, make_conversation
from tests.chat.scripting import compact, long_chat, small_agent

pytestmark = pytest.mark.django_db(transaction=True)  # PostgreSQL looks at summaries when a transaction ends


def test_a_conversation_of_several_batches_goes_with_its_summaries() -> None:
    conversation = make_conversation(long_chat(turns=60, words=30), agent=small_agent())
    first = compact(conversation)
    add_messages(conversation, long_chat(turns=60, words=30))
    second = compact(conversation)
    assert second.generation == 2
    assert first.covered_count + second.covered_count > 150
    Conversation.objects.update(deleted_at=timezone.now())

    assert purge_conversation(conversation.pk) == 242

    assert not Row.objects.exists()
    assert not Conversation.objects.exists()


def test_an_undone_summary_goes_too() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compact(conversation)
    compacting.request_undo(conversation.owner, row.pk, confirm=True)
    Conversation.objects.update(deleted_at=timezone.now())

    assert purge_conversation(conversation.pk) == 61

    assert not Row.objects.exists()
