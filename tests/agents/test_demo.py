"""The built-in demo model, reached through the client like any other provider."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from agents import tokens
from agents.demo import TOKENS_PER_SECOND, DemoServer
from agents.demo_words import names
from agents.errors import ProviderError
from agents.messages import ContentPart, Message, ToolCall
from agents.provider import Completion, CompletionRequest, Endpoint, ProviderPool, TextPiece

KEY = "made-at-this-start"


class Demo:
    """A running demo server and a pool to call it with."""

    def __init__(self, url: str, pool: ProviderPool) -> None:
        self.url, self.pool = url, pool

    def request(self, *messages: Message | str, model: str = "demo-16k", **options: Any) -> CompletionRequest:
        sent = tuple(Message("user", message) if isinstance(message, str) else message for message in messages)
        return CompletionRequest(Endpoint(self.url, KEY, model, "demo"), sent, **options)

    async def ask(self, *messages: Message | str, **options: Any) -> Completion:
        return await self.pool.complete(self.request(*messages, **options))


@asynccontextmanager
async def demo(tokens_per_second: float = 5_000) -> AsyncIterator[Demo]:
    server, pool = DemoServer(KEY, tokens_per_second=tokens_per_second), ProviderPool()
    url = await server.start()
    try:
        yield Demo(url, pool)
    finally:
        await pool.aclose()
        await server.stop()


def tool(name: str, *required: str, **properties: str) -> dict[str, Any]:
    kinds = {**dict.fromkeys(required, "string"), **properties}
    schema = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in kinds.items()},
        "required": list(required),
    }
    return {"type": "function", "function": {"name": name, "description": "", "parameters": schema}}


async def test_first_answer_says_what_it_is_and_gives_back_the_words() -> None:
    async with demo() as model:
        said = (await model.ask("My cat Moritz eats 3 tins a day.")).text
        assert "demo model" in said
        assert "> My cat Moritz eats 3 tins a day." in said
        said = (await model.ask("你好，我的猫叫“莫里茨”。")).text
        assert "演示模型" in said
        assert "莫里茨" in said


async def test_it_is_deterministic_and_counts_as_the_product_does() -> None:
    async with demo() as model:
        messages = (Message("system", "Be brief."), Message("user", "Write a python function"))
        first = await model.ask(*messages)
        assert await model.ask(*messages) == first
        assert "```python" in first.text
        assert first.usage is not None
        assert first.usage.prompt_tokens == tokens.count_messages(messages) + 3
        assert first.usage.completion_tokens == tokens.count_text(first.text)


async def test_it_streams_at_a_readable_pace() -> None:
    async with demo(TOKENS_PER_SECOND) as model:
        started = time.monotonic()
        answer = model.pool.stream(model.request("count to 60"))
        times = [time.monotonic() - started async for event in answer if isinstance(event, TextPiece)]
        assert times[0] < 2
        assert len(times) > 30
        assert 0.8 < times[-1] - times[0] < 10


async def test_streamed_and_whole_answers_are_the_same() -> None:
    async with demo() as model, aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as http:
        body = {"model": "demo-16k", "messages": [{"role": "user", "content": "make a table of red apples"}]}
        async with http.post(f"{model.url}/chat/completions", json=body) as response:
            whole = await response.json()
        streamed = await model.ask("make a table of red apples")
        assert whole["choices"][0]["message"]["content"] == streamed.text
        assert whole["usage"]["total_tokens"] == streamed.usage.total_tokens  # type: ignore[union-attr]


async def test_it_wants_its_key_and_lists_its_models() -> None:
    async with demo() as model:
        report = await model.pool.test(Endpoint(model.url, KEY, "demo-16k"))
        assert (report.ok, report.models) == (True, ("demo-16k", "demo-128k"))
        for key in ("", "wrong", "made-at-this-star"):
            report = await model.pool.test(Endpoint(model.url, key, "demo-16k"))
            assert (report.ok, report.code) == (False, "provider_auth")


@pytest.mark.parametrize(
    ("messages", "model", "code"),
    [
        ([Message("user", "word " * 20_000)], "demo-16k", "context_exceeded"),
        ([Message("user", "hello")], "gpt-9", "model_not_found"),
        ([], "demo-16k", "provider_rejected"),
        ([Message("tool", "orphan", tool_call_id="a")], "demo-16k", "provider_rejected"),
        (
            [Message("assistant", tool_calls=(ToolCall("a", "f"),)), Message("user", "x")],
            "demo-16k",
            "provider_rejected",
        ),
    ],
)
async def test_it_refuses_what_real_providers_refuse(messages: list[Message], model: str, code: str) -> None:
    async with demo() as server:
        with pytest.raises(ProviderError) as caught:
            await server.ask(*messages, model=model)
        assert (caught.value.code, caught.value.retryable) == (code, False)


async def test_the_larger_model_takes_more() -> None:
    async with demo() as model:
        assert (await model.ask("word " * 20_000, model="demo-128k")).finish_reason == "stop"


async def test_an_answer_cut_by_its_limit_says_so() -> None:
    async with demo() as model:
        cut = await model.ask("count to 500", max_output_tokens=20)
        assert cut.finish_reason == "length"
        assert tokens.count_text(cut.text) <= 20


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("count to 12", "1 2 3 4 5 6 7 8 9 10 11 12."),
        ("数到 5", "1 2 3 4 5."),
        ("What is 12*7", "**84**"),
        ("7/0", "not"),
    ],
)
async def test_plain_requests(asked: str, answer: str) -> None:
    async with demo() as model:
        assert answer in (await model.ask(asked)).text


async def test_a_long_answer_on_demand() -> None:
    async with demo() as model:
        request = model.request("write 300 words about green tea")
        async with model.pool.stream(request) as answer:
            async for _ in answer:
                break
        assert answer.usage is None  # left early: nothing hangs


async def test_it_answers_from_what_it_can_still_see() -> None:
    talk = [
        Message("user", "The deployment key lives in vault/blue and the deadline is 14 May."),
        Message("assistant", "Noted."),
        Message("user", "I like green tea."),
        Message("assistant", "Fine."),
    ]
    async with demo() as model:
        assert "> The deployment key lives in vault/blue" in (await model.ask(*talk, "When is the deadline?")).text
        said = await model.ask(*talk[2:], "When is the deployment deadline?")
        assert "vault" not in said.text


@pytest.mark.parametrize(
    ("asked", "offered", "name", "arguments"),
    [
        (
            "Please search the history for the budget.",
            tool("search_history", "query"),
            "search_history",
            '"the budget"',
        ),
        ("搜索历史里的预算", tool("search_history", "query", limit="integer"), "search_history", '"预算"'),
        (
            "read messages 3 to 9",
            tool("read_history", first="integer", last="integer"),
            "read_history",
            '"first":3,"last":9',
        ),
        ("list my files", tool("list_files"), "list_files", "{}"),
        ("Read the file notes/plan.md please", tool("read_file", "path"), "read_file", '"notes/plan.md"'),
        ("write a.txt with hello you", tool("write_file", "path", "content"), "write_file", '"content":"hello you"'),
        ('call weather {"city": "Oslo"}', tool("weather", "city"), "weather", '{"city":"Oslo"}'),
        ("use the tool weather for Oslo", tool("weather", "city"), "weather", '"Oslo"'),
    ],
)
async def test_it_calls_a_tool_when_asked_plainly(asked: str, offered: Any, name: str, arguments: str) -> None:
    async with demo() as model:
        answer = await model.ask(asked, tools=(offered,))
        assert answer.finish_reason == "tool_calls"
        assert answer.tool_calls[0].name == name
        assert arguments in answer.tool_calls[0].arguments
        assert (await model.ask(asked)).tool_calls == ()


async def test_two_tools_called_at_once_and_answered_from_their_results() -> None:
    async with demo() as model:
        asked = Message("user", "call weather for Oslo\ncall clock for Rome")
        offered = (tool("weather", "city"), tool("clock", "city"))
        first = await model.ask(asked, tools=offered)
        assert [call.name for call in first.tool_calls] == ["weather", "clock"]
        results = [Message("tool", f"{call.name}: fine", tool_call_id=call.id) for call in first.tool_calls]
        second = await model.ask(
            asked, Message("assistant", first.text, tool_calls=first.tool_calls), *results, tools=offered
        )
        assert second.tool_calls == ()
        assert "> weather: fine" in second.text
        assert "> clock: fine" in second.text


async def test_it_does_not_call_tools_in_ordinary_talk() -> None:
    async with demo() as model:
        offered = (tool("search_history", "query"), tool("read_file", "path"), tool("list_files"))
        for text in ("I read a good book yesterday.", "History is my favourite subject.", "你好，今天天气不错。"):
            assert (await model.ask(text, tools=offered)).tool_calls == ()


async def test_thinking_and_images() -> None:
    async with demo() as model:
        answer = await model.ask("Think about the tides, please")
        assert "tides" in answer.thinking
        assert answer.usage is not None
        assert answer.usage.reasoning_tokens > 0
        seen = await model.ask(
            Message("user", "What is this", parts=(ContentPart("image", url="data:image/png;base64,AA"),))
        )
        assert "1 image" in seen.text


FORM = """Write its summary. Use exactly these nine sections and headings, at most about 600 words in all.

