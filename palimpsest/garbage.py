"""When Python looks for garbage: not while a process starts, and later only among what has come since.

A full search goes through every object of every imported module: 120 to 150 ms in each process, in which no answer of
that process moves (`python -m bench.steps`, gc callbacks). What is there at the start stays until the end.
"""

from __future__ import annotations

import gc

# New objects before the youngest are looked through, such searches before a larger one, and those before a full one.
# With Python's 700, 10, 10 there were a dozen in each request of 2,000 messages, whose objects all stay: 2 ms.
THRESHOLDS = 10_000, 5, 10


def wait_for_start() -> None:
    """No search while modules are imported: there is next to nothing to find, and a tenth of the start to gain."""
    gc.disable()


def started() -> None:
    """From now on the usual searches, which leave out everything that is here now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
