"""The ladder on an agent's page redraws as its figures are typed, under the site's content policy."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore

from tests.browser.conftest import chromium
from tests.builders import make_agent, make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def _session_of(user: Any) -> str:
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return str(session.session_key)


def test_the_ladder_follows_what_is_typed(live_server: Any, settings: Any, tmp_path: Any) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    agent = make_agent(name="Guide")
    key = _session_of(make_user("root", is_staff=True, is_superuser=True))
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 1280, "height": 1400})
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": key, "url": live_server.url}])
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.goto(f"{live_server.url}/admin/agents/agent/{agent.pk}/change/")
        expect, note = playwright.expect, page.locator("#ladder-note")
        auto = page.locator('[data-rung="auto"]')
        assert auto.inner_text() == "95,000"
        page.fill("#id_compaction_threshold", "50")
        expect(auto).to_have_text("64,000")
        page.fill("#id_compaction_threshold", "0")
        expect(auto).to_have_text("off")
        page.fill("#id_compaction_threshold", "100")
        expect(note).to_contain_text("105,000")
        page.fill("#id_compaction_threshold", "")
        page.fill("#id_context_window", "200000")
        expect(auto).to_have_text("167,000")
        page.fill("#id_compaction_threshold", "101")
        expect(note).to_contain_text("from 0 to 100")
        page.screenshot(path=str(tmp_path / "ladder.png"), full_page=True)
        assert not [text for text in complaints if "Content Security Policy" in text], complaints
