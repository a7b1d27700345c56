"""A real browser against a real server. Without Chromium these tests are skipped, and say so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bench.house import House
from tests.live import Live, living

AGENTS: list[dict[str, Any]] = [
    {"name": "quick", "model": "mock-ttft20-tps400-n60", "context_window": 128_000},
    {"name": "slow", "model": "mock-ttft50-tps60-n240", "context_window": 128_000},
    {
        "name": "small",
        "model": "mock-ttft10-tps400-n40-sumwait700",
        "context_window": 16_000,
        "max_output_tokens": 1_000,
        "sees_images": True,
    },
]


def browser_path() -> str:
    """Where Chromium is: PALIMPSEST_CHROMIUM, else what the system has; empty where there is none."""
    wanted = os.environ.get("PALIMPSEST_CHROMIUM")
    found = [wanted] if wanted else [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    return next((path for path in found if path and os.path.exists(path)), "")


def _need_a_browser() -> Any:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if not browser_path():
        pytest.skip("needs Chromium: install it, or name it in PALIMPSEST_CHROMIUM")
    return sync_api


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser; skips the test where there is none."""
    sync_api = _need_a_browser()
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser a file: while it is open, Playwright's loop runs in this thread and no other may be started."""
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    """A server whose people have a password and whose small agent's summaries take a moment."""
    _need_a_browser()
    with living(House(), AGENTS) as made:
        yield made


class Tab:
    """A page with a person signed in, which remembers what went wrong in it."""

    def __init__(self, live: Live, page: Any) -> None:
        self.live = live
        self.page = page
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self._console(message))
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", lambda request: self.requests.append(request.url))

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(f"{message.text} ({(message.location or {}).get('url', '')})")

    def sign_in(self, person: str = "alice") -> None:
        self.page.goto(f"{self.live.url}/accounts/login/")
        self.page.fill("#id_login", person)
        self.page.fill("#id_password", "secret")
        self.page.click("button[type=submit]")
        self.page.wait_for_selector("body[data-ready]")

    def open(self, conversation: str) -> None:
        self.page.goto(f"{self.live.url}/c/{conversation}")
        self.page.wait_for_selector("#transcript[aria-busy=false] > *")

    def say(self, text: str) -> None:
        self.page.fill("#write", text)
        self.page.press("#write", "Enter")

    def answered(self, count: int) -> None:
        """Wait until so many answers are complete."""
        self.page.wait_for_function(
            "count => document.querySelectorAll('.from-agent[data-status=complete]').length >= count", arg=count
        )

    def shows(self, selector: str, count: int = 1) -> None:
        """Wait until so many elements are there."""
        self.page.wait_for_function(
            "([selector, count]) => document.querySelectorAll(selector).length === count", arg=[selector, count]
        )

    def conversation(self) -> str:
        return str(self.page.url.rsplit("/", 1)[1])


@pytest.fixture
def open_tab(live: Live, browser: Any) -> Iterator[Any]:
    """Makes tabs of browsers of their own; at the end none of them may have logged an error or a CSP violation."""
    tabs: list[Tab] = []
    contexts = []

    def make(person: str = "alice", **how: Any) -> Tab:
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 850}, **how}))
        contexts[-1].set_default_timeout(15_000)
        tabs.append(Tab(live, contexts[-1].new_page()))
        tabs[-1].sign_in(person)
        return tabs[-1]

    yield make
    problems = [problem for tab in tabs for problem in tab.problems]
    for context in contexts:
        context.close()
    assert problems == []
