"""What the model sees: the next request exactly as it would be sent, less what a person may not read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from agents.messages import Message
from agents.models import Agent
from agents.requests import IMAGES_OF_TOOLS
from agents.tokens import count_message
from chat import context, history, offered
from chat.models import Conversation
from compaction.models import Compaction, State

if TYPE_CHECKING:
    from django.contrib.auth.models import User

JSON = dict[str, Any]

PREFIX_KINDS = ("summary", "acknowledgement", "carried", "acknowledgement")  # as `assemble` puts them together


def model_view(conversation: Conversation, user: User) -> JSON:
    """The next request in OpenAI form, from the same function that builds the real one, with its counts.

    `kinds` says what each message is: its role, or what a compaction made it for. `tokens.each` is the raw o200k count
    of every message (tokens).
    """
    messages, tools = history.request_for(conversation)
    sent = [message.to_openai() for message in messages]
    shown_tools = list(tools)
    if not may_see_instructions(user, conversation.agent):
        sent = [_without_prompt(message) for message in sent]
        shown_tools = [_without_schema(tool) for tool in tools]
    counted = {**context.measure(conversation).to_event(), "each": [count_message(message) for message in messages]}
    return {"messages": sent, "kinds": _kinds(conversation, messages), "tools": shown_tools, "tokens": counted}


def _kinds(conversation: Conversation, messages: Sequence[Message]) -> list[str]:
    """A summary has the role of a person, and so have the images of tools: nobody said them."""
    kinds = ["images" if message.content == IMAGES_OF_TOOLS else str(message.role) for message in messages]
    applied = Compaction.objects.filter(conversation=conversation, state=State.APPLIED).order_by("-id")
    prefix = applied.values_list("prefix", flat=True).first()
    if prefix:
        start, count = len(offered.system_messages(conversation.agent)), len(prefix["messages"])
        kinds[start : start + count] = PREFIX_KINDS[:count]
    return kinds


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
