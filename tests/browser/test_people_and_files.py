"""Several people in one conversation, and files, in a real browser."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.browser.conftest import Tab
from tests.live import Live

pytestmark = pytest.mark.browser


PAGE = "Vellum, ink and gall. " * 200  # 1,600 tokens, half as many by the small agent's provider


def test_an_invited_viewer_sees_the_same_and_cannot_write(live: Live, open_tab: Any) -> None:
    conversation = live.converse(
        "quick", [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hello, both."}]
    )
    owner = open_tab()
    owner.open(conversation)
    owner.page.click("#people-button")
    owner.page.fill("#invite-name", "bob")
    owner.page.select_option(".invite select >> nth=0", "viewer")
    owner.page.click(".invite button.primary")
    owner.page.wait_for_selector(".people li:has-text('bob')")
    owner.page.keyboard.press("Escape")

    viewer = open_tab("bob")
    viewer.open(conversation)
    assert "Hello, both." in viewer.page.inner_text("#transcript")
    assert viewer.page.locator("#write").is_disabled()
    assert viewer.page.locator("[aria-label='Answer again']").count() == 0

    owner.say("one more thing")
    owner.answered(2)
    viewer.answered(2)


def test_an_invitation_link_lets_someone_join(live: Live, open_tab: Any) -> None:
    owner = open_tab()
    owner.open(live.converse("quick", [{"role": "user", "content": "hello"}]))
    owner.page.click("#people-button")
    owner.page.click("button:has-text('Make a link')")
    link = owner.page.input_value("input[aria-label='Invitation link']")

    guest = open_tab("charlie")
    guest.page.goto(link)
    guest.page.click("button:has-text('Join')")
    guest.page.wait_for_selector(".from-person")

    assert guest.page.url.endswith(owner.conversation())


# How a file comes into the composer: chosen, dropped on the page, or pasted.

CARRIED = """([name, type, base64]) => {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const carried = new DataTransfer();
    carried.items.add(new File([bytes], name, { type }));
    return carried;
}"""


def carried(tab: Tab, file: Path, kind: str) -> Any:
    """A file as the browser hands it over with a drop or a paste."""
    return tab.page.evaluate_handle(CARRIED, [file.name, kind, base64.b64encode(file.read_bytes()).decode()])


def choose(tab: Tab, file: Path, kind: str = "image/png") -> None:
    tab.page.set_input_files("#files", str(file))


def drop(tab: Tab, file: Path, kind: str = "image/png") -> None:
    """Somewhere over the transcript, by way of the marked page."""
    carries = {"dataTransfer": carried(tab, file, kind)}
    tab.page.dispatch_event("#transcript", "dragenter", carries)
    tab.page.wait_for_selector("body.dropping")
    tab.page.dispatch_event("#transcript", "dragover", carries)
    tab.page.dispatch_event("#transcript", "drop", carries)
    tab.page.wait_for_selector("body:not(.dropping)")


def paste(tab: Tab, file: Path, kind: str = "image/png") -> None:
    tab.page.focus("#write")
    tab.page.evaluate(
        """(carried) => document.activeElement.dispatchEvent(
            new ClipboardEvent("paste", { clipboardData: carried, bubbles: true, cancelable: true }))""",
        carried(tab, file, kind),
    )


@pytest.mark.parametrize("bring", [choose, drop, paste])
def test_an_image_is_brought_in_previewed_sent_and_found_again_after_a_compaction(
    live: Live, open_tab: Any, tmp_path: Path, bring: Callable[..., None]
) -> None:
    picture = tmp_path / "seal.png"
    Image.new("RGB", (64, 48), "#9b2d1f").save(picture)
    tab = open_tab()
    history = [{"role": role, "content": f"{n} {PAGE}"} for n in range(2) for role in ("user", "assistant")]
    tab.open(live.converse("small", history))

    bring(tab, picture)
    tab.page.wait_for_selector(".attached:has-text('tokens') img")
    tab.say("what is this seal?")
    tab.page.wait_for_selector(".from-person .file.picture img")
    tab.answered(3)
    for more in (1, 2, 3, 4):  # so much that the picture leaves what is kept word for word
        tab.say(f"{more}: {PAGE}")
        tab.answered(3 + more)
    tab.say("/compact")
    tab.page.wait_for_selector(".card.done")
    tab.page.wait_for_selector(".from-person .file.picture", state="detached")

    tab.page.click("#views [data-view=model]")
    tab.page.wait_for_function("() => document.querySelector('.seen-pictures img')?.naturalWidth === 64")
    tab.page.click("#views [data-view=full]")
    tab.page.wait_for_selector(".from-person .file.picture img")
    tab.page.click(".file.picture >> nth=0")
    tab.page.wait_for_function("() => document.querySelector('dialog .viewer img')?.naturalWidth === 64")


def test_a_dropped_text_and_a_pasted_one_go_with_the_message(live: Live, open_tab: Any, tmp_path: Path) -> None:
    notes, table = tmp_path / "notes.md", tmp_path / "prices.csv"
    notes.write_text("The seal is at the harbour.")
    table.write_text("seal,4711")
    tab = open_tab()
    tab.open(live.converse("quick", [{"role": "user", "content": "hello"}]))

    drop(tab, notes, "text/markdown")
    paste(tab, table, "text/csv")
    for name in (notes.name, table.name):
        tab.page.wait_for_selector(f".attached:has-text('{name}'):has-text('tokens')")
    tab.say("What do they say?")
    tab.answered(1)

    tab.shows(".from-person .file", 2)
    sent = str(live.provider.last["messages"][-1]["content"])
    assert "The seal is at the harbour." in sent
    assert "seal,4711" in sent


def test_of_a_long_text_the_beginning_is_sent_and_its_cost_shown(live: Live, open_tab: Any, tmp_path: Path) -> None:
    long = tmp_path / "long.txt"
    long.write_text("The harbour master counts the seals. " * 5_000)
    tab = open_tab()
    tab.open(live.converse("quick", [{"role": "user", "content": "hello"}]))

    choose(tab, long)
    tab.page.wait_for_selector(".attached:has-text('1.54k of 35k tokens')")
    tab.say("How many?")
    tab.answered(1)

    assert "35001 tokens in all. Read on with the tool read_file: long.txt" in str(live.provider.last["messages"][-1])


def test_a_file_that_is_too_large_is_not_even_sent_up(live: Live, open_tab: Any, tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(21 * 1024 * 1024)
    tab = open_tab()
    tab.open(live.converse("quick", [{"role": "user", "content": "hello"}]))

    choose(tab, large)
    tab.page.wait_for_selector(".attached.problem:has-text('too large; 20 MB are allowed')")

    assert not any(request.endswith("/attachments") for request in tab.requests)


def test_a_file_that_cannot_be_read_says_so(live: Live, open_tab: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.4 nothing of it")
    tab = open_tab()
    tab.open(live.converse("quick", [{"role": "user", "content": "hello"}]))

    tab.page.set_input_files("#files", str(broken))
    tab.page.wait_for_selector(".attached.problem")

    assert tab.page.locator("#send").is_disabled()
    tab.problems = [problem for problem in tab.problems if "attachments" not in problem]  # the refusal itself


def test_a_page_that_is_open_follows_who_comes_changes_and_goes(live: Live, open_tab: Any) -> None:
    conversation = live.converse(
        "slow", [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hello, both."}]
    )
    owner = open_tab()
    owner.open(conversation)
    owner.page.click("#people-button")
    owner.page.fill("#invite-name", "bob")
    owner.page.click(".invite button.primary")
    owner.page.wait_for_selector(".people li:has-text('bob')")

    guest = open_tab("bob")
    guest.open(conversation)
    owner.page.wait_for_selector(".people li:has-text('bob'):has-text('here now')")
    guest.page.type("#write", "May I")
    owner.page.wait_for_selector("#typing:has-text('bob is writing')", state="attached")
    guest.page.press("#write", "Enter")
    owner.page.wait_for_selector(".from-agent[data-status=streaming]")
    assert owner.page.inner_text("#typing") == "", "what was sent is not being written any more"

    owner.page.select_option(".people select", "viewer")
    guest.page.wait_for_selector("#write:disabled")
    guest.page.wait_for_selector("#stop", state="hidden")
    owner.page.wait_for_selector(".people li:has-text('bob'):has-text('here now')")

    owner.page.click("[aria-label='Remove bob']")
    guest.page.wait_for_selector("#toasts :text('no longer part of it')")
    guest.page.wait_for_selector("#home:visible")
    owner.shows(".people li", 1)
