"""When a person loses access (sign-out, new password, deactivation, a revoked key), open sockets must hear of it.

    on_access_lost(recheck_sockets)     # called with the person's id, after the change is stored

Who is called asks again who the socket belongs to (`accounts.asgi.person_of`) and closes it where the answer changed:
so a sign-out in one browser leaves the other browser's sockets alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import transaction

logger = logging.getLogger(__name__)

AccessLost = Callable[[int], object]

_callbacks: list[AccessLost] = []
_waiting: ContextVar[list[int] | None] = ContextVar("people whose access changed in this request", default=None)


def on_access_lost(callback: AccessLost) -> AccessLost:
    """Register `callback(user_id)`; usable as a decorator."""
    if callback not in _callbacks:
        _callbacks.append(callback)
    return callback


def access_lost(user_id: int) -> None:
    """Tell everyone, after the transaction and, inside a request, after its end."""
    waiting = _waiting.get()
    if waiting is None:
        transaction.on_commit(lambda: _tell(user_id))
    elif user_id not in waiting:
        waiting.append(user_id)


@contextmanager
def told_at_the_end() -> Iterator[None]:
    """Hold calls back until the block ends."""
    waiting: list[int] = []
    token = _waiting.set(waiting)
    try:
        yield
    finally:
        _waiting.reset(token)
        for user_id in waiting:
            access_lost(user_id)


def _tell(user_id: int) -> None:
    for callback in _callbacks:
        try:
            callback(user_id)
        except Exception:
            logger.exception("sockets could not be told of lost access", extra={"user": user_id})
