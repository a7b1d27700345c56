"""Conversations from elsewhere become conversations here: whole or not at all.

System messages inside an imported conversation stay where they were, as messages of their own: they are sent with every
request word for word, beside the agent's own prompt, and no summariser ever reads or replaces them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from django.db import transaction
from django.utils import timezone

from agents.messages import ContentPart, Message
from agents.models import Agent
from chat import files, history
from chat.chat_lines import BadLine, Picture, Spoken, lines_of, read_line
from chat.models import Conversation, Participant, Role
from chat.models import Message as Row

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger("palimpsest.imports")

ROWS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of one line: a conversation, or the reason why there is none."""

    line: int
    conversation: Conversation | None = None
    messages: int = 0
    reason: str = ""


def import_lines(file: BinaryIO, user: User, agent: Agent) -> Iterator[Imported]:
    """Every line of a file, one after the other; a bad one keeps none of the others from coming in."""
    for number, line in lines_of(file):
        try:
            spoken = read_line(line)
        except BadLine as fault:
            yield Imported(number, reason=str(fault))
        else:
            conversation = store_conversation(spoken, user, agent)
            yield Imported(number, conversation, len(spoken.messages))


def store_conversation(spoken: Spoken, user: User, agent: Agent) -> Conversation:
    """One conversation in one transaction. Counted before it, so that nobody waits for the counting."""
    started = time.monotonic()
    conversation = Conversation(owner=user, agent=agent, title=spoken.title, updated_at=timezone.now())
    rows = [_row(conversation, spoken, index, user) for index in range(len(spoken.messages))]
    with transaction.atomic():
        conversation.last_position = len(rows)
        conversation.live_tokens = sum(row.token_count for row in rows)
        conversation.save(force_insert=True)
        Participant.objects.create(conversation=conversation, user=user, role=Role.OWNER)
        for picture in spoken.pictures:
            conversation.live_tokens += _keep_picture(conversation, user, rows, picture)
        Row.objects.bulk_create(rows, batch_size=ROWS_AT_ONCE)
        _own_pictures(conversation, rows)
        conversation.save(update_fields=["live_tokens"])
    logger.info(
        "imported %d messages, %d tokens for %s in %d ms",
        len(rows),
        conversation.live_tokens,
        user.get_username(),
        round((time.monotonic() - started) * 1000),
    )
    return conversation


def _row(conversation: Conversation, spoken: Spoken, index: int, user: User) -> Row:
    message = spoken.messages[index]
    columns: dict[str, Any] = {"usage": spoken.usage.get(index), "metadata": {"imported": True}}
    if message.role == "user":
        columns |= {"author": None if message.name else user, "author_name": message.name or user.get_username()}
        message = replace(message, name="")
    return history.new_row(conversation, _without_images(message), position=index + 1, **columns)


def _without_images(message: Message) -> Message:
    return replace(message, parts=tuple(part for part in message.parts if part.kind != "image"))


def _keep_picture(conversation: Conversation, user: User, rows: list[Row], picture: Picture) -> int:
    """An image that came inside a message becomes a file of the conversation; returns what it costs (tokens)."""
    part: ContentPart = files.part_of(files.store(conversation, user, picture.name, picture.found))
    row = rows[picture.message]
    row.parts = [*row.parts, part.to_json()]
    row.token_count += part.tokens
    return part.tokens


def _own_pictures(conversation: Conversation, rows: list[Row]) -> None:
    """Files belong to their message once it is stored."""
    for row in rows:
        for part in row.parts:
            if part.get("attachment"):
                conversation.attachments.filter(pk=part["attachment"]).update(message=row)
