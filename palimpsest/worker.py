"""Celery's worker inside our own processes (`serve`, `work`), and the heartbeat of every worker.

A worker started by Celery's own command gets its heartbeat and its drain here too, through Celery's signals.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterable
from typing import Any

from celery.signals import worker_ready, worker_shutdown, worker_shutting_down
from celery.worker import WorkController
from django.conf import settings

from palimpsest import shutdown
from palimpsest.celery import app
from palimpsest.health import Heart

logger = logging.getLogger(__name__)

_hearts: list[Heart] = []
_drains: list[threading.Thread] = []


class Worker:
    """Reads queues on a thread of this process, and runs their tasks on others."""

    def __init__(self, queues: Iterable[str]) -> None:
        self._ready = threading.Event()
        self._controller = WorkController(
            app=app,
            hostname=f"palimpsest-{os.getpid()}@{socket.gethostname()}",
            pool="threads",
            concurrency=settings.CELERY_WORKER_CONCURRENCY,
            queues=list(queues),
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            ready_callback=self._note_ready,
        )
        self._thread = threading.Thread(target=self._controller.start, name="worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_until_ready(self, timeout: float = 20.0) -> bool:
        """Whether it reads its queues within `timeout` (seconds)."""
        return self._ready.wait(timeout)

    def stop(self, timeout: float = 5.0) -> None:
        """Stop reading and give running tasks `timeout` (seconds) to end."""
        stopping = threading.Thread(target=self._controller.stop, name="stop-worker", daemon=True)
        stopping.start()
        stopping.join(timeout)
        stop_hearts()

    def _note_ready(self, consumer: Any) -> None:
        self._ready.set()
        # What Celery's own command sends: whoever sweeps or repairs starts on it, here as there.
        worker_ready.send(sender=consumer)


@worker_ready.connect
def start_heart(sender: Any, **_: object) -> None:
    """Every worker beats for the queues it reads."""
    queues = [queue.name for queue in sender.task_consumer.queues]
    heart = Heart(queues, is_well=lambda: not shutdown.is_stopping())
    _hearts.append(heart)
    heart.start()


@worker_shutting_down.connect
def drain_celerys_own(**_: object) -> None:
    """`celery worker` got SIGTERM: the signal's handler must return, so the drain has a thread of its own."""
    drain = threading.Thread(target=shutdown.drain, args=(settings.SHUTDOWN_GRACE,), name="drain", daemon=True)
    drain.start()
    _drains.append(drain)


@worker_shutdown.connect
def wait_for_the_drain(**_: object) -> None:
    """Celery's own command would end while turns still do."""
    while _drains:
        _drains.pop().join(settings.SHUTDOWN_GRACE + 2)
    stop_hearts()


def stop_hearts() -> None:
    while _hearts:
        _hearts.pop().stop()
