"""One answer, from its first request to its end: calls, tools, and what to do when somebody or something interferes.

Runs on the process's loop. The database is reached through `run_in_db`, the provider through the process's one pool.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.utils.translation import gettext as _

from agents import mcp_sessions, tools
from agents.errors import AgentsError
from agents.messages import Message, ToolCall
from agents.provider import CompletionRequest, Endpoint, TextPiece, ThinkingPiece
from agents.tools import ToolContext
from chat import broadcast, compacting, ending, history
from chat.checkpoints import Checkpoints
from chat.claiming import Claim, LostTurn, own
from chat.ending import Ending, NextRound, Said, Spent
from chat.events import encode
from chat.locking import locked, read_conversation
from chat.loop import process_loop, run_in_db
from chat.models import Conversation, TurnState
from chat.streaming import Stream
from chat.tools.keeping import keep
from palimpsest import metrics

logger = logging.getLogger("palimpsest.turns")

T = TypeVar("T")

CONTINUE = "Continue exactly where your last message was cut off. Do not repeat what it already says."
LONGEST_STORE_WAIT = 4.0  # between two tries to reach the database (seconds)
METER_SECONDS = 0.1  # the first meter waits a little: the first token comes first
WAIT_FOR_COMPACTION = 0.5  # between two looks whether a running turn may go on (seconds)

STOPPED = Ending(TurnState.STOPPED)
INTERRUPTED = Ending(TurnState.INTERRUPTED)
DONE = Ending(TurnState.DONE)
HANDED_BACK = Ending(TurnState.QUEUED)


@dataclass(frozen=True, slots=True)
class Request:
    """What the model is asked, as the rows were at one epoch."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...]
    epoch: int


def load_request(claim: Claim, conversation: Conversation | None = None) -> Request:
    """The next request of a turn, from rows alone."""
    if conversation is None:
        conversation = read_conversation(claim.conversation)
    messages, schemas = history.request_for(conversation)
    if claim.continues and messages[-1].role == "assistant":
        messages = (*messages, Message("user", CONTINUE))
    return Request(messages, schemas, conversation.epoch)


class Postponed(Exception):
    """The turn waits for a compaction and will be claimed anew."""


