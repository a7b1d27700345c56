"""Names become addresses that were judged, and a connection goes to no other.

A name is resolved once, every address it has is judged, and the connection goes to one of those: what the name says a
moment later does not matter.
"""

from __future__ import annotations

import socket

from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult

from chat.tools.guarding import Guard


class CheckedResolver(AbstractResolver):
    """Resolves names and lets a connection go only to addresses that were judged. One bad address refuses the name."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for result in found:
            self._guard.check(host, result["host"], port)
        return found

    async def close(self) -> None:
        await self._resolver.close()
