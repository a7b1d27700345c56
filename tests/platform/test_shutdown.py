"""The end of a process: everyone is drained, whatever one of them does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from palimpsest import shutdown


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The drains of the product stay out of this."""
    monkeypatch.setattr(shutdown, "_drains", [])
    yield
    shutdown._stopping.clear()


def test_all_are_drained_in_order_within_the_grace() -> None:
    seen: list[tuple[str, float]] = []
    shutdown.on_drain(lambda seconds: seen.append(("first", seconds)))
    shutdown.on_drain(lambda seconds: seen.append(("second", seconds)))
    shutdown.drain(5)
    assert [name for name, _ in seen] == ["first", "second"]
    assert all(0 < seconds <= 5 for _, seconds in seen)
    assert shutdown.is_stopping()


def test_one_that_fails_keeps_nobody_from_ending() -> None:
    seen: list[float] = []

    @shutdown.on_drain
    def fail(seconds: float) -> None:
        raise RuntimeError("no")

    shutdown.on_drain(seen.append)
    shutdown.drain(1)
    assert len(seen) == 1


def test_a_process_drains_once() -> None:
    seen: list[float] = []
    shutdown.on_drain(seen.append)
    shutdown.on_drain(seen.append)
    shutdown.drain(1)
    shutdown.drain(1)
    assert len(seen) == 1
