"""What a person does in the chat, in a real browser, with the real worker behind it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.conftest import Tab
from tests.live import Live

pytestmark = pytest.mark.browser

LONG = "The ledger of folio {n} lives in /srv/ledger_{n}.yaml. " + "Vellum, ink and gall. " * 330


def choose_agent(tab: Tab, name: str) -> None:
    tab.page.click(f".agent:has(.agent-name:text-is('{name}'))")


def stored_answers(live: Live, conversation: str) -> list[str]:
    return [row["content"] for row in live.ask("messages", conversation=conversation) if row["role"] == "assistant"]


def long_conversation(live: Live) -> str:
    messages = []
    for n in range(5):
        messages += [
            {"role": "user", "content": LONG.format(n=n)},
            {"role": "assistant", "content": f"Noted: folio {n}."},
        ]
    return live.converse("small", messages)


def shown_answers(tab: Tab) -> list[str]:
    return [" ".join(text.split()) for text in tab.page.locator(".from-agent .prose").all_inner_texts()]


def test_three_messages_stream_in_a_new_conversation(live: Live, open_tab: Any) -> None:
    tab = open_tab()
    choose_agent(tab, "quick")

    for number in range(3):
        tab.say(f"message {number}")
        tab.answered(number + 1)

    tab.shows(".from-person", 3)
    tab.page.wait_for_selector("#meter:has-text('/ 128k')")
    assert shown_answers(tab) == [" ".join(text.split()) for text in stored_answers(live, tab.conversation())]


def test_a_reload_in_mid_answer_loses_nothing(live: Live, open_tab: Any) -> None:
    tab = open_tab()
    choose_agent(tab, "slow")
    tab.say("a long answer, please")
    tab.page.wait_for_function("() => document.querySelector('.from-agent .prose')?.innerText.length > 40")

    tab.page.reload()
    tab.answered(1)

    assert shown_answers(tab) == [" ".join(text.split()) for text in stored_answers(live, tab.conversation())]


def test_stop_keeps_what_was_seen(live: Live, open_tab: Any) -> None:
    tab = open_tab()
    choose_agent(tab, "slow")
    tab.say("a long answer, please")
    tab.page.wait_for_function("() => document.querySelector('.from-agent .prose')?.innerText.length > 40")

    seen = shown_answers(tab)[0]
    tab.page.click("#stop")
    tab.page.wait_for_selector("#stop", state="hidden")
    tab.page.wait_for_selector("text=Stopped.")

    assert shown_answers(tab)[0].startswith(seen[:40])
    assert shown_answers(tab) == [" ".join(text.split()) for text in stored_answers(live, tab.conversation())]


def test_what_waits_is_shown_and_can_be_edited_and_taken_back(live: Live, open_tab: Any) -> None:
    tab = open_tab()
    choose_agent(tab, "slow")
    tab.say("first")
    tab.page.wait_for_selector(".from-agent")
    tab.say("second")
    tab.say("third")
    tab.shows(".queued", 2)

    tab.page.click(".queued:has-text('third') button:text-is('Cancel')")
    tab.page.click(".queued:has-text('second') button:text-is('Edit')")
    tab.page.fill("dialog textarea", "second, rewritten")
    tab.page.click("dialog button.primary")
    tab.shows(".queued", 1)

    tab.answered(2)
    said = tab.page.locator(".from-person .said").all_inner_texts()
    assert said == ["first", "second, rewritten"]


def test_compact_shows_a_card_with_summary_and_originals_and_can_be_undone(live: Live, open_tab: Any) -> None:
    conversation = long_conversation(live)
    tab = open_tab()
    tab.open(conversation)

    tab.say("/compact keep the folios")
    tab.page.wait_for_selector(".card.running")
    tab.page.wait_for_selector(".card.done")
    assert "Compacted" in tab.page.inner_text(".card.done strong")

    tab.page.click(".card [data-tab=summary]")
    tab.page.wait_for_selector(".card .prose h2")
    tab.page.click(".card [data-tab=originals]")
    tab.page.wait_for_selector(".card .originals .message")
    assert "/srv/ledger_0.yaml" in tab.page.inner_text(".card .originals")

    tab.page.click(".card button:has-text('Details')")
    tab.page.wait_for_selector("dialog .facts")
    tab.page.wait_for_selector("dialog .original >> nth=3")
    tab.page.keyboard.press("Escape")

    tab.page.reload()
    tab.page.wait_for_selector(".card.done")
    tab.page.click(".card button:has-text('Undo')")
    tab.page.wait_for_selector(".card.quiet:has-text('undone')")
    tab.shows(".from-person", 5)


def test_a_reload_in_mid_compaction_shows_it_running(live: Live, open_tab: Any) -> None:
    tab = open_tab()
    tab.open(long_conversation(live))

    tab.page.click(".meter")
    tab.page.fill("#keep", "the folios")
    tab.page.click("dialog button.primary")
    tab.page.wait_for_selector(".card.running")
    tab.page.reload()

    tab.page.wait_for_selector(".card.running, .card.done")
    tab.page.wait_for_selector(".card.done")


def test_the_three_views(live: Live, open_tab: Any) -> None:
    tab = open_tab()
    tab.open(long_conversation(live))
    tab.say("/compact")
    tab.page.wait_for_selector(".card.done")

    tab.page.click("#views [data-view=full]")
    tab.page.wait_for_selector(".message.compacted")
    tab.shows(".from-person", 5)
    tab.shows(".card.done")

    tab.page.click("#views [data-view=model]")
    tab.page.wait_for_selector(".seen")
    assert "search_history" in tab.page.locator(".seen.tools").inner_text()
    assert "Background" in tab.page.locator(".seen[data-role]").first.inner_text()
    names = tab.page.locator(".seen[data-role] header b").all_inner_texts()
    assert names[:2] == ["Summary", "Acknowledgement of the summary"]
    assert "Person" in names[2:]

    tab.page.click("#views [data-view=compacted]")
    tab.page.wait_for_selector(".card.done")
    tab.shows(".message.compacted", 0)


def test_a_message_beyond_the_block_waits_and_says_why(live: Live, open_tab: Any) -> None:
    messages = [{"role": "user" if n % 2 == 0 else "assistant", "content": LONG.format(n=n)} for n in range(9)]
    messages.append({"role": "assistant", "content": "Noted."})
    tab = open_tab()
    tab.open(live.converse("small", messages))
    tab.shows(".meter[data-level=over]")

    tab.say("what now?")
    tab.page.wait_for_selector(".hint.wait progress, .card.done")
    tab.page.wait_for_selector(".card.done")
    tab.page.wait_for_selector(".from-person:has-text('what now?') + .from-agent[data-status=complete]")


def test_two_tabs_show_the_same(live: Live, open_tab: Any) -> None:
    one = open_tab()
    choose_agent(one, "quick")
    one.say("hello")
    one.answered(1)
    other = open_tab()
    other.open(one.conversation())

    other.say("from the other tab")
    one.answered(2)
    other.answered(2)

    assert shown_answers(one) == shown_answers(other)


def test_the_title_that_the_first_message_gives_shows_in_every_tab(live: Live, open_tab: Any) -> None:
    conversation = live.converse("quick", [])
    one, other = open_tab(), open_tab()
    for tab in (one, other):
        tab.page.goto(f"{live.url}/c/{conversation}")
        tab.page.wait_for_selector("#transcript[aria-busy=false]", state="attached")

    one.say("Where do rivers begin?")

    for tab in (one, other):
        tab.page.wait_for_function("() => document.getElementById('title').textContent === 'Where do rivers begin?'")
        tab.page.wait_for_selector("#conversations :text('Where do rivers begin?')")


def test_what_is_written_without_a_connection_is_sent_once_when_it_is_back(live: Live, open_tab: Any) -> None:
    tab = open_tab()
    choose_agent(tab, "quick")
    tab.say("hello")
    tab.answered(1)
    down = {"now": False}

    def line(socket: Any) -> None:
        socket.close(code=1011) if down["now"] else socket.connect_to_server()

    tab.page.route_web_socket(re.compile(r"/ws/"), line)
    tab.page.reload()
    tab.answered(1)
    down["now"] = True
    tab.page.evaluate("window.dispatchEvent(new Event('offline'))")
    tab.page.reload()
    tab.page.wait_for_selector("#connection:visible")
    tab.say("written in a tunnel")
    tab.page.wait_for_selector(".sending")

    down["now"] = False
    tab.page.evaluate("window.dispatchEvent(new Event('online'))")
    tab.shows(".from-agent[data-status=complete]", 2)

    said = [row["content"] for row in live.ask("messages", conversation=tab.conversation()) if row["role"] == "user"]
    assert said == ["hello", "written in a tunnel"]


def test_a_stopped_answer_says_so_also_when_the_talk_goes_on(live: Live, open_tab: Any) -> None:
    tab = open_tab()
    choose_agent(tab, "slow")
    tab.say("a long answer, please")
    tab.page.wait_for_function("() => document.querySelector('.from-agent .prose')?.innerText.length > 40")
    tab.page.click("#stop")
    tab.page.wait_for_selector("text=Stopped.")

    tab.say("and now?")
    tab.answered(1)

    assert tab.page.locator(".from-agent .state").all_inner_texts() == ["stopped"]


def edit_and_resend(tab: Any, text: str) -> None:
    """Say the only question differently, and wait for its answer."""
    tab.page.hover(".from-person")
    tab.page.click("[aria-label='Edit and resend']")
    tab.page.fill("dialog textarea", text)
    tab.page.click("dialog button.primary")
    tab.page.wait_for_selector(f".from-person:has-text('{text}')")
    tab.answered(1)


def test_one_of_several_answers_is_chosen_edited_and_forked(live: Live, open_tab: Any) -> None:
    tab = open_tab()
    choose_agent(tab, "quick")
    tab.say("a question")
    tab.answered(1)
    first = shown_answers(tab)
    tab.page.click("[aria-label='Answer again']")
    tab.page.wait_for_selector("button:text-is('Earlier answers')")
    assert shown_answers(tab) != first
    tab.page.click("button:text-is('Earlier answers')")
    tab.page.click("dialog button:text-is('Go on from this one')")
    tab.page.wait_for_function(
        "text => document.querySelector('.from-agent .prose')?.innerText.replace(/\\s+/g, ' ').trim() === text",
        arg=first[0],
    )

    edit_and_resend(tab, "a better question")
    tab.page.click("#views [data-view=full]")
    tab.shows(".message.retired", 3)  # the question as it was, and both of its answers
    tab.shows(".message.retired .tag", 3)
    tab.page.click("#views [data-view=compacted]")
    tab.shows(".message", 2)

    source = tab.page.url
    tab.page.hover(".from-agent")
    tab.page.click(".from-agent [aria-label='New conversation from here']")
    tab.page.wait_for_function("url => location.href !== url", arg=source)
    tab.shows(".message", 2)
    titles = tab.page.locator("#conversations .title").all_inner_texts()
    assert titles[:2] == ["a question", "a question"], "the list knows the first one's title too"


def test_what_was_replaced_is_gone_on_from_in_a_new_conversation(live: Live, open_tab: Any) -> None:
    tab = open_tab()
    choose_agent(tab, "quick")
    tab.say("a question")
    tab.answered(1)
    first = shown_answers(tab)
    edit_and_resend(tab, "a better question")
    tab.page.click("#views [data-view=full]")
    tab.shows(".message.retired", 2)

    replaced = tab.page.locator(".message.retired footer button")
    names = replaced.evaluate_all("buttons => buttons.map(button => button.ariaLabel)")
    assert names == ["Copy", "New conversation from here"] * 2
    source = tab.page.url
    tab.page.hover(".from-agent.retired")
    tab.page.click(".from-agent.retired [aria-label='New conversation from here']")
    tab.page.wait_for_function("url => location.href !== url", arg=source)

    tab.shows(".message:not(.retired)", 2)
    assert tab.page.inner_text(".from-person .prose") == "a question"
    assert shown_answers(tab) == first
    tab.say("and on from here")
    tab.answered(2)


def test_a_line_that_died_in_its_sleep_is_opened_anew(live: Live, open_tab: Any) -> None:
    """The socket looks open and takes what is sent, but nothing comes any more."""
    conversation = live.converse("quick", [{"role": "user", "content": "hello"}])
    tab, other = open_tab(), open_tab()
    tab.page.clock.install()
    dead: list[Any] = []

    def pass_on(route: Any) -> None:
        server = route.connect_to_server()
        if not dead:
            dead.append(route)
            is_asleep: list[bool] = []
            route.on_message(lambda message: None if is_asleep else server.send(message))
            server.on_message(lambda message: None if is_asleep else route.send(message))
            tab.fall_asleep = lambda: is_asleep.append(True)

    tab.page.route_web_socket(re.compile("/ws/"), pass_on)
    tab.open(conversation)
    tab.fall_asleep()
    other.open(conversation)
    other.say("while you slept")
    other.answered(1)
    assert tab.page.locator(".from-agent").count() == 0

    tab.page.clock.fast_forward("01:00:00")
    tab.page.clock.run_for(20_000)

    tab.answered(1)
    assert shown_answers(tab) == shown_answers(other)


def test_a_page_in_the_background_keeps_its_line(live: Live, open_tab: Any) -> None:
    """A browser lets hidden pages ask once a minute only: that is no reason to take the line for dead."""
    tab = open_tab()
    tab.page.clock.install()
    opened: list[str] = []
    tab.page.on("websocket", lambda line: opened.append(line.url))
    tab.open(live.converse("quick", [{"role": "user", "content": "hello"}]))

    for _ in range(5):
        tab.page.clock.fast_forward(61_000)
        tab.page.wait_for_timeout(300)

    assert len(opened) == 1


def test_a_database_that_went_back_is_shown_as_it_is(live: Live, open_tab: Any) -> None:
    conversation = live.converse("quick", [{"role": "user", "content": "kept"}])
    tab = open_tab()
    tab.page.clock.install()
    tab.open(conversation)
    tab.say("lost")
    tab.answered(1)

    live.ask("go_back", conversation=conversation, messages=1)
    tab.page.clock.run_for(16_000)
    tab.shows(".message", 1)

    tab.say("said anew")
    tab.answered(1)
    said = tab.page.locator(".from-person .said").all_inner_texts()
    assert said == ["kept", "said anew"]
