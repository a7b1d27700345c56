"""Fixtures every test may use."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator

from django.conf import settings

# What runs without Django, and every child process, uses the data folder that the settings made for this process.
os.environ["PALIMPSEST_DATA"] = str(settings.PALIMPSEST_DATA)
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # Playwright runs a loop in the test's thread

import pytest
from asgiref.sync import async_to_sync

from tests.upstream import Provider, listening_provider


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run async tests under async_to_sync, as Django's TestCase does: the async ORM shares the test's connection."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    async_to_sync(pyfuncitem.obj)(**arguments)
    return True


@pytest.fixture
def upstream() -> Iterator[Provider]:
    """A provider on loopback that answers as a model's name or a test's plays say, and remembers its requests."""
    with listening_provider() as provider:
        yield provider
