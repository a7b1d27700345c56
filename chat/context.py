"""How full the context is: the one measurement that meter, trigger, API and admin read.

A turn never recounts old history: `Conversation.live_tokens` is kept by every writer, the rest are a few small sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Case, F, IntegerField, Q, QuerySet, Sum, Value, When
from django.utils import timezone

from agents import known_models
from agents.models import Agent, Calibration
from agents.usage import Usage
from chat import advice, offered
from chat.history import CLEARED_TOKENS
from chat.locking import Desk
from chat.models import LIVE, Conversation
from chat.models import Message as Row
from chat.prepared import executed
from compaction.breaker import Breaker
from compaction.thresholds import Thresholds, Tier, ladder_for

PARTS = ("system", "tools", "summary", "attachments", "messages")

# Calibration: the factor between the provider's counts and ours.
LEAST_FACTOR, GREATEST_FACTOR = 0.5, 2.0
LEAST_SAMPLE = 200  # a smaller request says more about a provider's overhead than about its tokenizer (tokens)
NEWEST_SHARE = 0.25  # how much one more report moves the average
SETTLED_REPORTS = 10  # from here on a report that changes next to nothing is not written
NOTICEABLE = 0.002

# What a row adds to a request: a cleared tool result is its marker.
SENT_TOKENS = Case(
    When(Q(cleared_at__isnull=False, role="tool"), then=Value(CLEARED_TOKENS)),
    default=F("token_count"),
    output_field=IntegerField(),
)


@dataclass(frozen=True, slots=True)
class ContextUsage:
    """What the next request takes of the window (tokens, as the provider would count them).

    `parts` are scaled so that they add up to `used_tokens` exactly. `estimated`: no report of the provider underlies
    it. `factor`: provider tokens for each of ours; `raw_tokens`, `raw_parts` and `pinned_tokens` are our own counts.
    """

    used_tokens: int
    max_tokens: int
    thresholds: Thresholds
    parts: Mapping[str, int]
    estimated: bool
    factor: float
    raw_tokens: int
    raw_parts: Mapping[str, int]
    pinned_tokens: int
    paused: bool
    breaker: Breaker
    conversation: Conversation = field(repr=False, compare=False)

    @property
    def tier(self) -> Tier:
        return self.thresholds.tier(self.used_tokens)

    @property
    def percent(self) -> float:
        """The share of the window in percent; it stops at 100, `used_tokens` never does."""
        return min(100.0, round(self.used_tokens * 100 / self.max_tokens, 1)) if self.max_tokens else 100.0

    def to_event(self) -> dict[str, Any]:
        """The `context` of a `token_update`, with the advice shown beside the meter."""
        ladder = self.thresholds
        thresholds = {"warn": ladder.warn, "auto": ladder.auto, "hard": ladder.hard, "block": ladder.block}
        if ladder.clamp_reason:
            thresholds["clamp_reason"] = ladder.clamp_reason  # type: ignore[assignment]
        return {
            "used_tokens": self.used_tokens,
            "max_tokens": self.max_tokens,
            "percent": self.percent,
            "threshold_percent": ladder.threshold_percent,
            "effective_window": ladder.effective_window,
            "estimated": self.estimated,
            "tier": self.tier,
            "thresholds": thresholds,
            "parts": dict(self.parts),
            "breaker": {"open": self.breaker.is_open, "failures": self.breaker.failures},
            "paused": self.paused,
            "advice": advice.advise(self),
        }


def measure(conversation: Conversation, pending_tokens: int = 0) -> ContextUsage:
    """The one token function. `pending_tokens`: raw count of a message that is not stored with a position yet."""
    agent = conversation.agent
    base = valid_base(conversation)
    sums = _read_sums(conversation, base["position"] if base else conversation.last_position)
    factor = known_factor(sums.factor, agent.model_name)
    parts = _raw_parts(conversation, sums, pending_tokens)
    raw = sum(parts.values())
    if base is None:
        used = round(raw * factor)
    else:
        new = sums.after_base + pending_tokens
        new += parts["system"] + parts["tools"] - base.get("fixed", parts["system"] + parts["tools"])
        used = max(0, base["tokens"] + round(new * factor))
    return ContextUsage(
        used_tokens=used,
        max_tokens=agent.context_window,
        thresholds=thresholds_of(agent),
        parts=scale(parts, used),
        estimated=base is None,
        factor=factor,
        raw_tokens=raw,
        raw_parts=parts,
        pinned_tokens=sums.pinned_live + sums.pinned_covered,
        paused=conversation.paused,
        breaker=breaker_of(conversation),
        conversation=conversation,
    )


def thresholds_of(agent: Agent) -> Thresholds:
    """The agent's ladder."""
    return ladder_for(agent.context_window, agent.compaction_threshold, agent.max_output_tokens)


