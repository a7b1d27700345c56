"""Several people in one conversation, and files, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

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


def test_an_image_is_uploaded_previewed_sent_and_found_again_after_a_compaction(
    live: Live, open_tab: Any, tmp_path: Path
) -> None:
    picture = tmp_path / "seal.png"
    Image.new("RGB", (64, 48), "#9b2d1f").save(picture)
    tab = open_tab()
    history = [{"role": role, "content": f"{n} {PAGE}"} for n in range(2) for role in ("user", "assistant")]
    tab.open(live.converse("small", history))

    tab.page.set_input_files("#files", str(picture))
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


def test_a_file_that_cannot_be_read_says_so(live: Live, open_tab: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.4 nothing of it")
    tab = open_tab()
    tab.open(live.converse("quick", [{"role": "user", "content": "hello"}]))

    tab.page.set_input_files("#files", str(broken))
    tab.page.wait_for_selector(".attached.problem")

    assert tab.page.locator("#send").is_disabled()
    tab.problems = [problem for problem in tab.problems if "attachments" not in problem]  # the refusal itself
