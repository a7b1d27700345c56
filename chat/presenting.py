"""Rows as browsers and scripts are shown them: the one place that knows the JSON shapes (docs/protocol.md lists them).

Every function takes rows that were loaded with what it needs and runs no query, so that lists stay cheap. Values are
plain Python; times and ids become text in `orjson`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from chat.compaction_words import stored
from chat.models import Attachment, Conversation, Message, Participant, Turn
from compaction.models import Compaction, State

if TYPE_CHECKING:
    from chat.search import Found

JSON = dict[str, Any]

LONGEST_QUEUE_SHOWN = 2_000_000  # characters of its drafts together: a frame has to fit through a socket

_SHOWN_OF_A_PART = ("kind", "name", "mime", "width", "height", "tokens", "attachment")

# What a list of compactions never needs and what may be large.
COMPACTION_HEAVY_FIELDS = ("prefix", "covered_ids")


def present_message(row: Message) -> JSON:
    """A message as stored. Parts name their attachment; the bytes are fetched from its own address."""
    return {
        "id": row.pk,
        "position": row.position,
        "role": row.role,
        "author": present_author(row),
        "content": row.content,
        "parts": [present_part(part) for part in row.parts],
        "tool_calls": row.tool_calls,
        "tool_call_id": row.tool_call_id,
        "tool_name": row.tool_name,
        "is_error": row.is_error,
        "thinking": row.thinking,
        "status": row.status,
        "token_count": row.token_count,
        "is_summary": row.is_summary,
        "compacted_at": row.compacted_at,
        "compacted_into": row.compacted_into_id,
        "pinned": row.pinned,
        "cleared_at": row.cleared_at,
        "retired_at": row.retired_at,
        "turn": row.turn_id,
        "client_id": row.client_id,
        "usage": row.usage,
        "metadata": row.metadata,
        "created_at": row.created_at,
    }


def present_author(row: Message) -> JSON | None:
    """Who wrote it, under the name the model was shown; None for what no person wrote."""
    if row.author_id is None and not row.author_name:
        return None
    return {"id": row.author_id, "name": row.author_name}


def present_part(part: Mapping[str, Any]) -> JSON:
    """A part without its bytes: never a data URL, and of a file never its whole text."""
    shown = {name: part[name] for name in _SHOWN_OF_A_PART if name in part}
    if part.get("kind") == "text":
        shown["text"] = part.get("text", "")
    return shown


def present_turn(row: Turn, answer: Message | None = None) -> JSON:
    """A turn; `answer` is the assistant message being written, where there is one."""
    return {
        "id": row.pk,
        "state": row.state,
        "attempt": row.attempt,
        "user_message": row.user_message_id,
        "message": answer.pk if answer else None,
        "text": answer.content if answer else "",
        "thinking": answer.thinking if answer else "",
        "rounds": row.rounds,
        "error": present_error(row.error_code, row.error_text, row.retryable),
        "created_at": row.created_at,
    }


def present_error(code: str, message: str, retryable: bool) -> JSON | None:
    return {"code": code, "message": message, "retryable": retryable} if code else None


def present_queued(row: Turn, *, reason: str) -> JSON:
    """A queued turn with its draft; `reason` says what it waits for: "turn", "compaction", "block" or nothing."""
    return {
        "turn": row.pk,
        "message": present_message(row.user_message) if row.user_message else None,
        "waits_for": row.waits_for_id,
        "reason": reason,
    }


def queue_reason(row: Turn, *, running: bool, blocking: bool) -> str:
    """Why a queued turn waits: an explicit wait for a compaction first, then the answer before it."""
    if row.waits_for_id is not None:
        return "compaction" if blocking else "block"
    return "turn" if running else ""


def present_queue(rows: Iterable[Turn], *, running: bool, open_compaction: Compaction | None) -> list[JSON]:
    """The queue in the order in which it will be answered; what is too far behind very long drafts is shown later."""
    blocking = open_compaction is not None and open_compaction.blocking
    shown: list[JSON] = []
    room = LONGEST_QUEUE_SHOWN
    for row in rows:
        room -= len(row.user_message.content) if row.user_message else 0
        if room < 0 and shown:
            break
        behind = running or bool(shown)  # an answer comes first: of a turn that runs, or of one that waits before it
        shown.append(present_queued(row, reason=queue_reason(row, running=behind, blocking=blocking)))
    return shown


def present_compaction(row: Compaction, *, newest_applied: int | None) -> JSON:
    """A compaction as its card shows it; `newest_applied` is the id of the one that can be undone."""
    summary = row.summary_message
    return {
        "id": row.pk,
        "reason": row.reason,
        "strategy": row.strategy,
        "generation": row.generation,
        "state": row.state,
        "blocking": row.blocking,
        "stage": row.stage,
        "fraction": row.fraction,
        "asked_at_position": row.asked_at_position,
        "covered_from": row.covered_from,
        "covered_to": row.covered_to,
        "compacted_count": row.covered_count,
        "keep_recent_count": row.keep_recent_count,
        "summary_message_id": row.summary_message_id,
        "summary_content": summary.content if summary else "",
        "tokens_before": row.tokens_before,
        "tokens_after": row.tokens_after,
        "gain": row.gain,
        "floor": row.floor,
        "quality": row.quality,
        "channel_name": row.channel_name,
        "model": row.model,
        "usage": row.usage,
        "cost": None if row.cost is None else float(row.cost),
        "duration_ms": row.duration_ms,
        "error": present_error(
            row.error_code, stored(row.error_code, row.error_figures, row.error_text), row.retryable
        ),
        "fallback": _present_fallback(row),
        "requested_by": row.requested_by.get_username() if row.requested_by else None,
        "instructions": row.instructions,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "applied_at": row.applied_at,
        "undone_at": row.undone_at,
        "undo_requested_at": row.undo_requested_at,
        "can_undo": row.pk == newest_applied and row.state == State.APPLIED and row.undo_requested_at is None,
    }


def _present_fallback(row: Compaction) -> JSON | None:
    """Why the summary was made without a model although one was wanted."""
    if not row.fallback_code:
        return None
    return {"code": row.fallback_code, "message": stored(row.fallback_code, row.fallback_figures, "")}


def present_agent(agent: Any) -> JSON:
    """An agent as everyone may see it: never its prompt, its channel's address or key."""
    return {
        "id": agent.pk,
        "name": agent.name,
        "description": agent.description,
        "context_window": agent.context_window,
        "model": agent.model_name,
        "sees_images": agent.can_see,
        "enabled": agent.enabled,
    }


