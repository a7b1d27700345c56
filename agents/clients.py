"""Connections to providers: one client for each address and key, on one loop, closed when it has long been idle."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agents.requests import Endpoint

if TYPE_CHECKING:
    import ssl

    from openai import AsyncOpenAI

CONNECT_SECONDS = 10.0
POOL_SECONDS = 30.0  # waiting for one of the connections of the pool
WRITE_SECONDS = 60.0
MAX_CONNECTIONS = 512
IDLE_CONNECTION_SECONDS = 30.0
IDLE_CLIENT_SECONDS = 600.0


@dataclass(slots=True)
class _Client:
    sdk: AsyncOpenAI
    users: int = 0
    last_used: float = 0.0


class Clients:
    """The clients of one event loop. A client that is in use is never closed under its users."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str], _Client] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @contextmanager
    def use(self, endpoint: Endpoint) -> Iterator[AsyncOpenAI]:
        """The client for this address and key, kept open at least as long as the block runs."""
        key = (endpoint.base_url, endpoint.api_key)
        client = self._clients.get(key)
        if client is None:
            self._close_idle()
            client = self._clients[key] = _Client(_open(endpoint))
        client.users += 1
        try:
            yield client.sdk
        finally:
            client.users -= 1
            client.last_used = time.monotonic()

    def __len__(self) -> int:
        return len(self._clients)

    async def aclose(self) -> None:
        """Closes every client and its connections."""
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*(client.sdk.close() for client in clients), *self._closing, return_exceptions=True)

    def _close_idle(self) -> None:
        now = time.monotonic()
        for key, client in list(self._clients.items()):
            if not client.users and now - client.last_used > IDLE_CLIENT_SECONDS:
                del self._clients[key]
                task = asyncio.get_running_loop().create_task(client.sdk.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)


def timeouts(silence_seconds: float) -> Any:
    """The time-outs of one call; `silence_seconds` is the longest wait for the next byte."""
    import httpx2

    return httpx2.Timeout(
        connect=min(CONNECT_SECONDS, silence_seconds), read=silence_seconds, write=WRITE_SECONDS, pool=POOL_SECONDS
    )


def _open(endpoint: Endpoint) -> AsyncOpenAI:
    import httpx2
    from openai import AsyncOpenAI, DefaultAioHttpClient

    http_client = DefaultAioHttpClient(
        verify=certificates(),
        # A proxy named in the environment is for the outside; it could not reach a model on this machine.
        trust_env=not _is_local(endpoint.base_url),
        # A redirect would carry the conversation, and perhaps the key, to a server nobody chose.
        follow_redirects=False,
        limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=IDLE_CONNECTION_SECONDS),
    )
    return AsyncOpenAI(
        api_key=endpoint.api_key or "none",
        admin_api_key="",
        base_url=endpoint.base_url,
        http_client=http_client,
        max_retries=0,  # ours know what the words of a refusal mean, and how long may be waited
        default_headers=_headers(endpoint),
    )


def _headers(endpoint: Endpoint) -> dict[str, Any]:
    """What the environment says of OpenAI's organisations and keys must not reach other suppliers: left out here."""
    from openai import Omit

    headers: dict[str, Any] = {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit(), **call_headers(endpoint)}
    if endpoint.api_key:
        headers["Authorization"] = f"Bearer {endpoint.api_key}"
        if endpoint.supplier == "azure":
            headers["api-key"] = endpoint.api_key
    return headers


def call_headers(endpoint: Endpoint) -> dict[str, Any]:
    """What a call to a provider without a key needs: the SDK insists on being told that none is meant."""
    from openai import Omit

    return {} if endpoint.api_key else {"Authorization": Omit()}


@lru_cache(maxsize=1)
def certificates() -> ssl.SSLContext:
    """One set of trusted certificates for all clients: reading it takes 40 ms."""
    import httpx2

    return httpx2.create_ssl_context()


def _is_local(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
