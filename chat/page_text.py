"""The text of an HTML page: headings, paragraphs, lists, tables and links as plain lines. Nothing of it is run."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urljoin

_SKIPPED: Final = frozenset(
    {"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "head", "select", "canvas"}
)
_BLOCK: Final = re.compile(
    r"address|article|aside|blockquote|body|br|caption|dd|details|div|dl|dt|fieldset|figcaption|figure|footer|form|"
    r"h[1-6]|header|hr|html|li|main|nav|ol|p|pre|section|summary|table|tbody|tfoot|thead|tr|ul"
)
_LONGEST_LINK: Final = 300  # characters


def text_of(page: str, base: str = "", longest: int = 2_000_000) -> str:
    """The readable text of a page, at most so many characters; links are absolute by `base`."""
    reader = _Reader(base, longest)
    reader.feed(page)
    reader.close()
    return reader.text()


class _Reader(HTMLParser):
    def __init__(self, base: str, longest: int) -> None:
        super().__init__(convert_charrefs=True)
        self._base = base
        self._left = longest
        self._pieces: list[str] = []
        self._title: list[str] = []
        self._skipping: list[str] = []
        self._in_title = False
        self._links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and self._skipping in ([], ["head"]):
            self._in_title = True
        elif tag in _SKIPPED:
            self._skipping.append(tag)
        elif self._skipping:
            return
        elif tag == "a":
            self._links.append(self._absolute(dict(attrs).get("href") or ""))
        elif tag == "img" and (shown := dict(attrs).get("alt")):
            self._say(f"[image: {shown}]")
        elif tag in ("td", "th"):
            self._say(" | ")
        elif _BLOCK.fullmatch(tag):
            self._say("\n")
            if tag[0] == "h" and tag[1:].isdigit():
                self._say("#" * int(tag[1:]) + " ")
            elif tag == "li":
                self._say("- ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._skipping:
            while self._skipping.pop() != tag:
                pass
        elif self._skipping:
            return
        elif tag == "a" and self._links:
            if link := self._links.pop():
                self._say(f" ({link})")
        elif tag not in ("br", "hr") and _BLOCK.fullmatch(tag):
            self._say("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data[:500])
        elif not self._skipping:
            self._say(data)

    def text(self) -> str:
        """Lines without the white space that only lays out the source."""
        lines = [re.sub(r"[ \t\r\f\v]+", " ", line).strip(" |") for line in "".join(self._pieces).split("\n")]
        body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
        title = " ".join("".join(self._title).split())
        return f"{title}\n\n{body}" if title else body

    def _say(self, piece: str) -> None:
        if self._left > 0:
            self._pieces.append(piece[: self._left])
            self._left -= len(piece)

    def _absolute(self, link: str) -> str:
        try:
            found = urljoin(self._base, link.strip())
        except ValueError:
            return ""
        return found if found.startswith(("http://", "https://")) and len(found) <= _LONGEST_LINK else ""
