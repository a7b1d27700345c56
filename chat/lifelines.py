"""Whether another worker of this machine is dead, known for certain and at once.

Every process that answers turns holds a lock on a file in the data folder for as long as it lives; the kernel lets go
of it however the process ends. Where the file can be locked its worker is dead, and nobody has to wait for its leases
to run out: after a crash of the one process that `make run` starts, an answer goes on when the process is back. Of
workers without such a file here (on other machines, in other containers) nothing is known, and the lease decides.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import IO

from django.conf import settings

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("palimpsest.turns")

_held: dict[str, IO[bytes]] = {}


def hold(worker: str) -> None:
    """Hold the line of this process's worker until the process ends."""
    if fcntl is None or worker in _held:
        return
    try:
        path = _path(worker)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = path.with_suffix(".new")
        line = made.open("wb")
        fcntl.flock(line, fcntl.LOCK_EX | fcntl.LOCK_NB)
        made.rename(path)  # only now: under this name it is never seen unlocked while its worker lives
    except OSError as error:
        logger.info("no lifeline for this worker (%s): after a crash its leases run out", error)
    else:
        _held[worker] = line


def is_dead(worker: str) -> bool:
    """Whether this worker has certainly ended; False also where nobody can know."""
    if fcntl is None or not worker or worker in _held:
        return False
    try:
        with _path(worker).open("rb") as line:
            fcntl.flock(line, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody holds it, or there is none
        return False
    return True


def tidy(keep: set[str]) -> None:
    """Remove the files of dead workers but for those in `keep`."""
    if fcntl is None:
        return
    kept = {_path(worker).name for worker in (*keep, *_held)}
    for path in list(_folder().glob("*.alive")):
        if path.name in kept:
            continue
        try:
            with path.open("rb") as line:
                fcntl.flock(line, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
        except OSError:
            continue


def _folder() -> Path:
    return Path(settings.PALIMPSEST_DATA) / "workers"


def _path(worker: str) -> Path:
    return _folder() / f"{hashlib.blake2b(worker.encode(), digest_size=12).hexdigest()}.alive"
