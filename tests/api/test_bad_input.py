"""Bad files, one test each: a clear message, bounded time and memory, nothing lost, nothing run."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import zlib
from typing import Any

import pytest

from chat import extracting
from chat.models import Attachment
from tests.api.conftest import Caller
from tests.api.test_attachments import _bomb, _huge_image, _image, _pdf, _upload

pytestmark = pytest.mark.django_db


def _nothing_is_lost(alice: Caller, here: str) -> None:
    """Nothing of the refused file is kept, and the next one is taken."""
    assert not Attachment.objects.exists()
    assert _upload(alice, here, "fine.txt", b"fine").status == 201


def test_an_upload_of_200_mb(alice: Caller, here: str) -> None:
    """Refused by its announced length, before a byte of it is read."""
    body = io.BytesIO(b"--x\r\n")
    response = alice.client.generic(
        "POST",
        f"/api/v1{here}/attachments",
        body.read(),
        "multipart/form-data; boundary=x",
        CONTENT_LENGTH=str(200 * 1024 * 1024),
    )

    assert response.status_code == 413
    assert response.json()["code"] == "file_too_large"
    _nothing_is_lost(alice, here)


def test_a_zip_bomb(alice: Caller, here: str) -> None:
    answer = _upload(alice, here, "bomb.docx", _bomb())

    assert (answer.status, answer.code) == (422, "archive_too_large")
    _nothing_is_lost(alice, here)


def test_a_pdf_that_unpacks_to_gigabytes(alice: Caller, here: str) -> None:
    packed = zlib.compress(zlib.compress(b"\0" * 400_000_000, 9), 9)
    stream = b"<</Length %d/Filter[/FlateDecode/FlateDecode]>>stream\n%s\nendstream" % (len(packed), packed)
    bomb = _pdf("x").replace(_pdf("x").split(b"4 0 obj")[1].split(b" endobj")[0], stream)

    answer = _upload(alice, here, "bomb.pdf", bomb)

    if answer.status == 201:  # the parser gave up on the page by itself: then nothing of it is text
        assert answer.json["token_cost"] < 100
        Attachment.objects.all().delete()
    else:
        assert answer.code in ("file_broken", "file_too_costly")
    _nothing_is_lost(alice, here)


def test_a_pdf_that_crashes_the_parser(alice: Caller, here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser dies of a segmentation fault; only its process goes with it."""
    run = subprocess.run

    def crash(command: list[str], **how: Any) -> Any:
        return run([sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})"], **how)

    monkeypatch.setattr(extracting.subprocess, "run", crash)
    answer = _upload(alice, here, "evil.pdf", _pdf("x"))

    assert (answer.status, answer.code) == (422, "file_too_costly")
    _nothing_is_lost(alice, here)


def test_a_pdf_on_which_the_parser_never_ends(alice: Caller, here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run

    def hang(command: list[str], **how: Any) -> Any:
        return run([sys.executable, "-c", "while True: pass"], **how)

    monkeypatch.setattr(extracting, "SECONDS", 0.5)
    monkeypatch.setattr(extracting.subprocess, "run", hang)
    answer = _upload(alice, here, "evil.pdf", _pdf("x"))

    assert (answer.status, answer.code) == (422, "file_too_costly")
    _nothing_is_lost(alice, here)


def test_an_image_of_50000_by_50000_pixels(alice: Caller, here: str) -> None:
    answer = _upload(alice, here, "huge.png", _huge_image())

    assert (answer.status, answer.code) == (422, "image_too_large")
    _nothing_is_lost(alice, here)


@pytest.mark.parametrize("name", ["../../x", "..\\..\\x", "/etc/x", "../" * 50 + "x"])
def test_a_file_named_dot_dot_slash_x(alice: Caller, here: str, name: str) -> None:
    answer = _upload(alice, here, name, b"hello")

    assert (answer.status, answer.json["name"]) == (201, "x")
    stored = Attachment.objects.get().file.name
    assert ".." not in stored
    assert stored.startswith("conversations/")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("page.html", b"<!doctype html><script>alert(1)</script>"),
        ("drawing.svg", b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>'),
        ("page.xhtml", b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><script/></html>'),
    ],
)
def test_html_and_svg_with_script(alice: Caller, here: str, name: str, content: bytes) -> None:
    """Kept as text, given out as a download that no browser runs."""
    made = _upload(alice, here, name, content).json
    response = alice.get(f"{here}/attachments/{made['id']}").response

    assert made["kind"] == "text"
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.headers["Content-Disposition"].startswith("attachment")
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in response.headers["Content-Security-Policy"]


def test_an_image_that_carries_html(alice: Caller, here: str) -> None:
    """What was behind the pixels is gone: an image is drawn anew."""
    made = _upload(alice, here, "a.png", _image(kind="PNG") + b"<script>alert(1)</script>").json
    response = alice.get(f"{here}/attachments/{made['id']}").response

    assert b"<script>" not in response.content
    assert response.headers["Content-Type"] == "image/png"


def test_the_parser_gets_no_secret(alice: Caller, here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []
    run = subprocess.run

    def watch(command: list[str], **how: Any) -> Any:
        seen.append(how["env"])
        return run(command, **how)

    monkeypatch.setenv("SECRET_KEY", "plugh")
    monkeypatch.setattr(extracting.subprocess, "run", watch)
    _upload(alice, here, "a.pdf", _pdf("x"))

    assert os.environ["SECRET_KEY"] == "plugh"
    assert seen
    assert all("SECRET_KEY" not in environment for environment in seen)
