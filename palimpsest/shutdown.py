"""What must end well before the process does.

    on_drain(stop_turns)     # at import, by whoever owns work that should not be cut off

`serve` and `work` call `drain(grace)` once: every registered function is called in turn with the seconds that are
left, stops taking new work, waits for what runs and hands back what does not end in time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

Drain = Callable[[float], object]

_drains: list[Drain] = []
_stopping = threading.Event()


def on_drain(drain: Drain) -> Drain:
    """Register `drain(seconds_left)`; usable as a decorator. Called in the order of registration, at most once."""
    if drain not in _drains:
        _drains.append(drain)
    return drain


def is_stopping() -> bool:
    """Whether this process takes no new work any more."""
    return _stopping.is_set()


def drain(grace: float) -> None:
    """Let everything end within `grace` (seconds). A drain that fails never keeps the others from running."""
    if _stopping.is_set():
        return
    _stopping.set()
    deadline = time.monotonic() + grace
    for call in _drains:
        try:
            call(max(0.0, deadline - time.monotonic()))
        except Exception:
            logger.exception("a drain failed", extra={"drain": getattr(call, "__qualname__", repr(call))})
