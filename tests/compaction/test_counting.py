"""Counting line by line gives what counting in one go gives, and nothing is counted twice."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from agents.tokens import count_text
from compaction.counting import Counter

LINES = st.lists(
    st.sampled_from(
        [
            "- #1 Ada: keep `a/b.py`",
            "## 2. Files",
            "",
            "  indented",
            "/usr/lib",
            "...",
            "你好，世界。",
            "1234567",
            "\t",
            "\u3000x",
            "!?",
        ]
    )
    | st.text(max_size=30),
    max_size=12,
)


@given(LINES, st.sampled_from(["\n", "\n\n", "\r\n", " \n", "\n/", "\u2028"]))
@example(["a.", "/b", "- c"], "\n")
def test_lines_add_up_to_the_whole_text(lines: list[str], between: str) -> None:
    text = between.join(lines)

    assert Counter(count_text)(text) == count_text(text)


@given(LINES, LINES, LINES)
@example(["a"], ["b", "c", "d"], ["/e"])
@example(["a", ""], ["b", "c", ""], [" e"])
def test_lines_that_were_kept_count_the_same_inside_a_longer_text(
    before: list[str], kept: list[str], after: list[str]
) -> None:
    counter = Counter(count_text)
    counter.keep("\n".join(kept))
    text = "\n".join([*before, *kept, *after])

    assert counter(text) == count_text(text)


def test_a_line_that_comes_back_is_not_counted_again() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return count_text(text)

    counter = Counter(count)
    counter("- one\n- two\n- three\n")
    del counted[:]

    assert counter("- one\n- two and more\n- three\n") == count_text("- one\n- two and more\n- three\n")
    assert counted == ["- two and more\n"]
