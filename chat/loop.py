"""The process's one asyncio loop, on a thread of its own, and the bounded threads that reach the database for it.

Answers of all turns of a process stream on this loop, with one pool of connections to providers. It is made on first
use and belongs to its process: a fork starts with none.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from django.conf import settings
from django.db import close_old_connections, connections
from django.utils import translation

if TYPE_CHECKING:
    from agents.provider import ProviderPool

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("palimpsest.loop")

_starting = threading.Lock()
_current: ProcessLoop | None = None
_database: concurrent.futures.ThreadPoolExecutor | None = None


class ProcessLoop:
    """An event loop that runs on its own thread until it is closed."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = _new_loop()
        self._providers: ProviderPool | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="process-loop", daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the loop, from any thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def soon(self, call: Callable[..., object], *args: Any) -> None:
        """Call a plain function on the loop, from any thread; after closing, nothing happens."""
        try:
            self.loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            logger.debug("the loop is closed, %r is dropped", call)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """A task that is kept until it ends; on the loop's own thread only."""
        task = self.loop.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this loop's thread."""
        return threading.current_thread() is self._thread

    @property
    def providers(self) -> ProviderPool:
        """The one pool of connections to providers; on the loop only."""
        if self._providers is None:
            from agents.provider import ProviderPool

            self._providers = ProviderPool()
        return self._providers

    def close(self, timeout: float = 5.0) -> None:
        """Cancel what still runs, close the providers' connections and end the thread (timeout in seconds)."""
        if self.loop.is_closed() or not self._thread.is_alive():
            return
        try:
            self.submit(self._wind_down()).result(timeout)
        except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
            logger.warning("the loop did not wind down within %.0f s", timeout)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout)

    async def _wind_down(self) -> None:
        running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._providers is not None:
            await self._providers.aclose()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed: a fifth less work for each token. Never as the global policy."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def process_loop() -> ProcessLoop:
    """The loop of this process, started on first use."""
    global _current
    found = _current
    if found is None or found.pid != os.getpid() or found.loop.is_closed():
        with _starting:
            if _current is None or _current.pid != os.getpid() or _current.loop.is_closed():
                _current = ProcessLoop()
            found = _current
    return found


def close_process_loop(timeout: float = 5.0) -> None:
    """End the loop and the database threads of this process, if they were ever started."""
    global _current, _database
    with _starting:
        loop, _current = _current, None
        threads, _database = _database, None
    if loop is not None and loop.pid == os.getpid():
        loop.close(timeout)
    if threads is not None:
        threads.shutdown(wait=True, cancel_futures=True)


def database_threads() -> concurrent.futures.ThreadPoolExecutor:
    """The bounded pool that reaches the database for coroutines."""
    global _database
    if _database is None:
        with _starting:
            if _database is None:
                _database = concurrent.futures.ThreadPoolExecutor(
                    settings.DATABASE_THREADS, thread_name_prefix="database"
                )
    return _database


async def run_in_db(job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that uses the ORM on one of the database threads; usable from any event loop.

    The thread speaks the language of the caller: of the person whose socket it is.
    """
    language = translation.get_language()

    def run() -> T:
        with translation.override(language):
            return with_connection(job, *args, **kwargs)

    return await asyncio.get_running_loop().run_in_executor(database_threads(), run)


def submit_to_db(job: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Run a function on one of the database threads and do not wait for it; a failure is logged."""
    database_threads().submit(lambda: _logged(job, *args, **kwargs))


def with_connection(job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a job, then give its connection back to the pool. An open SQLite file stays open: opening costs more."""
    try:
        return job(*args, **kwargs)
    finally:
        close_old_connections()


def close_connections_of_threads() -> None:
    """Close this thread's connections; for threads that end."""
    connections.close_all()


def _logged(job: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    try:
        with_connection(job, *args, **kwargs)
    except Exception:
        logger.exception("%s failed", getattr(job, "__qualname__", job))
