"""An administrator erases one message: its words are gone here, in its files, and in every summary made from it.

This is the exception to the rule that originals never change. What a summary stood for comes back into the context
without the message, and the next compaction makes a new summary.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from agents import tokens
from agents.messages import Message as Spoken
from agents.messages import ToolCall
from chat import context
from chat.errors import ChatError, Conflict, Forbidden, NotFound
from chat.events import MessageStored
from chat.files import drop_bytes
from chat.locking import Desk, locked
from chat.models import Attachment, Message, Turn, TurnState
from chat.presenting import present_message
from chat.undoing import undo
from compaction.models import Compaction, State

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger("palimpsest.erasing")

PERMISSION = "chat.erase_message"


class TurnRuns(ChatError):
    code = "turn_runs"
    status = 409
    message = _("An answer is being written in this conversation. Wait for it or stop it first.")


def erase_message(user: User, conversation_id: UUID | str, message_id: int) -> Message:
    """Blank a message for ever; returns it. Undoes every applied compaction whose summary contains it."""
    if not user.has_perm(PERMISSION):
        raise Forbidden
    with locked(conversation_id, deleted=True) as desk:
        row = _message(desk, message_id)
        if Turn.objects.filter(conversation=desk.conversation, state=TurnState.RUNNING).exists():
            raise TurnRuns
        undone = _undo_down_to(desk, row)
        _forget_summaries(desk, row)
        files = _take_files(desk, row)
        _blank(row, user)
        desk.conversation.live_tokens = context.recount_live_tokens(desk.conversation)
        desk.new_epoch()
        desk.emit(MessageStored(present_message(row)))
        for file in files:
            desk.then(partial(drop_bytes, file))
    logger.info("message %d erased by %s, %d compactions undone", row.pk, user.get_username(), undone)
    return row


def _message(desk: Desk, message_id: int) -> Message:
    rows = Message.objects.filter(conversation=desk.conversation, is_summary=False, position__isnull=False)
    row = rows.filter(pk=message_id).first()
    if row is None:
        raise NotFound
    if row.metadata.get("erased_at"):
        raise Conflict(_("This message is erased already."), code="erased")
    return row


def _undo_down_to(desk: Desk, row: Message) -> int:
    """Undo applied compactions, the newest first, until no summary stands for the message. Automatic runs go on."""
    paused, count = desk.conversation.paused, 0
    applied = Compaction.objects.filter(conversation=desk.conversation, state=State.APPLIED).order_by("-id")
    while row.compacted_into_id is not None:
        newest = applied.select_related("summary_message").first()
        if newest is None:
            raise Conflict
        undo(desk, newest)
        row.refresh_from_db()
        count += 1
    desk.conversation.paused = paused
    return count


def _forget_summaries(desk: Desk, row: Message) -> None:
    """Runs that read the message keep their figures and lose their words; an open one is ended with them."""
    rows = Compaction.objects.filter(conversation=desk.conversation)
    readers = rows.filter(Q(covered_to__gte=row.position) | Q(covered_to__isnull=True)).exclude(state=State.APPLIED)
    summaries = Message.objects.filter(compaction__in=readers)
    for summary in summaries:
        summary.content = ""
        summary.token_count = tokens.count_message(Spoken("user", ""))
        summary.save(update_fields=["content", "token_count"])
    readers.filter(state__in=(State.QUEUED, State.RUNNING, State.READY)).update(
        state=State.CANCELLED, error_code="cancelled", cancel_requested_at=timezone.now(), finished_at=timezone.now()
    )
    readers.update(prefix=None, quality={})


def _take_files(desk: Desk, row: Message) -> list[Attachment]:
    """The rows of the message's files go now, their bytes after the commit."""
    named = [part["attachment"] for part in row.parts if part.get("attachment")]
    rows = Attachment.objects.filter(Q(message=row) | Q(pk__in=named), conversation=desk.conversation)
    files = list(rows)
    rows.delete()
    return files


def _blank(row: Message, user: User) -> None:
    """Nothing of the words stays; the calls of tools stay as empty calls, because their results answer them."""
    row.content = row.thinking = ""
    row.parts = []
    row.tool_calls = [ToolCall(call["id"], call["function"]["name"]).to_openai() for call in row.tool_calls]
    row.metadata = {"erased_at": timezone.now().isoformat(), "erased_by": user.get_username()}
    calls = tuple(map(ToolCall.from_openai, row.tool_calls))
    spoken = Spoken(row.role, "", tool_calls=calls, tool_call_id=row.tool_call_id, name=row.tool_name)  # type: ignore[arg-type]
    row.token_count = tokens.count_message(spoken)
    row.save(update_fields=["content", "thinking", "parts", "tool_calls", "metadata", "token_count"])
