"""Files of a conversation: taken in within limits, shown only to its people, given out as downloads."""

from __future__ import annotations

import base64
import unicodedata
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.core.files.base import ContentFile
from django.core.files.uploadedfile import UploadedFile
from django.db.models import Sum
from django.http import HttpResponse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext_lazy as _

from agents.messages import ContentPart
from agents.text import clean
from agents.tokens import count_text
from chat.access import access_conversation
from chat.errors import ChatError, Conflict, NotFound
from chat.extracting import Extracted, extract
from chat.models import Attachment, AttachmentKind, Conversation, Message, Role

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LARGEST_FILE: Final = 20 * 1024 * 1024  # bytes
MOST_FILES_OF_A_MESSAGE: Final = 20
MOST_FILES: Final = 1_000  # of a conversation
MOST_BYTES: Final = 1024 * 1024 * 1024  # of a conversation
LONGEST_NAME: Final = 200  # characters
INLINE_TOKENS: Final = 20_000  # a longer text goes to the model as its beginning, the rest is read with a tool
BEGINNING: Final = 8_000  # characters


class FileTooLarge(ChatError):
    code = "file_too_large"
    status = 413
    message = _("The file is too large; 20 MB are allowed.")


class TooManyFiles(ChatError):
    code = "too_many_files"
    status = 409
    message = _("This conversation holds as many files as it can hold.")


def store_upload(user: User, conversation_id: UUID | str, upload: UploadedFile[Any]) -> Attachment:
    """Keep an uploaded file for a message that is still being written."""
    conversation = access_conversation(user, conversation_id, Role.MEMBER)
    if (upload.size or 0) > LARGEST_FILE:
        raise FileTooLarge
    check_room(conversation, upload.size or 0)
    return store(conversation, user, upload.name or "", extract(upload.read()))


def store(
    conversation: Conversation,
    user: User | None,
    name: str,
    found: Extracted,
    *,
    message: Message | None = None,
    is_path: bool = False,
) -> Attachment:
    """A file as a row; its place in the storage is made of ids alone, so that no name leads anywhere.

    `is_path`: the name is one inside the conversation's space and was checked.
    """
    key = uuid.uuid4()
    shown = name if is_path else safe_name(name)
    row = Attachment(
        id=key,
        conversation=conversation,
        owner=user,
        message=message,
        name=shown,
        kind=found.kind,
        mime=found.mime,
        size=len(found.content),
        sha256=found.sha256,
        text=found.text,
        token_cost=found.tokens,
        sent_tokens=_sent_tokens(found, shown, is_path),
        width=found.width,
        height=found.height,
        pages=found.pages,
    )
    row.file.save(f"{conversation.pk}/{key}", ContentFile(found.content), save=False)
    row.save(force_insert=True)
    return row


def read_attachment(user: User, conversation_id: UUID | str, attachment_id: UUID) -> Attachment:
    """A file, for the people of its conversation."""
    conversation = access_conversation(user, conversation_id)
    row = Attachment.objects.filter(conversation=conversation, pk=attachment_id).defer("text").first()
    if row is None:
        raise NotFound
    return row


def discard(user: User, conversation_id: UUID | str, attachment_id: UUID) -> None:
    """Take back a file that was not sent yet; what was sent belongs to the conversation."""
    access_conversation(user, conversation_id, Role.MEMBER)
    rows = Attachment.objects.filter(conversation_id=conversation_id, pk=attachment_id, owner=user)
    row = rows.first()
    if row is None:
        raise NotFound
    if row.message_id is not None:
        raise Conflict(_("This file was sent already."), code="file_sent")
    row.delete()
    drop_bytes(row)


def drop_bytes(row: Attachment) -> None:
    """Remove the stored bytes of a row that is gone, unless a fork's row stands on the same ones."""
    if not Attachment.objects.filter(file=row.file.name).exists():
        row.file.delete(save=False)


