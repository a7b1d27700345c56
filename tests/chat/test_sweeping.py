"""What is left behind by a worker that died, a broker that forgot, or a process that ends."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from chat import claiming, lifelines, sweeping, waking, working
from chat.models import MessageStatus, Turn, TurnState
from palimpsest import shutdown
from tests.chat.conftest import Chat, until
from tests.upstream import Play

# Another process that lives: it holds its lifeline until it is killed.
HOLDS = """
import sys
from django.conf import settings
settings.configure(PALIMPSEST_DATA=sys.argv[1])
from chat import lifelines
lifelines.hold("somebody:else")
assert "somebody:else" in lifelines._held
print("held", flush=True)
sys.stdin.read()
"""


def abandoned(chat: Chat, text: str = "", *, has_output: bool = False) -> Turn:
    """A turn whose worker died after a checkpoint of `text`."""
    turn = chat.send("hello")
    claim = claiming.claim_next(chat.conversation.pk)
    assert claim
    answer = chat.answer(turn)
    answer.content = text
    answer.save()
    past = timezone.now() - timedelta(minutes=1)
    Turn.objects.filter(pk=turn.pk).update(worker="gone:1", lease_until=past, has_output=has_output or bool(text))
    return turn


def test_a_turn_that_showed_something_is_interrupted_with_what_was_stored(chat: Chat) -> None:
    turn = abandoned(chat, "As I was say")

    sweeping.sweep()

    turn.refresh_from_db()
    answer = chat.answer(turn)
    assert turn.state == TurnState.INTERRUPTED
    assert (answer.content, answer.status) == ("As I was say", MessageStatus.INTERRUPTED)
    assert answer.token_count > 0
    chat.conversation.refresh_from_db()
    assert chat.conversation.live_tokens == sum(row.token_count for row in chat.messages())


def test_a_turn_that_ran_a_tool_is_not_run_again(chat: Chat) -> None:
    turn = abandoned(chat, has_output=True)

    sweeping.sweep()

    turn.refresh_from_db()
    assert turn.state == TurnState.INTERRUPTED
    assert chat.answer(turn).retired_at is not None


def test_a_turn_that_showed_nothing_runs_again(worker: None, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking, "ring", lambda *_: None)
    turn = abandoned(chat)
    chat.provider.plays("mock", Play(ttft=0, tps=0, text="Here I am."))

    sweeping.release(turn.pk, chat.conversation.pk)
    working.work_on(chat.conversation.pk)

    turn = chat.ended(turn)
    assert turn.attempt == 2
    assert [row.content for row in chat.messages()] == ["hello", "Here I am."]


def test_a_turn_whose_workers_keep_dying_is_given_up(chat: Chat) -> None:
    turn = abandoned(chat)
    Turn.objects.filter(pk=turn.pk).update(attempt=sweeping.MOST_ATTEMPTS)

    sweeping.sweep()

    turn.refresh_from_db()
    assert turn.state == TurnState.INTERRUPTED


def test_a_turn_whose_lease_holds_is_left_alone(chat: Chat) -> None:
    turn = chat.send("hello")
    assert claiming.claim_next(chat.conversation.pk)

    sweeping.sweep()

    turn.refresh_from_db()
    assert turn.state == TurnState.RUNNING


def test_a_wake_up_call_that_was_lost_is_made_up_for(worker: None, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking, "ring", lambda *_: None)
    turn = chat.send("hello")
    Turn.objects.update(created_at=timezone.now() - timedelta(seconds=30))

    sweeping.sweep()

    chat.ended(turn)


def test_a_process_that_ends_keeps_what_was_shown_and_hands_back_the_rest(
    worker: None, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "_stopping", type(shutdown._stopping)())
    chat.provider.plays("mock", Play(ttft=0, tps=20, n=500))
    shown = chat.send("hello")
    until(lambda: chat.provider.requests and chat.provider.requests[-1].written > 5)

    shutdown._stopping.set()
    working.drain(1.0)

    shown.refresh_from_db()
    assert shown.state == TurnState.INTERRUPTED
    assert chat.answer(shown).content.startswith(" k0@")


def test_a_turn_that_waits_for_its_first_token_goes_back_into_the_queue(
    worker: None, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "_stopping", type(shutdown._stopping)())
    chat.provider.plays("mock", Play(hang=0))
    turn = chat.send("hello")
    until(lambda: chat.provider.open)

    shutdown._stopping.set()
    working.drain(1.0)

    turn.refresh_from_db()
    assert (turn.state, turn.attempt, turn.worker) == (TurnState.QUEUED, 1, "")


def test_more_turns_than_places_are_answered_one_after_the_other(
    worker: None, chat: Chat, settings: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TURNS_PER_PROCESS = 1  # type: ignore[attr-defined]
    chat.provider.plays("mock", Play(ttft=100, tps=0, n=3))
    others = [chat.another() for _ in range(3)]

    turns = [each.send("hello") for each in others]

    for turn in turns:
        chat.ended(turn, seconds=4)


def test_who_found_no_place_is_let_in_when_the_place_was_not_needed_after_all(
    worker: None, chat: Chat, settings: object
) -> None:
    settings.TURNS_PER_PROCESS = 1  # type: ignore[attr-defined]
    chat.provider.plays("mock", Play(ttft=0, tps=0, n=3))
    here = working.worker()
    assert here.reserve(chat.conversation.pk)
    other = chat.another()
    turn = other.send("hello")
    until(lambda: other.conversation.pk in here._turned_away)

    here.release()

    chat.ended(turn, seconds=4)


def test_a_turn_of_a_dead_process_of_this_machine_does_not_wait_for_its_lease(
    chat: Chat, nobody_listens: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = chat.send("hello")
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(settings.PALIMPSEST_DATA)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout
    try:
        assert process.stdout.readline() == b"held\n"
        monkeypatch.setattr(claiming, "_worker", lambda pid: "somebody:else")
        assert claiming.claim_next(chat.conversation.pk)
        monkeypatch.undo()
        monkeypatch.setattr(waking, "ring", lambda *_: None)

        sweeping.sweep()
        turn.refresh_from_db()
        assert turn.state == TurnState.RUNNING
    finally:
        process.kill()
        process.wait()

    sweeping.sweep()

    turn.refresh_from_db()
    assert (turn.state, turn.attempt) == (TurnState.QUEUED, 1)


def test_of_a_worker_elsewhere_nothing_is_known() -> None:
    lifelines.hold("one:of:these")

    assert not lifelines.is_dead("one:of:these")
    assert not lifelines.is_dead("never:seen:here")


def test_lifelines_of_the_dead_are_tidied_away() -> None:
    folder = lifelines._folder()
    folder.mkdir(exist_ok=True)
    gone, needed = lifelines._path("gone"), lifelines._path("needed")
    for path in (gone, needed):
        path.touch()

    lifelines.tidy({"needed"})

    assert (gone.exists(), needed.exists()) == (False, True)
    assert lifelines.is_dead("needed")
