"""`serve` and `work`: the parts of one process, started in order and ended in order.

`serve` opens its port first and starts worker, demo model and heavy imports behind it, so that the first page comes
quickly. It alone owns the signals: close the doors, drain the turns, stop the worker, stop the reactor. A second
Ctrl-C ends everything at once.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.signals import request_finished
from django.db import connections

from palimpsest import garbage, preflight, probes, shutdown, static
from palimpsest.accounts.first import has_administrator, link_path

if TYPE_CHECKING:
    from palimpsest.web import WebServer
    from palimpsest.worker import Worker

logger = logging.getLogger(__name__)

FIRST_PAGE_SECONDS = 0.7  # that the worker and its imports wait for a first page
_HARD_LIMIT = 8.0  # seconds for everything that follows the drain, then the process ends whatever hangs


def serve(host: str, port: int, *, web_only: bool, say: Callable[[str], None]) -> int:
    """Run the web server, and the worker with it unless `web_only`, until a signal; the exit code."""
    garbage.wait_for_start()
    preflight.check_folder()
    preflight.check_storage()
    preflight.check_port(host, port)
    preflight.check_database()
    preflight.check_broker()
    if web_only:
        preflight.check_migrations()
    else:
        preflight.migrate()
    static.collect_if_changed()
    return _Serving(host, port, with_worker=not web_only, say=say).run()


def work(queues: Sequence[str], say: Callable[[str], None]) -> int:
    """Run the worker alone, on these queues, until a signal; the exit code."""
    if settings.EMBEDDED:
        raise preflight.CannotStart(
            "The in-memory broker lives inside `manage.py serve`, which has its own worker. "
            "Set REDIS_URL to run workers as processes of their own (see docs/deploy.md)."
        )
    garbage.wait_for_start()
    preflight.check_folder()
    preflight.check_storage()
    preflight.check_database()
    preflight.check_broker()
    preflight.check_migrations()
    if settings.WORKER_PORT:
        preflight.check_port(settings.HOST, settings.WORKER_PORT)
    return _Working(queues, say).run()


class _Process:
    """Signals, and the ordered end."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.worker: Worker | None = None
        self.stop_demo_model: Callable[[], object] | None = None
        self.exit_code = 0
        self._ending = threading.Event()

    def own_the_signals(self) -> None:
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, self._on_signal)
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, self._on_signal)  # the terminal was closed

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._ending.is_set():
            os._exit(128 + number)
        self._ending.set()
        threading.Thread(target=self._end, name="end", daemon=True).start()

    def _end(self) -> None:
        logger.info("stopping", extra={"grace_seconds": settings.SHUTDOWN_GRACE})
        self.close_doors()
        shutdown.drain(settings.SHUTDOWN_GRACE)
        _end_at_the_latest(_HARD_LIMIT)
        if self.worker is not None:
            self.worker.stop()
        if self.stop_demo_model is not None:
            _quietly(self.stop_demo_model)
        _close_loop()
        self.release()

    def close_doors(self) -> None:
        """Take in nobody new."""

    def release(self) -> None:
        """Let the main thread go on to the end."""

    def start_worker(self, queues: Sequence[str]) -> None:
        from palimpsest.worker import Worker

        self.worker = Worker(queues)
        self.worker.start()
        ready = self.worker.wait_until_ready()
        logger.info("worker ready" if ready else "worker not ready yet", extra={"queues": ",".join(queues)})


