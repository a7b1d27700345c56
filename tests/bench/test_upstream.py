"""The provider that the tests and the bench rely on does what its knobs say."""

from __future__ import annotations

import re

import pytest

from agents.errors import ProviderError
from agents.messages import Message
from agents.provider import CompletionRequest, Endpoint, ProviderPool
from agents.sse import Finished, TextPiece, ThinkingPiece, ToolCallPiece, UsageReport
from bench import plays, summaries
from compaction import prompts, sections
from tests.upstream import Play, Provider

TOOL = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}


def request_to(upstream: Provider, model: str, *, tools: bool = False, text: str = "Hello") -> CompletionRequest:
    endpoint = Endpoint(base_url=upstream.base_url, api_key="k", model=model, supplier="other", channel_id=1)
    return CompletionRequest(endpoint, (Message(role="user", content=text),), tools=(TOOL,) if tools else ())


async def streamed(request: CompletionRequest) -> list[object]:
    pool = ProviderPool()
    try:
        return [event async for event in pool.stream(request)]
    finally:
        await pool.aclose()


def text_of(events: list[object]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextPiece))


def test_the_models_name_is_read_as_knobs() -> None:
    play = plays.read("mock-ttft5-tps0-n30-err429x2-nousage-rounds3")
    assert (play.ttft, play.tps, play.n, play.status, play.failures, play.usage, play.rounds) == (
        5,
        0,
        30,
        429,
        2,
        False,
        3,
    )
    assert plays.read("gpt-4o-mini") == plays.DEFAULT


async def test_every_token_comes_once_and_in_order(upstream: Provider) -> None:
    events = await streamed(request_to(upstream, "mock-ttft0-tps0-n500"))
    assert re.findall(r" k(\d+)@\d+", text_of(events)) == [str(i) for i in range(500)]
    assert any(isinstance(event, UsageReport) and event.usage.completion_tokens == 500 for event in events)
    assert upstream.requests[-1].outcome == "done"


async def test_reasoning_and_parallel_tool_calls(upstream: Provider) -> None:
    events = await streamed(request_to(upstream, "mock-ttft0-think3-tool2", tools=True))
    assert any(isinstance(event, ThinkingPiece) for event in events)
    assert len({event.index for event in events if isinstance(event, ToolCallPiece)}) == 2
    assert [event.reason for event in events if isinstance(event, Finished)] == ["tool_calls"]


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("mock-err401", "provider_auth"),
        ("mock-err404", "model_not_found"),
        ("mock-errctx", "context_exceeded"),
        ("mock-ctx10", "context_exceeded"),
        ("mock-ttft0-tps0-cut5", "stream_cut"),
    ],
)
async def test_faults_are_told_apart(upstream: Provider, model: str, code: str) -> None:
    with pytest.raises(ProviderError) as raised:
        await streamed(request_to(upstream, model))
    assert raised.value.code == code


async def test_plays_are_answered_one_a_request(upstream: Provider) -> None:
    upstream.plays("m", Play(ttft=0, tps=0, text="one"), Play(ttft=0, tps=0, text="two"))
    assert [text_of(await streamed(request_to(upstream, "m"))) for _ in range(3)] == ["one", "two", "two"]


async def test_a_summary_has_its_sections_and_the_names(upstream: Provider) -> None:
    transcript = "### #1 user ann\nPlease book flight HAT271 for Mia_Kim on 2024-05-20.\n\n### #2 assistant\nDone."
    asked = prompts.summary_request(transcript, prompts.Brief(headings="en", words=300))
    assert summaries.is_summary_request([message.to_openai() for message in asked])
    endpoint = request_to(upstream, "mock").endpoint
    pool = ProviderPool()
    reply = await pool.complete(CompletionRequest(endpoint, asked, max_output_tokens=1_024))
    await pool.aclose()
    assert sections.missing(sections.parse(reply.text), "en") == []
    assert "HAT271" in reply.text
    assert upstream.requests[-1].is_summary
