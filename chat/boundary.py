"""The boundary: the moment between two model calls, where the context may change. Undo, apply, decide, then claim."""

from __future__ import annotations

from dataclasses import dataclass

from chat import compacting
from chat.applying import apply_ready
from chat.locking import Desk
from chat.models import Conversation, Turn
from chat.prepared import Part, Prepared, key
from chat.undoing import undo
from compaction.models import Compaction, State

_ROWS = Prepared(
    "compaction_compaction c WHERE c.conversation_id = %(conversation)s AND (c.state IN ('queued', 'running', 'ready') "
    "OR (c.state = 'applied' AND c.undo_requested_at IS NOT NULL AND c.undone_at IS NULL)) ORDER BY c.id DESC LIMIT 5",
    Part(Compaction, "c"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a boundary changed, and whether the turn may go on.

    With `applied` or `undone` the caller loads its request anew. `waits_for` is the compaction that the turn has to
    wait for; `refusal` (code, sentence) says why it cannot be answered at all as things are.
    """

    proceed: bool = True
    waits_for: Compaction | None = None
    refusal: tuple[str, str] | None = None
    applied: Compaction | None = None
    undone: Compaction | None = None
    started: Compaction | None = None

    @property
    def changed(self) -> bool:
        """Whether the request is another one than before."""
        return self.applied is not None or self.undone is not None


def at_boundary(desk: Desk, *, running: Turn | None, waiting: Turn | None) -> Outcome:
    """Call with the conversation locked, between two model calls: `running` between the rounds of a turn's tools,
    `waiting` with the queued turn that would be claimed next."""
    rows = _pending(desk)
    undone = _undo(desk, rows)
    applied = _apply(desk, rows) if undone is None else None
    opened = next((row for row in rows if row.state in (State.QUEUED, State.RUNNING)), None) if undone is None else None
    if opened is not None and opened.blocking and running is None:
        return Outcome(proceed=False, waits_for=opened, applied=applied, undone=undone)
    idle = running is None and waiting is None
    decision, run = compacting.decide_now(desk, opened, _pending_tokens(waiting), idle=idle)
    started = run if decision.starts else None
    if decision.action == "wait":
        return Outcome(proceed=False, waits_for=run, applied=applied, undone=undone, started=started)
    refusal = (decision.code, decision.message) if decision.action == "refuse" and waiting is not None else None
    return Outcome(refusal is None, refusal=refusal, applied=applied, undone=undone, started=started)


def _pending(desk: Desk) -> list[Compaction]:
    """The open run and an undo that was asked for: at most two rows, in one statement."""
    rows: list[Compaction] = _ROWS.fetch(conversation=key(Conversation, desk.conversation.pk))
    return rows


def _undo(desk: Desk, rows: list[Compaction]) -> Compaction | None:
    row = next((row for row in rows if row.state == State.APPLIED), None)
    if row is not None:
        undo(desk, row)
    return row


def _apply(desk: Desk, rows: list[Compaction]) -> Compaction | None:
    row = next((row for row in rows if row.state == State.READY), None)
    return apply_ready(desk, row) if row is not None else None


def _pending_tokens(waiting: Turn | None) -> int:
    """What the draft of the next turn will add to the request; a question that has a position is counted already."""
    draft = waiting.user_message if waiting is not None else None
    return draft.token_count if draft is not None and draft.position is None else 0
