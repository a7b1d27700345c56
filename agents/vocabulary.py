"""Unpacks the token vocabularies of `vocab/` to where tiktoken looks for them: checked, once for all processes."""

from __future__ import annotations

import base64
import hashlib
import lzma
import os
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from agents.errors import AgentsError

PACKED = Path(__file__).parent / "vocab"
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A rank table: `cache_name` is the name under which tiktoken looks for it (the sha1 of its address)."""

    name: str
    cache_name: str
    sha256: str


VOCABULARIES = {
    vocabulary.name: vocabulary
    for vocabulary in (
        Vocabulary(
            "o200k_base",
            "fb374d419588a4632f3f557e76b4b70aebbca790",
            "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        ),
        Vocabulary(
            "cl100k_base",
            "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
            "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        ),
    )
}


def ensure(name: str) -> Path:
    """The folder of the unpacked vocabulary, written first if missing or damaged, and made known to tiktoken."""
    if name not in VOCABULARIES:
        raise AgentsError("unknown_encoding", detail=name)
    vocabulary = VOCABULARIES[name]
    folder = data_folder() / "tiktoken"
    unpacked = folder / vocabulary.cache_name
    with _lock:
        if not _is_whole(unpacked, vocabulary):
            _write(unpacked, _unpack(vocabulary))
        # tiktoken deletes what it finds damaged and asks the network: it must only ever see this checked folder.
        os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    return folder


def data_folder() -> Path:
    """The folder of all state: Django's setting where there is one, else PALIMPSEST_DATA, else `var`."""
    from django.conf import settings

    if settings.configured or os.environ.get("DJANGO_SETTINGS_MODULE"):
        return Path(settings.PALIMPSEST_DATA)
    return Path(os.environ.get("PALIMPSEST_DATA") or "var").absolute()


def _is_whole(unpacked: Path, vocabulary: Vocabulary) -> bool:
    try:
        return hashlib.sha256(unpacked.read_bytes()).hexdigest() == vocabulary.sha256
    except OSError:
        return False


def _unpack(vocabulary: Vocabulary) -> bytes:
    """The lines `base64(token) rank` that tiktoken reads (see vocab/SOURCE.md for the packed form)."""
    try:
        packed = lzma.decompress((PACKED / f"{vocabulary.name}.xz").read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise AgentsError("vocabulary_damaged", detail=vocabulary.name) from error
    count = int.from_bytes(packed[:4], "big")
    start, lines = 4 + count, []
    for rank, length in enumerate(packed[4 : 4 + count]):
        lines.append(b"%b %d\n" % (base64.b64encode(packed[start : start + length]), rank))
        start += length
    content = b"".join(lines)
    if hashlib.sha256(content).hexdigest() != vocabulary.sha256:
        raise AgentsError("vocabulary_damaged", detail=vocabulary.name)
    return content


def _write(unpacked: Path, content: bytes) -> None:
    """Puts the file there whole or not at all: another process may be writing the same one."""
    partial = ""
    try:
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=unpacked.parent, suffix=".partial", delete=False) as file:
            partial = file.name
            file.write(content)
        os.replace(partial, unpacked)
    except OSError as error:
        if partial:
            Path(partial).unlink(missing_ok=True)
        raise AgentsError("vocabulary_unwritable", detail=str(error)) from error