## 1. Primary Request and Intent
What the person wants.
## 2. Key Concepts
Terms.
## 3. Files and Artifacts
Paths.
## 4. Errors and Fixes
Errors.
## 5. Problem Solving
Solutions.
## 6. All User Messages
Write only a dash.
## 7. Pending Tasks
Open tasks.
## 8. Current Work
Now.
## 9. Next Step
One step."""
TITLES = [line[6:] for line in FORM.split("\n") if line.startswith("## ")]


def summary_request(transcript: str, earlier: str = "") -> tuple[Message, Message]:
    fenced = f"<<<TRANSCRIPT abc>>>\n{transcript}\n<<<END TRANSCRIPT abc>>>"
    if earlier:
        fenced = f"<<<SUMMARY abc>>>\n{earlier}\n<<<END SUMMARY abc>>>\n\n{fenced}"
    return Message("system", "You write the memory of a conversation."), Message("user", f"{fenced}\n\n{FORM}")


TALK = """### #1 user ann
We build Bluebird for Contoso. Never change src/billing/tax.py, and see https://example.org/spec?id=77.

### #2 assistant
I will keep that file as it is.
[call read_file({"path": "src/billing/rates.csv"})]

### #3 tool read_file
error: no such file

### #4 user ann
Then use rates_2024.csv instead. The limit is 4,200 EUR per order. Later we still have to write the tests.

