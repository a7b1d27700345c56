"""How the API speaks: orjson, lists with a cursor, errors with a code and a sentence."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import orjson
from django.http import HttpResponse

from chat.errors import Invalid

LARGEST_PAGE = 200


def answer(content: Any, status: int = 200) -> HttpResponse:
    """A JSON answer; never cached, because it is one person's."""
    body = orjson.dumps(content, default=str)
    return HttpResponse(body, status=status, content_type="application/json", headers={"Cache-Control": "no-store"})


def listing(items: Sequence[Any], cursor: str | None) -> HttpResponse:
    """A page of a list, with the cursor of the next one."""
    return answer({"items": items, "next": cursor})


def refusal(code: str, message: object, status: int, **headers: str) -> HttpResponse:
    """An error as every error looks."""
    response = answer({"code": code, "message": str(message)}, status)
    for name, value in headers.items():
        response[name.replace("_", "-")] = value
    return response


def write_cursor(values: list[Any]) -> str:
    """An opaque cursor that `read_cursor` turns back into its values."""
    return base64.urlsafe_b64encode(orjson.dumps(values)).decode().rstrip("=")


def read_cursor(cursor: str, length: int) -> list[Any]:
    """The values of a cursor this site gave out; anything else is refused with a sentence."""
    try:
        values = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error):
        values = None
    if not isinstance(values, list) or len(values) != length:
        raise Invalid(code="bad_cursor")
    return values