def breaker_of(conversation: Conversation) -> Breaker:
    """The stored state of the breaker."""
    return Breaker(**conversation.breaker) if conversation.breaker else Breaker()


def valid_base(conversation: Conversation) -> dict[str, Any] | None:
    """The provider's last report, if it still measures this request: same epoch, channel and model."""
    base: dict[str, Any] | None = conversation.base
    if not base:
        return None
    agent = conversation.agent
    same = (base["epoch"], base["channel"], base["model"]) == (conversation.epoch, agent.channel_id, agent.model_name)
    return base if same else None


def factor_of(agent: Agent) -> float:
    """Provider tokens for each of ours, as reports of this channel and model have shown."""
    return factor_for(agent.channel_id, agent.model_name)


def factor_for(channel_id: int, model: str) -> float:
    """The same for any channel and model."""
    rows = Calibration.objects.filter(channel_id=channel_id, model=model).values_list("factor", flat=True)
    return known_factor(rows.first(), model)


def known_factor(reported: float | None, model: str) -> float:
    """What reports have shown; before the first one, what is known of the model's tokenizer."""
    return clamp(reported or known_models.first_factor(model))


def note_usage(
    desk: Desk, usage: Usage, position: int, channel_id: int, model: str, *, counted: int | None = None
) -> None:
    """Take a provider's report as the new base: it measures everything up to `position`, that message included.

    `counted` is the raw count of the messages, prompt and answer, that the report is about (tokens); without it the
    live messages up to `position` are summed.
    """
    if usage.context_tokens <= 0:
        return
    conversation = desk.conversation
    fixed = offered.system_tokens(conversation.agent) + offered.tool_tokens(conversation.agent)
    if counted is None:
        counted = _raw_up_to(conversation, position) + fixed
    conversation.base = {
        "tokens": usage.context_tokens,
        "position": position,
        "epoch": conversation.epoch,
        "channel": channel_id,
        "model": model,
        "fixed": fixed,
    }
    if counted >= LEAST_SAMPLE:
        ratio = usage.context_tokens / counted
        # After the commit: all chats with a model share this row, and none should wait for another's transaction.
        desk.then(lambda: calibrate(channel_id, model, ratio))


def clamp(factor: float) -> float:
    return min(GREATEST_FACTOR, max(LEAST_FACTOR, factor))


def moved(factor: float, reports: int, ratio: float) -> float:
    """The average after one more report: plain for the first few, then the newest counts for a quarter."""
    share = max(NEWEST_SHARE, 1 / (reports + 1))
    return clamp(factor + (clamp(ratio) - factor) * share)


def recount_live_tokens(conversation: Conversation) -> int:
    """The sum that `live_tokens` must equal: for writers that change many rows at once, and for the check of it."""
    return sent_tokens(Row.objects.filter(LIVE, conversation=conversation))


