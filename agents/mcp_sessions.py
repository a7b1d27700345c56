"""Sessions with servers of tools that last for a whole answer: for servers that remember something between calls.

Each belongs to one turn and one server and is used by one call at a time, so that what hangs or dies harms its own call
alone: the session ends with it, and the next call begins another. With the turn, however that ends, all its sessions
end. They live on the loop of `agents/mcp.py`, each in a task of its own, which alone opens and closes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents import mcp
from agents.mcp import Address
from agents.messages import JSON
from agents.tools import ToolResult

if TYPE_CHECKING:
    from mcp import ClientSession

LONGEST_SESSION = 3_600.0  # seconds
LONGEST_QUEUE = 8  # calls of one round that may wait for each other

Use = Callable[["ClientSession"], Awaitable[ToolResult]]


async def call_tool(turn: int, address: Address, tool: str, arguments: JSON, seconds: float) -> ToolResult:
    """Calls a tool in the turn's session with this server, from any loop; raises ServerError."""
    global _is_used
    _is_used = True
    return await mcp.at_home(_call(turn, address, mcp.calling(tool, arguments), seconds))


def end_turn(turn: int) -> None:
    """The turn is over, and so are its sessions; nobody waits for them to close. From any thread."""
    if _is_used:
        mcp.home_soon(_close(turn))


@dataclass(slots=True)
class _Job:
    """One call: what to do with the session, the longest wait for its answer (seconds), and the answer."""

    use: Use
    seconds: float
    answer: asyncio.Future[ToolResult]

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Kept:
    """One server's session in one turn, opened with its first call."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._one_by_one = asyncio.Lock()
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None  # None also once it answers no more calls
        self._tasks: set[asyncio.Task[None]] = set()  # with those that are still closing

    async def call(self, use: Use, seconds: float) -> ToolResult:
        async with self._one_by_one:
            if self._task is None:
                self._jobs = asyncio.Queue()
                self._task = asyncio.create_task(self._live(self._jobs))
                self._tasks.add(self._task)
                self._task.add_done_callback(self._tasks.discard)
            job = _Job(use, seconds, asyncio.get_running_loop().create_future())
            self._jobs.put_nowait(job)
            try:
                return await job.answer
            except asyncio.CancelledError:  # it is under way still: no other call may meet it
                self.close()
                raise

    def close(self) -> None:
        self._task = None
        for task in self._tasks:
            task.cancel()

    async def _live(self, jobs: asyncio.Queue[_Job]) -> None:
        """Answers calls until one goes wrong; whatever ends the session is the answer of the call that waits then."""
        job = await jobs.get()

        async def serve(session: ClientSession) -> None:
            nonlocal job
            while True:
                await self._answer(job, session)
                job = await jobs.get()

        try:
            await mcp.in_session(self.address, serve, LONGEST_SESSION, lasting=True)
        except mcp.ServerError as error:
            job.fail(error)
        finally:
            job.answer.cancel()
            if self._jobs is jobs:
                self._task = None

    async def _answer(self, job: _Job, session: ClientSession) -> None:
        """Answers one call. Raises where the session cannot be used any more; calls need not wait until it closes."""
        from mcp import McpError

        try:
            async with asyncio.timeout(job.seconds):
                made = await job.use(session)
        except TimeoutError:
            self._task = None
            failure = mcp.too_slow(self.address, job.seconds)
            job.fail(failure)
            raise failure from None
        except McpError as error:
            if "closed" in str(error).lower():
                raise
            job.fail(mcp.failure_of(self.address, error))
        else:
            if not job.answer.done():
                job.answer.set_result(made)


_turns: dict[int, list[_Kept]] = {}  # touched on the loop of `agents/mcp.py` alone
_is_used = False  # else the end of a turn costs nothing


async def _call(turn: int, address: Address, use: Use, seconds: float) -> ToolResult:
    sessions = _turns.setdefault(turn, [])
    kept = next((kept for kept in sessions if kept.address == address), None)
    if kept is None:
        sessions.append(kept := _Kept(address))
    return await kept.call(use, seconds)


async def _close(turn: int) -> None:
    for kept in _turns.pop(turn, []):
        kept.close()
