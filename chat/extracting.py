"""What an uploaded file is and says, found from its content and never from its name."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import filetype
from django.conf import settings
from django.utils.translation import gettext as _

from agents.text import clean
from agents.tokens import count_text
from chat.errors import ChatError
from chat.extractor import LONGEST_TEXT
from chat.models import AttachmentKind

SECONDS: Final = 30.0  # for one file, in a process of its own

_EXTRACTED: Final = {
    "image/png": "image",
    "image/jpeg": "image",
    "image/gif": "image",
    "image/webp": "image",
    "application/pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
}
_TEXT_CONTROL: Final = frozenset(range(32)) - {9, 10, 12, 13, 27}

_SENTENCES: Final[dict[str, Callable[[], str]]] = {
    "file_type": lambda: _("This type of file cannot be read here. Text, code, CSV, PDF, DOCX and images can."),
    "file_broken": lambda: _("This file is damaged and cannot be read."),
    "file_encrypted": lambda: _("This PDF is protected by a password. Remove the password and try again."),
    "file_too_costly": lambda: _("Reading this file takes too much memory or time."),
    "archive_too_large": lambda: _("This file unpacks to far more than its size and is not read."),
    "image_too_large": lambda: _("This image has too many pixels. Make it smaller and try again."),
    "file_empty": lambda: _("This file is empty."),
}


class FileRefused(ChatError):
    """A file that is not taken in, and why."""

    code = "file_refused"
    status = 422

    def __init__(self, code: str) -> None:
        super().__init__(_SENTENCES.get(code, _SENTENCES["file_broken"])(), code=code)


@dataclass(frozen=True, slots=True)
class Extracted:
    """A file as it is kept. `content` are the bytes to store: an image's are drawn anew."""

    kind: str
    mime: str
    content: bytes
    text: str = ""
    tokens: int = 0
    width: int = 0
    height: int = 0
    pages: int = 0

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def extract(content: bytes) -> Extracted:
    """Find out what a file is; raises FileRefused with a sentence for whatever cannot be used."""
    if not content:
        raise FileRefused("file_empty")
    guessed = filetype.guess_mime(content[:8192])
    mode = _EXTRACTED.get(guessed or "")
    if mode == "image":
        return _image(content)
    if mode is not None:
        return _document(content, mode, str(guessed))
    text = _as_text(content) if guessed is None or guessed.startswith("text/") else None
    if text is None:
        raise FileRefused("file_type")
    return Extracted(AttachmentKind.TEXT, "text/plain", content, text, count_text(text))


def extract_html(page: str, address: str) -> str:
    """The text of a page of the web; raises FileRefused where reading it costs too much."""
    with tempfile.TemporaryDirectory(prefix="palimpsest-file-") as folder:
        told = f"{' '.join(address.split())}\n{clean(page)}".encode()
        found = _in_own_process("html", told, Path(folder), Path(folder) / "out")
    return clean(found["text"])


def _image(content: bytes) -> Extracted:
    with tempfile.TemporaryDirectory(prefix="palimpsest-file-") as folder:
        target = Path(folder) / "out"
        found = _in_own_process("image", content, Path(folder), target)
        drawn = target.read_bytes()
    return Extracted(
        AttachmentKind.IMAGE,
        found["mime"],
        drawn,
        tokens=settings.IMAGE_TOKENS,
        width=found["width"],
        height=found["height"],
    )


def _document(content: bytes, mode: str, mime: str) -> Extracted:
    with tempfile.TemporaryDirectory(prefix="palimpsest-file-") as folder:
        found = _in_own_process(mode, content, Path(folder), Path(folder) / "out")
    text = clean(found["text"])
    return Extracted(AttachmentKind.DOCUMENT, mime, content, text, count_text(text), pages=found.get("pages", 0))


def _in_own_process(mode: str, content: bytes, folder: Path, target: Path) -> dict[str, Any]:
    """Run the extractor with an empty environment: it needs no secret and gets none."""
    source = folder / "in"
    source.write_bytes(content)
    try:
        done = subprocess.run(  # noqa: S603 - our own module, arguments made here
            [sys.executable, "-m", "chat.extractor", mode, str(source), str(target)],
            cwd=settings.BASE_DIR,
            env={"PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise FileRefused("file_too_costly") from None
    if done.returncode != 0:
        raise FileRefused("file_too_costly" if done.returncode < 0 else "file_broken")
    found: dict[str, Any] = json.loads(done.stdout)
    if "refused" in found:
        raise FileRefused(found["refused"])
    return found


def _as_text(content: bytes) -> str | None:
    """The text of a file, in the encodings that text files have today; None for what is not text."""
    encodings = ("utf-16",) if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "gb18030")
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        return clean(text[:LONGEST_TEXT]) if not _TEXT_CONTROL & set(map(ord, text[:65536])) else None
    return None
