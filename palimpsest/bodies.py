"""Bodies of requests within bounds: what is larger than anything we take is not kept while it arrives.

Daphne keeps a body whole, and once more in pieces, before any view is asked. Here a body that is announced as too
large, or turns out to be, is let through to the view as an empty one, with its size in `Content-Length`: views refuse
by that, in words and in the reader's language.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

from daphne.http_protocol import HTTPFactory, WebRequest

MB: Final = 1024 * 1024
LARGEST_BODY: Final = 21 * MB  # a file of 20 MB in its form
LARGEST_BODY_OF: Final = {b"/api/v1/import": 65 * MB}
PIECE: Final = 256 * 1024  # in which a body is handed on (bytes)


class BoundedRequest(WebRequest):  # type: ignore[misc]
    """A request whose body is dropped once it is too large."""

    _received = 0
    _is_dropped = False
    content: Any  # where Twisted keeps the body

    def gotLength(self, length: int | None) -> None:  # noqa: N802 - Twisted's name
        self._largest = self._bound()
        self._is_dropped = length is not None and length > self._largest
        super().gotLength(0 if self._is_dropped else length)

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._received += len(data)
        if self._received > self._largest and not self._is_dropped:  # its length was not announced
            self._is_dropped = True
            self.content.close()
            self.content = BytesIO()
        if not self._is_dropped:
            super().handleContentChunk(data)

    def process(self) -> Any:
        if self._is_dropped:
            self.requestHeaders.setRawHeaders(b"content-length", [str(self._received).encode()])
        return super().process()

    def _bound(self) -> int:
        """By the path, which Twisted tells a request only when all of it is there."""
        path = getattr(self.channel, "_path", b"").partition(b"?")[0]
        return next((most for begin, most in LARGEST_BODY_OF.items() if path.startswith(begin)), LARGEST_BODY)


class BoundedFactory(HTTPFactory):  # type: ignore[misc]
    """Makes connections whose requests are bounded."""

    def buildProtocol(self, addr: Any) -> Any:  # noqa: N802 - Twisted's name
        protocol = super().buildProtocol(addr)
        if protocol is not None:
            protocol.requestFactory = BoundedRequest
        return protocol
