"""At most one automatic attempt at each boundary, and every refusal said once: with stored rows, whatever happens."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.db.models import F

from agents.models import Agent
from chat import compacting, compaction_runs, context
from chat.locking import locked
from chat.models import Conversation, Turn
from chat.models import Message as Row
from chat.pinning import pin
from compaction.errors import CompactionError
from compaction.models import OPEN_STATES, Compaction, State
from tests.builders import add_messages, make_conversation
from tests.chat.scripting import boundary, long_chat, make_turn, reload, small_agent, summariser
from tests.compaction.builders import make_summary

pytestmark = pytest.mark.django_db

DOWN = CompactionError("summariser_failed", why="down", retryable=True)


def skipped() -> list[str]:
    return list(Compaction.objects.filter(state=State.SKIPPED).order_by("id").values_list("error_code", flat=True))


def test_a_run_that_is_cancelled_before_a_worker_took_it_is_not_asked_for_again() -> None:
    conversation = make_conversation(long_chat(60), agent=small_agent())
    turn = make_turn(conversation)
    row = boundary(conversation, waiting=turn).waits_for

    compacting.cancel(conversation.owner, row.pk)

    assert boundary(conversation, waiting=turn).proceed
    assert Compaction.objects.count() == 1


def test_after_a_run_that_stays_above_the_trigger_nothing_runs_until_enough_has_come() -> None:
    plan = "the plan goes on with more of the same work as it was before " * 16
    conversation = make_conversation([*[plan] * 90, "explain it all", "word " * 19_600], agent=small_agent())
    started = boundary(conversation).started
    with summariser(make_summary(body=plan * 2)):
        compaction_runs.run_here(started.pk)
    usage = context.measure(reload(conversation.pk))
    row = Compaction.objects.get()
    assert (row.state, row.fallback_code) == (State.APPLIED, "")
    assert usage.thresholds.auto <= usage.used_tokens < usage.thresholds.block

    for _ in range(4):
        add_messages(conversation, ["go on", "yes"])
        assert boundary(conversation).started is None

    assert skipped() == ["nothing_new"]
    add_messages(conversation, long_chat(5))
    assert boundary(conversation).started is not None


def test_a_run_that_found_nothing_to_do_is_not_repeated_until_enough_has_come() -> None:
    chat: list[Any] = [{"role": "system", "content": "rule " * 21_500}, *long_chat(3)]
    conversation = make_conversation(chat, agent=small_agent())
    for _ in range(4):
        started = boundary(conversation).started
        if started is not None:
            compaction_runs.run_here(started.pk)
        add_messages(conversation, ["go on", "yes"])

    assert len(skipped()) == 1
    assert Compaction.objects.exclude(started_at=None).count() == 1


def test_what_is_switched_off_leaves_one_row_too() -> None:
    conversation = make_conversation(long_chat(60), agent=small_agent(compaction_threshold=0))

    for _ in range(3):
        assert boundary(conversation, waiting=make_turn(conversation)).refusal is not None

    assert skipped() == ["switched_off"]


def test_what_is_asked_of_a_run_while_it_works_is_not_forgotten_when_it_ends() -> None:
    conversation = make_conversation(long_chat(46), agent=small_agent())
    turn = make_turn(conversation, state="running")
    started = boundary(conversation, running=turn).started
    add_messages(conversation, ["go on", "yes"])

    def too_long() -> None:
        with locked(conversation.pk) as desk:
            assert compacting.rescue(desk, turn).pk == started.pk

    with summariser(during=too_long):
        compaction_runs.run_here(started.pk)

    started.refresh_from_db()
    assert (started.state, started.blocking, started.asked_at_position) == (State.READY, True, 94)


EVENTS = (
    "talk",
    "talk",
    "boundary",
    "boundary",
    "boundary",
    "work",
    "work",
    "cancel",
    "undo",
    "pin",
    "switch",
    "rescue",
)


@pytest.mark.parametrize("seed", range(6))
def test_no_sequence_of_events_makes_two_automatic_attempts_at_one_boundary(seed: int) -> None:
    chance = random.Random(seed)
    agents = [small_agent(), small_agent(compaction_threshold=40)]
    conversation = make_conversation(long_chat(chance.randint(40, 60)), agent=agents[0])
    for _ in range(50):
        happen(chance, conversation, agents)
        attempts = Compaction.objects.exclude(state=State.SKIPPED, started_at=None)
        places = [row for row in attempts.values_list("asked_at_position", "reason") if row[1] != "manual"]
        by_itself = [position for position, reason in places if reason != "overflow"]
        assert len(by_itself) == len(set(by_itself))
        assert len(places) == len(set(places))
        assert len(skips := skipped_in_place()) == len(set(skips))


def happen(chance: random.Random, conversation: Conversation, agents: list[Agent]) -> None:
    """One thing that people, workers or providers may do."""
    opened = Compaction.objects.filter(state__in=OPEN_STATES).first()
    match chance.choice(EVENTS):
        case "talk":
            Turn.objects.all().delete()
            add_messages(conversation, long_chat(chance.randint(1, 4)))
        case "boundary":
            turn = Turn.objects.first() or make_turn(conversation)
            boundary(conversation, **{chance.choice(["waiting", "running"]): turn})
        case "work" if opened is not None:
            with summariser(chance.choice([DOWN, DOWN, make_summary()])):
                compaction_runs.run_here(opened.pk)
        case "cancel" if opened is not None:
            compacting.cancel(conversation.owner, opened.pk)
        case "undo":
            if (row := Compaction.objects.filter(state=State.APPLIED).first()) is not None:
                compacting.request_undo(conversation.owner, row.pk, confirm=True)
        case "pin":
            row = chance.choice(list(Row.objects.filter(is_summary=False, position__isnull=False).order_by("id")))
            pin(conversation.owner, conversation.pk, row.pk, pinned=not row.pinned)
        case "switch":
            Conversation.objects.update(agent=chance.choice(agents), epoch=F("epoch") + 1)
        case "rescue":
            with locked(conversation.pk) as desk:
                compacting.rescue(desk, Turn.objects.first() or make_turn(conversation))


def skipped_in_place() -> list[tuple[str, str]]:
    """Code and situation of every refusal that was no run."""
    return list(Compaction.objects.filter(state=State.SKIPPED, started_at=None).values_list("error_code", "situation"))
