"""Why a compaction did not happen: stored as a code with figures, read by everyone in their own language."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.utils import translation

from agents.errors import ProviderError
from chat import compaction_words
from chat.boundary import at_boundary
from chat.events import CompactionSkipped
from chat.locking import locked
from chat.presenting import present_compaction
from chat.snapshot import read_snapshot
from compaction import errors
from compaction.engine import SummaryReply
from compaction.errors import CompactionError
from compaction.models import Compaction, State
from tests.builders import make_agent, make_channel, make_conversation
from tests.chat.scripting import compact, long_chat, small_agent

pytestmark = pytest.mark.django_db


def shown(row: Compaction, language: str) -> dict[str, Any]:
    with translation.override(language):
        return present_compaction(row, newest_applied=None)


def failed(error: Exception) -> Compaction:
    row = compact(make_conversation(long_chat(), agent=small_agent()), error)
    assert row.state == State.FAILED
    return row


def test_a_failure_is_told_in_the_readers_language_whatever_the_workers() -> None:
    row = failed(CompactionError("summary_lost_facts", percent=71))

    assert "only 71 %" in shown(row, "en")["error"]["message"]
    assert "71" in (told := shown(row, "zh-hans")["error"]["message"])
    assert told != shown(row, "en")["error"]["message"]
    assert not told.isascii()


def test_the_providers_part_of_it_too() -> None:
    error = ProviderError("model_not_found", model="gpt-0")

    row = failed(compaction_words.summariser_failed(error, retryable=False))

    assert "does not know the model “gpt-0”" in shown(row, "en")["error"]["message"]
    assert "does not know" not in (told := shown(row, "zh-hans")["error"]["message"])
    assert "gpt-0" in told


def test_a_channel_that_cannot_write_summaries_is_named_in_every_language() -> None:
    agent = small_agent(auxiliary_channel=make_channel(name="Cheap", is_auxiliary=True, enabled=False))
    row = compact(make_conversation(long_chat(), agent=agent))

    assert row.error_code == "auxiliary_unavailable"
    assert "“Cheap” is switched off" in shown(row, "en")["error"]["message"]
    assert "switched off" not in (told := shown(row, "zh-hans")["error"]["message"])
    assert "Cheap" in told


def test_what_takes_the_window_is_named_in_the_readers_language() -> None:
    agent = make_agent(window=32_000, system_prompt="rule " * 25_000)
    conversation = make_conversation(["hello", "hi"], agent=agent)

    with locked(conversation.pk) as desk:
        at_boundary(desk, running=None, waiting=None)

    row = Compaction.objects.get(state=State.SKIPPED)
    assert row.error_figures["largest"] == "system"
    assert "the system prompt takes 25," in shown(row, "en")["error"]["message"]
    assert "the system prompt" not in shown(row, "zh-hans")["error"]["message"]


def test_the_event_of_a_refusal_names_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr("chat.locking.Desk.emit", lambda desk, event: said.append(event))
    agent = make_agent(window=32_000, system_prompt="rule " * 25_000)
    conversation = make_conversation(["hello", "hi"], agent=agent)

    with locked(conversation.pk) as desk:
        at_boundary(desk, running=None, waiting=None)

    [event] = [event for event in said if isinstance(event, CompactionSkipped)]
    assert event.id == Compaction.objects.get().pk


def test_a_snapshot_explains_in_the_language_it_is_read_in() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    compact(conversation, "")

    with translation.override("zh-hans"):
        snapshot, _ = read_snapshot(conversation.owner, conversation.pk)

    [card] = snapshot.compactions
    assert card["error"]["code"] == "summary_empty"
    assert not card["error"]["message"].isascii()


def test_the_card_says_why_the_summary_was_made_without_a_model() -> None:
    """Every detour is explained: on the row, on the card, in the reader's language."""
    agent = small_agent(auxiliary_channel=make_channel(name="Cheap", is_auxiliary=True, enabled=False))
    row = compact(make_conversation(long_chat(60), agent=agent))

    assert (row.state, row.strategy, row.fallback_code) == (State.APPLIED, "extractive", "auxiliary_unavailable")
    assert "“Cheap” is switched off" in shown(row, "en")["fallback"]["message"]
    assert not shown(row, "zh-hans")["fallback"]["message"].isascii()
    assert shown(row, "en")["error"] is None


def test_a_refused_summary_is_the_reason_where_code_had_to_make_room() -> None:
    row = compact(make_conversation(long_chat(60), agent=small_agent()), "I'm sorry, I cannot help with that.")

    assert (row.state, row.fallback_code) == (State.APPLIED, "summary_refused")
    assert row.channel_name  # who received the text is said all the same


def test_an_ordinary_run_has_nothing_to_explain() -> None:
    row = compact(make_conversation(long_chat(), agent=small_agent()))

    assert row.state == State.APPLIED
    assert shown(row, "en")["fallback"] is None


def test_a_code_that_nobody_knows_any_more_keeps_its_words() -> None:
    assert compaction_words.stored("of_long_ago", {"n": 1}, "It was late.") == "It was late."
    assert compaction_words.stored("gain_too_small", {}, "It would free 3 tokens.") == "It would free 3 tokens."


@pytest.mark.parametrize("code", errors.codes())
def test_every_code_has_words_in_chinese(code: str) -> None:
    with translation.override("zh-hans"):
        assert not errors.sentence(code).isascii()


USED = {"prompt_tokens": 40_000, "completion_tokens": 2_000}


def priced(prices: dict[str, list[float]], *replies: Any) -> Compaction:
    agent = small_agent(channel=make_channel(models=["m"], prices=prices))
    return compact(make_conversation(long_chat(), agent=agent), *replies)


def test_a_run_costs_what_its_models_price_says() -> None:
    row = priced({"m": [0.4, 1.6]})

    assert row.state == State.APPLIED
    used = row.usage["prompt_tokens"] * Decimal("0.4") + row.usage["completion_tokens"] * Decimal("1.6")
    assert used > 0
    assert row.cost == (used / 1_000_000).quantize(Decimal("0.000001"))
    assert shown(row, "en")["cost"] == float(row.cost)


def test_a_run_that_failed_has_cost_something_too() -> None:
    row = priced({"m": [0.4, 1.6]}, SummaryReply("", usage=USED), SummaryReply("", usage=USED))

    assert row.state == State.FAILED
    assert row.channel_name
    assert row.cost == Decimal("0.038400")


def test_without_a_price_the_cost_is_not_known_and_not_nought() -> None:
    row = priced({"another": [0.4, 1.6]}, SummaryReply("", usage=USED))

    assert row.cost is None
    assert shown(row, "en")["cost"] is None
