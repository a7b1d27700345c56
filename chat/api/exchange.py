"""…/export and /import: conversations go out and come in."""

from __future__ import annotations

from io import BytesIO
from typing import Any, BinaryIO, Literal, cast
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext_lazy as _
from ninja import Query, Router, Schema

from chat import exporting
from chat.access import access_conversation
from chat.api.answers import answer
from chat.api.auth import person
from chat.api.schemas import Id, ImportedOut
from chat.conversations import find_agent
from chat.errors import ChatError, Invalid
from chat.files import safe_name
from chat.importing import import_lines
from chat.models import Role
from chat.presenting import present_conversation

conversation_router = Router(tags=["exchange"])
router = Router(tags=["exchange"])

LARGEST_IMPORT = 64 * 1024 * 1024  # bytes
MOST_PROBLEMS = 100

_TYPES = {"jsonl": "application/x-ndjson", "markdown": "text/markdown; charset=utf-8"}
_ENDINGS = {"jsonl": "jsonl", "markdown": "md"}

_IMPORT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-ndjson": {"schema": {"type": "string"}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            },
        },
    }
}


class Wanted(Schema):
    format: Literal["jsonl", "markdown"] = "jsonl"


class ImportTooLarge(ChatError):
    code = "too_large"
    status = 413
    message = _("At most 64 MB can be imported here. Use manage.py import_conversation for more.")


@conversation_router.get("/{uuid:conversation_id}/export", summary="The originals, as JSONL or Markdown")
def export(request: HttpRequest, conversation_id: UUID, wanted: Query[Wanted]) -> HttpResponse:
    conversation = access_conversation(person(request), conversation_id)
    body = exporting.as_jsonl(conversation) if wanted.format == "jsonl" else exporting.as_markdown(conversation)
    response = HttpResponse(body, content_type=_TYPES[wanted.format])
    name = safe_name(f"{conversation.title or conversation.pk}.{_ENDINGS[wanted.format]}")
    response["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    response["X-Content-Type-Options"] = "nosniff"
    return response


@router.post(
    "",
    response={201: ImportedOut, 422: ImportedOut},
    openapi_extra=_IMPORT_BODY,
    summary="Conversations in OpenAI chat form, one JSON object a line; a bad line is named and keeps none out",
)
def import_conversations(request: HttpRequest, agent: Id | None = None) -> HttpResponse:
    if int(request.META.get("CONTENT_LENGTH") or 0) > LARGEST_IMPORT:
        raise ImportTooLarge
    made, problems = [], []
    for imported in import_lines(_body(request), person(request), find_agent(agent)):
        if imported.conversation is None:
            problems.append({"line": imported.line, "message": imported.reason})
        else:
            made.append(present_conversation(imported.conversation, Role.OWNER))
    if not made:
        first = problems[0] if problems else None
        raise Invalid(
            _("Line %(line)s: %(message)s") % first if first else _("The file has no lines."), code="nothing_imported"
        )
    return answer({"conversations": made, "problems": problems[:MOST_PROBLEMS]}, 201)


def _body(request: HttpRequest) -> BinaryIO:
    """The file of a form, or the body itself. The body is read as a stream: it may be larger than other requests'."""
    if request.content_type == "multipart/form-data":
        uploaded = request.FILES.get("file")
        if uploaded is None:
            raise Invalid(code="no_file")
        return cast(BinaryIO, uploaded)
    return BytesIO(request.read(LARGEST_IMPORT + 1))
