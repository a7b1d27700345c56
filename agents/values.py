"""Values that are made by the thousand: a request of 2,000 messages is built anew for every turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """A dataclass that nothing may change; the type checker holds it to be frozen.

    Python's own frozen ones also refuse at run time, and for that take four times as long to make.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
