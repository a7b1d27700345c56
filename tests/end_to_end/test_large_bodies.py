"""Bodies larger than anything we take, sent to the real server: refused in words, in bounded time and memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest

from bench.house import House
from tests.live import Live, living

MB = 1024 * 1024
HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n'


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """One process: a body meets a web process before anything else."""
    with living(House()) as made:
        yield made


def peak(live: Live) -> float:
    """The most memory the web processes have held so far (MB)."""
    found = (Path(f"/proc/{part.process.pid}/status").read_text() for part in live.house.web_parts)
    return sum(int(re.findall(r"VmHWM:\s+(\d+)", text)[0]) for text in found) / 1024


def pieces(megabytes: int) -> Iterator[bytes]:
    yield HEAD
    for _ in range(megabytes):
        yield bytes(MB)
    yield b"\r\n--x--\r\n"


def post(live: Live, path: str, megabytes: int, *, announced: bool) -> HTTPResponse:
    connection = HTTPConnection(urlsplit(live.url).netloc, timeout=60)
    headers = {"Authorization": f"Bearer {live.key()}", "Content-Type": "multipart/form-data; boundary=x"}
    if announced:
        headers["Content-Length"] = str(sum(map(len, (HEAD, b"\r\n--x--\r\n"))) + megabytes * MB)
    connection.request("POST", path, pieces(megabytes), headers, encode_chunked=not announced)
    return connection.getresponse()


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "in chunks"])
def test_a_200_mb_upload_is_refused_and_never_kept(live: Live, announced: bool) -> None:
    conversation = live.converse("quick", [{"role": "user", "content": "hello"}])
    path = f"/api/v1/conversations/{conversation}/attachments"
    before = peak(live)

    answer = post(live, path, 200, announced=announced)

    assert (answer.status, orjson.loads(answer.read())["code"]) == (413, "file_too_large")
    assert peak(live) - before < 60
    assert post(live, path, 1, announced=announced).status in (201, 422)


def test_other_bodies_are_bounded_too(live: Live) -> None:
    before = peak(live)

    assert 400 <= post(live, "/api/v1/conversations", 100, announced=True).status < 500
    assert 400 <= post(live, "/accounts/login/", 100, announced=True).status < 500
    imported = post(live, "/api/v1/import", 100, announced=True)

    assert (imported.status, b"64 MB" in imported.read()) == (413, True)
    assert peak(live) - before < 60
