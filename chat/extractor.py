"""Reads one untrusted file in a process of its own, within limits: `python -m chat.extractor KIND IN OUT`.

KIND is image, pdf, docx or html (UTF-8, its address in the first line). What was found is printed as JSON; an image is
written anew to OUT, smaller and without its metadata. A parser that crashes or runs away takes only this process with
it.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

MEMORY_BYTES: Final = 1024 * 1024 * 1024
CPU_SECONDS: Final = 20
LONGEST_TEXT: Final = 2_000_000  # characters
MOST_PAGES: Final = 2_000
MOST_PIXELS: Final = 60_000_000
LONGEST_SIDE: Final = 2_048  # pixels; more tells no model more
LARGEST_DRAWING: Final = 1_000_000  # bytes of an image without loss
LARGEST_PHOTOGRAPH: Final = 1_400_000  # bytes of any image: they go with every request
QUALITIES: Final = (88, 80, 70, 60)  # of a JPEG, until it is small enough
UNPACKED_BYTES: Final = 100 * 1024 * 1024
MOST_ENTRIES: Final = 5_000  # of a zip archive


class Refused(Exception):
    """The file is not read; the text is a code that `chat/extracting.py` turns into a sentence."""


def limit_resources() -> None:
    """Bound memory, time and what is written, where the system can."""
    try:
        import resource
    except ImportError:  # Windows: the parent's time-out is all there is
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (UNPACKED_BYTES, UNPACKED_BYTES))


def read_image(source: Path, target: Path) -> dict[str, Any]:
    """Draw the image anew: upright, at most LONGEST_SIDE, without anything but its pixels."""
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = None  # the size is judged here, before a pixel is decoded
    with Image.open(source, formats=["PNG", "JPEG", "GIF", "WEBP"]) as opened:
        if opened.width * opened.height > MOST_PIXELS:
            raise Refused("image_too_large")
        opened.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))
        image: Image.Image = ImageOps.exif_transpose(opened)
        image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        lossless = opened.format in ("PNG", "GIF", "WEBP")
        drawn = image.convert("RGBA" if lossless and image.has_transparency_data else "RGB")
    clean = Image.frombytes(drawn.mode, drawn.size, drawn.tobytes())
    if lossless:
        clean.save(target, "PNG", optimize=True)
    if not lossless or target.stat().st_size > LARGEST_DRAWING:
        clean = _as_photograph(clean, target)
        lossless = False
    return {"width": clean.width, "height": clean.height, "mime": "image/png" if lossless else "image/jpeg"}


def _as_photograph(image: Any, target: Path) -> Any:
    """Write the image as a JPEG of at most LARGEST_PHOTOGRAPH bytes: less exact first, then smaller. Returns it."""
    from PIL import Image

    flat = Image.new("RGB", image.size, "white")
    flat.paste(image, mask=image.getchannel("A") if image.mode == "RGBA" else None)
    while True:
        for quality in QUALITIES:
            flat.save(target, "JPEG", quality=quality)
            if target.stat().st_size <= LARGEST_PHOTOGRAPH:
                return flat
        flat = flat.resize((max(1, flat.width * 3 // 4), max(1, flat.height * 3 // 4)))


def read_pdf(source: Path) -> dict[str, Any]:
    """The text of a PDF, page by page."""
    from pypdf import PdfReader

    reader = PdfReader(source)
    if reader.is_encrypted and not reader.decrypt(""):
        raise Refused("file_encrypted")
    texts: list[str] = []
    length = 0
    pages = len(reader.pages)
    for number in range(min(pages, MOST_PAGES)):
        text = reader.pages[number].extract_text() or ""
        texts.append(f"[page {number + 1}]\n{text.strip()}")
        length += len(text)
        if length > LONGEST_TEXT:
            break
    return {"text": "\n\n".join(texts)[:LONGEST_TEXT], "pages": pages, "empty": not length}


def read_docx(source: Path) -> dict[str, Any]:
    """The paragraphs and tables of a DOCX, in order."""
    _check_archive(source)
    import docx
    from docx.table import Table

    lines: list[str] = []
    for block in docx.Document(str(source)).iter_inner_content():
        if isinstance(block, Table):
            lines.extend(" | ".join(cell.text for cell in row.cells) for row in block.rows)
        else:
            lines.append(block.text)
    text = "\n".join(lines)[:LONGEST_TEXT]
    return {"text": text, "empty": not text.strip()}


def read_html(source: Path) -> dict[str, Any]:
    """The text of a page; its address stands in the first line, for its links."""
    from chat.page_text import text_of

    base, _, page = source.read_text("utf-8", "replace").partition("\n")
    text = text_of(page, base, LONGEST_TEXT)
    return {"text": text, "empty": not text.strip()}


def _check_archive(source: Path) -> None:
    """Refuse what would unpack to far more than it is."""
    with zipfile.ZipFile(source) as archive:
        entries = archive.infolist()
        if len(entries) > MOST_ENTRIES or sum(entry.file_size for entry in entries) > UNPACKED_BYTES:
            raise Refused("archive_too_large")


def main(kind: str, source: Path, target: Path) -> dict[str, Any]:
    """One file; what goes wrong becomes a code, because the parent shows a sentence and never a traceback."""
    limit_resources()
    try:
        if kind == "image":
            return read_image(source, target)
        return {"pdf": read_pdf, "docx": read_docx, "html": read_html}[kind](source)
    except Refused as refused:
        return {"refused": str(refused)}
    except MemoryError:
        return {"refused": "file_too_costly"}
    except Exception as error:  # a parser may throw anything at a broken file
        return {"refused": "file_broken", "why": type(error).__name__}


if __name__ == "__main__":
    sys.setrecursionlimit(2_000)
    json.dump(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])), sys.stdout)
