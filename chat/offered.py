"""What an agent brings to every request: its system prompt and the schemas of its tools, with their cost (tokens)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from agents import mcp_tools, tokens, tools
from agents.messages import Message
from agents.models import Agent


def system_messages(agent: Agent) -> tuple[Message, ...]:
    """The system prompt as the first message of a request; none where the agent has none."""
    return (Message(role="system", content=agent.system_prompt),) if agent.system_prompt else ()


def system_tokens(agent: Agent) -> int:
    """What the system prompt costs (tokens)."""
    return _count_system(agent.system_prompt) if agent.system_prompt else 0


def schemas(agent: Agent) -> tuple[dict[str, Any], ...]:
    """The schemas of the agent's tools; a tool that is no longer registered is left out."""
    mcp_tools.keep_current(agent.tools)
    return tools.schemas(agent.tools)


def tool_tokens(agent: Agent) -> int:
    """What the schemas cost (tokens); each is counted once in a process."""
    return tokens.count_tools(schemas(agent))


def kept_tools(agent: Agent) -> frozenset[str]:
    """Names of the agent's tools whose results stay whole for the summariser."""
    mcp_tools.keep_current(agent.tools)
    return frozenset(name for name in agent.tools if (known := tools.tool(name)) is not None and known.keep)


@lru_cache(maxsize=256)
def _count_system(prompt: str) -> int:
    return tokens.count_message(Message(role="system", content=prompt))
