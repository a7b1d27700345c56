"""fetch_url: pages of the public web, and no way into the network, from a server that lies in every way it can."""

from __future__ import annotations

import gzip
import io
import ipaddress
import json
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp
import pytest
from asgiref.sync import async_to_sync
from PIL import Image

from agents.messages import ToolCall
from agents.models import tools_by_default
from agents.tools import ToolContext, ToolResult, run_call
from chat import extracting
from chat.page_text import text_of
from chat.tools import web
from chat.tools.guarding import Guard, is_public

Answer = Callable[[BaseHTTPRequestHandler], None]


class _Site(BaseHTTPRequestHandler):
    """Answers each path as the test said."""

    paths: dict[str, Answer]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.paths[self.path.partition("?")[0]](self)

    def log_message(self, *_: Any) -> None:
        pass


class Site:
    """A web server on loopback; `paths` is filled by the test."""

    def __init__(self) -> None:
        self.paths: dict[str, Answer] = {}
        self.asked: list[str] = []
        handler = type("Handler", (_Site,), {"paths": self.paths, "asked": self.asked})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def says(self, path: str, body: bytes | str, kind: str = "text/html; charset=utf-8", **headers: str) -> None:
        content = body.encode() if isinstance(body, str) else body

        def answer(request: BaseHTTPRequestHandler) -> None:
            request.send_response(200)
            request.send_header("Content-Type", kind)
            for name, value in headers.items():
                request.send_header(name.replace("_", "-"), value)
            request.send_header("Content-Length", str(len(content)))
            request.end_headers()
            request.wfile.write(content)

        self.paths[path] = answer

    def redirects(self, path: str, place: str) -> None:
        def answer(request: BaseHTTPRequestHandler) -> None:
            request.send_response(302)
            request.send_header("Location", place)
            request.send_header("Content-Length", "0")
            request.end_headers()

        self.paths[path] = answer


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The one server inside the network that the guard is told to let through."""
    site = Site()
    threading.Thread(target=site.server.serve_forever, daemon=True).start()
    monkeypatch.setattr(web, "GUARD", Guard(frozenset({("127.0.0.1", site.port)})))
    yield site
    site.server.shutdown()
    site.server.server_close()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """What names resolve to: each time they are asked the next list, the last one for ever."""
    known: dict[str, list[list[str]]] = {}

    async def resolve(self: Any, host: str, port: int = 0, family: Any = 0) -> list[dict[str, Any]]:
        if host not in known:
            raise OSError("no such name")
        answers = known[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            {"hostname": host, "host": one, "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
            for one in found
        ]

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", resolve)
    return known


def fetch(url: str) -> ToolResult:
    call = ToolCall("call_1", "fetch_url", json.dumps({"url": url}))
    return async_to_sync(run_call)(call, ToolContext("c", 1), ["fetch_url"])


def refused(url: str) -> str:
    result = fetch(url)
    assert result.is_error, result.content
    return result.content


def test_nobody_has_it_by_default() -> None:
    assert "fetch_url" not in tools_by_default()


def test_a_page_becomes_its_text(site: Site) -> None:
    site.says(
        "/page",
        "<html><head><title>Harbour &amp; seal</title><script>bad()</script></head><body><h2>News</h2>"
        "<p>The ship\n is <b>in</b>.</p><ul><li>one<li>two</ul><style>p {}</style>"
        "<a href='/more'>More</a> <a href='javascript:bad()'>Bad</a><table><tr><td>a<td>b</table></body></html>",
    )

    said = fetch(site.url("/page"))

    assert not said.is_error
    assert said.content == (
        f"{site.url('/page')}\n\nHarbour & seal\n\n## News\n\nThe ship\nis in.\n\n- one\n- two\n"
        f"More ({site.url('/more')}) Bad\n\na | b"
    )


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("größe".encode("latin-1"), "text/html; charset=iso-8859-1"),
        ('<meta charset="gb18030"><p>größe'.encode("gb18030"), "text/html"),
        ("größe".encode(), "text/html"),
        ("größe".encode(), "text/html; charset=nonsense"),
        ("größe".encode(), "text/html; charset=rot13"),
        ("größe".encode(), "text/plain"),
        ('{"a": "größe"}'.encode(), "application/json"),
    ],
)
def test_its_encoding_is_found(site: Site, body: bytes, kind: str) -> None:
    site.says("/", body, kind)
    assert "größe" in fetch(site.url("/")).content


def test_an_image_is_shown(site: Site) -> None:
    out = io.BytesIO()
    Image.new("RGB", (64, 48), "teal").save(out, "PNG")
    site.says("/a.png", out.getvalue(), "image/png")

    (part,) = fetch(site.url("/a.png")).parts

    assert part.url.startswith("data:image/png;base64,")


def test_redirects_are_followed_but_not_for_ever(site: Site) -> None:
    site.redirects("/old", "/new")
    site.says("/new", "there")
    site.redirects("/loop", "/loop")

    assert fetch(site.url("/old")).content.endswith("there")
    assert "redirects more than 5 times" in refused(site.url("/loop"))


# No way into the network


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.5.5", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.0.1",
        "::1", "::", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1",
        "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::1",
        "2001:0:1::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111"])
def test_addresses_that_are(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://127.1/", "http://0x7f.1/", "http://2130706433/", "http://0177.0.0.1/",
        "http://localhost/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://169.254.169.254/latest/meta-data",
        "http://0/", "http://10.0.0.1:8080/", "http://[fe80::1%25eth0]/",
    ],
)  # fmt: skip
def test_spellings_of_inside_addresses_are_refused(url: str) -> None:
    said = refused(url)
    assert "not on the public internet" in said or "cannot be fetched" in said


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://example.org/", "gopher://x/1234", "http://user:pw@example.org/", "javascript:1"],
)
def test_other_addresses_than_the_webs_are_refused(url: str) -> None:
    assert "Give" in refused(url)


def test_ports_of_other_protocols_are_refused(names: dict[str, list[list[str]]]) -> None:
    names["mail.example"] = [["8.8.8.8"]]
    assert "not on the public internet" in refused("http://mail.example:25/")
    assert "not on the public internet" in refused("http://8.8.8.8:22/")


def test_a_name_that_leads_inside_is_refused(names: dict[str, list[list[str]]]) -> None:
    names["inside.example"] = [["10.0.0.7"]]
    assert "inside.example is not on the public internet" in refused("http://inside.example/")


def test_one_inside_address_among_public_ones_refuses_the_name(names: dict[str, list[list[str]]]) -> None:
    names["mixed.example"] = [["8.8.8.8", "192.168.0.1"]]
    assert "not on the public internet" in refused("http://mixed.example/")


def test_the_address_that_was_judged_is_the_one_connected_to(site: Site, names: dict[str, list[list[str]]]) -> None:
    """A name that answers differently the second time is asked only once for a connection."""
    names["rebind.example"] = [["127.0.0.1"], ["169.254.169.254"]]
    site.says("/", "there")

    assert fetch(site.url("/", "rebind.example")).content.endswith("there")
    assert names["rebind.example"] == [["169.254.169.254"]]


@pytest.mark.parametrize(
    "place", ["http://169.254.169.254/", "http://inside.example/", "http://127.0.0.1:9/", "file:///etc/passwd"]
)
def test_a_redirect_that_leads_inside_is_refused(site: Site, names: dict[str, list[list[str]]], place: str) -> None:
    names["inside.example"] = [["10.0.0.7"]]
    site.redirects("/", place)
    assert "not on the public internet" in refused(site.url("/")) or "Give" in refused(site.url("/"))


def test_another_port_of_the_allowed_machine_is_refused(site: Site) -> None:
    assert "not on the public internet" in refused(f"http://127.0.0.1:{site.port + 1}/")


# Bounded


def test_a_page_without_end_is_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "LARGEST_BODY", 1_000_000)

    def endless(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/plain")
        request.end_headers()
        try:
            while True:
                request.wfile.write(b"x" * 65_536)
        except OSError:
            return

    site.paths["/"] = endless
    assert "larger than" in refused(site.url("/"))


def test_a_packed_bomb_is_cut_off(site: Site) -> None:
    site.says("/", gzip.compress(b"\0" * 50_000_000), Content_Encoding="gzip")
    site.says("/br", b"x", Content_Encoding="br")
    site.says("/damaged", b"xxxxx", Content_Encoding="gzip")
    site.says("/fine", zlib.compress(b"fine"), "text/plain", Content_Encoding="deflate")

    assert "larger than 5 MB" in refused(site.url("/"))
    assert "packed as br" in refused(site.url("/br"))
    assert "damaged" in refused(site.url("/damaged"))
    assert fetch(site.url("/fine")).content.endswith("fine")


def test_a_server_that_says_nothing_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "SECONDS", 0.5)
    done = threading.Event()
    site.paths["/"] = lambda request: (done.wait(20), None)[1]

    assert "longer than 0.5 seconds" in refused(site.url("/"))
    done.set()


def test_errors_and_names_that_are_none_are_said(site: Site, names: dict[str, list[list[str]]]) -> None:
    site.paths["/"] = lambda request: request.send_error(404)
    assert "HTTP 404" in refused(site.url("/"))
    assert "cannot be fetched" in refused("http://no.such.name.example/")


def test_binary_is_said_to_be_unreadable(site: Site) -> None:
    site.says("/", b"\x7fELF" + bytes(500), "application/octet-stream")
    assert "cannot be read here" in refused(site.url("/"))


# Text of pages


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("", ""),
        ("<p>a<p>b", "a\nb"),
        ("<script>x</script>y", "y"),
        ("<script>never ends", ""),
        ("<svg><title>t</title><text>x</text></svg>a", "a"),
        ("a &lt;b&gt; &#x4f60;", "a <b> 你"),
        ("<img src=x alt='a seal'>", "[image: a seal]"),
        ("<template><p>x</template>y", "y"),
        ("<a href='http://[bad'>x</a>", "x"),
        ("</p></p></a>x", "x"),
    ],
)
def test_pages(page: str, text: str) -> None:
    assert text_of(page, "https://example.org/") == text


@pytest.mark.parametrize(
    "page", ["<div>" * 100_000, "&" * 100_000, "<a href='" * 20_000, "<!--" * 20_000, "<" * 100_000]
)
def test_a_page_that_was_made_to_take_for_ever_is_given_up(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it is a matter of another process, which is ended when its time is over."""
    monkeypatch.setattr(extracting, "SECONDS", 3.0)
    codes = []
    try:
        extracting.extract_html(page, "https://example.org/")
    except extracting.FileRefused as refused:
        codes.append(refused.code)
    assert codes in ([], ["file_too_costly"])


def test_a_page_of_megabytes_is_cut() -> None:
    assert len(text_of("x" * 5_000_000)) == 2_000_000
