"""Counting offline, exact on ordinary text, quick and safe on any."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agents import tokens, vocabulary
from agents.errors import AgentsError
from agents.messages import ContentPart, Message, ToolCall

ROOT = Path(__file__).resolve().parents[2]

WITHOUT_NETWORK = """
import socket, sys
def refuse(*args, **kwargs): raise AssertionError("the network was asked")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from agents import tokens
tokens.ensure_vocabularies()
assert tokens.encoding("cl100k_base").encode("tiktoken is great!") == [83, 1609, 5963, 374, 2294, 0]
assert tokens.encoding("o200k_base").encode("hello world") == [24912, 2375]
print(tokens.count_text("hello world"))
"""


def run_python(script: str, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PALIMPSEST_DATA": str(folder), "PYTHONPATH": str(ROOT)}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    return subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_counting_needs_no_network_and_two_processes_may_unpack_at_once(tmp_path: Path) -> None:
    processes = [run_python(WITHOUT_NETWORK, tmp_path) for _ in range(3)]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (out.strip(), process.returncode) == ("2", 0), err
    names = {path.name for path in (tmp_path / "tiktoken").iterdir()}
    assert names == {known.cache_name for known in vocabulary.VOCABULARIES.values()}


def test_a_damaged_vocabulary_is_written_again(tmp_path: Path, settings: Any) -> None:
    settings.PALIMPSEST_DATA = tmp_path
    unpacked = vocabulary.ensure("cl100k_base") / vocabulary.VOCABULARIES["cl100k_base"].cache_name
    whole = unpacked.read_bytes()
    unpacked.write_bytes(whole[:1000])
    vocabulary.ensure("cl100k_base")
    assert unpacked.read_bytes() == whole
    assert len(whole) == 1_681_126


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path, settings: Any) -> None:
    settings.PALIMPSEST_DATA = tmp_path / "file"
    settings.PALIMPSEST_DATA.write_text("in the way")
    with pytest.raises(AgentsError) as caught:
        vocabulary.ensure("cl100k_base")
    assert caught.value.code == "vocabulary_unwritable"


def test_a_full_disk_is_a_clear_error_and_leaves_nothing_behind(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    settings.PALIMPSEST_DATA = tmp_path
    monkeypatch.setattr(vocabulary.os, "replace", full)
    with pytest.raises(AgentsError, match="No space left"):
        vocabulary.ensure("cl100k_base")
    assert list((tmp_path / "tiktoken").iterdir()) == []


def test_a_damaged_installation_is_told_apart(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PALIMPSEST_DATA = tmp_path
    monkeypatch.setattr(vocabulary, "PACKED", tmp_path)
    (tmp_path / "cl100k_base.xz").write_bytes(b"no xz")
    with pytest.raises(AgentsError) as caught:
        vocabulary.ensure("cl100k_base")
    assert caught.value.code == "vocabulary_damaged"
    with pytest.raises(AgentsError) as caught:
        tokens.encoding("p50k_base")
    assert caught.value.code == "unknown_encoding"


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("hello world", 2), ("<|endoftext|>", 7), ("你好，世界", 3), ("\ud83d\ude00", 1)]
)
def test_counts(text: str, count: int) -> None:
    assert tokens.count_text(text) == count


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a" * 1_000_000, id="one letter"),
        pytest.param(" " * 1_000_000, id="spaces"),
        pytest.param(" " * 1_000_000 + "x", id="spaces and a letter"),
        pytest.param("\n" * 1_000_000, id="line ends"),
        pytest.param(" \n\t" * 400_000, id="mixed white space"),
        pytest.param("好" * 1_000_000, id="one sign"),
        pytest.param("😀" * 300_000, id="emoji"),
        pytest.param("กำ" * 300_000, id="thai without spaces"),
        pytest.param("-=" * 500_000, id="punctuation"),
        pytest.param("7" * 1_000_000, id="digits"),
        pytest.param("aA" * 500_000, id="changing case"),
    ],
)
def test_pathological_text_is_counted_quickly(text: str) -> None:
    started = time.monotonic()
    count = tokens.count_text(text)
    assert time.monotonic() - started < 5
    short = tokens.count_text(text[:10_000]) * len(text) / 10_000
    assert count == pytest.approx(short, rel=0.01)


def test_long_runs_are_cut_where_no_count_changes() -> None:
    rng = random.Random(1)
    words = ["compaction", "summary，", "你好。", "(originals)", "x", "naïve;", "12,5", "_", "don't", "über!", "…"]
    encode = tokens.encoding("o200k_base").encode_ordinary
    for joint in ("", " ", "\n"):
        text = joint.join(rng.choice(words) for _ in range(20_000))
        assert tokens.count_text(text) == len(encode(text))
    text = "before it " + "word," * 30_000 + " after it"
    assert tokens.count_text(text) == len(encode(text))


def test_counting_in_many_threads_gives_the_same() -> None:
    texts = [f"message {i} 你好 " * 200 for i in range(40)]
    alone = [tokens.count_text(text) for text in texts]
    together: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: together.append([tokens.count_text(text) for text in texts])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [alone] * 8


def test_a_message_counts_everything_that_is_sent_and_no_thinking() -> None:
    plain = tokens.count_message(Message("user", "hello world"))
    assert plain == 2 + tokens.MESSAGE_OVERHEAD
    assert tokens.count_message(Message("user", "hello world", name="ann")) > plain
    assert tokens.count_message(Message("assistant", "hello world", thinking="long " * 100)) == plain
    call = ToolCall("call_1", "search_history", '{"query": "budget"}')
    assert tokens.count_message(Message("assistant", "hello world", tool_calls=(call, call))) > plain + 20
    assert tokens.count_messages([Message("user", "hello world")] * 3) == 3 * plain


def test_an_image_has_a_flat_price_whatever_its_bytes() -> None:
    small = ContentPart("image", url="data:image/png;base64,AAAA")
    large = ContentPart("image", url="data:image/png;base64," + "A" * 1_000_000)
    assert tokens.count_part(small) == tokens.count_part(large) == tokens.IMAGE_TOKENS
    assert tokens.count_part(ContentPart("image", url="x", tokens=85)) == 85


def test_a_file_costs_its_text_as_sent() -> None:
    part = ContentPart("file", text="one two three", name="a.txt")
    assert tokens.count_part(part) == tokens.count_text(part.to_openai()["text"])
    assert tokens.count_part(ContentPart("file", text="one two three", tokens=999)) == 999


def test_tools_are_counted() -> None:
    function = {"name": "f", "description": "Finds things.", "parameters": {"type": "object", "properties": {}}}
    one = tokens.count_tools([{"type": "function", "function": function}])
    assert 20 < one < 60
    assert tokens.count_tools([{"type": "function", "function": function}] * 2) == 2 * one
    assert tokens.count_tools([]) == 0


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "o200k_base"),
        ("openai/gpt-4o-mini", "o200k_base"),
        ("gpt-4-0613", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("text-davinci-003", "o200k_base"),
        ("gpt-oss-20b", "o200k_base"),
        ("claude-sonnet-4", "o200k_base"),
        ("", "o200k_base"),
    ],
)
def test_vocabulary_of_a_model(model: str, name: str) -> None:
    assert tokens.encoding_for(model).name == name
