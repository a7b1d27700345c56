"""What one run works on: everything it reads before a model is asked, in as few statements as possible."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property

import orjson
from django.contrib.auth.models import User
from django.db.models import Case, F, IntegerField, Q, Sum, TextField, Value, When
from django.db.models.functions import Substr

from agents import tokens
from agents.models import Agent, Channel, SiteSettings
from chat import context, history, offered
from chat.auxiliary import Summariser, summariser_of
from chat.history import COLUMNS, CONTENT, Values
from chat.models import Conversation
from chat.prepared import Part, Prepared, first_of
from chat.range_guard import Sign, State, fingerprint, line_of, mark_of, sign_of, state_of, version_column
from compaction.engine import EngineSettings
from compaction.errors import CompactionError
from compaction.models import Compaction, Reason
from compaction.stages.prune import LONG_RESULT
from compaction.thresholds import read_percent
from compaction.transcript import Entry, Prefix, Transcript

# A rebuild reads the originals again; what the summariser will not read of them is not loaded either.
_PRUNED_TOKENS = 20  # an old tool result once it is a marker line (tokens)
_UNPRUNED_TOKENS = 64  # results up to this size may stay as they are (tokens)
REFUSED_PERCENT = 90  # of a request that the provider found too long: the window it seems to have
_REBUILD_PERCENT = 80  # of the summariser's window: instructions and the answer need room too

# The run, its conversation and agent, whoever asked, the channels that may write its summary, the prefix before it, and
# how the agent's model counts.
_RUN = Prepared(
    "compaction_compaction r JOIN chat_conversation c ON c.id = r.conversation_id "
    "JOIN agents_agent a ON a.id = c.agent_id JOIN agents_channel ch ON ch.id = a.channel_id "
    "LEFT JOIN auth_user u ON u.id = r.requested_by_id "
    "LEFT JOIN agents_channel own ON own.id = a.auxiliary_channel_id "
    "LEFT JOIN agents_sitesettings s ON s.id = 1 "
    "LEFT JOIN agents_channel site ON site.id = s.default_auxiliary_channel_id "
    "WHERE r.id = %(id)s AND r.worker = %(worker)s AND r.state = 'running'",
    Part(Compaction, "r"),
    Part(Conversation, "c", ("conversation",)),
    Part(Agent, "a", ("conversation", "agent")),
    Part(Channel, "ch", ("conversation", "agent", "channel")),
    Part(User, "u", ("requested_by",)),
    Part(Channel, "own", ("conversation", "agent", "auxiliary_channel")),
    Part(SiteSettings, "s", ("site",)),
    Part(Channel, "site", ("site", "default_auxiliary_channel")),
    earlier_prefix="(SELECT CAST(p.prefix AS text) FROM compaction_compaction p WHERE p.conversation_id = c.id "
    "AND p.state = 'applied' ORDER BY p.id DESC LIMIT 1)",
    shared="EXISTS(SELECT 1 FROM chat_participant p WHERE p.conversation_id = c.id LIMIT 1 OFFSET 1)",
    own_factor=lambda: (
        "(SELECT f.factor FROM agents_calibration f WHERE f.channel_id = ch.id AND f.model = "  # noqa: S608
        f"COALESCE(NULLIF(a.model, ''), {first_of('ch.models')}))"
    ),
)


@dataclass(frozen=True)
class Work:
    """A claimed run with all it needs. `rows`: the live rows as they were read, with versions, for the guard."""

    compaction: Compaction
    conversation: Conversation
    transcript: Transcript
    rows: list[Values]
    summariser: Summariser | None
    refusal: CompactionError | None  # why there is no summariser
    settings: EngineSettings
    live_tokens: int

    def prepare(self) -> None:
        """What can be worked out before the summary is there: what the rows add to the guard and to a fingerprint."""
        _ = self._signs, self._lines

    def state(self, covered_from: int, covered_to: int) -> State:
        """The guard: all live rows between two positions, inclusive, as they were read."""
        return state_of(self._signs[self._between(covered_from, covered_to)])

    def covered_hash(self, covered_from: int, covered_to: int) -> str:
        """The same as one fingerprint, for a plan that waits for its boundary."""
        return fingerprint(self._lines[self._between(covered_from, covered_to)])

    def _between(self, first: int, last: int) -> slice:
        start = bisect_left(self.rows, first, key=_position)
        return slice(start, bisect_right(self.rows, last, start, key=_position))

    @cached_property
    def _signs(self) -> list[Sign]:
        return [sign_of(row) for row in self.rows]

    @cached_property
    def _lines(self) -> list[str]:
        return [line_of(mark_of(row)) for row in self.rows]


def load_work(compaction_id: int, worker: str) -> Work | None:
    """Reads a claimed run; None where it is not ours any more."""
    row = _row(compaction_id, worker)
    if row is None:
        return None
    conversation, agent = row.conversation, row.conversation.agent
    summariser, refusal = _summariser(row)
    prefix = Prefix.from_json(orjson.loads(row.earlier_prefix)) if row.earlier_prefix else None  # type: ignore[attr-defined]
    schemas = offered.schemas(agent)
    values, live = _live(conversation, row.shared)  # type: ignore[attr-defined]
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


def _live(conversation: Conversation, named: bool) -> tuple[list[Values], tuple[Entry, ...]]:
    """The live rows and the entries made of them."""
    keep = offered.kept_tools(conversation.agent)
    values: list[Values] = []
    live: list[Entry] = []
    for batch in history.live_batches(conversation, version_column()):
        values += batch
        live += history.entries_of(batch, named=named, keep=keep)
    return values, tuple(live)


def _position(row: Values) -> int:
    position: int = row[1]
    return position


def _row(compaction_id: int, worker: str) -> Compaction | None:
    """The run with all that it depends on, in one statement."""
    found = _RUN.fetch(id=compaction_id, worker=worker)
    return found[0] if found else None


def _summariser(row: Compaction) -> tuple[Summariser | None, CompactionError | None]:
    agent = row.conversation.agent
    try:
        return summariser_of(agent, agent.auxiliary_channel, row.site), None  # type: ignore[attr-defined]
    except CompactionError as error:
        return None, error


def _settings(row: Compaction, summariser: Summariser | None) -> EngineSettings:
    agent = row.conversation.agent
    factor = context.known_factor(row.own_factor, agent.model_name)  # type: ignore[attr-defined]
    other = (
        context.factor_for(summariser.channel.pk, summariser.model) if summariser and summariser.is_other else factor
    )
    return EngineSettings(
        window=_window(row),
        reply=agent.max_output_tokens,
        percent=read_percent(agent.compaction_threshold, agent.context_window)[0],
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
    return history.entries_of(history.read(history.pinned_covered_rows(conversation)), named=named)


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
    return history.entries_of(history.read(rows, columns), named=False, keep=keep)
