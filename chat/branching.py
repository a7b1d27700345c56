"""Another way on: answer again, continue, edit and resend, choose an earlier answer, fork.

Nothing that was said is changed. What is replaced is retired and stays readable; what a summary stands for cannot be
replaced any more, so there the way leads into a new conversation made of the originals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from agents.text import clean
from chat import context, files, lineage, sending
from chat.access import access_conversation
from chat.claiming import count_answers
from chat.copying import copy_files, copy_originals
from chat.errors import ChatError, Conflict, Forbidden, NotFound
from chat.events import MessageStored
from chat.locking import Desk, locked
from chat.models import SAID_NOTHING, Conversation, Message, Role, Turn, TurnState
from chat.presenting import present_message
from chat.queueing import announce_queue
from chat.waking import wake

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MOST_TOLD = 30  # messages: a change of more is not told one by one

ENDED = (TurnState.DONE, TurnState.STOPPED, TurnState.FAILED, TurnState.INTERRUPTED)


class TurnOpen(ChatError):
    code = "turn_open"
    status = 409
    message = _("An answer is being written or waits to be. Stop it or wait for it first.")


class NotTheNewest(ChatError):
    code = "not_the_newest"
    status = 409
    message = _("The conversation has gone on since. An earlier answer can be chosen only for the newest question.")


class NothingToContinue(ChatError):
    code = "nothing_to_continue"
    status = 409
    message = _("There is no answer here that could go on.")


@dataclass(frozen=True, slots=True)
class Branch:
    """The turn that answers now, and where: the same conversation, or a new one made of the originals."""

    turn: Turn
    conversation: Conversation
    is_new: bool


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """One of several answers to the same question. `turn` began it; the messages include what went on with it."""

    turn: Turn
    messages: list[Message]
    chosen: bool


def regenerate(user: User, conversation_id: UUID | str, message_id: int) -> Branch:
    """Answer a question again; the earlier answer, and what followed it, is retired."""
    conversation = access_conversation(user, conversation_id, Role.MEMBER)
    question = _question_of(_message(conversation, message_id))
    if _is_covered(conversation, question.position):
        return _ask_elsewhere(user, conversation, question, question.content)
    with locked(conversation_id) as desk:
        _check_quiet(desk)
        return Branch(_answer_again(desk, user, question), desk.conversation, is_new=False)


def retry(user: User, conversation_id: UUID | str, turn_id: int, *, continues: bool = False) -> Turn:
    """Try a turn again that failed or was cut off; with `continues` its answer stays and is gone on with."""
    access_conversation(user, conversation_id, Role.MEMBER)
    with locked(conversation_id) as desk:
        _check_quiet(desk)
        turn = Turn.objects.filter(conversation=desk.conversation, pk=turn_id).select_related("user_message").first()
        if turn is None:
            raise NotFound
        newest = Turn.objects.filter(conversation=desk.conversation).order_by("-id").values_list("pk", flat=True)[0]
        if newest != turn.pk:
            raise NotTheNewest
        if continues:
            return _go_on(desk, user, turn)
        if turn.user_message is None or turn.user_message.retired_at is not None:
            raise NothingToContinue
        return _answer_again(desk, user, turn.user_message)


def edit_message(
    user: User,
    conversation_id: UUID | str,
    message_id: int,
    content: str,
    attachments: Sequence[UUID | str] | None = None,
) -> Branch:
    """Say it differently; what was said and what followed it is retired. Its files stay unless others are given."""
    content = clean(content)
    conversation = access_conversation(user, conversation_id, Role.MEMBER)
    original = _message(conversation, message_id)
    if original.role != "user":
        raise Conflict(_("Only what a person wrote can be edited."), code="not_editable")
    if original.author_id not in (None, user.pk) and conversation.accessed_as != Role.OWNER:
        raise Forbidden
    parts = original.parts
    if attachments is not None:
        given = files.parts_of(conversation, user, attachments)
        sending.check_seen(conversation, given)
        parts = [part.to_json() for part in given]
    if not content.strip() and not parts:
        raise sending.NothingToSend
    if _is_covered(conversation, original.position):
        return _ask_elsewhere(user, conversation, original, content)
    with locked(conversation_id) as desk:
        _check_quiet(desk)
        message, turn = sending.queue_message(desk, user, content, parts)
        if attachments:
            sending.take_files(message, attachments)
        _retire_from(desk, original.position or 0, turn)
        _queued(desk)
    return Branch(turn, desk.conversation, is_new=False)


def fork(user: User, conversation_id: UUID | str, message_id: int) -> Conversation:
    """A new conversation of this person's with everything up to this message, as it stood where it was replaced."""
    conversation = access_conversation(user, conversation_id)
    message = _originals(conversation).filter(pk=message_id).first()
    if message is None:
        raise NotFound
    return copy_originals(user, conversation, message.position or 0)


def earlier_answers(user: User, conversation_id: UUID | str, message_id: int) -> list[EarlierAnswer]:
    """All answers to the question that this message asks or answers, the first one first."""
    conversation = access_conversation(user, conversation_id)
    message = Message.objects.filter(conversation=conversation, pk=message_id, position__isnull=False).first()
    if message is None:
        raise NotFound
    question = message if message.role == "user" else _question_of(message)
    answers = [EarlierAnswer(turns[0], rows := _said_in(*turns), _is_shown(rows)) for turns in _answers_to(question)]
    return [answer for answer in answers if answer.messages]


