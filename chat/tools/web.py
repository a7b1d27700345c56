"""fetch_url: a page of the public web as text. No agent has it until an administrator gives it to one.

Addresses inside the network are refused, for the first address and for every redirect. What comes back is bounded and
read in a process of its own, like an upload.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import ipaddress
import logging
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agents.messages import JSON, ContentPart
from agents.tools import Tool, ToolContext, ToolError, ToolResult
from chat.extracting import FileRefused, extract, extract_html
from chat.models import AttachmentKind
from chat.tools.guarding import Guard

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

logger = logging.getLogger("palimpsest.tools")

SECONDS: Final = 20.0  # for all redirects and the whole body
CONNECT_SECONDS: Final = 8.0
MOST_REDIRECTS: Final = 5
LARGEST_BODY: Final = 5 * 1024 * 1024  # bytes, unpacked
LONGEST_URL: Final = 2_000  # characters
GUARD = Guard()
_META_CHARSET: Final = re.compile(rb"""<meta[^>]{0,200}charset=["']?([\w-]{2,40})""", re.IGNORECASE)
_HEADERS: Final = {
    "User-Agent": "Palimpsest (a person's assistant)",
    "Accept": "text/html,text/plain,application/json,application/pdf,image/*;q=0.8,*/*;q=0.5",
    "Accept-Encoding": "identity",
}


@dataclass(frozen=True, slots=True)
class Page:
    """What was fetched: where it was in the end, what it is said to be, and its bytes."""

    url: str
    mime: str
    charset: str
    content: bytes


async def fetch_url(arguments: JSON, context: ToolContext) -> ToolResult:
    """The text of a page; an image is shown, of a document its text."""
    url = str(arguments["url"]).strip()
    logger.info("fetch_url for user %s in conversation %s: %s", context.user_id, context.conversation_id, _host(url))
    page = await fetch(url)
    return await asyncio.to_thread(_told, page)


async def fetch(url: str) -> Page:
    """What stands at an address of the public web; raises ToolError with a sentence."""
    import aiohttp  # 0.2 s, which a start need not wait for

    from chat.tools.resolving import CheckedResolver

    connector = aiohttp.TCPConnector(resolver=CheckedResolver(GUARD), use_dns_cache=False, force_close=True)
    timeout = aiohttp.ClientTimeout(total=SECONDS, sock_connect=CONNECT_SECONDS)
    try:
        async with (
            asyncio.timeout(SECONDS),
            aiohttp.ClientSession(
                connector=connector,
                timeout=timeout,
                headers=_HEADERS,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
            ) as session,
        ):
            return await _follow(session, _checked(url))
    except TimeoutError:
        raise ToolError(f"{_host(url)} took longer than {SECONDS:g} seconds.") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ToolError(f"{_host(url)} cannot be fetched ({type(error).__name__}).") from None


async def _follow(session: aiohttp.ClientSession, url: URL) -> Page:
    """From redirect to redirect, each judged as the first address was."""
    from yarl import URL

    for _redirect in range(MOST_REDIRECTS + 1):
        async with session.get(url, allow_redirects=False) as response:
            place = response.headers.get("Location")
            if response.status in (301, 302, 303, 307, 308) and place:
                url = _checked(str(url.join(URL(place))))
                continue
            if response.status >= 400:
                raise ToolError(f"{url.host} answered with HTTP {response.status}.")
            content = await _body(response)
            return Page(str(url), response.content_type, response.charset or "", content)
    raise ToolError(f"{url.host} redirects more than {MOST_REDIRECTS} times.")


def _checked(text: str) -> URL:
    """The address, if it is one of the web and names no address inside the network."""
    from yarl import URL

    if len(text) > LONGEST_URL:
        raise ToolError(f"The address is too long: at most {LONGEST_URL} characters.")
    url = URL(text)
    if url.scheme not in ("http", "https") or not url.host or not url.port:
        raise ToolError("Give an address that begins with http:// or https://.")
    if url.user or url.password:
        raise ToolError("Give the address without a name and password.")
    try:
        literal = str(ipaddress.ip_address(url.host))
    except ValueError:
        return url  # a name: judged when it is resolved
    GUARD.check(url.host, literal, url.port)
    return url


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """The body, unpacked, within LARGEST_BODY."""
    packed = response.headers.get("Content-Encoding", "identity").strip().lower()
    if packed not in ("identity", "gzip", "deflate", ""):
        raise ToolError(f"{response.url.host} sent its page packed as {packed[:20]}, which is not read here.")
    opener = zlib.decompressobj(zlib.MAX_WBITS | 32) if packed in ("gzip", "deflate") else None
    taken = bytearray()
    async for piece in response.content.iter_chunked(65_536):
        try:
            taken += opener.decompress(piece, LARGEST_BODY + 1 - len(taken)) if opener else piece
        except zlib.error:
            raise ToolError(f"{response.url.host} sent a damaged page.") from None
        if len(taken) > LARGEST_BODY:
            raise ToolError(f"The page is larger than {LARGEST_BODY // 1024 // 1024} MB.")
    return bytes(taken)


def _told(page: Page) -> ToolResult:
    """What the model reads of a page."""
    head = f"{page.url}\n\n"
    try:
        if page.mime in ("text/html", "application/xhtml+xml"):
            return ToolResult(head + extract_html(_decoded(page), page.url))
        found = extract(page.content)
    except FileRefused as refused:
        raise ToolError(f"{page.url} ({page.mime}): {refused.message}") from None
    if found.kind == AttachmentKind.IMAGE:
        url = f"data:{found.mime};base64,{base64.b64encode(found.content).decode()}"
        return ToolResult(f"{page.url}, an image", parts=(ContentPart("image", url=url, mime=found.mime),))
    return ToolResult(head + found.text)


def _decoded(page: Page) -> str:
    """The page's text: by what the server says, else by what the page says, else UTF-8."""
    named = _META_CHARSET.search(page.content[:4_096])
    for charset in (page.charset, named[1].decode("ascii") if named else "", "utf-8"):
        try:
            # Only text encodings: Python has others, which unpack or run code on their input.
            if charset and codecs.lookup(charset)._is_text_encoding:
                return page.content.decode(charset, "replace")
        except LookupError:
            continue
    return page.content.decode("utf-8", "replace")


def _host(url: str) -> str:
    """The name of the place, for logs and sentences: addresses carry what is nobody's business."""
    from yarl import URL

    try:
        return URL(url).host or "?"
    except ValueError:
        return "?"


TOOLS = (
    Tool(
        "fetch_url",
        "Fetch a page of the public web and read its text. Addresses inside the network cannot be fetched.",
        {
            "type": "object",
            "properties": {"url": {"type": "string", "minLength": 8, "maxLength": LONGEST_URL}},
            "required": ["url"],
            "additionalProperties": False,
        },
        fetch_url,
        timeout_seconds=60.0,
    ),
)
