"""Celery's tasks: wake-up calls. What they do is claimed from the database, so losing or doubling one is harmless."""

from __future__ import annotations

from celery import shared_task

from chat import bell, compaction_runs, sweeping, working  # noqa: F401  # whoever has these tasks hears and sweeps


@shared_task(name="chat.tasks.run_turn", ignore_result=True)
def run_turn(conversation_id: str) -> None:
    """Answer the next queued turn of a conversation, if there is one and nothing runs.

    Turns are woken by the bell (`chat/bell.py`); this is for a process whose own worker has not begun yet.
    """
    working.work_on(conversation_id)


@shared_task(name="chat.tasks.compact", ignore_result=True)
def compact(compaction_id: int) -> None:
    """Run a compaction that was asked for, if nobody has taken it yet."""
    compaction_runs.run_compaction(compaction_id)
