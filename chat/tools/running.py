"""How a tool that uses the database is run: on one of the process's database threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agents.messages import JSON
from agents.tools import ToolContext, ToolResult
from chat.loop import run_in_db

Work = Callable[[JSON, ToolContext], ToolResult | str]


def in_database(work: Work) -> Callable[[JSON, ToolContext], Awaitable[ToolResult | str]]:
    """The same tool as a coroutine function."""

    async def run(arguments: JSON, context: ToolContext) -> ToolResult | str:
        return await run_in_db(work, arguments, context)

    return run
