"""The log reads like a story and keeps secrets."""

from __future__ import annotations

import json
import logging

import pytest
from django.core.exceptions import RequestAborted

from palimpsest.logs import JsonLine, NobodyWaits, TextLine


def record(message: str = "turn done", **fields: object) -> logging.LogRecord:
    return logging.getLogger("palimpsest.turns").makeRecord(
        "palimpsest.turns", logging.INFO, "turns.py", 1, message, (), None, extra=fields
    )


def test_a_line_has_the_sentence_and_its_fields() -> None:
    line = TextLine().format(record(turn=7, tokens=512, seconds=2.104, title="two words", none=None))
    assert line.endswith('INFO    turn done  turn=7 tokens=512 seconds=2.1 title="two words"')


def test_json_has_the_same_fields() -> None:
    line = json.loads(JsonLine().format(record(turn=7, tokens=512)))
    assert line["message"] == "turn done"
    assert (line["turn"], line["tokens"], line["level"]) == (7, 512, "info")


@pytest.mark.parametrize(
    "secret",
    [
        "Authorization: Bearer abcdefghijklmnop",
        "key sk-proj-abcdefghijklmnop",
        "key pal_abcdefghijklmnop",
        "/accounts/first/abcdefghijklmnop:x/",
    ],
)
def test_what_looks_like_a_key_is_blanked(secret: str) -> None:
    for formatter in (TextLine(), JsonLine()):
        assert "efghijkl" not in formatter.format(record(secret, field=secret))


def test_a_visitor_who_left_is_no_error() -> None:
    left = logging.LogRecord("asyncio", logging.ERROR, "", 1, "never retrieved", (), (RequestAborted, None, None))
    failed = logging.LogRecord("asyncio", logging.ERROR, "", 1, "never retrieved", (), (ValueError, None, None))
    assert not NobodyWaits().filter(left)
    assert NobodyWaits().filter(failed)
