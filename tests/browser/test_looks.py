"""The page on other screens, in other colours and languages, by keyboard, and what its first visit costs."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import translation

from compaction.errors import sentence
from tests.live import Live

pytestmark = pytest.mark.browser

FIRST_VISIT_BYTES = 400_000
FIRST_VISIT_REQUESTS = 25


def test_a_phone_shows_everything_without_scrolling_sideways(live: Live, open_tab: Any) -> None:
    conversation = live.converse(
        "quick", [{"role": "user", "content": "x" * 300}, {"role": "assistant", "content": "`" + "y" * 300 + "`"}]
    )
    tab = open_tab(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    tab.open(conversation)

    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert tab.page.locator("#sidebar").is_hidden()
    tab.page.click("#menu")
    tab.page.wait_for_selector("#conversations a:visible")
    tab.page.mouse.click(350, 400)
    tab.page.wait_for_selector("#sidebar", state="hidden")
    for name in ("#write", "#send", "#meter button"):
        box = tab.page.locator(name).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360


def test_code_that_a_person_sent_stays_on_a_phones_screen(live: Live, open_tab: Any) -> None:
    long_line = "```\n" + "./.git/objects/2d/d9964aa40a9cfda93fa0ce59812881150180a/" * 3 + "\n```"
    conversation = live.converse("quick", [{"role": "user", "content": long_line}])
    tab = open_tab(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    tab.open(conversation)

    box = tab.page.locator(".from-person .body").bounding_box()

    assert (box["x"] >= 0, box["x"] + box["width"] <= 360) == (True, True)


def test_dark_follows_the_system_and_the_choice(open_tab: Any) -> None:
    tab = open_tab(color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = tab.page.evaluate(paper)

    tab.page.click("#account")
    tab.page.click(".menu button >> nth=0")
    light = tab.page.evaluate(paper)
    tab.page.reload()
    tab.page.wait_for_selector("body[data-ready]")

    assert dark != light
    assert tab.page.evaluate(paper) == light


def test_chinese(open_tab: Any) -> None:
    tab = open_tab(locale="zh-CN")

    assert tab.page.inner_text("#home h2") == "我们来做点什么？"
    tab.page.keyboard.press("Escape")
    tab.page.locator("body").click()
    tab.page.keyboard.press("?")
    assert "快捷键" in tab.page.inner_text("dialog h2")


def test_why_there_was_no_compaction_is_told_in_the_readers_language(live: Live, open_tab: Any) -> None:
    with translation.override("zh-hans"):
        why = sentence("nothing_to_compact")
    tab = open_tab(locale="zh-CN")
    tab.open(live.ask("history", owner="alice", agent="quick", count=2, words=10))

    tab.say("/compact")

    tab.page.wait_for_selector(f".card.quiet:has-text('{why}')")
    tab.page.wait_for_selector(f".toast.refusal:has-text('{why}')")


def note(tab: Any, *texts: str) -> None:
    tab.page.evaluate(
        """async (texts) => {
            const source = document.querySelector("script[type=module][src]").src;
            const { toast } = await import(new URL("dom.js", source).href);
            for (const text of texts) toast(text, "refusal");
        }""",
        list(texts),
    )


def test_a_note_that_is_said_again_stands_there_once(open_tab: Any) -> None:
    tab = open_tab()

    note(tab, "first", "again", "again")

    assert [text.strip() for text in tab.page.locator(".toast").all_inner_texts()] == ["first", "again"]


@pytest.mark.parametrize("lines", [1, 6])
@pytest.mark.parametrize("width", [360, 1200])
def test_notes_leave_the_writing_field_free(open_tab: Any, width: int, lines: int) -> None:
    tab = open_tab(viewport={"width": width, "height": 740})
    tab.page.fill("#write", "\n".join(["a line"] * lines))

    note(tab, "This takes two lines on the screen of a phone, and more words. " * 2, "So it is with this one. " * 5)

    notes, field = tab.page.locator("#toasts").bounding_box(), tab.page.locator("#composer").bounding_box()
    assert notes["y"] + notes["height"] <= field["y"]


def test_the_help_sheet_gives_the_focus_back(open_tab: Any) -> None:
    tab = open_tab()
    tab.page.focus("#search")
    tab.page.press("#search", "Escape")
    tab.page.focus("#new")
    tab.page.keyboard.press("?")
    tab.page.wait_for_selector("dialog[open]")

    tab.page.keyboard.press("Escape")

    assert tab.page.evaluate("document.activeElement.id") == "new"


def test_markdown_of_an_answer_runs_no_script_and_loads_nothing(live: Live, open_tab: Any) -> None:
    nasty = (
        "<img src=x onerror=alert(1)> <script>alert(1)</script> [x](javascript:alert(1)) "
        "![spy](https://elsewhere.test/spy.png) <div style='color:red'>styled</div>\n\n**fine**"
    )
    conversation = live.converse("quick", [{"role": "user", "content": nasty}, {"role": "assistant", "content": nasty}])
    tab = open_tab()
    tab.open(conversation)

    prose = tab.page.locator(".from-agent .prose")
    assert prose.locator("img, script, [style], [onerror]").count() == 0
    assert prose.locator("a[href^='javascript']").count() == 0
    assert prose.locator("strong").inner_text() == "fine"
    assert not any("elsewhere.test" in url for url in tab.requests)


def test_the_first_visit_is_small(live: Live, open_tab: Any) -> None:
    conversation = live.converse(
        "quick", [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hello **there**."}]
    )
    tab = open_tab()
    tab.page.context.clear_cookies(name="none")
    fresh = tab.page.context.browser.new_context(storage_state=tab.page.context.storage_state())
    page = fresh.new_page()
    session = fresh.new_cdp_session(page)
    session.send("Network.enable")
    sizes: list[float] = []
    sent: list[str] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    session.on("Network.requestWillBeSent", lambda event: sent.append(event["request"]["url"]))

    page.goto(f"{live.url}/c/{conversation}")
    page.wait_for_selector(".from-agent")
    page.wait_for_load_state("networkidle")
    fresh.close()

    assert len(sent) + 1 <= FIRST_VISIT_REQUESTS, sent  # and the socket
    assert sum(sizes) <= FIRST_VISIT_BYTES


MARKDOWN = """# Title

A paragraph with **bold**, `code`, a [link](https://example.org), [ref] and 😀.

- one
- two
  - nested

| a | b |
| --- | ---: |
| 1 | 2 |

> quote
> more

```text
def f(x):
    return x
```

Setext
======

Last *paragraph* with [ref].

[ref]: https://example.org/ref
"""
STREAM_AND_COMPARE = """async ([text, step]) => {
  const { renderMarkdown } = await import("/static/js/markdown.js");
  const [streamed, whole] = [document.createElement("div"), document.createElement("div")];
  for (let at = step; at < text.length; at += step) renderMarkdown(streamed, text.slice(0, at), { streaming: true });
  renderMarkdown(streamed, text);
  renderMarkdown(whole, text);
  return [streamed.innerHTML, whole.innerHTML];
}"""


def test_a_streamed_answer_looks_like_a_stored_one(open_tab: Any) -> None:
    tab = open_tab()

    for step in (1, 3, 7, 16):
        streamed, whole = tab.page.evaluate(STREAM_AND_COMPARE, [MARKDOWN, step])
        assert streamed == whole
    assert 'href="https://example.org/ref"' in whole
