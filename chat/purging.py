"""Deleted conversations lose their rows and files, in batches, so that no long transaction holds anyone up."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import connections, transaction
from django.db.models import Model, QuerySet
from django.utils import timezone

from chat.files import drop_bytes
from chat.models import Attachment, Conversation, Message, Turn
from compaction.models import Compaction

logger = logging.getLogger("palimpsest.purging")

BATCH: Final = 500  # rows in one transaction
KEPT_DAYS: Final = 30  # from a deletion to the purge, in case it was a mistake
UNSENT_HOURS: Final = 24  # an uploaded file that belongs to no message
SECONDS_BETWEEN: Final = 3_600.0
MOST_AT_ONCE: Final = 20  # conversations

_next_at = time.monotonic() + SECONDS_BETWEEN


def purge_deleted(*, days: int = KEPT_DAYS, limit: int | None = None) -> int:
    """Purge the conversations that were deleted that long ago. Returns how many."""
    before = timezone.now() - timedelta(days=days)
    rows = Conversation.objects.filter(deleted_at__lte=before).order_by("deleted_at").values_list("pk", flat=True)
    keys = list(rows[:limit] if limit is not None else rows)
    return sum(_purge_unless_gone(key) for key in keys)


def now_and_then() -> None:
    """Called with every sweep: once an hour a thread of its own purges, so that nothing waits for it."""
    global _next_at
    if time.monotonic() >= _next_at:
        _next_at = time.monotonic() + SECONDS_BETWEEN
        threading.Thread(target=_purge_and_let_go, name="purge", daemon=True).start()


def purge_conversation(conversation_id: UUID) -> int:
    """Remove everything of one deleted conversation. Returns the number of its messages.

    Interrupted at any point it can be run again: the conversation's row goes last.
    """
    conversation = Conversation.objects.get(pk=conversation_id, deleted_at__isnull=False)
    _delete_files(Attachment.objects.filter(conversation=conversation))
    _delete_in_batches(Compaction.objects.filter(conversation=conversation))
    # No summary goes before what it stands for (chat/summary_guard.py), and some stand for earlier ones.
    messages = Message.objects.filter(conversation=conversation)
    count = _delete_in_batches(messages.filter(is_summary=False))
    summaries = messages.filter(is_summary=True)
    summaries.update(compacted_into=None, compacted_at=None)  # together: a constraint
    count += _delete_in_batches(summaries)
    _delete_in_batches(Turn.objects.filter(conversation=conversation))
    conversation.delete()
    logger.info("conversation %s purged: %d messages", conversation_id, count)
    return count


def purge_unsent_files(*, hours: int = UNSENT_HOURS) -> int:
    """Remove files that were uploaded and never sent."""
    before = timezone.now() - timedelta(hours=hours)
    return _delete_files(Attachment.objects.filter(message__isnull=True, created_at__lt=before))


def _purge_and_let_go() -> None:
    try:
        purge_deleted(limit=MOST_AT_ONCE)
        purge_unsent_files()
    except Exception:
        logger.exception("the purge failed; it is tried again in an hour")
    finally:
        connections.close_all()


def _purge_unless_gone(key: UUID) -> bool:
    """Another process may purge at the same time."""
    try:
        purge_conversation(key)
    except Conversation.DoesNotExist:
        return False
    return True


def _delete_files(rows: QuerySet[Attachment]) -> int:
    """The row first: a file without a row is rubbish, a row without its file an error someone would see."""
    count = 0
    while batch := list(rows.only("pk", "file")[:BATCH]):
        with transaction.atomic():
            Attachment.objects.filter(pk__in=[row.pk for row in batch]).delete()
        for row in batch:
            drop_bytes(row)
        count += len(batch)
    return count


def _delete_in_batches(rows: QuerySet[Any]) -> int:
    model: type[Model] = rows.model
    count = 0
    while keys := list(rows.values_list("pk", flat=True)[:BATCH]):
        with transaction.atomic():
            model._default_manager.filter(pk__in=keys).delete()
        count += len(keys)
    return count
