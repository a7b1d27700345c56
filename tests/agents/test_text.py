"""The one cleaner."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.text import StreamCleaner, clean

ANY_TEXT = st.text(alphabet=st.characters(codec=None), max_size=60) | st.text(
    alphabet=st.sampled_from("a\0\ud83d\ude00\udfff\ufeff😀é"), max_size=30
)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain", "plain"),
        ("", ""),
        ("a\0b", "a\ufffdb"),
        ("\ud83d\ude00", "😀"),
        ("a\ud83d", "a\ufffd"),
        ("\ude00a", "\ufffda"),
        ("\ud83dx\ude00", "\ufffdx\ufffd"),
        ("\ufeffa", "\ufeffa"),
        ("中文😀\t\r\n", "中文😀\t\r\n"),
    ],
)
def test_halves_are_joined_and_the_rest_replaced(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@given(ANY_TEXT)
def test_what_is_clean_can_be_stored_and_stays_as_it_is(text: str) -> None:
    cleaned = clean(text)
    assert "\0" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert clean(cleaned) == cleaned


@given(ANY_TEXT, st.lists(st.integers(0, 60), max_size=6))
def test_pieces_give_what_the_whole_gives(text: str, cuts: list[int]) -> None:
    cleaner = StreamCleaner()
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(edges)]
    assert "".join(map(cleaner.feed, pieces)) + cleaner.flush() == clean(text)
