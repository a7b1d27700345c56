"""Tool calls as people see them: folded, with name, arguments, result, duration and error."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.browser.conftest import AGENTS
from tests.live import Live
from tests.upstream import Play

pytestmark = pytest.mark.browser

QUICK = str(AGENTS[0]["model"])


@pytest.fixture
def using(live: Live) -> Iterator[Live]:
    """The quick agent asks for two tools in its next answer, one of which there is not."""
    calls = (("search_history", '{"query": "seal"}'), ("no_such_tool", '{"a": 1}'))
    live.provider.plays(QUICK, Play(ttft=0, tps=0, calls=calls), Play(ttft=0, tps=0, text="It was found."))
    yield live
    live.provider.upstream.scripted.pop(QUICK, None)


def test_each_call_is_folded_with_its_name_arguments_result_duration_and_error(using: Live, open_tab: Any) -> None:
    tab = open_tab()
    history = [{"role": "user", "content": "The seal is red."}, {"role": "assistant", "content": "Noted."}]
    tab.open(using.converse("quick", history))

    tab.say("Find the seal.")
    tab.page.wait_for_selector(".from-agent :text('It was found.')")
    for _reload in range(2):
        found = tab.page.locator(".call[data-state=done]")
        failed = tab.page.locator(".call[data-state=failed]")
        found.wait_for()
        failed.wait_for()
        assert tab.page.locator(".call[open]").count() == 0
        assert found.locator("summary code").inner_text() == "search_history"
        assert found.locator("summary .gist").inner_text() == "seal"
        assert found.locator(".call-note").inner_text().rsplit(" ", 1)[1] in ("ms", "s")
        assert failed.locator("summary code").inner_text() == "no_such_tool"
        assert "failed" in failed.locator(".call-note").inner_text()

        found.locator("summary").click()
        details = found.locator(".call-details")
        details.wait_for()
        assert '"query": "seal"' in details.inner_text()
        assert "The seal is red." in details.inner_text()
        failed.locator("summary").click()
        failed.locator(".call-details").wait_for()
        assert "There is no tool" in failed.locator(".call-details").inner_text()
        tab.page.reload()
        tab.page.wait_for_selector("#transcript[aria-busy=false] > *")


def test_a_cleared_result_is_marked_and_still_readable(live: Live, open_tab: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"name": "seal.md"}'}}
    history = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "The seal is red.", "tool_call_id": "c1", "name": "read_file"},
        {"role": "assistant", "content": "It is red."},
    ]
    conversation = live.converse("quick", history)
    with closing(sqlite3.connect(live.house.folder / "data" / "palimpsest.sqlite3", timeout=20)) as rows, rows:
        rows.execute(
            "UPDATE chat_message SET cleared_at = created_at WHERE role = 'tool' AND conversation_id = ?",
            [conversation.replace("-", "")],
        )
    tab = open_tab()
    tab.open(conversation)

    cleared = tab.page.locator(".call[data-state=cleared]")
    cleared.wait_for()
    assert "cleared from the model's view" in cleared.locator(".call-note").inner_text()
    cleared.locator("summary").click()
    cleared.locator(".call-details").wait_for()
    assert "The seal is red." in cleared.locator(".call-details").inner_text()
    assert "no longer sees this result" in cleared.locator(".call-details").inner_text()

    tab.page.click("#views [data-view=model]")
    tab.page.wait_for_selector(".seen[data-role=tool] :text('Old tool result content cleared')")
