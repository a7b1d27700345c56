"""Every code has a sentence for people, with its figures or without."""

from __future__ import annotations

import pytest

from compaction.errors import Cancelled, CompactionError, codes, sentence


@pytest.mark.parametrize("code", codes())
def test_every_code_has_a_sentence(code: str) -> None:
    text = sentence(code)

    assert len(text) > 20
    assert "%(" not in text


def test_figures_are_filled_in_and_separated() -> None:
    assert "105,000 of your 128,000" in sentence("floor_too_high", {"largest": "x", "size": 105_000, "window": 128_000})


def test_an_error_says_whether_trying_again_may_help() -> None:
    assert CompactionError("summary_empty").retryable
    assert not CompactionError("nothing_to_compact").retryable
    assert CompactionError("summariser_failed", "because", retryable=False).message == "because"
    assert not Cancelled().retryable
