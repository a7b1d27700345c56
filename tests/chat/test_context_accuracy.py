"""How close the meter is to what providers report, on a real session of 974 messages."""

from __future__ import annotations

import io
import json
from statistics import median, quantiles

import pytest

from agents.tokens import count_text
from agents.usage import Usage
from chat import context
from chat.importing import import_lines
from chat.locking import Desk
from chat.models import Conversation
from chat.models import Message as Row
from tests.builders import make_agent, make_conversation, make_user
from tests.chat.scripting import reload
from tests.compaction.builders import SHARED

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(not (SHARED / "transcripts").is_dir(), reason="the shared transcripts are not here"),
]

INSTRUCTIONS = 2_600  # tokens of the session's own system prompt and tools, which the transcript does not have


def test_the_meter_follows_a_real_session_within_five_percent() -> None:
    """Each reported prompt is first predicted from the reports before it, as the meter would at that moment."""
    with (SHARED / "transcripts" / "pi_sessions.jsonl").open("rb") as file:
        agent = make_agent(window=200_000, system_prompt="rule " * INSTRUCTIONS)
        made = next(import_lines(io.BytesIO(file.readline()), make_user(), agent)).conversation
    assert made is not None
    conversation = reload(make_conversation(agent=agent).pk)
    errors, before = [], 0
    for row in list(Row.objects.filter(conversation=made).order_by("position")):
        usage = Usage.from_openai(row.usage or {})
        if usage.prompt_tokens and usage.prompt_tokens < before:
            break  # the session was compacted here by its own program
        if usage.prompt_tokens:
            errors.append(abs(context.measure(conversation).used_tokens - usage.prompt_tokens) / usage.prompt_tokens)
        row.pk, row.conversation = None, conversation
        row.save()
        conversation.live_tokens += row.token_count
        if usage.prompt_tokens:
            before = usage.prompt_tokens
            note(conversation, usage, row.position or 0)

    later = errors[3:]
    assert len(later) > 50
    assert median(later) <= 0.05
    assert quantiles(later, n=20)[-1] <= 0.12


def test_answers_are_counted_as_their_providers_report_them() -> None:
    """The recorded streams of other suppliers, with no report seen before: Qwen, Llama and OpenAI's own."""
    errors = []
    for line in (SHARED / "transcripts").parent.joinpath("sse", "sse_chat.jsonl").read_text().splitlines():
        stream = json.loads(line)
        usage = Usage.from_openai(stream["meta"].get("usage") or {})
        reported = usage.completion_tokens - usage.reasoning_tokens
        text = stream["messages"][0].get("content") or ""
        if reported >= 100 and len(text) >= 100:
            errors.append(abs(count_text(text) - reported) / reported)

    assert len(errors) >= 5
    assert median(errors) <= 0.05
    assert max(errors) <= 0.12


def note(conversation: Conversation, usage: Usage, position: int) -> None:
    desk = Desk(conversation)
    agent = conversation.agent
    context.note_usage(desk, usage, position, agent.channel_id, agent.model_name)
    for action in desk.afterwards:
        action()
