"""What is said beside the meter: how many turns are left, what compacting would free, what stands in its way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chat.models import Conversation
from chat.prepared import executed, key
from compaction.decision import FloorParts
from compaction.errors import sentence
from compaction.hints import hint_for
from compaction.strategies import Strategy, is_strategy, strategies, strategy

if TYPE_CHECKING:
    from chat.context import ContextUsage

RECENT = 40  # messages from which the cost of a turn is estimated
# The meter is told twice in every turn: as a queryset this took as long as all else that a worker does for a meter.
_RECENT = f"""SELECT m.role, m.token_count FROM chat_message m
WHERE m.conversation_id = %(conversation)s AND NOT m.is_summary AND m.position IS NOT NULL AND m.retired_at IS NULL
  AND m.compacted_into_id IS NULL AND m.status <> 'streaming' ORDER BY m.position DESC LIMIT {RECENT}"""  # noqa: S608
SUMMARY_PERCENT = 15  # of the trigger: how large a prefix is expected to be


def advise(usage: ContextUsage) -> dict[str, Any]:
    """turns_left, would_free, floor (tokens, None where nobody can say), and the refusal and the hint, if any."""
    recent = _recent(usage)
    floor = scaled(floor_parts(usage, recent), usage.factor)
    hint = hint_for(usage.tier, len(recent))
    return {
        "turns_left": _turns_left(usage, recent),
        "would_free": would_free(usage, floor.tokens),
        "floor": floor.tokens,
        "refusal": _refusal(usage, floor),
        "hint": {"code": hint.code, "message": hint.message} if hint else None,
    }


def floor_parts(usage: ContextUsage, recent: list[tuple[str, int]] | None = None) -> FloorParts:
    """What no compaction can remove, in raw counts: system prompt, tools, pins and the newest message of a person."""
    recent = _recent(usage) if recent is None else recent
    newest = next((tokens for role, tokens in recent if role == "user"), 0)
    return FloorParts(
        system=usage.raw_parts["system"],
        tools=usage.raw_parts["tools"],
        pins=usage.pinned_tokens,
        turn=newest,
    )


def scaled(floor: FloorParts, factor: float) -> FloorParts:
    """The floor as the provider counts it (tokens)."""
    return FloorParts(*(round(part * factor) for part in (floor.system, floor.tools, floor.pins, floor.turn)))


def would_free(usage: ContextUsage, floor_tokens: int) -> int | None:
    """About what compacting now would free (tokens); None where it would not be worth doing."""
    trigger = usage.thresholds.trigger
    tail = min(usage.used_tokens - floor_tokens, trigger * _strategy(usage).tail_percent // 100)
    fixed = usage.parts["system"] + usage.parts["tools"] + max(0, tail)
    gain = usage.used_tokens - max(fixed, floor_tokens) - trigger * SUMMARY_PERCENT // 100
    return gain if gain >= usage.thresholds.least_gain else None


def _turns_left(usage: ContextUsage, recent: list[tuple[str, int]]) -> int | None:
    """How many more turns like the last ones fit below the trigger."""
    limit = usage.thresholds.block if usage.thresholds.auto is None else usage.thresholds.auto
    turns = sum(role == "user" for role, _ in recent)
    if not turns:
        return None
    each = max(1, round(sum(tokens for _, tokens in recent) * usage.factor / turns))
    return max(0, limit - usage.used_tokens) // each


def _refusal(usage: ContextUsage, floor: FloorParts) -> dict[str, str] | None:
    """Why compaction would not come by itself here, in the order in which a person can do something about it."""
    ladder = usage.thresholds
    figures: dict[str, Any] = {}
    if floor.tokens + ladder.least_gain > ladder.trigger:
        code = "floor_too_high"
        largest, size = floor.largest()
        figures = {"largest": largest, "size": size, "window": ladder.window}
    elif ladder.disabled and usage.used_tokens >= ladder.block:
        code = "switched_off"
    elif usage.breaker.is_open:
        code, figures = "breaker_open", {"failures": usage.breaker.failures}
    elif usage.paused:
        code = "paused_after_undo"
    else:
        return None
    return {"code": code, "message": sentence(code, figures)}


def _recent(usage: ContextUsage) -> list[tuple[str, int]]:
    """Role and raw tokens of the newest live messages, newest first."""
    with executed(_RECENT, {"conversation": key(Conversation, usage.conversation.pk)}) as cursor:
        found: list[tuple[str, int]] = cursor.fetchall()
    return found


def _strategy(usage: ContextUsage) -> Strategy:
    """The agent's strategy; the default in place of one that does not exist any more, which only a run may refuse."""
    name = usage.conversation.agent.compaction_strategy
    return strategy(name) if is_strategy(name) else strategies()[0]
