"""Is it alive, is it ready: /healthz, /readyz and /metrics, answered before hosts, sessions and languages matter.

Every worker beats into the cache (Redis at scale, this process's memory when embedded), once for each queue it reads;
`/readyz` looks for a young beat on every queue.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import channel_layers, get_channel_layer
from django.conf import settings
from django.core.cache import cache
from django.db import close_old_connections, connection
from django.http import HttpRequest, HttpResponse, JsonResponse

logger = logging.getLogger(__name__)

BEAT_EVERY = 5.0  # seconds
BEAT_IS_OLD_AFTER = 20.0  # seconds
PROBE_LIMIT = 2.0  # seconds that each part has to answer

Respond = Callable[[HttpRequest], HttpResponse]


class Probes:
    """Answers the three addresses first of all, so that a probe needs no allowed host name and leaves no session."""

    def __init__(self, get_response: Respond) -> None:
        self.get_response = get_response
        self.pages: dict[str, Respond] = {"/healthz": alive, "/readyz": ready, "/metrics": metrics}

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.pages.get(request.path_info, self.get_response)(request)


def alive(request: HttpRequest) -> HttpResponse:
    """The process answers."""
    return JsonResponse({"status": "ok"})


def ready(request: HttpRequest) -> HttpResponse:
    """Everything a chat needs answers; each part is named."""
    parts = check_parts()
    ok = all(part["ok"] for part in parts.values())
    response = JsonResponse({"status": "ok" if ok else "unavailable", **parts}, status=200 if ok else 503)
    response._has_been_logged = True  # type: ignore[attr-defined]  # the reason was
    return response


def metrics(request: HttpRequest) -> HttpResponse:
    """Numbers for Prometheus, to this machine or to who knows METRICS_TOKEN."""
    from palimpsest.metrics import exposition

    if not _may_read_metrics(request):
        return HttpResponse("METRICS_TOKEN is needed from another machine.\n", status=403, content_type="text/plain")
    content, content_type = exposition()
    return HttpResponse(content, content_type=content_type)


def _may_read_metrics(request: HttpRequest) -> bool:
    if settings.METRICS_TOKEN:
        wanted = f"Bearer {settings.METRICS_TOKEN}".encode()
        return hmac.compare_digest(request.headers.get("Authorization", "").encode(), wanted)
    # Behind a proxy every request comes from this machine, so there the token is the only way.
    forwarded = "X-Forwarded-For" in request.headers or "Forwarded" in request.headers
    return not forwarded and request.META.get("REMOTE_ADDR", "") in ("127.0.0.1", "::1", "")


# The parts


def check_parts() -> dict[str, dict[str, Any]]:
    """Each part with `ok` and, where it is not, why. Bounded: all are asked at once, each has PROBE_LIMIT seconds."""
    asked = {name: _ask(name, probe) for name, probe in _PROBES.items()}
    deadline = time.monotonic() + PROBE_LIMIT
    return {name: _answer(future, deadline - time.monotonic()) for name, future in asked.items()}


def _database() -> None:
    close_old_connections()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    finally:
        connection.close()


def _broker() -> None:
    if settings.EMBEDDED:
        return
    import redis

    client = redis.Redis.from_url(
        settings.CELERY_BROKER_URL, socket_timeout=PROBE_LIMIT, socket_connect_timeout=PROBE_LIMIT
    )
    try:
        client.ping()
    finally:
        client.close()


def _layer() -> None:
    async_to_sync(_through_the_layer)()


async def _through_the_layer() -> None:
    """A message goes out and comes back; over Redis on connections of its own, as the server's belong to its loop."""
    layer = get_channel_layer() if settings.EMBEDDED else channel_layers.make_backend("default")
    try:
        channel = await layer.new_channel()
        receiving = asyncio.ensure_future(layer.receive(channel))
        await layer.send(channel, {"type": "probe"})
        await asyncio.wait_for(receiving, PROBE_LIMIT)
    finally:
        if not settings.EMBEDDED:
            await layer.flush()


def _worker() -> None:
    missing = [queue for queue in _queues() if not _has_young_beat(queue)]
    if missing:
        raise RuntimeError(f"no worker reads {' and '.join(missing)}")


_PROBES: dict[str, Callable[[], None]] = {
    "database": _database,
    "broker": _broker,
    "layer": _layer,
    "worker": _worker,
}
_threads = ThreadPoolExecutor(max_workers=len(_PROBES), thread_name_prefix="probe")
_running: dict[str, Future[None]] = {}


def _ask(name: str, probe: Callable[[], None]) -> Future[None]:
    """Start a probe, or join the one that still hangs, so that hanging ones never pile up."""
    current = _running.get(name)
    if current is None or current.done():
        current = _running[name] = _threads.submit(probe)
    return current


def _answer(future: Future[None], seconds: float) -> dict[str, Any]:
    try:
        future.result(max(0.0, seconds))
    except FutureTimeout:
        return {"ok": False, "error": f"no answer within {PROBE_LIMIT:g} s"}
    except Exception as error:
        logger.warning("not ready", extra={"error": f"{type(error).__name__}: {error}"})
        # Addresses and names of a database are nobody's business here: the log has them.
        message = str(error) if type(error) is RuntimeError else type(error).__name__
        return {"ok": False, "error": message}
    return {"ok": True}


# The workers' beat


_last_beat_here = float("-inf")  # of this process (time.monotonic)


def beat(queues: Iterable[str]) -> None:
    """A worker of this process that reads these queues is alive."""
    global _last_beat_here
    for queue in queues:
        cache.set(_beat_name(queue), time.time(), timeout=int(BEAT_IS_OLD_AFTER))
    _last_beat_here = time.monotonic()


def beats_here() -> bool:
    """Whether a worker of this very process has beaten lately."""
    return time.monotonic() - _last_beat_here < BEAT_IS_OLD_AFTER


def _has_young_beat(queue: str) -> bool:
    beaten_at: float | None = cache.get(_beat_name(queue))
    return beaten_at is not None and time.time() - beaten_at < BEAT_IS_OLD_AFTER


def _beat_name(queue: str) -> str:
    return f"worker-beat:{queue}"


def _queues() -> list[str]:
    return [queue.name for queue in settings.CELERY_TASK_QUEUES]


class Heart(threading.Thread):
    """Beats for a worker while `is_well()`, until it is stopped."""

    def __init__(self, queues: Iterable[str], is_well: Callable[[], bool]) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.queues = tuple(queues)
        self.is_well = is_well
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(self._beat_once()):
            pass

    def stop(self) -> None:
        self._stopped.set()

    def _beat_once(self) -> float:
        try:
            if self.is_well():
                beat(self.queues)
        except Exception as error:
            logger.warning("the heartbeat was not stored", extra={"error": f"{type(error).__name__}: {error}"})
        return BEAT_EVERY
