"""A provider for tests: the bench's fast one in a thread, with plays a test hands in and the requests it was sent."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.plays import Play
from bench.upstream import Request, Upstream

__all__ = ["Play", "Provider", "listening_provider"]


class Provider:
    """A provider that listens on a free loopback port until `stop`. Safe to use from any thread.

    `base_url` is what a channel is given; `plays("model", Play(...), Play(...))` says what that model answers, one play
    a request, the last one for all later ones; without, the model's name decides (see `bench/plays.py`).
    """

    def __init__(self, default: Play | None = None, key: str = "") -> None:
        self.upstream = Upstream(default=default or Play(ttft=0, tps=0, n=20), key=key)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="test-provider", daemon=True)
        self.thread.start()
        self.base_url = asyncio.run_coroutine_threadsafe(self.upstream.start(), self.loop).result(5)

    def plays(self, model: str, *script: Play) -> None:
        self.upstream.scripted[model] = list(script)

    def clear(self) -> None:
        self.upstream.clear()

    @property
    def requests(self) -> list[Request]:
        return list(self.upstream.requests)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.requests]

    @property
    def last(self) -> dict[str, Any]:
        """The newest request's body."""
        return self.upstream.requests[-1].body

    @property
    def answers(self) -> list[Request]:
        """The requests that were no request for a summary."""
        return [request for request in self.requests if not request.is_summary]

    @property
    def open(self) -> int:
        """Requests whose answer has not ended."""
        return sum(request.outcome == "open" for request in self.requests)

    def wait_until(self, condition: Callable[[Provider], bool], seconds: float = 5.0) -> None:
        until = time.monotonic() + seconds
        while not condition(self):
            if time.monotonic() > until:
                raise AssertionError(f"the provider waited {seconds} s in vain: {[r.outcome for r in self.requests]}")
            time.sleep(0.005)

    def wait_for(self, requests: int, seconds: float = 5.0) -> None:
        self.wait_until(lambda provider: provider.upstream.count >= requests, seconds)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.upstream.stop(), self.loop).result(5)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()


@contextmanager
def listening_provider(default: Play | None = None, key: str = "") -> Iterator[Provider]:
    """A provider for the length of a `with`; tests may ask for the fixture `provider` instead."""
    made = Provider(default, key)
    try:
        yield made
    finally:
        made.stop()
