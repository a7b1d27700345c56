"""The runs of this process: claimed once, alive by heartbeat, a model asked in between, the result handed on.

A Celery task only claims and hands over; the run waits for its model on a thread of a small pool. Whatever kills the
process leaves a row whose heartbeat stops, and `chat/compaction_sweep.py` sees to it.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from uuid import UUID

from django.conf import settings as site
from django.db import InterfaceError, OperationalError
from django.db.models.functions import Now

from agents.errors import AgentsError
from agents.provider import Completion, CompletionRequest, Endpoint, StreamEvent, TextPiece
from chat import broadcast
from chat.compaction_results import fail, store
from chat.compaction_words import refused, summariser_failed
from chat.compaction_work import Work, load_work
from chat.events import CompactionProgress, encode
from chat.loop import process_loop, with_connection
from chat.prepared import clock, executed
from chat.restoring import restorable
from compaction import engine
from compaction.engine import SummaryReply, SummaryRequest
from compaction.errors import Cancelled, CompactionError
from compaction.models import Compaction, State
from palimpsest.shutdown import is_stopping, on_drain

logger = logging.getLogger("palimpsest.compactions")

HEARTBEAT_SECONDS = 5.0
SECONDS_BETWEEN_PROGRESS = 0.25
PASSING = frozenset({"boundary", "prune"})  # stages of a few milliseconds: over before anybody could read of them
HAND_BACK_SECONDS = 2.0  # of the grace period, kept for giving back what does not finish
SILENCE_SECONDS = 120.0  # of the summariser, before its call is given up
LONGEST_CALL_SECONDS = 900.0
HEAD_START_SECONDS = 0.02  # of the request: what is done meanwhile would take the processor from its sending
SECONDS_BETWEEN_READINGS = 0.1  # of what the summariser has written so far
CHARACTERS_PER_TOKEN = 4  # to guess how much of a summary is written; only the progress bar reads it
_CLAIM = """UPDATE compaction_compaction SET state = 'running', attempt = attempt + 1, worker = %(worker)s,
  heartbeat_at = {now}, started_at = {now}, stage = '', fraction = 0 WHERE id = %(id)s AND state = 'queued'"""


@dataclass(slots=True)
class Run:
    """One claimed run. `lose` ends it from any thread: it was cancelled, undone or taken away."""

    compaction: int
    worker: str
    conversation: UUID | None = None
    stage: str = ""
    fraction: float = 0.0
    exceeded: bool = False  # the summariser found its last request too long
    _lost: threading.Event = field(default_factory=threading.Event)
    _call: Future[Completion] | None = None
    _told_at: float = 0.0

    def lose(self) -> None:
        self._lost.set()
        if (call := self._call) is not None:
            call.cancel()

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    def progress(self, stage: str, fraction: float) -> None:
        """Tell how far it is, a few times a second at most; every new stage that lasts is told."""
        if self.is_lost:
            raise Cancelled
        now, is_new = time.monotonic(), stage != self.stage
        self.stage, self.fraction = stage, max(self.fraction, min(1.0, fraction))
        is_due = is_new or now - self._told_at >= SECONDS_BETWEEN_PROGRESS
        if self.conversation and is_due and stage not in PASSING:
            self._told_at = now
            event = CompactionProgress(self.compaction, stage, round(self.fraction, 3))
            broadcast.publish(self.conversation, [encode(event, self.conversation)])

    def ask(self, endpoint: Endpoint, request: SummaryRequest) -> SummaryReply:
        """One call to the summariser, streamed so that progress is real and a cancel closes the connection."""
        call = CompletionRequest(
            endpoint,
            request.messages,
            temperature=request.temperature,
            max_output_tokens=request.max_output_tokens,
            thinking=False,
            timeout_seconds=SILENCE_SECONDS,
            deadline_seconds=LONGEST_CALL_SECONDS,
            attempts=2,
        )
        written: list[str] = []
        self._call = asked = process_loop().submit(_complete(call, self._watcher(request, written)))
        if self.is_lost:
            asked.cancel()
        try:
            wait([asked], timeout=HEAD_START_SECONDS)
            _here.beat_now()
            request.meanwhile()
            while not wait([asked], timeout=SECONDS_BETWEEN_READINGS).done:
                request.follow("".join(written))
            done = asked.result()
        except CancelledError:
            raise Cancelled from None
        except AgentsError as error:
            if self.is_lost:
                raise Cancelled from error
            self.exceeded = error.code == "context_exceeded"
            raise summariser_failed(error, retryable=error.retryable) from error
        finally:
            self._call = None
            asked.cancel()
        reason = "content_filter" if done.refused else done.finish_reason or "stop"
        return SummaryReply(done.text, reason, done.usage.to_json() if done.usage else None)

    def _watcher(self, request: SummaryRequest, written: list[str]) -> Callable[[StreamEvent], None]:
        expected, length = request.max_output_tokens * CHARACTERS_PER_TOKEN, 0

        def watch(event: StreamEvent) -> None:
            nonlocal length
            if isinstance(event, TextPiece) and not self.is_lost:
                written.append(event.text)
                length += len(event.text)
                share = request.part - 1 + min(0.95, length / expected)
                self.progress("summarize", 0.05 + 0.85 * share / request.parts)

        return watch


async def _complete(call: CompletionRequest, watch: Callable[[StreamEvent], None]) -> Completion:
    return await process_loop().providers.complete(call, watch)


# Claim and hand over


def run_compaction(compaction_id: int) -> None:
    """What the task does: claim the run and hand it to a thread of this process. A second delivery finds nothing."""
    run = None if is_stopping() else claim(compaction_id)
    if run is not None:
        _here.begin(run)


def run_here(compaction_id: int) -> None:
    """The same, waiting for its end."""
    run = claim(compaction_id)
    if run is not None:
        _here.keep(run)
        _here.work_on(run)


def lose(compaction_id: int) -> None:
    """End a run at once if it is one of this process; another process hears of it with its next heartbeat."""
    _here.lose(compaction_id)


def claim(compaction_id: int) -> Run | None:
    """Take a queued run by compare-and-set; None where somebody else was first. Its worker's name is its key."""
    worker = f"{socket.gethostname()[:100]}:{os.getpid()}:{secrets.token_hex(6)}"
    with executed(_CLAIM.format(now=clock()), {"id": compaction_id, "worker": worker}) as cursor:
        return Run(compaction_id, worker) if cursor.rowcount else None