def present_conversation(row: Conversation, role: str | None = None) -> JSON:
    """A conversation for the person with that role (by default the one it was accessed as)."""
    return {
        "id": row.pk,
        "title": row.title,
        "agent": present_agent(row.agent),
        "pinned": row.pinned,
        "archived": row.archived,
        "role": row.accessed_as if role is None else role,
        "version": row.version,
        "epoch": row.epoch,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def present_person(row: Participant, *, online: bool = False, typing: bool = False) -> JSON:
    return {
        "id": row.user_id,
        "name": row.user.get_username(),
        "role": row.role,
        "online": online,
        "typing": typing,
    }


def present_found(row: Found, title: str) -> JSON:
    """A message that search found, with where it stands."""
    return {
        "conversation": row.conversation,
        "conversation_title": title,
        "message": row.message,
        "position": row.position,
        "role": row.role,
        "author": row.author,
        "tool": row.tool,
        "excerpt": row.excerpt,
        "compacted": row.is_compacted,
        "created_at": row.created_at,
    }


def present_attachment(row: Attachment) -> JSON:
    return {
        "id": row.pk,
        "name": row.name,
        "kind": row.kind,
        "mime": row.mime,
        "size": row.size,
        "sha256": row.sha256,
        "tokens": row.token_cost,
        "sent_tokens": row.sent_tokens,
        "width": row.width,
        "height": row.height,
        "pages": row.pages,
        "message": row.message_id,
        "owner": row.owner_id,
        "created_at": row.created_at,
    }
