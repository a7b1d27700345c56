"""The call to a model, against a real server on loopback with every fault we know."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from django.utils import translation

from agents import provider as provider_module
from agents.errors import AgentsError, ProviderError
from agents.messages import Message, ToolCall
from agents.provider import CompletionRequest, Endpoint, Finished, ProviderPool, TextPiece, UsageReport
from agents.requests import body
from agents.usage import Usage
from tests.agents.provider_server import (
    END,
    Provider,
    begin,
    cut,
    disconnect,
    event,
    hang,
    provider,
    refuse,
    say,
)

SECRET = "sk-very-secret-key-123456"


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_module, "FIRST_WAIT", 0.01)


@asynccontextmanager
async def pool() -> AsyncIterator[ProviderPool]:
    made = ProviderPool()
    try:
        yield made
    finally:
        await made.aclose()


def asked(base_url: str, **changes: Any) -> CompletionRequest:
    endpoint = Endpoint(base_url, SECRET, changes.pop("model", "m"), changes.pop("supplier", "other"))
    messages = changes.pop("messages", (Message("user", "Hello"),))
    return CompletionRequest(endpoint, messages, **{"timeout_seconds": 5.0, **changes})


async def failure(*scripts: Any, **changes: Any) -> tuple[ProviderError, Provider]:
    """The error that a call to this provider ends with."""
    async with provider(*scripts) as (server, url), pool() as calls:
        with pytest.raises(ProviderError) as caught:
            await calls.complete(asked(url, **changes))
        return caught.value, server


async def seen_before_failure(calls: ProviderPool, request: CompletionRequest) -> tuple[str, ProviderError]:
    """The text a person saw, and the error that followed."""
    shown = ""
    try:
        async with calls.stream(request) as answer:
            async for piece in answer:
                shown += piece.text if isinstance(piece, TextPiece) else ""
    except ProviderError as error:
        return shown, error
    raise AssertionError("the call did not fail")


async def test_answer_streams_piece_by_piece_and_reports_usage() -> None:
    async with provider(say("Hel", "lo", pause=0.03)) as (server, url), pool() as calls:
        async with calls.stream(asked(url)) as answer:
            events = [event async for event in answer]
        assert events == [TextPiece("Hel"), TextPiece("lo"), UsageReport(Usage(7, 3)), Finished("stop")]
        assert (answer.finish_reason, answer.usage, answer.tool_calls) == ("stop", Usage(7, 3), ())
        assert server.bodies[0]["stream_options"] == {"include_usage": True}
        assert server.bodies[0]["messages"] == [{"role": "user", "content": "Hello"}]
        assert server.headers[0]["Authorization"] == f"Bearer {SECRET}"


async def test_connection_is_kept_for_the_next_call() -> None:
    async with provider(say("a")) as (server, url), pool() as calls:
        for _ in range(5):
            assert (await calls.complete(asked(url))).text == "a"
        assert len(server.connections) == 1


async def test_200_calls_at_once() -> None:
    async with provider(say(*"abcdefgh", pause=0.01)) as (_, url), pool() as calls:
        answers = await asyncio.gather(*(calls.complete(asked(url)) for _ in range(200)))
        assert {answer.text for answer in answers} == {"abcdefgh"}


# 0.3 s on a machine of its own; a busy one that runs the tests side by side gets more.
AT_ONCE = 1.5


@pytest.mark.parametrize("way", ["leave", "cancel", "aclose"])
async def test_stop_closes_the_providers_connection_at_once(way: str) -> None:
    async with provider(hang("a", "b")) as (server, url), pool() as calls:
        answer = calls.stream(asked(url))
        heard = asyncio.Event()

        async def read() -> None:
            async with answer:
                async for _ in answer:
                    heard.set()
                    if way == "leave":
                        return

        task = asyncio.create_task(read())
        await asyncio.wait_for(heard.wait(), 10)
        started = time.monotonic()
        if way == "cancel":
            task.cancel()
        elif way == "aclose":
            await answer.aclose()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.wait_for(server.closed.wait(), AT_ONCE)
        assert time.monotonic() - started < AT_ONCE
        if way == "aclose":
            assert task.exception() is None


@pytest.mark.parametrize("way", ["cancel", "aclose"])
async def test_stop_while_the_provider_is_still_silent(way: str) -> None:
    async with provider(hang()) as (server, url), pool() as calls:
        answer = calls.stream(asked(url))
        task = asyncio.create_task(anext(answer, None))  # type: ignore[arg-type]
        await asyncio.wait_for(server.asked.wait(), 10)
        if way == "cancel":
            task.cancel()
        else:
            await answer.aclose()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.wait_for(server.closed.wait(), AT_ONCE)


@pytest.mark.parametrize(
    ("status", "said", "code", "retryable"),
    [
        (401, {"error": {"message": f"Incorrect API key provided: {SECRET}"}}, "provider_auth", False),
        (400, {"error": {"message": "API key not valid. Please pass a valid API key."}}, "provider_auth", False),
        (400, {"error": {"message": "Incorrect API key provided: xx"}}, "provider_auth", False),
        (403, {"error": {"message": "Country not supported"}}, "provider_forbidden", False),
        (402, {"error": {"message": "Insufficient Balance"}}, "quota_exceeded", False),
        (
            404,
            {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}},
            "model_not_found",
            False,
        ),
        (404, {"error": {"message": 'model "m" not found, try pulling it first'}}, "model_not_found", False),
        (404, {"detail": "Not Found"}, "address_not_found", False),
        (
            429,
            {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}},
            "quota_exceeded",
            False,
        ),
        (400, {"error": {"message": "The response was filtered", "code": "content_filter"}}, "content_filtered", False),
        (400, {"error": {"message": "messages.1: roles must alternate"}}, "provider_rejected", False),
        (413, {"error": {"message": "too big"}}, "context_exceeded", False),
        (502, "<html><body><h1>502 Bad Gateway</h1></body></html>", "provider_unavailable", True),
        (
            529,
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            "provider_unavailable",
            True,
        ),
        (504, "upstream request timeout", "provider_timeout", True),
    ],
)
async def test_refusals_become_sentences(status: int, said: Any, code: str, retryable: bool) -> None:
    kind = "text/html" if isinstance(said, str) and said.startswith("<") else ""
    error, server = await failure(refuse(status, said, kind=kind))
    assert (error.code, error.retryable, error.status) == (code, retryable, status)
    assert SECRET not in f"{error} {error.message} {error.detail}"
    assert "<" not in error.message
    assert error.message.endswith((".", "?", ")"))
    assert len(server.bodies) == (3 if retryable else 1)


WORDS = Path(__file__).parents[1] / "data" / "context_exceeded.jsonl"


@pytest.mark.parametrize("line", WORDS.read_text().splitlines())
async def test_context_exceeded_is_recognised_in_many_words(line: str) -> None:
    said = json.loads(line)
    error, server = await failure(refuse(said["status"], {"error": said["error"]}), max_output_tokens=100)
    assert (error.code, error.retryable) == ("context_exceeded", False)
    assert len(server.bodies) == 1


async def test_rate_limit_on_tokens_per_minute_is_no_context_error() -> None:
    words = (
        "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000. Reduce your message"
    )
    error, _ = await failure(refuse(413, {"error": {"message": words, "code": "rate_limit_exceeded"}}))
    assert error.code == "rate_limited"


async def test_retry_after_is_obeyed() -> None:
    async with provider(refuse(429, headers={"Retry-After": "1"}), say("ok")) as (server, url), pool() as calls:
        started = time.monotonic()
        assert (await calls.complete(asked(url))).text == "ok"
        assert 0.95 < time.monotonic() - started < 5
        assert len(server.bodies) == 2


async def test_a_long_wait_is_told_and_not_waited() -> None:
    error, server = await failure(refuse(429, headers={"Retry-After": "3600"}))
    assert (error.code, error.retry_after, len(server.bodies)) == ("rate_limited", 3600.0, 1)
    error, _ = await failure(refuse(429, {"error": {"message": "Please try again in 1m30.5s"}}))
    assert error.retry_after == 90.5


async def test_500_twice_then_an_answer() -> None:
    async with provider(refuse(500), refuse(500), say("ok")) as (server, url), pool() as calls:
        assert (await calls.complete(asked(url))).text == "ok"
        assert len(server.bodies) == 3


async def test_no_retry_once_something_was_shown() -> None:
    async with provider(cut("so ", "far", half=b'data: {"choi'), say("new")) as (server, url), pool() as calls:
        shown, error = await seen_before_failure(calls, asked(url))
        assert shown == "so far"
        assert (error.code, error.retryable, len(server.bodies)) == ("stream_cut", True, 1)


@pytest.mark.parametrize("script", [cut(), disconnect()])
async def test_retry_when_the_connection_broke_before_anything_came(script: Any) -> None:
    async with provider(script, say("ok")) as (server, url), pool() as calls:
        assert (await calls.complete(asked(url))).text == "ok"
        assert len(server.bodies) == 2


async def test_error_in_mid_stream_comes_after_what_was_said() -> None:
    fault = b'data: {"error": {"message": "Internal server error", "code": 500}}\n\n'
    async with provider(say("so far", end=fault)) as (_, url), pool() as calls:
        shown, error = await seen_before_failure(calls, asked(url))
        assert (shown, error.code) == ("so far", "provider_unavailable")


async def test_an_answer_withheld_by_a_filter_is_an_error_and_one_cut_by_it_is_kept() -> None:
    error, server = await failure(say(end=event("", "content_filter")))
    assert (error.code, error.retryable, len(server.bodies)) == ("content_filtered", False, 1)
    async with provider(say("so far", end=event("", "content_filter"))) as (_, url), pool() as calls:
        completion = await calls.complete(asked(url))
        assert (completion.text, completion.finish_reason) == ("so far", "content_filter")


async def test_silence_ends_in_a_time_out_that_keeps_what_came() -> None:
    error, server = await failure(hang(), timeout_seconds=0.2, attempts=2)
    assert (error.code, error.retryable, len(server.bodies)) == ("provider_timeout", True, 2)
    error, server = await failure(hang("a"), timeout_seconds=0.2)
    assert (error.code, len(server.bodies)) == ("provider_timeout", 1)


async def test_deadline_holds_even_when_keep_alives_come() -> None:
    async def keep_alive(self: Provider, request: web.Request) -> web.StreamResponse:
        response = await begin(request)
        while True:
            await response.write(b": still here\n\n")
            await asyncio.sleep(0.02)

    error, server = await failure(keep_alive, deadline_seconds=0.3)
    assert (error.code, len(server.bodies)) == ("provider_timeout", 1)


async def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with pool() as calls:
        for url in (f"http://127.0.0.1:{port}/v1", "http://no-such-host.invalid/v1"):
            with pytest.raises(ProviderError) as caught:
                await calls.complete(asked(url, attempts=2))
            assert (caught.value.code, caught.value.retryable) == ("provider_unreachable", True)
        with pytest.raises(AgentsError):
            await calls.complete(asked("not an address", attempts=1))


async def test_web_page_instead_of_an_answer() -> None:
    async def page(self: Provider, request: web.Request) -> web.StreamResponse:
        return web.Response(text="<!doctype html><title>Welcome</title>", content_type="text/html")

    error, _ = await failure(page)
    assert (error.code, error.retryable) == ("not_an_api", False)


async def test_redirect_is_not_followed() -> None:
    async with provider(say("stolen")) as (elsewhere, other_url):
        error, _ = await failure(refuse(307, "", {"Location": f"{other_url}/chat/completions"}))
        assert error.code == "redirected"
        assert other_url in error.message
        assert elsewhere.bodies == []


async def test_answer_in_one_piece_of_json() -> None:
    async def whole(self: Provider, request: web.Request) -> web.StreamResponse:
        message = {"role": "assistant", "content": "Hi\nthere"}
        answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 2}}
        return web.json_response(answer, dumps=lambda value: __import__("json").dumps(value, indent=2))

    async with provider(whole) as (_, url), pool() as calls:
        completion = await calls.complete(asked(url))
        assert (completion.text, completion.finish_reason, completion.usage) == ("Hi\nthere", "stop", Usage(2))


@pytest.mark.parametrize(
    ("status", "words", "param"),
    [
        (400, "Unrecognized request argument supplied: stream_options", None),
        (422, [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}], None),
        (400, "Unsupported parameter", "stream_options"),
    ],
)
async def test_refused_parameter_is_left_out_and_remembered(status: int, words: Any, param: Any) -> None:
    said = {"detail": words} if isinstance(words, list) else {"error": {"message": words, "param": param}}
    async with provider(refuse(status, said), say("ok")) as (server, url), pool() as calls:
        assert (await calls.complete(asked(url))).text == "ok"
        assert (await calls.complete(asked(url))).text == "ok"
        assert ["stream_options" in body for body in server.bodies] == [True, False, False]


async def test_name_of_the_limit_is_changed_where_refused() -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    refused = refuse(400, {"error": {"message": words, "param": "max_tokens", "code": "unsupported_parameter"}})
    async with provider(refused, say("ok")) as (server, url), pool() as calls:
        await calls.complete(asked(url, max_output_tokens=50))
        assert server.bodies[0]["max_tokens"] == server.bodies[1]["max_completion_tokens"] == 50
        assert "max_tokens" not in server.bodies[1]


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens is too large: 100000. This model supports at most 4096 completion tokens.",
        "max_tokens: 100000 > 4096, which is the maximum allowed number of output tokens for m-3-5-2024",
        "Range of max_tokens should be [1, 4096]",
    ],
)
async def test_answer_longer_than_the_model_gives_is_asked_for_shorter(words: str) -> None:
    refused = refuse(400, {"error": {"message": words, "param": "max_tokens"}})
    async with provider(refused, say("ok")) as (server, url), pool() as calls:
        await calls.complete(asked(url, max_output_tokens=100_000))
        await calls.complete(asked(url, max_output_tokens=1000))
        assert [body["max_tokens"] for body in server.bodies] == [100_000, 4096, 1000]


async def test_temperature_that_a_model_does_not_take() -> None:
    words = "Unsupported value: 'temperature' does not support 0.3 with this model. Only the default (1) value is."
    refused = refuse(400, {"error": {"message": words, "param": "temperature"}})
    async with provider(refused, say("ok")) as (server, url), pool() as calls:
        await calls.complete(asked(url, temperature=0.3))
        assert ["temperature" in body for body in server.bodies] == [True, False]


async def test_connection_report() -> None:
    async with provider(say("OK")) as (_, url), pool() as calls:
        report = await calls.test(Endpoint(url, SECRET, "m"))
        assert (report.ok, report.models) == (True, ("m", "n"))
        report = await calls.test(Endpoint(url, "wrong", "m"))
        assert (report.ok, report.code) == (False, "provider_auth")
    async with provider(refuse(404, {"error": {"message": "model m not found"}})) as (_, url), pool() as calls:
        report = await calls.test(Endpoint(url, SECRET, "m"))
        assert (report.ok, report.code, report.models) == (False, "model_not_found", ("m", "n"))


async def test_environment_reaches_no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another-supplier")
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with provider(say("ok")) as (server, url), pool() as calls:
        await calls.complete(CompletionRequest(Endpoint(url, "", "m"), (Message("user", "hi"),)))
        sent = {name.lower() for name in server.headers[0]}
        assert not sent & {"authorization", "openai-organization", "openai-project", "api-key"}


async def test_nothing_logged_or_shown_holds_the_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    error, _ = await failure(refuse(500, {"error": {"message": f"boom {SECRET} Authorization: Bearer {SECRET}"}}))
    assert SECRET not in caplog.text
    assert SECRET not in str(error)
    assert SECRET not in repr(asked("http://x/v1"))


async def test_sentences_are_translatable() -> None:
    with translation.override("en"):
        error, _ = await failure(refuse(401))
    assert "key" in error.message


async def test_idle_clients_are_closed_and_busy_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.clients.IDLE_CLIENT_SECONDS", -1.0)
    async with provider(say(*"abc", pause=0.05)) as (_, url), provider(say("x")) as (_, other), pool() as calls:
        busy = asyncio.create_task(calls.complete(asked(url)))
        await asyncio.sleep(0.02)
        await calls.complete(asked(other))
        await calls.complete(asked(other + "/"))
        assert len(calls._clients) == 2  # the busy one and the newest
        assert (await busy).text == "abc"


async def test_pool_of_another_loop_is_refused() -> None:
    async with provider(say("ok")) as (_, url), pool() as calls:
        await calls.complete(asked(url))

        def elsewhere() -> None:
            asyncio.run(calls.complete(asked(url)))

        with pytest.raises(RuntimeError):
            await asyncio.to_thread(elsewhere)


async def test_tool_calls_are_streamed() -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a":1}'}}
    delta = b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}).encode() + b"\n\n"
    async with provider(say(end=delta + END)) as (_, url), pool() as calls:
        completion = await calls.complete(asked(url))
        assert completion.tool_calls == (ToolCall("c1", "f", '{"a":1}'),)
        assert completion.finish_reason == "tool_calls"


def test_body_for_each_supplier() -> None:
    def made(supplier: str, model: str = "m", **changes: Any) -> dict[str, Any]:
        return body(asked("http://x/v1", supplier=supplier, model=model, **changes))

    assert made("openai", max_output_tokens=5)["max_completion_tokens"] == 5
    assert made("groq", max_output_tokens=5)["max_tokens"] == 5
    assert made("alibaba", thinking=False)["enable_thinking"] is False
    assert made("deepseek", thinking=False)["thinking"] == {"type": "disabled"}
    assert made("openai", "gpt-5.1", thinking=False)["reasoning_effort"] == "none"
    assert made("openai", "gpt-5-mini", thinking=False)["reasoning_effort"] == "minimal"
    assert "reasoning_effort" not in made("openai", "gpt-4o", thinking=False)
    assert set(made("other", thinking=False)) == {"model", "stream", "messages", "stream_options"}


def test_call_ids_are_shortened_for_mistral_alike_in_call_and_result() -> None:
    messages = (
        Message("assistant", tool_calls=(ToolCall("call_0123456789abcdef", "f"), ToolCall("abcdefghi", "g"))),
        Message("tool", "r", tool_call_id="call_0123456789abcdef"),
    )
    sent = body(asked("http://x/v1", supplier="mistral", messages=messages))["messages"]
    ids = [call["id"] for call in sent[0]["tool_calls"]]
    assert ids[0] == sent[1]["tool_call_id"] != "call_0123456789abcdef"
    assert [len(call_id) for call_id in ids] == [9, 9]
    assert ids[1] == "abcdefghi"


def test_reasoning_goes_back_to_deepseek_only_within_the_turn() -> None:
    def round_of_thought(thought: str) -> Message:
        return Message("assistant", tool_calls=(ToolCall("c", "f"),), thinking=thought)

    messages = (Message("user", "a"), round_of_thought("old"), Message("user", "b"), round_of_thought("new"))
    sent = body(asked("http://x/v1", supplier="deepseek", messages=messages))["messages"]
    assert [message.get("reasoning_content") for message in sent] == [None, None, None, "new"]
    assert "new" not in str(body(asked("http://x/v1", messages=messages)))


def test_an_endpoint_without_a_model_says_so() -> None:
    class Channel:
        base_url, api_key, models, supplier, pk = "http://x/v1", "", [], "other", 1

    with pytest.raises(AgentsError) as caught:
        Endpoint.of(Channel())  # type: ignore[arg-type]
    assert caught.value.code == "no_model"
