"""Asking some worker to look at a conversation: a wake-up call, never the work itself."""

from __future__ import annotations

import logging
from uuid import UUID

from django.conf import settings

logger = logging.getLogger("palimpsest.turns")


def wake(conversation_id: UUID | str) -> None:
    """Call after the commit. A broker that is away only delays the turn: it is stored, and the sweep finds it."""
    try:
        ring(conversation_id)
    except Exception as error:
        # Whatever a broker's client raises, nobody's message may fail for it.
        logger.warning("the broker does not take a wake-up call (%s); the sweep will find the turn", error)


def ring(conversation_id: UUID | str) -> None:
    """The shortest way to a worker: this process itself, else whichever hears the bell first."""
    from chat import bell, working  # these, and the tasks, call what calls this
    from chat.tasks import run_turn

    if working.is_open() and working.has_room():
        working.work_on(conversation_id)
    elif settings.EMBEDDED:  # the worker of this process has not begun yet
        run_turn.delay(str(conversation_id))
    else:
        bell.push(conversation_id)


def wake_compaction(compaction_id: int) -> None:
    """Ask some worker to run a compaction; call after the commit. The sweep repairs a call that gets lost."""
    from chat.tasks import compact

    try:
        compact.delay(compaction_id)
    except Exception as error:
        logger.warning("the broker does not take a wake-up call (%s); the sweep will find the compaction", error)
