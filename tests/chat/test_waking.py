"""Who is woken for a turn: this very process, or whoever hears the bell."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from django.conf import settings

from chat import bell, loop, waking, working
from chat.tasks import run_turn
from palimpsest import shutdown


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Conversations that this process was asked to look at."""
    monkeypatch.undo()  # of the wake-up calls that get lost
    monkeypatch.setattr(shutdown, "_stopping", threading.Event())
    calls: list[str] = []
    monkeypatch.setattr(working, "work_on", lambda conversation: calls.append(str(conversation)))
    yield calls
    bell.close_for_turns()
    loop.close_process_loop()


def soon(heard: list[str], expected: list[str]) -> None:
    deadline = threading.Event()
    for _ in range(500):
        if heard == expected:
            return
        deadline.wait(0.02)
    assert heard == expected


def test_a_process_that_answers_wakes_itself(heard: list[str]) -> None:
    working.opened(True)

    waking.wake("one")

    assert heard == ["one"]
    working.opened(False)


@pytest.mark.skipif(not settings.REDIS_URL, reason="needs REDIS_URL")
def test_the_bell_is_heard_by_a_worker_with_room(heard: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was rung before anybody listened is heard too, and a full process leaves it to others."""
    monkeypatch.setattr(working, "has_room", lambda: False)
    waking.wake("one")
    bell.open_for_turns()
    waking.wake("two")
    assert heard == []

    monkeypatch.setattr(working, "has_room", lambda: True)

    soon(heard, ["one", "two"])


@pytest.mark.skipif(bool(settings.REDIS_URL), reason="embedded only")
def test_before_its_worker_has_begun_the_one_process_keeps_the_call(
    heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []
    monkeypatch.setattr(run_turn, "delay", kept.append)

    waking.wake("one")

    assert (heard, kept) == ([], ["one"])
