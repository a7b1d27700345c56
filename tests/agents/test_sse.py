"""The stream reader: recorded streams cut anywhere, and the habits of suppliers one by one."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from agents.calls import ToolCallPiece
from agents.sse import Finished, StreamEvent, StreamFault, StreamReader, TextPiece, ThinkingPiece, UsageReport
from agents.usage import Usage

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "data" / "sse"
SHARED = Path(os.environ.get("PALIMPSEST_SHARED_DATA") or ROOT.parent / "shared" / "data") / "sse"


def recorded() -> list[Any]:
    """Every recorded stream with the message it holds: all of the shared folder, or the samples kept here."""
    folder = SHARED if SHARED.is_dir() else SAMPLES
    lines = (folder / "sse_chat.jsonl").read_text().splitlines()
    cases = [json.loads(line) for line in lines]
    return [pytest.param(folder / Path(case["meta"]["file"]).name, case, id=Path(case["id"]).name) for case in cases]


def event(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"id": "x", "choices": choices, **more}).encode() + b"\n\n"


DONE = event({}, "stop") + b"data: [DONE]\n\n"


def read(stream: bytes, cuts: list[int] | None = None, **options: Any) -> tuple[list[StreamEvent], StreamReader]:
    reader = StreamReader(**options)
    events: list[StreamEvent] = []
    edges = [0, *(cuts or []), len(stream)]
    for start, end in itertools.pairwise(edges):
        events += reader.feed(stream[start:end])
    return events + reader.finish(), reader


def joined(events: list[StreamEvent], kind: type) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


def random_cuts(size: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return sorted(rng.randrange(size + 1) for _ in range(rng.choice([0, 1, 5, 50, 400])))


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared recordings are not here (PALIMPSEST_SHARED_DATA)")
def test_every_shared_stream_is_among_the_cases() -> None:
    streams = {path.name for path in SHARED.iterdir() if path.suffix in (".txt", ".sse")}
    assert streams == {case.values[0].name for case in recorded()}


@pytest.mark.parametrize(("path", "case"), recorded())
@pytest.mark.parametrize("form", ["as recorded", "as a stream", "with CRLF", "after keep-alives"])
def test_recorded_stream_gives_its_message_however_it_is_cut(path: Path, case: dict[str, Any], form: str) -> None:
    stream = path.read_bytes()
    if form != "as recorded" and path.suffix == ".txt":
        stream = b"".join(b"data: " + line + b"\n\n" for line in stream.splitlines() if line) + b"data: [DONE]\n\n"
    if form == "with CRLF":
        stream = stream.replace(b"\n", b"\r\n")
    if form == "after keep-alives":
        stream = stream.replace(b"\n\n", b"\n\n: OPENROUTER PROCESSING\n\n")
    expected = case["messages"][-1]
    for seed in range(12):
        events, reader = read(stream, random_cuts(len(stream), seed))
        assert joined(events, TextPiece) == (expected.get("content") or "")
        assert joined(events, ThinkingPiece) == (expected.get("reasoning_content") or "")
        assert [call.to_openai() for call in reader.tool_calls] == expected.get("tool_calls", [])
        assert events[-1] == Finished(case["meta"]["finish_reason"])
        reported = case["meta"]["usage"]
        assert reader.usage == (Usage.from_openai(reported) if reported else None)
        pieces = [event for event in events if isinstance(event, ToolCallPiece)]
        for index, call in enumerate(reader.tool_calls):
            assert "".join(piece.arguments for piece in pieces if piece.index == index) == call.arguments


def test_text_of_one_read_is_one_piece() -> None:
    stream = event({"role": "assistant", "content": ""}) + b"".join(event({"content": f" {i}"}) for i in range(500))
    reader = StreamReader()
    assert reader.feed(stream) == [TextPiece("".join(f" {i}" for i in range(500)))]


def test_half_a_surrogate_pair_in_each_of_two_pieces_becomes_one_character() -> None:
    first = b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}\n\n'
    second = b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00b"}}]}\n\n'
    for cut in ([], [len(first)]):
        events, _ = read(event({"content": "x"}) * 3 + first + second + DONE, cut)
        assert joined(events, TextPiece) == "xxxa😀b"
    events, _ = read(first + DONE)
    assert joined(events, TextPiece) == "a\ufffd"


def test_text_that_looks_like_the_end_of_an_event_is_kept() -> None:
    texts = ["a", "b", '"},"finish_reason":null}]}\n\ndata: [DONE]\n\n', "\\", '"', "\u0000", "\n\n", "}"]
    stream = b"".join(event({"content": text}) for text in texts) + DONE
    for seed in range(30):
        events, _ = read(stream, random_cuts(len(stream), seed))
        assert joined(events, TextPiece) == "".join(texts).replace("\0", "\ufffd")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_thinking_under_each_name(field: str) -> None:
    events, _ = read(event({field: "hm"}) + event({field: "m", "content": "Yes"}) + DONE)
    assert events[:2] == [ThinkingPiece("hmm"), TextPiece("Yes")]


def test_thinking_sent_under_two_names_is_taken_once() -> None:
    details = [{"type": "reasoning.text", "text": "hm"}]
    events, _ = read(event({"reasoning": "hm", "reasoning_content": "hm", "reasoning_details": details}) + DONE)
    assert joined(events, ThinkingPiece) == "hm"
    events, _ = read(event({"reasoning_details": details}) + DONE)
    assert joined(events, ThinkingPiece) == "hm"


def test_content_as_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "Hel"},
        {"type": "text", "text": "lo"},
    ]
    events, _ = read(event({"content": parts}) + DONE)
    assert events[:2] == [ThinkingPiece("hm"), TextPiece("Hello")]


THINK = "<think>\nstep <b>one</b>\n</think>\n\nThe answer"


def test_think_block_at_the_start_becomes_thinking_however_it_is_cut() -> None:
    for size in range(1, len(THINK) + 1):
        pieces = [THINK[start : start + size] for start in range(0, len(THINK), size)]
        events, _ = read(b"".join(event({"content": piece}) for piece in pieces) + DONE, [len(event({"content": "x"}))])
        assert joined(events, ThinkingPiece).rstrip("\n") == "step <b>one</b>"
        assert joined(events, TextPiece) == "The answer"


def test_think_block_elsewhere_or_when_switched_off_is_text() -> None:
    events, _ = read(event({"content": "Use <think>"}) + event({"content": " tags</think>"}) + DONE)
    assert joined(events, TextPiece) == "Use <think> tags</think>"
    events, _ = read(event({"content": THINK}) + DONE, split_think=False)
    assert joined(events, TextPiece) == THINK


def test_unfinished_think_block_and_half_a_tag() -> None:
    events, _ = read(event({"content": "<think>so long"}, "length") + b"data: [DONE]\n\n")
    assert (joined(events, ThinkingPiece), joined(events, TextPiece)) == ("so long", "")
    events, _ = read(event({"content": " <thi"}) + DONE)
    assert joined(events, TextPiece) == " <thi"


def call(index: int | None, call_id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "function", "function": {"arguments": arguments}}
    if index is not None:
        made["index"] = index
    if call_id is not None:
        made["id"] = call_id
    if name is not None:
        made["function"]["name"] = name
    return made


def calls_of(*deltas: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    stream = b"".join(event({"tool_calls": delta}) for delta in deltas) + event({}, "tool_calls")
    _, reader = read(stream)
    return [(call.id, call.name, call.arguments) for call in reader.tool_calls]


A, B = '{"q": "a"}', '{"q": "b"}'


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        pytest.param([[call(0, "1", "f", '{"q"')], [call(0, "", None, ': "a"}')]], [("1", "f", A)], id="empty id"),
        pytest.param([[call(0, "1", "f", "")], [call(0, "1", "f", A)]], [("1", "f", A)], id="id and name repeated"),
        pytest.param(
            [[call(0, "1", "f", A)], [call(0, "2", "f", B)]], [("1", "f", A), ("2", "f", B)], id="index reused"
        ),
        pytest.param(
            [[call(0, "1", "f", A)], [call(0, "2", "f", "")], [call(0, None, None, B)]],
            [("1", "f", A), ("2", "f", B)],
            id="index reused, second in pieces",
        ),
        pytest.param(
            [[call(None, "1", "f", A), call(None, "2", "g", A)]], [("1", "f", A), ("2", "g", A)], id="no index"
        ),
        pytest.param(
            [[call(None, "1", "f", '{"q"')], [call(None, None, None, ': "a"}')], [call(None, "2", "g", B)]],
            [("1", "f", A), ("2", "g", B)],
            id="no index, in pieces",
        ),
        pytest.param(
            [
                [call(0, "1", "f", '{"q"'), call(1, "2", "g", '{"q"')],
                [call(1, "", "", ': "b"}'), call(0, "", "", ': "a"}')],
            ],
            [("1", "f", A), ("2", "g", B)],
            id="two at once, interleaved",
        ),
        pytest.param(
            [[call(0, "1", "f", '{"q"')], [call(0, "9", "f", ': "a"}')]], [("1", "f", A)], id="new id each piece"
        ),
        pytest.param([[call(0, "1", "f", A)], [call(0, "1", "f", A)]], [("1", "f", A)], id="whole call sent twice"),
        pytest.param([[call(0, "1", "f", None)]], [("1", "f", "{}")], id="no arguments"),
        pytest.param([[call(0, "1", "f", {"q": "a"})]], [("1", "f", '{"q":"a"}')], id="arguments as an object"),
        pytest.param([[call(0, "1", None, A)]], [], id="no name"),
        pytest.param([[call(3, "1", "f", A)]], [("1", "f", A)], id="index begins at 3"),
    ],
)
def test_tool_calls(deltas: list[list[dict[str, Any]]], expected: list[tuple[str, str, str]]) -> None:
    assert calls_of(*deltas) == expected


def test_calls_without_ids_get_ids_of_their_own() -> None:
    made = calls_of([call(None, None, "f", A), call(None, None, "f", A)])
    assert [made_call[1:] for made_call in made] == [("f", A), ("f", A)]
    assert len({made_call[0] for made_call in made}) == 2
    assert all(made_call[0].startswith("call_") for made_call in made)


def test_calls_with_reason_stop_finish_as_tool_calls_and_old_function_calls_are_read() -> None:
    events, reader = read(event({"function_call": {"name": "f", "arguments": "{}"}}) + DONE)
    assert events[-1] == Finished("tool_calls")
    assert reader.tool_calls[0].name == "f"


def test_usage_before_with_and_after_the_last_choice_and_inside_x_groq() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    expected = UsageReport(Usage(7, 3))
    for stream in (
        event({"content": "a"}, usage={"prompt_tokens": 7, "completion_tokens": 1}) + event({}, "stop", usage=usage),
        event({"content": "a"}) + event({}, "stop") + event(None, usage=usage),
        event({"content": "a"}) + event({}, "stop", x_groq={"usage": usage}),
        event({"content": "a"}) + event(None, usage=usage) + event({}, "stop"),
    ):
        events, _ = read(stream)
        assert events == [TextPiece("a"), expected, Finished("stop")]


def test_first_event_without_choices_comments_named_events_and_ids() -> None:
    stream = b": hi\n\nretry: 3000\nid: 1\nevent: ping\ndata: {}\n\n" + event(None, prompt_filter_results=[])
    stream += b"\xef\xbb\xbf: odd\n\nevent: message\n" + event({"content": "a"}) + b"\n\n\n" + DONE
    events, _ = read(stream)
    assert events == [TextPiece("a"), Finished("stop")]


def test_data_over_several_lines_and_without_blank_lines_and_without_a_space() -> None:
    several = b'data: {"choices": [{"index": 0,\ndata:  "delta": {"content": "a"}}]}\n\n'
    events, _ = read(several + DONE)
    assert joined(events, TextPiece) == "a"
    tight = (
        (event({"content": "a"}) + event({"content": "b"}) + DONE).replace(b"\n\n", b"\n").replace(b"data: ", b"data:")
    )
    events, _ = read(tight)
    assert events == [TextPiece("ab"), Finished("stop")]


def test_answer_that_is_not_streamed_at_all() -> None:
    message = {"role": "assistant", "content": "Hi", "tool_calls": None}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}
    events, _ = read(json.dumps(whole).encode())
    assert events == [TextPiece("Hi"), UsageReport(Usage(1)), Finished("stop")]


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"message": "The server had an error", "type": "server_error"}, "provider_unavailable", True),
        ({"message": "This model's maximum context length is 8192 tokens", "code": 400}, "context_exceeded", False),
        ({"message": "Rate limit reached. Please try again in 1.5s", "code": 429}, "rate_limited", True),
        ("something broke", "provider_unavailable", True),
    ],
)
def test_error_in_mid_stream_keeps_what_came_before(error: Any, code: str, retryable: bool) -> None:
    events, reader = read(event({"content": "so far"}) + event(None, error=error) + event({"content": "never"}))
    assert events[0] == TextPiece("so far")
    fault = events[-1]
    assert isinstance(fault, StreamFault)
    assert (fault.code, fault.retryable) == (code, retryable)
    assert reader.ended


def test_error_event_and_error_as_a_reason() -> None:
    for stream in (b'event: error\ndata: {"message": "boom"}\n\n', b"event: error\ndata: boom\n\n", event({}, "error")):
        events, _ = read(event({"content": "a"}) + stream)
        assert isinstance(events[-1], StreamFault)
        assert events[-1].code == "provider_unavailable"


def test_cut_stream_says_so_and_keeps_what_came() -> None:
    for tail in (b"", b'data: {"choices":[{"index":0,"delta":{"content":"lost', b"data: "):
        events, _ = read(event({"content": "a"}) + tail)
        assert [type(event) for event in events] == [TextPiece, StreamFault]
        assert events[-1].code == "stream_cut"
    assert [type(event) for event in read(b"")[0]] == [StreamFault]


def test_end_without_done_is_fine_once_a_reason_was_given() -> None:
    events, _ = read(event({"content": "a"}) + event({}, "stop") + b'data: {"choices":[],"us')
    assert events == [TextPiece("a"), Finished("stop")]


def test_nothing_comes_after_the_end() -> None:
    reader = StreamReader()
    assert reader.feed(event({"content": "a"}) + DONE) == [TextPiece("a"), Finished("stop")]
    assert reader.feed(event({"content": "b"})) == []
    assert reader.finish() == []


@pytest.mark.parametrize(
    ("reason", "ours"),
    [
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"),
    ],
)
def test_reasons(reason: str, ours: str) -> None:
    events, _ = read(event({"content": "a"}) + event({}, reason))
    assert events[-1] == Finished(ours)


def test_refusal_is_shown_and_marked() -> None:
    events, reader = read(event({"refusal": "I can't"}) + event({"refusal": " help"}) + DONE)
    assert joined(events, TextPiece) == "I can't help"
    assert reader.refused


def test_what_is_no_stream_is_a_fault() -> None:
    events, _ = read(event({"content": "a"}) + b"data: upstream broke\n\n")
    assert events[-1].code == "stream_invalid"
    events, _ = read(b"x" * (17 * 1024 * 1024))
    assert events[-1].code == "stream_invalid"


def test_padding_against_eavesdroppers_does_not_disturb() -> None:
    pads = ["", "a", "abcdefgh", "Zz9"] * 50
    stream = b"".join(event({"content": f"{i}\\u00e9\n"}, obfuscation=pad) for i, pad in enumerate(pads)) + DONE
    for seed in range(10):
        events, _ = read(stream, random_cuts(len(stream), seed))
        assert joined(events, TextPiece) == "".join(f"{i}\\u00e9\n" for i in range(len(pads)))


@pytest.mark.parametrize(
    ("reported", "usage", "context"),
    [
        pytest.param({"prompt_tokens": 10, "completion_tokens": 5}, Usage(10, 5), 15, id="plain"),
        pytest.param(
            {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 90}},
            Usage(100, 5, 90),
            105,
            id="cached tokens are counted once",
        ),
        pytest.param(
            {"prompt_tokens": 24, "completion_tokens": 1355, "completion_tokens_details": {"reasoning_tokens": 1084}},
            Usage(24, 1355, 0, 1084),
            295,
            id="reasoning is not sent again",
        ),
        pytest.param(
            {
                "prompt_tokens": 12,
                "completion_tokens": 2,
                "total_tokens": 354,
                "completion_tokens_details": {"reasoning_tokens": 340},
            },
            Usage(12, 342, 0, 340),
            14,
            id="reasoning beside the completion (xAI)",
        ),
        pytest.param(
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 8},
            Usage(10, 5, 8),
            15,
            id="DeepSeek",
        ),
        pytest.param(
            {"input_tokens": 4, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 6, "output_tokens": 5},
            Usage(100, 5, 90),
            105,
            id="Anthropic: cached beside the input",
        ),
        pytest.param(
            {"prompt_tokens": 4, "completion_tokens": None, "prompt_tokens_details": None}, Usage(4), 4, id="nulls"
        ),
    ],
)
def test_usage_is_brought_into_one_form(reported: dict[str, Any], usage: Usage, context: int) -> None:
    assert Usage.from_openai(reported) == usage
    assert usage.context_tokens == context
    assert Usage.from_json(usage.to_json()) == usage
