"""What one run works on: everything it reads before a model is asked, in as few statements as possible."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import (
    Case,
    CharField,
    Exists,
    F,
    IntegerField,
    OuterRef,
    Q,
    Subquery,
    Sum,
    TextField,
    Value,
    When,
)
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import MD5, Substr

from agents import tokens
from agents.models import Calibration
from chat import context, history, offered
from chat.auxiliary import Summariser, summariser_of
from chat.history import COLUMNS, CONTENT
from chat.models import Conversation, Participant
from compaction.engine import EngineSettings
from compaction.errors import CompactionError
from compaction.models import Compaction, Reason, State
from compaction.stages.prune import LONG_RESULT
from compaction.transcript import Entry, Prefix, Transcript

# A rebuild reads the originals again; what the summariser will not read of them is not loaded either.
_PRUNED_TOKENS = 20  # an old tool result once it is a marker line (tokens)
_UNPRUNED_TOKENS = 64  # results up to this size may stay as they are (tokens)
REFUSED_PERCENT = 90  # of a request that the provider found too long: the window it seems to have
_REBUILD_PERCENT = 80  # of the summariser's window: instructions and the answer need room too

Mark = tuple[int, str, int, bool, bool]  # id, MD5 of the content, tokens, pinned, cleared


@dataclass(frozen=True, slots=True)
class Work:
    """A claimed run with all it needs. `rows`: the live rows as they were read, for the guard of the commit."""

    compaction: Compaction
    conversation: Conversation
    transcript: Transcript
    rows: list[tuple[Any, ...]]
    summariser: Summariser | None
    refusal: CompactionError | None  # why there is no summariser
    settings: EngineSettings
    live_tokens: int

    def covered_hash(self, covered_from: int, covered_to: int) -> str:
        """The guard: a fingerprint of all live rows between two positions, inclusive."""
        return hash_of(_mark(row) for row in self.rows if covered_from <= row[1] <= covered_to)


def load_work(compaction_id: int, worker: str) -> Work | None:
    """Reads a claimed run; None where it is not ours any more."""
    row = _row(compaction_id, worker)
    if row is None:
        return None
    conversation, agent = row.conversation, row.conversation.agent
    summariser, refusal = _summariser(row)
    prefix = Prefix.from_json(row.earlier_prefix) if row.earlier_prefix else None  # type: ignore[attr-defined]
    values = list(history.live_rows(conversation).values_list(*COLUMNS))
    schemas = offered.schemas(agent)
    live = history.entries_of(values, named=row.shared, keep=offered.kept_tools(agent))  # type: ignore[attr-defined]
    settings = _settings(row, summariser)
    transcript = Transcript(
        live=live,
        system=offered.system_messages(agent),
        system_tokens=offered.system_tokens(agent),
        tool_tokens=tokens.count_tools(schemas),
        prefix=prefix,
        pinned_covered=_pinned(conversation, row.shared) if prefix else (),  # type: ignore[attr-defined]
        earlier=_earlier(conversation, summariser, settings, live) if prefix else (),
        tools=schemas,
    )
    return Work(row, conversation, transcript, values, summariser, refusal, settings, conversation.live_tokens)


def stored_marks(
    conversation: Conversation, covered_from: int, covered_to: int, *besides: Combinable
) -> list[tuple[Any, ...]]:
    """The marks of the live rows between two positions as they are now, read without their contents.

    Behind the mark stands what the row costs in a request (tokens), then the columns in `besides`.
    """
    rows = history.live_rows(conversation).filter(position__gte=covered_from, position__lte=covered_to)
    columns: tuple[str | Combinable, ...] = (
        "id",
        MD5("content"),
        "token_count",
        "pinned",
        "cleared_at",
        context.SENT_TOKENS,
        *besides,
    )
    return [(*row[:4], row[4] is not None, *row[5:]) for row in rows.values_list(*columns)]


def hash_of(marks: Iterable[tuple[Any, ...]]) -> str:
    """One fingerprint of many marks. A message's parts and calls never change without its count or its epoch."""
    digest = hashlib.sha256()
    for mark in marks:
        digest.update(repr(tuple(mark[:5])).encode())
    return digest.hexdigest()


