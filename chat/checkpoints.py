"""What answers have said so far goes into the database: one batched write a second for all turns of the process.

After a crash the last checkpoint is the answer. Each write is guarded by attempt and state, and holds the rows of its
turns while it writes the texts, so that a turn which was taken away meanwhile is neither written nor prolonged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db import connection, transaction
from django.db.models.functions import Now

from chat.claiming import HEARTBEAT_SECONDS, lease, worker_name
from chat.loop import process_loop, run_in_db
from chat.models import Turn, TurnState
from chat.streaming import Stream

logger = logging.getLogger("palimpsest.turns")

TICK_SECONDS = 1.0
LONGEST_WAIT = 5.0  # between two checkpoints of a very long text (seconds)
LENGTH_PER_SECOND = 100_000  # code points: a text this long is written every second, twice as long every two


@dataclass(frozen=True, slots=True)
class Draft:
    """The text of an open answer at one moment."""

    turn: int
    attempt: int
    message: int
    content: str
    thinking: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the database says of our turns: those that are still ours, and those that somebody wants stopped."""

    ours: frozenset[int]
    to_stop: frozenset[int]


def write(drafts: list[Draft]) -> Verdict:
    """Store the texts, in one transaction and two statements."""
    if not drafts:
        return Verdict(frozenset(), frozenset())
    turns = [value for draft in drafts for value in (draft.turn, draft.attempt)]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            f"WITH v(turn, attempt) AS (VALUES {_rows(2, len(drafts))}) "  # noqa: S608
            "UPDATE chat_turn SET has_output = TRUE FROM v "
            "WHERE chat_turn.id = v.turn AND chat_turn.attempt = v.attempt AND chat_turn.state = 'running' "
            "RETURNING chat_turn.id, chat_turn.stop_requested_at",
            turns,
        )
        found = cursor.fetchall()
        ours = frozenset(turn for turn, _ in found)
        kept = [draft for draft in drafts if draft.turn in ours]
        if kept:
            texts = [value for draft in kept for value in (draft.message, draft.content, draft.thinking)]
            cursor.execute(
                f"WITH v(message, content, thinking) AS (VALUES {_rows(3, len(kept))}) "  # noqa: S608
                "UPDATE chat_message SET content = v.content, thinking = v.thinking FROM v "
                "WHERE chat_message.id = v.message AND chat_message.status = 'streaming'",
                texts,
            )
    return Verdict(ours, frozenset(turn for turn, stop in found if stop is not None))


def beat(turns: list[int]) -> Verdict:
    """Prolong the leases of these turns and read what is wanted of them; two statements for all."""
    rows = Turn.objects.filter(pk__in=turns, state=TurnState.RUNNING, worker=worker_name())
    rows.update(heartbeat_at=Now(), lease_until=lease())
    found = rows.values_list("pk", "stop_requested_at")
    return Verdict(frozenset(pk for pk, _ in found), frozenset(pk for pk, stop in found if stop is not None))


def _rows(columns: int, count: int) -> str:
    row = f"({', '.join(['%s'] * columns)})"
    return ", ".join([row] * count)


class Checkpoints:
    """Beats for the turns of this process and writes their open messages. Lives on the process's loop."""

    def __init__(self, on_verdict: Callable[[int, bool], None]) -> None:
        self._on_verdict = on_verdict  # (turn, still ours): not ours -> lost, ours -> somebody wants it stopped
        self._streams: dict[int, Stream] = {}
        self._turns: set[int] = set()
        self._written: dict[int, tuple[int, float]] = {}  # turn -> (length written, when)
        self._task: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    def watch(self, turn: int) -> None:
        """Keep the lease of a turn from now on."""
        self._turns.add(turn)
        if self._task is None or self._task.done():
            self._task = process_loop().spawn(self._run(), "checkpoints")

    def open(self, stream: Stream) -> None:
        """Store what this stream says, until it is closed."""
        self._streams[stream.claim.turn] = stream
        self._written.pop(stream.claim.turn, None)

    def close(self, turn: int) -> None:
        """The open message of this turn is complete; whoever closes it stores it."""
        self._streams.pop(turn, None)
        self._written.pop(turn, None)

    def forget(self, turn: int) -> None:
        """The turn has ended."""
        self.close(turn)
        self._turns.discard(turn)

    async def write_now(self, stream: Stream) -> None:
        """Store one stream at once, e.g. because a client asked for what it misses."""
        await self._write([stream])

    async def _run(self) -> None:
        beat_at = time.monotonic() + HEARTBEAT_SECONDS
        while self._turns:
            await asyncio.sleep(TICK_SECONDS)
            try:
                await self._write([stream for stream in self._streams.values() if self._is_due(stream)])
                if time.monotonic() >= beat_at:
                    beat_at = time.monotonic() + HEARTBEAT_SECONDS
                    await self._beat()
            except Exception as error:
                # The next tick tries again; who cannot write for a whole lease loses the turn to the sweep.
                logger.warning("a checkpoint failed: %s", error)

    def _is_due(self, stream: Stream) -> bool:
        length, when = self._written.get(stream.claim.turn, (0, 0.0))
        if stream.length == length:
            return False
        return time.monotonic() - when >= min(LONGEST_WAIT, stream.length / LENGTH_PER_SECOND)

    async def _write(self, streams: list[Stream]) -> None:
        async with self._writing:  # an older text must never overtake a newer one
            streams = [stream for stream in streams if self._streams.get(stream.claim.turn) is stream and stream.length]
            if not streams:
                return
            lengths = {stream.claim.turn: stream.length for stream in streams}
            verdict = await run_in_db(write, [_draft(stream) for stream in streams])
            now = time.monotonic()
            for turn, length in lengths.items():
                if turn in self._streams:
                    self._written[turn] = (length, now)
            self._judge(set(lengths), verdict)

    async def _beat(self) -> None:
        turns = set(self._turns)
        self._judge(turns, await run_in_db(beat, sorted(turns)))

    def _judge(self, turns: set[int], verdict: Verdict) -> None:
        for turn in turns & self._turns:
            if turn not in verdict.ours:
                self._on_verdict(turn, False)
            elif turn in verdict.to_stop:
                self._on_verdict(turn, True)


def _draft(stream: Stream) -> Draft:
    return Draft(
        stream.claim.turn,
        stream.claim.attempt,
        stream.message,
        stream.content.text(),
        stream.thinking.text(),
    )
