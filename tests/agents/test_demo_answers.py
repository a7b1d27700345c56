"""What the demo model says to a first user."""

from __future__ import annotations

import pytest

from agents.demo_answers import answer
from agents.messages import ContentPart, Message, ToolCall
from agents.requests import IMAGES_OF_TOOLS


def said(text: str) -> str:
    return answer([Message("user", text)], (), 1000).text


@pytest.mark.parametrize(
    ("asked", "expected"), [("12 + 30", "**42**"), ("What is 7*6?", "**42**"), ("84 / 2", "**42**")]
)
def test_it_works_out_a_sum(asked: str, expected: str) -> None:
    assert expected in said(asked)


@pytest.mark.parametrize("asked", ["I travel on 2026-04-12.", "See /srv/2024/12/plan.md", "pages 10-12", "ratio 1/2"])
def test_a_date_a_path_or_a_range_is_no_sum(asked: str) -> None:
    assert " = **" not in said(asked)


def test_it_gives_a_list_and_code_when_both_are_asked_for() -> None:
    text = said("Show me a list for Kyoto and some Python code.")
    assert "1. " in text
    assert "```python" in text


def test_an_essay_is_about_what_was_named() -> None:
    text = said("write 100 words about tea")
    assert "tea" in text or "this" in text
    assert "write is" not in text


def test_it_finds_a_fact_in_the_summary_of_a_compaction() -> None:
    summary = (
        "[Background, not a request. The earlier part of this conversation was compacted; this summary stands for it.]"
        "\n\n## 1. Primary Request and Intent\n- #1 ada: My project is called Heron; the deadline is 2026-04-12."
    )
    messages = [
        Message("user", summary),
        Message("assistant", "Understood."),
        Message("user", "Thanks, what was the deadline of Heron?"),
    ]
    assert "2026-04-12" in answer(messages, (), 1000).text


def test_the_images_of_a_tool_are_part_of_its_result_and_no_question() -> None:
    image = ContentPart("image", url="data:image/png;base64,AAAA")
    shown = Message("user", parts=(ContentPart("text", IMAGES_OF_TOOLS), image))
    call = Message("assistant", tool_calls=(ToolCall("c", "look"),))

    text = answer([Message("user", "Look."), call, Message("tool", "a seal", tool_call_id="c"), shown], (), 1000).text

    assert "`look` gave" in text
    assert IMAGES_OF_TOOLS not in text