class Answer:
    """A claimed turn while it is being answered."""

    def __init__(self, claim: Claim, request: Request, checkpoints: Checkpoints) -> None:
        self.claim = claim
        self.stream = Stream(claim, claim.message)
        self._request = request
        self._checkpoints = checkpoints
        self._spent = Spent()
        self._is_open = True  # a row waits for what the stream says
        self._said: Said | None = None  # the call is over, its row not yet complete
        self._rounds = 0
        self._work: asyncio.Task[Ending] | None = None
        self._order: Ending | None = None
        self._lost = False
        self._ended = False
        self._started_at = time.monotonic()
        self._first_piece_at: float | None = None

    async def run(self) -> Claim | None:
        """Answer the turn to its end. Returns the claim of the turn that goes on after it."""
        turn = self.claim.turn
        self._checkpoints.watch(turn)
        self._checkpoints.open(self.stream)
        try:
            how = await self._play()
            self._checkpoints.close(turn)
            return await self._end(how)
        except LostTurn:
            logger.warning("turn %d was taken away from this worker, attempt %d ends", turn, self.claim.attempt)
        except Postponed:
            logger.info("turn %d is too long for the model and waits for a compaction", turn)
        finally:
            self._ended = True
            self._checkpoints.forget(turn)
            mcp_sessions.end_turn(turn)
        return None

    def stop(self) -> None:
        """End with what people have seen; the provider's connection closes at once."""
        self._interfere(STOPPED)

    def lose(self) -> None:
        """Somebody else owns this turn: end without a trace."""
        self._lost = True
        self._interfere(INTERRUPTED)

    def hand_back(self) -> None:
        """The process ends: another one answers if nothing was shown yet, else what there is is kept."""
        self._interfere(HANDED_BACK)

    @property
    def shows_nothing(self) -> bool:
        """Whether another process could answer the turn anew without anybody noticing."""
        return not self.stream.length and self._rounds == 0

    def _interfere(self, how: Ending) -> None:
        if self._order is None:
            self._order = how
            if self._work is not None:
                self._work.cancel()

    # From round to round

    async def _play(self) -> Ending:
        if self._order is not None:
            return self._order
        self._work = process_loop().spawn(self._rounds_until_done(), f"turn-{self.claim.turn}")
        try:
            return await self._work
        except asyncio.CancelledError:
            if self._order is None:
                self._work.cancel()
                raise  # the loop itself is closing
            return self._order
        except LostTurn:
            raise
        except AgentsError as error:
            if error.code == "context_exceeded" and self.shows_nothing and await run_in_db(rescue, self.claim):
                raise Postponed from error
            return Ending(TurnState.FAILED, error.code, str(error.message), error.retryable)
        except Exception:
            logger.exception("turn %d failed", self.claim.turn)
            return Ending(
                TurnState.FAILED, "internal_error", _("Something went wrong here. Try again."), retryable=True
            )
        finally:
            if self._lost:
                raise LostTurn

    async def _rounds_until_done(self) -> Ending:
        self._tell_meter(after=METER_SECONDS)
        while True:
            said = self._said = await self._call()
            if not said.tool_calls:
                if said.is_blank:
                    raise AgentsError("empty_answer", _("The model answered nothing. Try again."), retryable=True)
                return DONE
            await self._undisturbed(self._close_round(said))
            await self._use_tools(said.tool_calls)
            if self._rounds >= settings.TOOL_ROUNDS:
                text = _("The agent used tools %(count)d times without answering. Continue if it should go on.")
                raise AgentsError("too_many_rounds", text % {"count": self._rounds}, retryable=True)
            await self._open_next_round()
            self._tell_meter()

    async def _call(self) -> Said:
        """One call; what the model finds too long between two rounds is asked once more, after a compaction."""
        try:
            return await self._ask()
        except AgentsError as error:
            if error.code != "context_exceeded" or not self._rounds or self.stream.length:
                raise
            compaction = await self._store(rescue_round, self.claim)
            if compaction is None:
                raise
            logger.info("turn %d became too long for the model and waits for a compaction", self.claim.turn)
        await self._open_next_round(after=compaction)
        self._tell_meter()
        return await self._ask()

    async def _ask(self) -> Said:
        """One request to the model, its answer piece by piece."""
        claim, stream = self.claim, self.stream
        async with process_loop().providers.stream(_completion(claim, self._request)) as answer:
            async for event in answer:
                if isinstance(event, TextPiece):
                    stream.say(event.text)
                elif isinstance(event, ThinkingPiece):
                    stream.think(event.text)
        self._spent = self._spent.plus(answer.usage)
        stream.close()
        return Said(
            stream.message,
            stream.content.text(),
            stream.thinking.text(),
            answer.tool_calls,
            answer.usage,
            answer.finish_reason,
            self._request.epoch,
        )

    async def _close_round(self, said: Said) -> None:
        self._checkpoints.close(self.claim.turn)
        await self._store(ending.store_round, self.claim, said)
        self._note_first_piece()
        self._said, self._is_open = None, False
        self._rounds += 1

    async def _open_next_round(self, after: int | None = None) -> None:
        """Waits where the context must be compacted first; the database knows when that is over.

        `after` is a compaction without which the call that is open already cannot be made.
        """
        while True:
            if await self._undisturbed(self._open_round(after)):
                return
            await asyncio.sleep(WAIT_FOR_COMPACTION)

    async def _open_round(self, after: int | None) -> bool:
        """The boundary between two rounds, then the row and the request of the next call; False where it must wait."""
        is_open = self.stream.message if after is not None else None
        opened: NextRound = await self._store(ending.next_round, self.claim, is_open, after)
        if opened.message is None:
            if opened.outcome.refusal is not None:
                raise AgentsError(opened.outcome.refusal[0], str(opened.outcome.refusal[1]), retryable=True)
            return False
        if opened.message != is_open:
            self.stream = Stream(self.claim, opened.message)
            self._is_open = True
            self._checkpoints.open(self.stream)
        self._request = await self._store(load_request, self.claim)
        return True

    async def _use_tools(self, calls: tuple[ToolCall, ...]) -> None:
        """All calls of a round side by side; each result is stored as soon as it is there."""
        allowed = frozenset(schema["function"]["name"] for schema in self._request.tools)
        running = [process_loop().spawn(self._use_tool(call, allowed)) for call in calls]
        try:
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _use_tool(self, call: ToolCall, allowed: frozenset[str]) -> None:
        claim, started = self.claim, time.monotonic()
        context = ToolContext(
            conversation_id=claim.conversation, user_id=claim.user, turn_id=claim.turn, call_id=call.id
        )
        result, metadata = await keep(context, call.name, await tools.run_call(call, context, allowed), allowed)
        how = "failed" if result.is_error else "answered"
        size = len(result.content)
        logger.info("turn %d: tool %s %s after %d ms, %d characters", claim.turn, call.name, how, _ms(started), size)
        await self._undisturbed(self._store(ending.store_result, claim, call, result, metadata))

    # The end

    async def _end(self, how: Ending) -> Claim | None:
        if how is HANDED_BACK:
            if self.shows_nothing:
                await self._store(ending.hand_back, self.claim)
                logger.info("turn %d goes back into the queue", self.claim.turn)
                return None
            how = INTERRUPTED
        said, stream = self._said, self.stream
        if said is None and self._is_open:
            stream.close()
            said = Said(stream.message, stream.content.text(), stream.thinking.text())
        self._note_first_piece()
        finished = await self._store(ending.finish, self.claim, said, how, self._spent)
        self._log(how)
        if finished.following is None:  # else its own start says how full the context is
            self._tell_meter(conversation=finished.conversation)
        return finished.following

    async def _undisturbed(self, work: Coroutine[Any, Any, T]) -> T:
        """Finish what writes to the database even when the turn is stopped meanwhile, then let the stop take effect."""
        task = process_loop().spawn(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    async def _store(self, write: Callable[..., T], *arguments: Any) -> T:
        """Use the database; when it is away for a moment, try again. Every write is guarded, so none counts twice."""
        wait = 0.1
        while True:
            try:
                return await run_in_db(write, *arguments)
            except (OperationalError, InterfaceError) as error:
                if wait > LONGEST_STORE_WAIT:
                    raise
                logger.warning("turn %d: %s failed (%s), again", self.claim.turn, write.__name__, error)
                await asyncio.sleep(wait)
                wait *= 2

    def _tell_meter(self, after: float = 0.0, conversation: Conversation | None = None) -> None:
        process_loop().spawn(self._meter(self._spent.current(), after, conversation))

    async def _meter(self, current: dict[str, int], after: float, conversation: Conversation | None) -> None:
        await asyncio.sleep(after)
        if after and self._ended:
            return  # a short answer: its end says the same
        try:
            frame = await run_in_db(meter_frame, self.claim, current, conversation)
        except Exception:
            logger.exception("turn %d: the meter could not be read", self.claim.turn)
        else:
            broadcast.publish(self.claim.conversation, [frame])

    def _note_first_piece(self) -> None:
        self._first_piece_at = self._first_piece_at or self.stream.first_piece_at

    def _log(self, how: Ending) -> None:
        first = self._first_piece_at
        logger.info(
            "turn %d for %s with %s: %s after %d ms, first piece after %s ms, %d calls, %d + %d tokens%s",
            self.claim.turn,
            self.claim.who,
            self.claim.agent.name,
            how.state,
            _ms(self._started_at),
            round((first - self._started_at) * 1000) if first else "-",
            self._spent.api_calls,
            self._spent.usage.prompt_tokens,
            self._spent.usage.completion_tokens,
            f" ({how.code})" if how.code else "",
        )
        usage = self._spent.usage
        metrics.turn_ended(how.state, time.monotonic() - self._started_at)
        metrics.tokens_reported(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
        if first:
            metrics.FIRST_TOKEN_SECONDS.observe(first - self._started_at)


def rescue(claim: Claim) -> bool:
    """Puts a turn that the provider found too long back to wait for a compaction; False where that was tried before."""
    with locked(claim.conversation) as desk:
        turn = own(desk, claim)
        compaction = compacting.rescue(desk, turn)
        if compaction is None:
            return False
        ending.queue_again(turn, waits_for=compaction.pk)
        return True


def rescue_round(claim: Claim) -> int | None:
    """The compaction without which the next call of a running turn cannot be made; None where none can help."""
    with locked(claim.conversation) as desk:
        compaction = compacting.rescue(desk, own(desk, claim))
        return compaction.pk if compaction is not None else None


def meter_frame(claim: Claim, current: dict[str, int], conversation: Conversation | None = None) -> bytes:
    """The meter as it stands, as a frame."""
    conversation = conversation or read_conversation(claim.conversation)
    return encode(ending.token_update(conversation, current), claim.conversation)


def _completion(claim: Claim, request: Request) -> CompletionRequest:
    """The call for this request. Raises AgentsError where the agent or its channel is switched off."""
    agent = claim.agent
    if not agent.enabled:
        raise AgentsError("agent_disabled", _("This agent is switched off. Choose another one for this conversation."))
    if not agent.channel.enabled:
        text = _("The channel of this agent is switched off. An administrator can switch it on again.")
        raise AgentsError("channel_disabled", text)
    return CompletionRequest(
        Endpoint.of(agent.channel, agent.model_name),
        request.messages,
        tools=request.tools,
        temperature=agent.temperature,
        max_output_tokens=agent.max_output_tokens,
    )


def _ms(since: float) -> int:
    return round((time.monotonic() - since) * 1000)
