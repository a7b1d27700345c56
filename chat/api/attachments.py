"""/conversations/<id>/attachments: upload, read, give out, take back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Router

from chat import files
from chat.access import access_conversation
from chat.api.answers import LARGEST_PAGE, answer, listing
from chat.api.auth import person
from chat.api.schemas import AttachmentOut, Page
from chat.errors import Invalid
from chat.files import LARGEST_FILE, FileTooLarge
from chat.models import Attachment, Role
from chat.presenting import present_attachment

router = Router(tags=["files"])

_FORM_OVERHEAD = 64 * 1024  # bytes of a form around its file

_UPLOAD_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            }
        },
    }
}


@router.get("/{uuid:conversation_id}/attachments", response=Page[AttachmentOut], summary="Files, newest first")
def list_attachments(request: HttpRequest, conversation_id: UUID, offset: int = 0, limit: int = 50) -> HttpResponse:
    conversation = access_conversation(person(request), conversation_id)
    limit, offset = max(1, min(limit, LARGEST_PAGE)), max(0, min(offset, 10_000))
    rows = Attachment.objects.filter(conversation=conversation).defer("text").order_by("-created_at", "-id")
    found = list(rows[offset : offset + limit + 1])
    cursor = str(offset + limit) if len(found) > limit else None
    return listing([present_attachment(row) for row in found[:limit]], cursor)


@router.post(
    "/{uuid:conversation_id}/attachments",
    response={201: AttachmentOut},
    openapi_extra=_UPLOAD_BODY,
    summary="Upload a file for a message",
)
def upload(request: HttpRequest, conversation_id: UUID) -> HttpResponse:
    # Rights and size are looked at before the body is parsed: a stranger's 200 MB are never unpacked.
    access_conversation(person(request), conversation_id, Role.MEMBER)
    if int(request.META.get("CONTENT_LENGTH") or 0) > LARGEST_FILE + _FORM_OVERHEAD:
        raise FileTooLarge
    uploaded = request.FILES.get("file")
    if uploaded is None:
        raise Invalid(code="no_file")
    row = files.store_upload(person(request), conversation_id, uploaded)
    return answer(present_attachment(row), 201)


@router.get("/{uuid:conversation_id}/attachments/{uuid:attachment_id}", summary="The file itself, as a download")
def download(request: HttpRequest, conversation_id: UUID, attachment_id: UUID) -> HttpResponse:
    row = files.read_attachment(person(request), conversation_id, attachment_id)
    if request.headers.get("If-None-Match") == f'"{row.sha256}"':
        return HttpResponse(status=304)
    return files.as_download(row)


@router.get(
    "/{uuid:conversation_id}/attachments/{uuid:attachment_id}/details",
    response=AttachmentOut,
    summary="What is known about a file",
)
def details(request: HttpRequest, conversation_id: UUID, attachment_id: UUID) -> HttpResponse:
    return answer(present_attachment(files.read_attachment(person(request), conversation_id, attachment_id)))


@router.get("/{uuid:conversation_id}/attachments/{uuid:attachment_id}/text", summary="The text found in a file")
def extracted_text(request: HttpRequest, conversation_id: UUID, attachment_id: UUID) -> HttpResponse:
    row = files.read_attachment(person(request), conversation_id, attachment_id)
    return answer({"text": row.text, "name": row.name})


@router.delete(
    "/{uuid:conversation_id}/attachments/{uuid:attachment_id}", response={204: None}, summary="Take back an unsent file"
)
def discard(request: HttpRequest, conversation_id: UUID, attachment_id: UUID) -> HttpResponse:
    files.discard(person(request), conversation_id, attachment_id)
    return HttpResponse(status=204)
