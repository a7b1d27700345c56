"""The Celery application. Tasks are only wake-up calls: what they do is claimed from the database."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import celeryd_init, setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "palimpsest.settings")

app = Celery("palimpsest")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["chat"])


@celeryd_init.connect
def refuse_what_cannot_work(options: dict[str, Any], **_: object) -> None:
    """A worker started by `celery worker` needs a broker that other processes reach, and threads.

    Sent by Celery's own command alone: the worker inside `serve` shares its process with the broker.
    """
    from django.conf import settings

    if settings.EMBEDDED:
        raise SystemExit(
            "palimpsest: the in-memory broker lives inside `manage.py serve`, which has its own worker. "
            "Set REDIS_URL to run workers as processes of their own (see docs/deploy.md)."
        )
    pool = options.get("pool_cls") or settings.CELERY_WORKER_POOL
    if "thread" not in str(getattr(pool, "__module__", pool)):
        raise SystemExit(
            "palimpsest: answers stream on one loop per process, so a worker needs the threads pool: leave out --pool."
        )
    from palimpsest import worker  # noqa: F401 - connects the heartbeat and the drain


@setup_logging.connect
def keep_our_logging(**_: object) -> None:
    """Celery would otherwise replace the handlers that Django's settings made."""