def work_on(run: Run) -> None:
    """A claimed run to its end. A database that is away ends it without a word: the sweep will find it."""
    started = time.monotonic()
    work: Work | None = None
    try:
        work = load_work(run.compaction, run.worker)
        if work is not None:
            run.conversation = work.conversation.pk
            store(work, _plan(run, work), started)
    except Cancelled:
        logger.info("compaction %d was cancelled after %d ms", run.compaction, _ms(started))
    except CompactionError as error:
        fail(run.compaction, run.worker, error, started, work.summariser if work else None)
    except (OperationalError, InterfaceError) as error:
        logger.warning("compaction %d lost the database (%s); the sweep will take it up", run.compaction, error)
    except Exception:
        logger.exception("compaction %d failed", run.compaction)
        fail(run.compaction, run.worker, refused("internal_error"), started)


def _plan(run: Run, work: Work) -> engine.Plan:
    row, agent = work.compaction, work.conversation.agent
    logger.info(
        "compaction %d (%s, %s) for %s with %s: %d messages, %d tokens, summaries by %s",
        row.pk,
        row.reason,
        row.strategy,
        row.requested_by.get_username() if row.requested_by else "the conversation itself",
        agent.name,
        len(work.transcript.live),
        work.transcript.tokens,
        f"{work.summariser.channel.name}/{work.summariser.model}" if work.summariser else "nobody",
    )
    restored = restorable(work.conversation, work.transcript, work.settings)
    settings = work.settings
    for is_last in (False, False, True):
        run.exceeded = False
        try:
            plan = engine.compact(
                work.transcript,
                settings,
                _summarise(run, work),
                progress=run.progress,
                restored=restored,
                secrets_masked=work.summariser is not None and work.summariser.is_other,
            )
        except CompactionError:
            if is_last or not run.exceeded:
                raise
        else:
            if is_last or not run.exceeded:
                return plan
        settings = replace(settings, summariser_window=(settings.summariser_window or settings.window) // 2)
        logger.info("compaction %d: the summariser takes less than it should, again in smaller parts", run.compaction)
    raise AssertionError("the last round returns or raises")


def _summarise(run: Run, work: Work) -> Callable[[SummaryRequest], SummaryReply]:
    def summarise(request: SummaryRequest) -> SummaryReply:
        if work.summariser is None:
            raise work.refusal or refused("auxiliary_unavailable")
        try:
            endpoint = Endpoint.of(work.summariser.channel, work.summariser.model)
        except AgentsError as error:
            raise summariser_failed(error, retryable=False) from error

        def meanwhile() -> None:
            request.meanwhile()
            work.prepare()

        return run.ask(endpoint, replace(request, meanwhile=meanwhile))

    return summarise


# The runs that are alive here


class _Here:
    """Threads, heartbeats and the list of runs; made on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[int, Run] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._heart: threading.Thread | None = None
        self._beat_is_due = threading.Event()

    def begin(self, run: Run) -> None:
        self.keep(run)
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(site.COMPACTIONS_PER_PROCESS, thread_name_prefix="compaction")
        self._threads.submit(with_connection, self.work_on, run)

    def keep(self, run: Run) -> None:
        with self._lock:
            self._runs[run.compaction] = run
            if self._heart is None or not self._heart.is_alive():
                self._beat_is_due.clear()
                self._heart = threading.Thread(target=self._beat, name="compaction-heart", daemon=True)
                self._heart.start()

    def work_on(self, run: Run) -> None:
        try:
            work_on(run)
        finally:
            with self._lock:
                if self._runs.get(run.compaction) is run:
                    del self._runs[run.compaction]

    def lose(self, compaction_id: int) -> None:
        with self._lock:
            run = self._runs.get(compaction_id)
        if run is not None:
            run.lose()

    def alive(self) -> list[Run]:
        with self._lock:
            return list(self._runs.values())

    def beat_now(self) -> None:
        """A run has come to where it stays longest: who reloads must not have to wait for the next beat to see so."""
        self._beat_is_due.set()

    def _beat(self) -> None:
        """Keeps the leases of all runs, and ends those that are no longer ours."""
        while True:
            self._beat_is_due.wait(HEARTBEAT_SECONDS)
            self._beat_is_due.clear()
            with self._lock:
                if not self._runs:
                    self._heart = None
                    return
            for run in self.alive():
                try:
                    with_connection(beat, run)
                except Exception as error:
                    logger.warning("compaction %d could not say that it is alive (%s)", run.compaction, error)


def beat(run: Run) -> None:
    """One heartbeat, with how far the run is for those who reload; a run that is not ours any more ends."""
    alive = Compaction.objects.filter(pk=run.compaction, worker=run.worker, state=State.RUNNING).update(
        heartbeat_at=Now(), stage=run.stage, fraction=run.fraction
    )
    if not alive:
        run.lose()


@on_drain
def hand_back(seconds_left: float) -> None:
    """The process ends: what does not finish in time goes back to the queue, and another one begins it anew at once."""
    deadline = time.monotonic() + seconds_left - HAND_BACK_SECONDS
    while _here.alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    for run in _here.alive():
        Compaction.objects.filter(pk=run.compaction, worker=run.worker, state=State.RUNNING).update(
            state=State.QUEUED, worker="", heartbeat_at=None
        )
        run.lose()


_here = _Here()


def _ms(since: float) -> int:
    return round((time.monotonic() - since) * 1000)
