"""Every recorded stream through a local server and a whole turn: what suppliers sent is what the database holds."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from chat.models import Message, MessageStatus, Turn, TurnState
from tests.agents.test_sse import DONE, recorded
from tests.agents.test_sse import event as sse_event
from tests.builders import make_agent, make_channel, make_conversation, make_user
from tests.chat.conftest import Chat

AFTERWARDS = sse_event({"content": "After the tool."}) + DONE
ERROR = b'data: {"error": {"message": "upstream is overloaded", "code": 529}}\n\n'


class Recordings(ThreadingHTTPServer):
    """Answers request number n with the n-th stream, cut at random into pieces, then closes the connection."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.streams: list[bytes] = []
        self.base_url = f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Recordings

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        stream = self.server.streams.pop(0)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        chance = random.Random(len(stream))
        while stream:
            size = chance.choice([1, 7, 60, 400, 5_000])
            self.wfile.write(stream[:size])
            self.wfile.flush()
            stream = stream[size:]
            if chance.random() < 0.02:
                time.sleep(0.01)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def recordings() -> Iterator[Recordings]:
    with Recordings() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(5)


@pytest.fixture
def chat(transactional_db: None, recordings: Recordings) -> Chat:  # type: ignore[override]
    alice = make_user("alice")
    channel = make_channel(base_url=recordings.base_url, models=["recorded"])
    return Chat(alice, make_conversation(owner=alice, agent=make_agent(channel=channel)), None)  # type: ignore[arg-type]


def as_stream(path: Path) -> bytes:
    """The recording as it came over the line: some were kept as bare chunks, one a line."""
    stream = path.read_bytes()
    if path.suffix == ".txt":
        stream = b"".join(b"data: " + line + b"\n\n" for line in stream.splitlines() if line) + b"data: [DONE]\n\n"
    return stream


def calls_of(row: Message) -> list[tuple[str, Any]]:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in row.tool_calls]


@pytest.mark.parametrize(("path", "case"), recorded())
def test_a_recorded_stream_is_stored_as_it_was_meant(
    worker: None, chat: Chat, recordings: Recordings, path: Path, case: dict[str, Any]
) -> None:
    said = case["messages"][-1]
    recordings.streams = [as_stream(path).replace(b"\n\n", b"\n\n: keep-alive\n\n"), AFTERWARDS]

    turn = chat.ended(chat.send("Go on"))

    _question, answer, *more = chat.messages()
    assert answer.content == (said.get("content") or "")
    assert answer.thinking == (said.get("reasoning_content") or "")
    assert calls_of(answer) == [
        (call["function"]["name"], json.loads(call["function"]["arguments"])) for call in said.get("tool_calls", [])
    ]
    assert len({call["id"] for call in answer.tool_calls} - {""}) == len(answer.tool_calls)
    reported = case["meta"]["usage"]
    assert bool(answer.usage) == bool(reported)
    if reported:
        assert answer.usage is not None
        assert answer.usage["prompt_tokens"] == reported["prompt_tokens"]
    if answer.tool_calls:  # nobody here has that tool: the model is told so and goes on
        assert [row.role for row in more] == ["tool"] * len(answer.tool_calls) + ["assistant"]
        assert more[-1].content == "After the tool."
    assert turn.rounds == (1 if answer.tool_calls else 0)


@pytest.mark.parametrize("end", ["cut", "error"])
@pytest.mark.parametrize(("path", "case"), recorded())
def test_what_came_of_a_recorded_stream_before_it_broke_is_kept(
    worker: None, chat: Chat, recordings: Recordings, path: Path, case: dict[str, Any], end: str
) -> None:
    """Broken after half of its events: cut off, or with an error of the supplier's."""
    said = case["messages"][-1]
    events = as_stream(path).split(b"\n\n")
    half = b"\n\n".join(events[: len(events) // 2]) + b"\n\n"
    recordings.streams = [half + (ERROR if end == "error" else b"")] * 3  # what showed nothing may be asked for again

    chat.send("Go on")
    turn = Turn.objects.get()
    chat.ended(turn, TurnState.FAILED)

    answer = chat.messages()[1]
    content, thinking = said.get("content") or "", said.get("reasoning_content") or ""
    assert content.startswith(answer.content)
    assert thinking.startswith(answer.thinking)
    if len(content) + len(thinking) > 200:
        assert len(answer.content) + len(answer.thinking) > 50
    if answer.content or answer.thinking:
        assert (answer.status, answer.retired_at) == (MessageStatus.FAILED, None)
    assert answer.tool_calls == [], "half a call is none"
    assert turn.error_text
    assert turn.retryable