class _Serving(_Process):
    def __init__(self, host: str, port: int, *, with_worker: bool, say: Callable[[str], None]) -> None:
        super().__init__(say)
        self.host = host
        self.port = port
        self.with_worker = with_worker
        self.server: WebServer | None = None
        self._started_at = time.monotonic()

    def run(self) -> int:
        from palimpsest.asgi import application
        from palimpsest.web import WebServer

        self.server = WebServer(application, self.host, self.port, self._opened)
        self.own_the_signals()
        self.server.run()
        connections.close_all()
        if self.server.failure:
            raise preflight.CannotStart(f"The address {self.host}:{self.port} cannot be opened: {self.server.failure}.")
        return self.exit_code

    def _opened(self, port: int) -> None:
        self.say(address(self.host, port))
        logger.info("listening", extra={"port": port, "database": preflight.describe_database()})
        threading.Thread(target=self._start_the_rest, name="start", daemon=True).start()

    def _start_the_rest(self) -> None:
        _wait_for_a_page(FIRST_PAGE_SECONDS)
        try:
            if self.with_worker:
                self.stop_demo_model = _start_models()
                _warm_up()
                self.start_worker(all_queues())
            else:
                _warm_up(_FOR_SENDING)
            garbage.started()
        except Exception:
            logger.exception("the worker could not start")
            self.exit_code = 1
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            connections.close_all()

    def close_doors(self) -> None:
        if self.server is not None:
            self.server.close_doors()

    def release(self) -> None:
        if self.server is not None:
            self.server.end()


class _Working(_Process):
    def __init__(self, queues: Sequence[str], say: Callable[[str], None]) -> None:
        super().__init__(say)
        self.queues = queues
        self._released = threading.Event()

    def run(self) -> int:
        self.own_the_signals()
        if settings.WORKER_PORT:
            probes.listen(settings.HOST, settings.WORKER_PORT)
        _warm_up()
        self.start_worker(self.queues)
        garbage.started()
        self.say(f"Palimpsest's worker is running ({', '.join(self.queues)}). Ctrl-C ends it.")
        while not self._released.wait(1.0):
            pass
        connections.close_all()
        return self.exit_code

    def release(self) -> None:
        self._released.set()


def _wait_for_a_page(seconds: float) -> None:
    """Leave the processor to whoever waits for the first page already; `seconds` at most."""
    answered = threading.Event()

    def note(**_: object) -> None:
        answered.set()

    request_finished.connect(note)
    answered.wait(seconds)
    request_finished.disconnect(note)


def all_queues() -> list[str]:
    return [queue.name for queue in settings.CELERY_TASK_QUEUES]


def address(host: str, port: int) -> str:
    """The one line that is printed: where to go, signed in already where there is no administrator yet."""
    wildcard = host in ("0.0.0.0", "::", "[::]")  # noqa: S104 - compared, not bound
    name = "127.0.0.1" if wildcard else host
    if ":" in name and not name.startswith("["):
        name = f"[{name}]"
    root = settings.PUBLIC_URL or f"http://{name}:{port}"
    if has_administrator():
        return f"Palimpsest is running at {root}/"
    return f"Palimpsest is running. Open this link once to become its administrator: {root}{link_path()}"


def _start_models() -> Callable[[], object] | None:
    """The first channel and agents, and the demo model's server where it is used; without them people still get in."""
    from palimpsest import first_agents

    try:
        return first_agents.prepare()
    except Exception:
        logger.exception("the first channel or the demo model could not be made ready")
        return None


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception as error:
        logger.warning("something did not stop as it should", extra={"error": repr(error)})


_FOR_SENDING = ("tiktoken", "agents.tokens")
_FOR_ANSWERING = (*_FOR_SENDING, "openai", "aiohttp", "agents.provider", "chat.working")


def _warm_up(names: Sequence[str] = _FOR_ANSWERING) -> None:
    """Import what is slow and will be needed, before the first turn is taken: it would wait for it."""
    for name in names:
        if shutdown.is_stopping():
            return
        importlib.import_module(name)
    if names is _FOR_ANSWERING:
        importlib.import_module("agents.clients").certificates()
    from chat.loop import process_loop

    process_loop()  # else the first socket would wait for it


def _close_loop() -> None:
    loop = sys.modules.get("chat.loop")
    if loop is not None:
        loop.close_process_loop()


def _end_at_the_latest(seconds: float) -> None:
    """No thread of anyone's may keep the process: after `seconds` it ends as it is."""

    def end() -> None:
        logger.warning("something did not stop in time", extra={"seconds": seconds})
        os._exit(0)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