def as_download(row: Attachment) -> HttpResponse:
    """The bytes, as a download that no browser will run: no sniffing, no script, no frame."""
    with row.file.open("rb") as stored:
        response = HttpResponse(stored.read(), content_type=_served_type(row))
    response["Content-Disposition"] = content_disposition_header(True, row.name.rsplit("/", 1)[-1]) or "attachment"
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["Cross-Origin-Resource-Policy"] = "same-origin"
    response["Cache-Control"] = "private, max-age=31536000, immutable"
    response["ETag"] = f'"{row.sha256}"'
    return response


def parts_of(conversation: Conversation, user: User, attachment_ids: Sequence[UUID | str]) -> tuple[ContentPart, ...]:
    """Uploaded files as parts of a message, in the order given. Reads files: call before taking the lock.

    An image's bytes go into the part, because a request is made of rows alone and reads no file when it is sent.
    """
    if len(attachment_ids) > MOST_FILES_OF_A_MESSAGE:
        raise TooManyFiles
    rows = Attachment.objects.filter(conversation=conversation, owner=user, message__isnull=True)
    found = {str(row.pk): row for row in rows.filter(pk__in=attachment_ids)}
    if missing := [key for key in map(str, attachment_ids) if key not in found]:
        raise NotFound(_("The file %(key)s was not uploaded here, or was sent already.") % {"key": missing[0]})
    return tuple(part_of(found[str(key)]) for key in dict.fromkeys(map(str, attachment_ids)))


def part_of(row: Attachment) -> ContentPart:
    """One file as a part of a message."""
    if row.kind == AttachmentKind.IMAGE:
        with row.file.open("rb") as stored:
            url = f"data:{row.mime};base64,{base64.b64encode(stored.read()).decode()}"
        return ContentPart(
            kind="image",
            url=url,
            name=row.name,
            mime=row.mime,
            width=row.width,
            height=row.height,
            tokens=row.token_cost,
            attachment=str(row.pk),
        )
    text = _text_for_model(row.text, row.token_cost, row.name)
    return ContentPart(kind="file", text=text, name=row.name, mime=row.mime, attachment=str(row.pk))


def safe_name(name: str) -> str:
    """A file's name for people: its last part, on one line, without characters that hide or turn text."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    shown = "".join(c for c in clean(last) if unicodedata.category(c)[0] != "C").strip(" .")
    if len(shown) > LONGEST_NAME:
        stem, dot, ending = shown.rpartition(".")
        keep = LONGEST_NAME - len(dot + ending[:20])
        shown = (stem[:keep] + dot + ending[:20]) if stem else shown[:LONGEST_NAME]
    return shown or "file"


def _text_for_model(text: str, tokens: int, name: str) -> str:
    """The whole text, or of a long one its beginning and how to read on."""
    if tokens <= INLINE_TOKENS:
        return text
    return f"{text[:BEGINNING]}\n[… {tokens} tokens in all. Read on with the tool read_file: {name}]"


def _sent_tokens(found: Extracted, name: str, is_path: bool) -> int:
    """What the message that brings a file carries of it (tokens); what a tool wrote was in its call."""
    if found.kind == AttachmentKind.IMAGE or (found.tokens <= INLINE_TOKENS and not is_path):
        return found.tokens
    return 0 if is_path else count_text(_text_for_model(found.text, found.tokens, name))


def check_room(conversation: Conversation, size: int) -> None:
    """Raises TooManyFiles where a conversation cannot hold another file of this size (bytes)."""
    rows = Attachment.objects.filter(conversation=conversation)
    held = rows.aggregate(total=Sum("size"))["total"] or 0
    if held + size > MOST_BYTES or rows.count() >= MOST_FILES:
        raise TooManyFiles


def _served_type(row: Attachment) -> str:
    if row.kind == AttachmentKind.IMAGE:
        return row.mime
    return "text/plain; charset=utf-8" if row.kind == AttachmentKind.TEXT else "application/octet-stream"
