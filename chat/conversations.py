"""Conversations are made, renamed, filed, given another agent, and deleted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from agents.models import Agent
from agents.text import clean
from chat import broadcast
from chat.access import access_conversation
from chat.errors import ChatError
from chat.events import ConversationChanged
from chat.locking import Desk, locked
from chat.models import Conversation, Participant, Role, Turn, TurnState
from chat.presenting import present_conversation, present_person
from compaction.models import OPEN_STATES, Compaction

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LONGEST_TITLE: Final = 200  # characters


class NoAgent(ChatError):
    code = "no_agent"
    status = 409
    message = _("There is no agent to talk to yet. An administrator can add one.")


class AgentUnavailable(ChatError):
    code = "agent_unavailable"
    status = 422
    message = _("This agent does not exist or is switched off. Choose another one.")


def create_conversation(user: User, *, agent_id: int | None = None, title: str = "") -> Conversation:
    """A new conversation owned by `user`, with the agent chosen or the first one there is."""
    agent = find_agent(agent_id)
    with transaction.atomic():
        conversation = Conversation.objects.create(owner=user, agent=agent, title=clean_title(title))
        Participant.objects.create(conversation=conversation, user=user, role=Role.OWNER)
    conversation.accessed_as = Role.OWNER
    return conversation


def change_conversation(
    user: User,
    conversation_id: UUID | str,
    *,
    title: str | None = None,
    agent_id: int | None = None,
    pinned: bool | None = None,
    archived: bool | None = None,
) -> Conversation:
    """Change what is given and tell everyone. Another agent means another prefix: a new epoch."""
    role = access_conversation(user, conversation_id, Role.MEMBER).accessed_as
    with locked(conversation_id) as desk:
        before = _properties(desk.conversation)
        if title is not None:
            desk.conversation.title = clean_title(title)
        if pinned is not None:
            desk.conversation.pinned = pinned
        if archived is not None:
            desk.conversation.archived = archived
        if agent_id is not None and agent_id != desk.conversation.agent_id:
            _switch_agent(desk, agent_id)
        if _properties(desk.conversation) != before:
            announce(desk)
    desk.conversation.accessed_as = role
    return desk.conversation


def delete_conversation(user: User, conversation_id: UUID | str) -> None:
    """Hide a conversation at once; `purge_conversations` removes its rows and files later."""
    access_conversation(user, conversation_id, Role.OWNER)
    hide(conversation_id)


def hide(conversation_id: UUID | str) -> None:
    """Delete without asking whose right it is, as an administrator does. Doing it twice changes nothing."""
    with locked(conversation_id, deleted=True) as desk:
        if desk.conversation.deleted_at is not None:
            return
        desk.conversation.deleted_at = timezone.now()
        announce(desk)
        _stop_turns(desk)
        desk.then(lambda: broadcast.publish_to_conversation(conversation_id, {"type": "recheck"}))


def announce(desk: Desk, *, people: bool = False) -> None:
    """Tell everyone in the conversation what it looks like now, with its people where they changed.

    The version shown is the one this event carries. `role` is empty: everyone keeps their own.
    """
    shown = present_conversation(desk.conversation, "")
    shown["version"] += 1
    shown["deleted"] = desk.conversation.deleted_at is not None
    if people:
        rows = Participant.objects.filter(conversation=desk.conversation).select_related("user").order_by("id")
        shown["people"] = [present_person(row) for row in rows]
    desk.emit(ConversationChanged(shown))


def clean_title(title: str) -> str:
    """A title on one line, no longer than the column."""
    return " ".join(clean(title).split())[:LONGEST_TITLE].rstrip()


def find_agent(agent_id: int | None) -> Agent:
    """The agent of that id if it may be talked to; without an id the first one there is."""
    agents = Agent.objects.select_related("channel").filter(enabled=True)
    if agent_id is None:
        first = agents.order_by("pk").first()
        if first is None:
            raise NoAgent
        return first
    agent = agents.filter(pk=agent_id).first()
    if agent is None:
        raise AgentUnavailable
    return agent


def _switch_agent(desk: Desk, agent_id: int) -> None:
    desk.conversation.agent = find_agent(agent_id)
    desk.new_epoch()


def _stop_turns(desk: Desk) -> None:
    """What waits is dropped; the answer being written and an open compaction are asked to stop."""
    now = timezone.now()
    turns = Turn.objects.filter(conversation=desk.conversation)
    turns.filter(state=TurnState.QUEUED).update(state=TurnState.STOPPED, finished_at=now)
    for turn in turns.filter(state=TurnState.RUNNING):
        turns.filter(pk=turn.pk).update(stop_requested_at=now)
        desk.then(partial(broadcast.publish_to_worker, turn.worker, {"type": "turn.stop", "turn": turn.pk}))
    Compaction.objects.filter(conversation=desk.conversation, state__in=OPEN_STATES).update(cancel_requested_at=now)


def _properties(conversation: Conversation) -> tuple[Any, ...]:
    return (conversation.title, conversation.pinned, conversation.archived, conversation.agent_id)
