"""Commands typed as text: /compact, /context, /help. They are answered here and never reach the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.utils.translation import gettext as _

from chat import context
from chat.access import access_conversation
from chat.compacting import request_compaction
from chat.models import Role

if TYPE_CHECKING:
    from django.contrib.auth.models import User

NAMES: Final = ("compact", "context", "help")


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What a command answered, for the person who typed it."""

    command: str
    result: dict[str, Any]


def parse(content: str) -> Command | None:
    """The command in a message; None for any other text, also where it begins with another slash word or a path."""
    stripped = content.strip()
    if not stripped.startswith("/"):
        return None
    word, _space, rest = stripped[1:].partition(" ")
    if "\n" in word:
        word, _line, more = word.partition("\n")
        rest = f"{more} {rest}".strip()
    return Command(word.lower(), rest.strip()) if word.lower() in NAMES else None


def run(user: User, conversation_id: UUID | str, command: Command) -> Result:
    """Do what a command says."""
    match command.name:
        case "compact":
            run_ = request_compaction(user, conversation_id, "manual", command.text)
            return Result("compact", {"compaction": run_.pk})
        case "context":
            conversation = access_conversation(user, conversation_id, Role.VIEWER)
            usage = context.measure(conversation)
            return Result("context", {**usage.to_event(), "effective_window": usage.thresholds.effective_window})
        case _:
            access_conversation(user, conversation_id, Role.VIEWER)
            return Result("help", {"commands": help_lines()})


def help_lines() -> list[dict[str, str]]:
    return [
        {
            "command": "/compact",
            "arguments": _("[what to keep]"),
            "text": _("Compact the older part of this conversation."),
        },
        {"command": "/context", "arguments": "", "text": _("Show what fills the context window.")},
        {"command": "/help", "arguments": "", "text": _("Show these commands.")},
    ]