def _mark(values: Sequence[Any]) -> Mark:
    content, count, pinned, cleared = values[4], values[11], values[12], values[13]
    return (
        values[0],
        hashlib.md5(content.encode(), usedforsecurity=False).hexdigest(),
        count,
        pinned,
        cleared is not None,
    )


def _row(compaction_id: int, worker: str) -> Compaction | None:
    """The run with its conversation, agent and channel, the earlier prefix and the factor, in one statement."""
    agent = "conversation__agent"
    earlier = Compaction.objects.filter(conversation=OuterRef("conversation"), state=State.APPLIED).order_by("-id")
    people = Participant.objects.filter(conversation=OuterRef("conversation"))
    first_model = When(**{f"{agent}__model": ""}, then=KeyTextTransform("0", f"{agent}__channel__models"))
    factors = Calibration.objects.filter(channel=OuterRef(f"{agent}__channel"), model=OuterRef("model_in_use"))
    rows = Compaction.objects.filter(pk=compaction_id, worker=worker, state=State.RUNNING)
    return (
        rows.select_related(f"{agent}__channel", "requested_by")
        .annotate(
            model_in_use=Case(first_model, default=F(f"{agent}__model"), output_field=CharField()),
            earlier_prefix=Subquery(earlier.values("prefix")[:1]),
            shared=Exists(people[1:2]),
            own_factor=Subquery(factors.values("factor")[:1]),
        )
        .first()
    )


def _summariser(row: Compaction) -> tuple[Summariser | None, CompactionError | None]:
    try:
        return summariser_of(row.conversation.agent), None
    except CompactionError as error:
        return None, error


def _settings(row: Compaction, summariser: Summariser | None) -> EngineSettings:
    agent = row.conversation.agent
    factor = context.clamp(row.own_factor or 1.0)  # type: ignore[attr-defined]
    other = (
        context.factor_for(summariser.channel.pk, summariser.model) if summariser and summariser.is_other else factor
    )
    return EngineSettings(
        window=_window(row),
        reply=agent.max_output_tokens,
        percent=agent.compaction_threshold,
        keep_recent=agent.compaction_keep_recent,
        strategy=row.strategy,
        summariser_window=summariser.window if summariser else None,
        summariser_max_output=summariser.max_output if summariser else None,
        instructions=row.instructions,
        reason=row.reason,
        factor=factor,
        summariser_factor=other,
    )


def _window(row: Compaction) -> int:
    """The agent's window (tokens); after a refusal it is smaller than what was refused."""
    window = row.conversation.agent.context_window
    if row.reason != Reason.OVERFLOW or not row.tokens_before:
        return window
    return min(window, row.tokens_before * REFUSED_PERCENT // 100)


def _pinned(conversation: Conversation, named: bool) -> tuple[Entry, ...]:
    values = history.pinned_covered_rows(conversation).values_list(*COLUMNS)
    return history.entries_of(values, named=named)


def _earlier(
    conversation: Conversation, summariser: Summariser | None, settings: EngineSettings, live: tuple[Entry, ...]
) -> tuple[Entry, ...]:
    """The originals behind the summary where the summariser can read them all again, else nothing: no history is loaded
    that is larger than a window."""
    if summariser is None:
        return ()
    keep = offered.kept_tools(conversation.agent)
    rows = history.originals(conversation)
    shortened = Q(role="tool", is_error=False, token_count__gt=_UNPRUNED_TOKENS) & ~Q(tool_name__in=keep)
    size = Case(When(shortened, then=Value(_PRUNED_TOKENS)), default=F("token_count"), output_field=IntegerField())
    window = summariser.window or settings.window
    budget = int(window * _REBUILD_PERCENT // 100 / settings.summariser_factor)
    if (rows.order_by().aggregate(total=Sum(size))["total"] or 0) > budget:
        return ()
    text = Case(
        When(shortened, then=Substr("content", 1, LONG_RESULT * 2)), default=F("content"), output_field=TextField()
    )
    columns = [*COLUMNS[:CONTENT], text, *COLUMNS[CONTENT + 1 :]]
    return history.entries_of(rows.values_list(*columns), named=False, keep=keep)
