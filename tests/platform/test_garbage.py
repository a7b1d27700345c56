"""Python's search for garbage: off while a process starts, afterwards only among what came since."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from palimpsest import garbage


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    gc.enable()


def test_nothing_is_searched_while_a_process_starts() -> None:
    garbage.wait_for_start()

    assert not gc.isenabled()


def test_what_was_there_at_the_start_is_left_out_of_later_searches() -> None:
    before = len(gc.get_objects())
    garbage.wait_for_start()

    garbage.started()

    assert gc.isenabled()
    assert gc.get_freeze_count() > before // 2
    assert len(gc.get_objects()) < before // 2


def test_garbage_that_comes_later_is_still_found() -> None:
    garbage.wait_for_start()
    garbage.started()
    later: list[object] = []
    later.append(later)
    del later

    assert gc.collect() > 0


def test_garbage_is_found_unasked() -> None:
    garbage.wait_for_start()
    garbage.started()
    first = Loop()
    seen = weakref.ref(first)
    del first

    kept = [Loop() for _ in range(3 * garbage.THRESHOLDS[0])]

    assert seen() is None
    del kept


class Loop:
    def __init__(self) -> None:
        self.itself = self
