"""A socket speaks the language its page was drawn in."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.utils import translation

from chat.loop import run_in_db
from palimpsest.accounts.asgi import SocketLanguage, language_of


def scope(cookie: str = "", accept: str = "") -> dict[str, Any]:
    return {"headers": [(b"cookie", cookie.encode()), (b"accept-language", accept.encode())]}


@pytest.mark.parametrize(
    ("opened", "language"),
    [
        (scope(), "en"),
        (scope(accept="zh-CN,zh;q=0.9,en;q=0.8"), "zh-hans"),
        (scope(f"{settings.LANGUAGE_COOKIE_NAME}=zh-hans", "en"), "zh-hans"),
        (scope(f"{settings.LANGUAGE_COOKIE_NAME}=en", "zh-CN"), "en"),
        (scope(f"{settings.LANGUAGE_COOKIE_NAME}=tlh", "fr"), "en"),
        ({"headers": []}, "en"),
    ],
)
def test_the_chosen_language_comes_before_the_browsers(opened: dict[str, Any], language: str) -> None:
    assert language_of(opened) == language


def test_what_a_socket_asks_of_the_database_is_answered_in_its_language() -> None:
    answers = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        answers.append(await run_in_db(translation.get_language))

    async_to_sync(SocketLanguage(application))(scope(accept="zh-CN"), None, None)
    async_to_sync(SocketLanguage(application))(scope(), None, None)

    assert answers == ["zh-hans", "en"]
    assert translation.get_language() == "en"
