"""What the model sees: the next request exactly as it would be sent, less what a person may not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from agents.models import Agent
from agents.tokens import count_message
from chat import context, history
from chat.models import Conversation

if TYPE_CHECKING:
    from django.contrib.auth.models import User

JSON = dict[str, Any]


def model_view(conversation: Conversation, user: User) -> JSON:
    """The next request in OpenAI form, from the same function that builds the real one, with its counts.

    `tokens.each` is the raw o200k count of every message (tokens).
    """
    messages, tools = history.request_for(conversation)
    sent = [message.to_openai() for message in messages]
    shown_tools = list(tools)
    if not may_see_instructions(user, conversation.agent):
        sent = [_without_prompt(message) for message in sent]
        shown_tools = [_without_schema(tool) for tool in tools]
    counted = {**context.measure(conversation).to_event(), "each": [count_message(message) for message in messages]}
    return {"messages": sent, "tools": shown_tools, "tokens": counted}


def may_see_instructions(user: User, agent: Agent) -> bool:
    """Whether a person may read the agent's system prompt and the schemas of its tools."""
    return user.is_staff or not agent.hide_system_prompt


def _without_prompt(message: JSON) -> JSON:
    return {**message, "content": hidden()} if message["role"] == "system" else message


def _without_schema(tool: JSON) -> JSON:
    """A tool's name, which its calls show anyway, and nothing of what it takes."""
    return {"type": "function", "function": {"name": tool["function"]["name"], "description": hidden()}}


def hidden() -> str:
    return _("[hidden by the administrator]")