def scale(parts: Mapping[str, int], total: int) -> dict[str, int]:
    """The parts in their proportions, as integers that add up to `total` exactly."""
    whole = sum(parts.values())
    if whole <= 0:
        return {**dict.fromkeys(parts, 0), "messages": total}
    scaled = {name: size * total // whole for name, size in parts.items()}
    by_remainder = sorted(parts, key=lambda name: parts[name] * total % whole, reverse=True)
    for name in by_remainder[: total - sum(scaled.values())]:
        scaled[name] += 1
    return scaled


def _raw_parts(conversation: Conversation, sums: _Sums, pending_tokens: int) -> dict[str, int]:
    """The five parts in raw counts: the same sum that is sent."""
    agent = conversation.agent
    messages = max(0, conversation.live_tokens - sums.summary + sums.pinned_covered + pending_tokens)
    attachments = min(sums.attachments, messages)
    return {
        "system": offered.system_tokens(agent),
        "tools": offered.tool_tokens(agent),
        "summary": sums.summary,
        "attachments": attachments,
        "messages": messages - attachments,
    }


class _Sums(NamedTuple):
    """What the database adds up for one measurement (raw tokens; `factor` as stored).

    `summary`: the live summary's row, which carries the count of its whole prefix.
    """

    factor: float | None
    summary: int
    pinned_live: int
    pinned_covered: int
    attachments: int
    after_base: int


# One statement as text: building five querysets would take longer than answering them, and a decision has 2 ms.
# COALESCE keeps PostgreSQL, before it knows its tables, from going through all live messages for a summary or a pin.
SENT = f"CASE WHEN m.cleared_at IS NOT NULL AND m.role = 'tool' THEN {CLEARED_TOKENS} ELSE m.token_count END"
_PINNED = f"""SELECT SUM({SENT}) FROM chat_message m WHERE m.conversation_id = %(conversation)s AND m.pinned
    AND m.retired_at IS NULL AND m.position IS NOT NULL AND COALESCE(m.compacted_into_id, 0)"""  # noqa: S608
_MEASURE = f"""SELECT
  (SELECT factor FROM agents_calibration WHERE channel_id = %(channel)s AND model = %(model)s),
  (SELECT m.token_count FROM chat_message m WHERE m.conversation_id = %(conversation)s AND m.is_summary
    AND m.retired_at IS NULL AND m.position IS NOT NULL AND COALESCE(m.compacted_into_id, 0) = 0
    ORDER BY m.id DESC LIMIT 1),
  ({_PINNED} = 0),
  ({_PINNED} > 0),
  (SELECT SUM(a.sent_tokens) FROM chat_attachment a JOIN chat_message m ON m.id = a.message_id
    WHERE a.conversation_id = %(conversation)s
    AND m.retired_at IS NULL AND m.position IS NOT NULL AND m.compacted_into_id IS NULL),
  (SELECT SUM({SENT}) FROM chat_message m WHERE m.conversation_id = %(conversation)s AND m.position > %(position)s
    AND NOT m.is_summary AND m.retired_at IS NULL AND m.compacted_into_id IS NULL)"""  # noqa: S608


def _read_sums(conversation: Conversation, position: int) -> _Sums:
    """Everything a measurement needs; `position`: after it, messages are summed."""
    key = conversation._meta.pk.get_db_prep_value(conversation.pk, connection)
    agent = conversation.agent
    values = {"channel": agent.channel_id, "model": agent.model_name, "conversation": key, "position": position}
    with executed(_MEASURE, values) as cursor:
        return _Sums(*(value or 0 for value in cursor.fetchone()))


def _raw_up_to(conversation: Conversation, position: int) -> int:
    """Raw count of the stored messages a report was about; later ones are few, so they are what is summed."""
    sums = _read_sums(conversation, position)
    return conversation.live_tokens + sums.pinned_covered - sums.after_base


def sent_tokens(rows: QuerySet[Row]) -> int:
    """Raw tokens of these rows as they are sent; retired ones are sent no more."""
    return rows.filter(retired_at=None).order_by().aggregate(total=Sum(SENT_TOKENS))["total"] or 0


def calibrate(channel_id: int, model: str, ratio: float) -> None:
    """One more report. Two at once may cost one of them its weight, never more: no lock is worth that."""
    known, _ = Calibration.objects.get_or_create(channel_id=channel_id, model=model)
    factor = moved(known.factor, known.reports, ratio)
    if known.reports >= SETTLED_REPORTS and abs(factor - known.factor) < NOTICEABLE:
        return
    Calibration.objects.filter(pk=known.pk).update(factor=factor, reports=F("reports") + 1, updated_at=timezone.now())
