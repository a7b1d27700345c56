"""Whatever ends a worker, and whenever: nothing is half-applied, nothing stays stuck, and the next attempt succeeds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.models import F
from django.utils import timezone

from chat import compacting, compaction_runs, context
from chat.locking import locked
from chat.models import Conversation
from chat.models import Message as Row
from compaction.models import Compaction, State
from tests.builders import make_channel, make_conversation
from tests.chat.conftest import until
from tests.chat.scripting import boundary, long_chat, make_turn, originals, reload, request, small_agent, summariser
from tests.upstream import Provider


class Killed(BaseException):
    """The process ends here: no handler of the product sees it."""


class KillAt:
    """Ends the work before its statement of that number."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, around: Any) -> Any:
        if self.left == 0:
            self.left = -1
            raise Killed
        self.left -= 1
        return execute(sql, params, many, around)


def is_untouched(conversation: Conversation) -> bool:
    rows = Row.objects.filter(conversation=conversation)
    return not rows.filter(is_summary=True).exists() and not rows.filter(compacted_into__isnull=False).exists()


def let_leases_run_out() -> None:
    past = timezone.now() - timedelta(minutes=1)
    Compaction.objects.filter(heartbeat_at__isnull=False).update(heartbeat_at=past)
    Compaction.objects.update(created_at=past)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", range(16))
def test_killed_before_any_statement_it_is_never_half_applied_and_begins_again(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[int] = []
    monkeypatch.setattr("chat.compaction_sweep.wake_compaction", woken.append)
    conversation = make_conversation(long_chat(), agent=small_agent())
    said, before = originals(conversation), request(conversation)
    row = compacting.request_compaction(conversation.owner, conversation.pk)

    with summariser(), connection.execute_wrapper(KillAt(number)):
        try:
            compaction_runs.run_here(row.pk)
        except Killed:
            connection.close()
    row.refresh_from_db()
    if row.state != State.APPLIED:
        assert is_untouched(conversation)
        assert request(conversation) == before
        assert reload(conversation.pk).epoch == 0
        let_leases_run_out()
        compacting.sweep()
        assert woken == [row.pk]
        with summariser():
            compaction_runs.run_here(row.pk)

    row.refresh_from_db()
    now = reload(conversation.pk)
    assert row.state == State.APPLIED
    assert originals(conversation) == said
    assert now.live_tokens == context.recount_live_tokens(now)
    assert Row.objects.filter(is_summary=True).count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("place", ["while the model writes", "inside the commit"])
def test_a_killed_process_leaves_nothing_behind_but_a_row_that_is_taken_up(place: str) -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    before = request(conversation)
    row = compacting.request_compaction(conversation.owner, conversation.pk)
    waits = "ask" if place == "while the model writes" else "_flag"
    code = f"""
        import sys, time
        import django
        django.setup()
        from django.conf import settings
        from django.db import connection
        connection.settings_dict["NAME"] = {connection.settings_dict["NAME"]!r}
        from chat import applying, compaction_runs
        from tests.chat.scripting import summariser

        def wait(*args):
            print("here", flush=True)
            time.sleep(60)

        with summariser(during=wait if {waits!r} == "ask" else None):
            if {waits!r} == "_flag":
                applying._flag = wait
            compaction_runs.run_here({row.pk})
    """
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "palimpsest.settings",
        "PYTHONPATH": str(settings.BASE_DIR),
        "SECRET_KEY": settings.SECRET_KEY,
        "PALIMPSEST_ENCRYPTION_KEYS": ",".join(settings.PALIMPSEST_ENCRYPTION_KEYS),
    }
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
        cwd=settings.BASE_DIR,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "here"
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()

    row.refresh_from_db()
    assert row.state == State.RUNNING
    assert is_untouched(conversation)
    assert request(conversation) == before
    let_leases_run_out()
    compacting.sweep()
    with summariser():
        compaction_runs.run_here(row.pk)
    row.refresh_from_db()
    assert (row.state, row.attempt) == (State.APPLIED, 2)


@pytest.mark.django_db
def test_a_run_whose_workers_keep_ending_fails_with_a_reason() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compacting.request_compaction(conversation.owner, conversation.pk)
    for _ in range(3):
        assert compaction_runs.claim(row.pk) is not None
        let_leases_run_out()
        compacting.sweep()

    row.refresh_from_db()
    assert (row.state, row.error_code, row.retryable) == (State.FAILED, "worker_lost", True)
    assert boundary(conversation, waiting=make_turn(conversation)).proceed


