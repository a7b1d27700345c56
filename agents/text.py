"""The one cleaner: what every text passes before it is counted, sent or stored.

PostgreSQL refuses NUL, UTF-8 refuses lone surrogates, and providers send both. Halves of a surrogate pair are joined
first, so that an emoji cut in two survives; what is left alone becomes U+FFFD.
"""

from __future__ import annotations

REPLACEMENT = "\ufffd"


def clean(text: str) -> str:
    """The text with surrogate halves joined, and lone halves and NUL replaced by U+FFFD."""
    if not text.isascii() and not _is_encodable(text):
        # Without a byte-order mark: "utf-16" would swallow a U+FEFF at the start of the text.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", REPLACEMENT) if "\0" in text else text


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class StreamCleaner:
    """`clean` for a text that arrives in pieces: a high surrogate at the end of a piece waits for its other half."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """What of this piece, and of what was held back, can be shown."""
        if self._held:
            piece, self._held = self._held + piece, ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._held = piece[:-1], piece[-1]
        return clean(piece)

    def flush(self) -> str:
        """What is still held back when nothing more will come."""
        held, self._held = self._held, ""
        return clean(held)
