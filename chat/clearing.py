"""Idle clearing: what a conversation need not carry any more when its people come back to it. No model is asked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from agents import tools
from agents.models import Agent
from chat.context import SENT_TOKENS
from chat.events import MessageStored
from chat.history import entries_of, live_rows, read
from chat.locking import Desk
from chat.models import Message as Row
from chat.offered import kept_tools
from chat.presenting import present_message
from compaction import microcompact
from compaction.microcompact import OFF, IdleSettings


def clear_idle(desk: Desk) -> int:
    """Called when a person's message is accepted: clears what time has made old, once. Returns how many messages."""
    conversation, now = desk.conversation, timezone.now()
    settings = _settings(conversation.agent)
    answered = conversation.last_answer_at
    if answered is None or not _is_idle(settings, now - answered):
        return 0
    live = entries_of(_candidates(desk), keep=kept_tools(conversation.agent))
    clearing = microcompact.clear_idle(
        live, last_answer_at=answered, now=now, settings=settings, is_clearable=_is_clearable
    )
    if not clearing:
        return 0
    rows = list(Row.objects.filter(pk__in=[*clearing.thinking, *clearing.tool_results]).order_by("position"))
    before = sum(row.token_count for row in rows if row.role == "tool")
    Row.objects.filter(pk__in=[row.pk for row in rows]).update(cleared_at=now)
    results = Row.objects.filter(pk__in=clearing.tool_results)
    conversation.live_tokens += sum(results.values_list(SENT_TOKENS, flat=True)) - before
    desk.new_epoch()
    for row in rows:
        row.cleared_at = now
        desk.emit(MessageStored(present_message(row)))
    return len(rows)


def _is_idle(settings: IdleSettings, idle: timedelta) -> bool:
    """Whether anything can have become old: until then no history is read."""
    minutes = (settings.clear_thinking_after_minutes, settings.clear_tool_results_after_minutes)
    return any(limit != OFF and idle > timedelta(minutes=limit) for limit in minutes)


def _candidates(desk: Desk) -> list[tuple[Any, ...]]:
    """Agents' and tools' messages: what may be cleared, and the calls that name a result's tool."""
    return read(live_rows(desk.conversation).filter(role__in=("assistant", "tool")))


def _settings(agent: Agent) -> IdleSettings:
    return IdleSettings(
        agent.clear_thinking_after_minutes, agent.clear_tool_results_after_minutes, agent.tool_results_to_keep
    )


def _is_clearable(name: str) -> bool:
    known = tools.tool(name)
    return known is None or known.clearable
