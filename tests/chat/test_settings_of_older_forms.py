"""A stored setting of an older form is read and said, or refused; it never counts for something else."""

from __future__ import annotations

import pytest
from django.core import serializers
from django.core.serializers.base import DeserializationError
from django.db import connection, transaction

from agents.models import Agent
from chat import context
from compaction.agent_warnings import warnings_of
from compaction.models import State
from tests.builders import make_agent, make_conversation
from tests.chat.scripting import boundary, compact, long_chat, reload, small_agent

pytestmark = pytest.mark.django_db


@pytest.mark.skipif(connection.vendor != "sqlite", reason="other databases hold only whole numbers there")
def test_a_fraction_in_the_database_is_a_share_of_the_window_and_the_meter_says_so() -> None:
    conversation = make_conversation(long_chat(20), agent=small_agent())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE agents_agent SET compaction_threshold = 0.25")

    usage = context.measure(reload(conversation.pk))

    assert usage.thresholds.auto == 8_000
    assert "25 %" in usage.to_event()["thresholds"]["clamp_reason"]
    assert any("25 %" in text for text in warnings_of(Agent.objects.get(pk=conversation.agent_id)))
    assert boundary(conversation).started is not None
    assert compact(make_conversation(long_chat(20), agent=conversation.agent)).state == State.APPLIED


def test_a_fraction_is_not_stored_as_switched_off() -> None:
    stored = serializers.serialize("json", [make_agent(compaction_threshold=70)])
    with pytest.raises(DeserializationError):
        list(serializers.deserialize("json", stored.replace(": 70", ": 0.7")))
    with pytest.raises(ValueError, match="whole number"), transaction.atomic():
        Agent.objects.update(compaction_threshold=0.7)
    with pytest.raises(ValueError, match="whole number"), transaction.atomic():
        make_agent(compaction_threshold=0.7)


def test_a_strategy_that_does_not_exist_any_more_stops_no_chat_and_is_said() -> None:
    agent = small_agent(compaction_strategy="thrifty")
    conversation = make_conversation(long_chat(46), agent=agent)

    assert context.measure(reload(conversation.pk)).to_event()["advice"]["would_free"]
    assert any("thrifty" in text for text in warnings_of(agent))
    row = compact(conversation)
    assert (row.state, row.error_code) == (State.FAILED, "unknown_strategy")
    assert "thrifty" in row.error_text
