"""A message comes in: stored with its turn before anything else happens, then a worker is woken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from agents.messages import ContentPart
from agents.text import clean
from chat import commands, compacting, files
from chat.access import access_conversation
from chat.conversations import announce, clean_title
from chat.errors import ChatError, Conflict, Invalid
from chat.locking import Desk, locked_by
from chat.models import Attachment, Conversation, Message, Role, Turn
from chat.prepared import Part, Prepared, insert, key
from chat.queueing import announce_queue, count_question
from chat.waking import wake

if TYPE_CHECKING:
    from django.contrib.auth.models import User

_SENT = Prepared(
    "chat_message m WHERE m.conversation_id = %(conversation)s AND m.author_id = %(author)s "
    "AND m.client_id = %(client_id)s",
    Part(Message, "m"),
)

LONGEST_MESSAGE: Final = 2_000_000  # characters
LONGEST_CLIENT_ID: Final = 100
TITLE_LENGTH: Final = 60


class NothingToSend(ChatError):
    code = "nothing_to_send"
    status = 422
    message = _("Write something or add a file first.")


class MessageTooLong(ChatError):
    code = "message_too_long"
    status = 422
    message = _("This message is too long. Add the text as a file, or send it in parts.")


class ImagesNotSeen(ChatError):
    code = "images_not_seen"
    status = 422
    message = _("This agent’s model cannot see images. Choose an agent that can, or take the image out.")


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a message: stored with its turn, or a command and what it answered."""

    message: Message | None = None
    turn: Turn | None = None
    command: commands.Result | None = None
    is_new: bool = True


def send_message(
    user: User,
    conversation_id: UUID | str,
    content: str,
    attachments: Sequence[str | UUID] = (),
    client_id: str | None = None,
) -> Sent:
    """Store a message and queue its turn. The same `client_id` sent again gives back the first result."""
    content = clean(content)
    command = commands.parse(content)
    if command is not None and not attachments:
        return Sent(command=commands.run(user, conversation_id, command))
    if not content.strip() and not attachments:
        raise NothingToSend
    if len(content) > LONGEST_MESSAGE:
        raise MessageTooLong
    if client_id is not None and not 0 < len(client_id) <= LONGEST_CLIENT_ID:
        raise Invalid
    parts: tuple[ContentPart, ...] = ()
    if attachments:
        conversation = access_conversation(user, conversation_id, Role.MEMBER)
        if known := _sent_before(conversation.pk, user, client_id):
            return known
        parts = tuple(files.parts_of(conversation, user, attachments))  # reads files, so before the lock
    shown = [part.to_json() for part in parts]
    count = count_question(content, shown)
    try:
        with locked_by(user, conversation_id, Role.MEMBER) as desk:
            check_seen(desk.conversation, parts)
            message, turn = queue_message(desk, user, content, shown, client_id, count)
            take_files(message, attachments)
            compacting.clear_idle(desk)
            announce_queue(desk)
            desk.then(lambda: wake(desk.conversation.pk))
    except _SentBefore as error:
        known = _sent_before(error.conversation, user, client_id)
        if known is None:  # taken back in this very moment
            raise Conflict from error
        return known
    return Sent(message, turn)


class _SentBefore(Exception):
    """This person has used this client id in the conversation before."""

    def __init__(self, conversation: UUID) -> None:
        super().__init__()
        self.conversation = conversation


def queue_message(
    desk: Desk,
    user: User,
    content: str,
    parts: list[dict[str, Any]],
    client_id: str | None = None,
    count: int | None = None,
) -> tuple[Message, Turn]:
    """The draft and its turn; call with the lock held. `count`: its tokens, where they were counted before."""
    message = Message(
        conversation=desk.conversation,
        role="user",
        author=user,
        author_name=user.get_username(),
        content=content,
        parts=parts,
        client_id=client_id or None,
        token_count=count_question(content, parts) if count is None else count,
    )
    if not insert(message, unless_known=True):
        raise _SentBefore(desk.conversation.pk)
    turn = Turn(conversation=desk.conversation, user_message=message, requested_by=user)
    insert(turn)
    if not desk.conversation.title and (title := _title(content)):
        desk.conversation.title = title
        announce(desk)
    return message, turn


def check_seen(conversation: Conversation, parts: Sequence[ContentPart]) -> None:
    """Raises ImagesNotSeen where images go to a model that would not look at them."""
    if any(part.kind == "image" for part in parts) and not conversation.agent.can_see:
        raise ImagesNotSeen


def _sent_before(conversation: UUID, user: User, client_id: str | None) -> Sent | None:
    if not client_id:
        return None
    found: list[Message] = _SENT.fetch(
        conversation=key(Conversation, conversation), author=user.pk, client_id=client_id
    )
    if not found:
        return None
    known = found[0]
    turn = Turn.objects.filter(user_message=known).order_by("id").first()
    return Sent(known, turn, is_new=False)


def take_files(message: Message, attachments: Sequence[str | UUID]) -> None:
    """The files belong to this message now, and to no other."""
    if not attachments:
        return
    wanted = set(map(str, attachments))
    taken = Attachment.objects.filter(pk__in=wanted, message__isnull=True).update(message=message)
    if taken != len(wanted):
        raise Conflict


def _title(content: str) -> str:
    """The first words of the first message, until somebody gives the conversation a name."""
    first = next((line for line in content.splitlines() if line.strip()), "")
    words = clean_title(first)
    return words if len(words) <= TITLE_LENGTH else words[: TITLE_LENGTH - 1].rsplit(" ", 1)[0] + "…"