@pytest.mark.django_db
def test_a_worker_that_was_only_slow_finds_its_run_taken_and_applies_nothing() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compacting.request_compaction(conversation.owner, conversation.pk)

    def meanwhile() -> None:
        let_leases_run_out()
        compacting.sweep()

    with summariser(during=meanwhile):
        compaction_runs.run_here(row.pk)

    row.refresh_from_db()
    assert row.state == State.QUEUED
    assert is_untouched(conversation)


@pytest.mark.django_db
def test_a_heartbeat_keeps_the_lease_and_hears_of_a_cancel() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compacting.request_compaction(conversation.owner, conversation.pk)
    run = compaction_runs.claim(row.pk)
    let_leases_run_out()

    compaction_runs.beat(run)
    assert not run.is_lost
    assert compacting.sweep() == 0
    Compaction.objects.update(state=State.CANCELLED)
    compaction_runs.beat(run)
    assert run.is_lost


@pytest.mark.django_db(transaction=True)
def test_who_reloads_while_the_summary_is_written_sees_so_before_the_next_heartbeat(
    upstream: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_runs, "HEARTBEAT_SECONDS", 3_600.0)
    channel = make_channel(base_url=upstream.base_url, models=["mock-hang1"])
    conversation = make_conversation(long_chat(), agent=small_agent(channel=channel))
    row = compacting.request_compaction(conversation.owner, conversation.pk)

    compaction_runs.run_compaction(row.pk)
    try:
        stored = Compaction.objects.filter(pk=row.pk)
        until(lambda: stored.get().stage == "summarize")
    finally:
        compacting.cancel(conversation.owner, row.pk)
        until(lambda: not compaction_runs._here.alive())
        compaction_runs._here.beat_now()  # and its heart stops


@pytest.mark.django_db
def test_a_result_that_nobody_came_for_is_applied_by_the_sweep() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    turn = make_turn(conversation, state="running")
    row = compacting.request_compaction(conversation.owner, conversation.pk)
    with summariser():
        compaction_runs.run_here(row.pk)
    type(turn).objects.update(state="done")

    compacting.sweep()

    row.refresh_from_db()
    assert row.state == State.APPLIED


@pytest.mark.django_db
def test_an_undo_that_nobody_came_for_is_done_by_the_sweep() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compacting.request_compaction(conversation.owner, conversation.pk)
    with summariser():
        compaction_runs.run_here(row.pk)
    Compaction.objects.update(undo_requested_at=timezone.now())

    compacting.sweep()

    assert is_undone(row)


@pytest.mark.django_db
def test_a_process_that_ends_hands_its_runs_back_at_once() -> None:
    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compacting.request_compaction(conversation.owner, conversation.pk)

    with summariser(during=lambda: compaction_runs.hand_back(0.0)):
        compaction_runs.run_here(row.pk)

    row.refresh_from_db()
    assert row.state == State.QUEUED
    with summariser():
        compaction_runs.run_here(row.pk)
    row.refresh_from_db()
    assert row.state == State.APPLIED


@pytest.mark.django_db
def test_two_runs_at_once_cannot_be_stored() -> None:
    from django.db import IntegrityError, transaction

    conversation = make_conversation(long_chat(), agent=small_agent())
    compacting.request_compaction(conversation.owner, conversation.pk)

    with pytest.raises(IntegrityError), transaction.atomic():
        Compaction.objects.create(conversation=conversation, reason="auto")


@pytest.mark.django_db
def test_a_commit_that_fails_halfway_is_rolled_back_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    from chat import applying

    conversation = make_conversation(long_chat(), agent=small_agent())
    row = compacting.request_compaction(conversation.owner, conversation.pk)

    def break_down(*_: Any) -> None:
        raise RuntimeError("disk on fire")

    monkeypatch.setattr(applying, "_tell", break_down)
    with summariser():
        compaction_runs.run_here(row.pk)

    row.refresh_from_db()
    assert (row.state, row.error_code) == (State.FAILED, "internal_error")
    assert is_untouched(conversation)
    with locked(conversation.pk) as desk:
        assert desk.conversation.epoch == 0


def is_undone(row: Compaction) -> bool:
    return Compaction.objects.filter(pk=row.pk, state=State.UNDONE, undone_at__gte=F("applied_at")).exists()