def choose_answer(user: User, conversation_id: UUID | str, turn_id: int) -> Turn:
    """Go on from an earlier answer to the newest question; the present one is retired and can be chosen again."""
    access_conversation(user, conversation_id, Role.MEMBER)
    with locked(conversation_id) as desk:
        _check_quiet(desk)
        turn = Turn.objects.filter(conversation=desk.conversation, pk=turn_id, state__in=ENDED).first()
        if turn is None or turn.user_message_id is None:
            raise NotFound
        question = turn.user_message
        live = Message.objects.filter(conversation=desk.conversation, retired_at__isnull=True, is_summary=False)
        newest = live.filter(role="user", position__isnull=False).order_by("-position").first()
        if question is None or newest is None or newest.pk != question.pk:
            raise NotTheNewest
        if _is_covered(desk.conversation, question.position):
            raise Conflict
        turns = next(turns for turns in _answers_to(question) if turn in turns)
        chosen = _said_in(*turns)
        if not chosen:
            raise NotFound
        if not _is_shown(chosen):
            _retire_from(desk, (question.position or 0) + 1, turns[0])
            Message.objects.filter(pk__in=[row.pk for row in chosen]).update(retired_at=None, retired_by=None)
            for row in chosen:
                row.retired_at = row.retired_by = None
            _note_answers(chosen[-1], count_answers(question) - 1)
            _tell(desk, chosen)
            desk.conversation.live_tokens = context.recount_live_tokens(desk.conversation)
    return turn


# What these have in common


def _originals(conversation: Conversation) -> QuerySet[Message]:
    """Everything that was ever part of the conversation."""
    rows = Message.objects.filter(conversation=conversation, is_summary=False, position__isnull=False)
    return rows.exclude(SAID_NOTHING)


def _message(conversation: Conversation, message_id: int) -> Message:
    """A message that is part of the conversation as it stands."""
    message = _originals(conversation).filter(pk=message_id, retired_at__isnull=True).first()
    if message is None:
        raise NotFound
    return message


def _question_of(message: Message) -> Message:
    """What the person asked: the message itself, or the person's message before it."""
    if message.role == "user":
        return message
    rows = Message.objects.filter(conversation=message.conversation_id, role="user", is_summary=False)
    rows = rows.filter(position__lt=message.position, retired_at__isnull=True)
    question = rows.order_by("-position").first()
    if question is None:
        raise Conflict(_("There is no question before this message."), code="no_question")
    return question


def _is_covered(conversation: Conversation, position: int | None) -> bool:
    """Whether a summary stands for this message or for a later one."""
    rows = Message.objects.filter(conversation=conversation, compacted_into__isnull=False, is_summary=False)
    return rows.filter(position__gte=position, retired_at__isnull=True).exists()


def _check_quiet(desk: Desk) -> None:
    open_states = (TurnState.QUEUED, TurnState.RUNNING)
    if Turn.objects.filter(conversation=desk.conversation, state__in=open_states).exists():
        raise TurnOpen


def _answer_again(desk: Desk, user: User, question: Message) -> Turn:
    turn = Turn.objects.create(conversation=desk.conversation, user_message=question, requested_by=user)
    _retire_from(desk, (question.position or 0) + 1, turn)
    _queued(desk)
    return turn


def _go_on(desk: Desk, user: User, turn: Turn) -> Turn:
    if turn.state not in ENDED or not _is_shown(_said_in(turn)):
        raise NothingToContinue
    made = Turn.objects.create(
        conversation=desk.conversation, user_message=turn.user_message, requested_by=user, continues=True
    )
    _queued(desk)
    return made


def _ask_elsewhere(user: User, source: Conversation, question: Message, content: str) -> Branch:
    """In a new conversation: everything before the question, then the question."""
    made = copy_originals(user, source, question.position or 0, included=False)
    with locked(made.pk) as desk:
        _draft, turn = sending.queue_message(desk, user, content, question.parts)
        copy_files(source, desk.conversation)
        _queued(desk)
    return Branch(turn, desk.conversation, is_new=True)


def _retire_from(desk: Desk, position: int, by: Turn) -> None:
    """Retire everything from a position on: an already sent prefix changes."""
    rows = Message.objects.filter(
        conversation=desk.conversation, position__gte=position, retired_at__isnull=True, is_summary=False
    )
    told = list(rows.order_by("position")[: MOST_TOLD + 1])
    now = timezone.now()
    lineage.retire(desk.conversation, position, now, by)
    for row in told:
        row.retired_at, row.retired_by = now, by
    desk.new_epoch()
    desk.conversation.live_tokens = context.recount_live_tokens(desk.conversation)
    _tell(desk, told)


def _tell(desk: Desk, rows: list[Message]) -> None:
    """Say what changed. More than can sensibly be said is left out: the gap makes every client read a snapshot."""
    if len(rows) > MOST_TOLD:
        desk.conversation.version += 1
        return
    for row in rows:
        desk.emit(MessageStored(present_message(row)))


def _queued(desk: Desk) -> None:
    announce_queue(desk)
    desk.then(lambda: wake(desk.conversation.pk))


def _answers_to(question: Message) -> list[list[Turn]]:
    """The answers to a question, in order: of each the turn that began it and those that went on with it."""
    answers: list[list[Turn]] = []
    for turn in Turn.objects.filter(user_message=question, state__in=ENDED).order_by("id"):
        if turn.continues and answers:
            answers[-1].append(turn)
        else:
            answers.append([turn])
    return answers


def _said_in(*turns: Turn) -> list[Message]:
    """What turns said, their tool rounds included."""
    rows: QuerySet[Message] = Message.objects.filter(turn__in=turns, position__isnull=False).exclude(role="user")
    return list(rows.exclude(SAID_NOTHING).order_by("position"))


def _is_shown(rows: list[Message]) -> bool:
    return bool(rows) and all(row.retired_at is None for row in rows)


def _note_answers(row: Message, count: int) -> None:
    """How many other answers there are, for the page to offer them."""
    row.metadata = {**row.metadata, "earlier_answers": count}
    row.save(update_fields=["metadata"])
