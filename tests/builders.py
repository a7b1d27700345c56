"""Builders: what most tests begin with. Each makes real rows with defaults and takes what a test cares about."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib.auth.models import User

from agents.messages import Message, ToolCall
from agents.models import Agent, Channel
from chat import history
from chat.models import Conversation, Participant, Role
from chat.models import Message as Row

_numbers = itertools.count(1)

Said = str | dict[str, Any] | Message


def make_user(name: str = "", **fields: Any) -> User:
    """A person who can sign in with the password "secret"."""
    name = name or f"person{next(_numbers)}"
    return User.objects.create_user(username=name, password=fields.pop("password", "secret"), **fields)


def make_channel(**fields: Any) -> Channel:
    """A channel whose address nothing listens at, unless the test gives one."""
    key = fields.pop("api_key", "")
    channel = Channel(
        **{
            "name": f"channel {next(_numbers)}",
            "supplier": "other",
            "base_url": "http://127.0.0.1:9/v1",
            "models": ["test-model"],
            **fields,
        }
    )
    if key:
        channel.api_key = key
    channel.save()
    return channel


def make_agent(*, window: int = 128_000, channel: Channel | None = None, **fields: Any) -> Agent:
    """An agent with a window of its own (tokens)."""
    defaults = {"name": f"agent {next(_numbers)}", "system_prompt": "You are a helpful assistant."}
    return Agent.objects.create(
        **{**defaults, "context_window": window, "channel": channel or make_channel(), **fields}
    )


def make_conversation(
    messages: Sequence[Said] = (),
    *,
    owner: User | None = None,
    agent: Agent | None = None,
    people: Iterable[tuple[User, str]] = (),
    **fields: Any,
) -> Conversation:
    """A conversation with stored messages: texts alternate between owner and agent, dicts are OpenAI chat form."""
    owner = owner or make_user()
    conversation = Conversation.objects.create(owner=owner, agent=agent or make_agent(), **fields)
    Participant.objects.create(conversation=conversation, user=owner, role=Role.OWNER)
    for user, role in people:
        Participant.objects.create(conversation=conversation, user=user, role=role)
    add_messages(conversation, messages)
    return conversation


def add_messages(conversation: Conversation, messages: Sequence[Said], **fields: Any) -> list[Row]:
    """More messages at the end of a conversation, with positions, counts and `live_tokens` as any writer keeps them."""
    conversation.refresh_from_db()
    rows = []
    for number, said in enumerate(messages):
        message = as_message(said, "user" if number % 2 == 0 else "assistant")
        conversation.last_position += 1
        row = history.new_row(conversation, message, position=conversation.last_position, **fields)
        if message.role == "user" and row.author is None:
            row.author, row.author_name = conversation.owner, conversation.owner.get_username()
        conversation.live_tokens += row.token_count
        rows.append(row)
    Row.objects.bulk_create(rows)
    conversation.save()
    return rows


def as_message(said: Said, role: str = "user") -> Message:
    """A message from a text, an OpenAI chat dict, or itself."""
    if isinstance(said, Message):
        return said
    if isinstance(said, str):
        return Message(role=role, content=said)  # type: ignore[arg-type]
    return Message(
        role=said["role"],
        content=said.get("content") or "",
        tool_calls=tuple(ToolCall.from_openai(call) for call in said.get("tool_calls") or ()),
        tool_call_id=said.get("tool_call_id", ""),
        name=said.get("name", ""),
        thinking=said.get("reasoning_content", ""),
    )


def tool_round(name: str, result: str, /, *, call_id: str = "", **arguments: Any) -> list[Message]:
    """One call of a tool and its result."""
    call_id = call_id or f"call_{next(_numbers)}"
    return [
        Message(role="assistant", tool_calls=(ToolCall(call_id, name, json.dumps(arguments)),)),
        Message(role="tool", content=result, tool_call_id=call_id, name=name),
    ]