### #5 assistant
The limit of 4,200 EUR is in place. Next I would write the tests."""


async def test_summary_has_the_nine_sections_and_keeps_what_people_named() -> None:
    async with demo() as model:
        summary = await model.ask(*summary_request(TALK * 3), max_output_tokens=1200)
        assert summary.finish_reason == "stop"
        assert [line[6:] for line in summary.text.split("\n") if line.startswith("## ")] == TITLES
        for name in (
            "Bluebird",
            "Contoso",
            "src/billing/tax.py",
            "https://example.org/spec?id=77",
            "rates_2024.csv",
            "4,200",
        ):
            assert name in summary.text, name
        assert "Never change src/billing/tax.py" in summary.text
        assert "demo model" not in summary.text


async def test_summary_in_the_conversations_own_language() -> None:
    said = "### #1 user 安\n我们的项目叫《青鸟》，预算是4200元，不要改动 src/tax.py。"
    talk = f"{said}\n\n### #2 assistant\n好的，已经记下。\n\n" * 4
    async with demo() as model:
        summary = await model.ask(*summary_request(talk), max_output_tokens=1200)
        for name in ("青鸟", "4200", "src/tax.py", "不要改动", "已回答"):
            assert name in summary.text, name
        assert "None." not in summary.text


async def test_summary_carries_an_earlier_one_on() -> None:
    async with demo() as model:
        first = await model.ask(*summary_request(TALK * 3), max_output_tokens=1200)
        later = (
            "### #9 user ann\nNow rename Bluebird to Redbird, please, and tell Dana.\n\n### #10 assistant\nDone.\n\n"
        )
        second = await model.ask(*summary_request(later * 8, first.text), max_output_tokens=1500)
        for name in ("Redbird", "Contoso", "src/billing/tax.py", "Dana"):
            assert name in second.text, name


async def test_summary_of_a_full_window_takes_seconds_and_keeps_to_its_limit() -> None:
    lines = [
        f"### #{at} {'user ann' if at % 2 else 'assistant'}\nOrder A-{at:05} costs {at * 7} EUR; see orders/{at}.json. "
        * 2
        for at in range(2300)
    ]
    messages = summary_request("\n\n".join(lines))
    assert 100_000 < tokens.count_messages(messages) < 126_000
    async with demo() as model:
        started = time.monotonic()
        summary = await model.ask(*messages, model="demo-128k", max_output_tokens=2000)
        assert time.monotonic() - started < 20
        assert summary.finish_reason == "stop"
        assert 300 < tokens.count_text(summary.text) <= 2000


async def test_a_list_of_nine_points_alone_is_no_summary_request() -> None:
    async with demo() as model:
        answer = await model.ask("\n".join(f"{at}. chore {at}" for at in range(1, 10)))
        assert "demo model" in answer.text


def test_names_of_a_text() -> None:
    text = "Ask Dana Smith about issue #1234, `make test`, v2.1 and the fooBar in ./src/a_b.py. It is CSV."
    found = names(text)
    for name in ("Smith", "1234", "make test", "v2.1", "fooBar", "./src/a_b.py", "CSV"):
        assert name in found, name
    assert "Ask" not in found
    assert "It" not in found


async def test_many_people_at_once() -> None:
    async with demo() as model:
        answers = await asyncio.gather(*(model.ask(f"count to {at}") for at in range(1, 41)))
        for at, answer in enumerate(answers, start=1):
            assert f"{at}." in answer.text
