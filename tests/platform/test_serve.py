"""`manage.py serve` from the first start to Ctrl-C, as a person meets it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.platform.processes import ROOT, Running, Visitor, environment, manage, serve, wait_until_ready

SOCKET = "/ws/conversations/00000000-0000-4000-8000-000000000000/"
PASSWORD = "a quiet parchment"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("installation") / "data"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    running = serve(folder)
    try:
        yield running
    finally:
        running.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def root(server: Running) -> str:
    return server.address()[0]


@pytest.fixture(scope="module")
def administrator(server: Running) -> Visitor:
    """Comes in through the printed link."""
    root, link = server.address()
    visitor = Visitor(root)
    assert visitor.get(link)[0] == 200
    visitor.post(link, username="alice", password1=PASSWORD, password2=PASSWORD)
    return visitor


@pytest.fixture(scope="module")
def key(administrator: Visitor, folder: Path) -> str:
    made = manage(folder, "create_api_key", "alice")
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def test_it_prints_one_address(server: Running) -> None:
    server.address()
    assert server.output.count("http://127.0.0.1") == 1 + server.output.count("demo model ready")


def test_the_first_page_asks_to_sign_in_under_a_strict_policy(root: str) -> None:
    status, _, answer = Visitor(root).get("/")
    assert status == 200
    assert answer.url.startswith(f"{root}/accounts/login/")
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'self'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"


def test_every_part_becomes_ready_by_name(root: str) -> None:
    parts = wait_until_ready(root)
    assert {name for name in parts if name != "status"} == {"database", "broker", "layer", "worker"}


def test_the_link_makes_the_first_administrator_once(administrator: Visitor, server: Running) -> None:
    root, link = server.address()
    assert administrator.cookie("sessionid")
    assert administrator.get("/admin/")[0] == 200
    stranger = Visitor(root)
    status, _, answer = stranger.get(link)
    assert (status, answer.url) == (200, f"{root}/accounts/login/")
    stranger.post(link, username="mallory", password1=PASSWORD, password2=PASSWORD)
    assert not stranger.cookie("sessionid")


def test_sign_up_is_closed(administrator: Visitor, root: str) -> None:
    visitor = Visitor(root)
    _, page, _ = visitor.get("/accounts/signup/")
    assert "password1" not in page
    visitor.post("/accounts/signup/", username="mallory", password1=PASSWORD, password2=PASSWORD)
    assert not visitor.cookie("sessionid")


def test_scripts_come_in_with_a_key(key: str, root: str) -> None:
    assert Visitor(root).get("/api/v1/agents")[0] == 401
    assert Visitor(root).get("/api/v1/agents", Authorization="Bearer pal_unknown")[0] == 401
    status, body, _ = Visitor(root).get("/api/v1/agents", Authorization=f"Bearer {key}")
    assert status == 200
    assert "Demo" in body


def test_a_key_does_not_open_the_admin(key: str, root: str) -> None:
    _, _, answer = Visitor(root).get("/admin/", Authorization=f"Bearer {key}")
    assert "/login/" in answer.url


def test_static_files_have_names_for_ever(administrator: Visitor, root: str) -> None:
    _, page, _ = administrator.get("/admin/")
    style = re.search(r'href="(/static/admin/css/base\.[0-9a-f]{12}\.css)"', page)
    assert style
    status, _, answer = administrator.get(style[1], **{"Accept-Encoding": "gzip"})
    assert status == 200
    assert answer.headers["Content-Encoding"] == "gzip"
    assert "immutable" in answer.headers["Cache-Control"]


def refused(root: str, headers: dict[str, str], origin: str | None = None) -> int:
    """The status of a handshake, or the code with which the socket was closed."""
    try:
        with connect(root.replace("http", "ws") + SOCKET, additional_headers=headers, origin=origin) as socket:  # type: ignore[arg-type]
            try:
                socket.recv(timeout=5)
            except ConnectionClosed as closed:
                return closed.rcvd.code if closed.rcvd else 0
    except InvalidStatus as status:
        return status.response.status_code
    return 200


def test_a_socket_needs_a_session_or_a_key_and_this_sites_origin(key: str, administrator: Visitor, root: str) -> None:
    bearer = {"Authorization": f"Bearer {key}"}
    session = {"Cookie": f"sessionid={administrator.cookie('sessionid')}"}
    assert refused(root, {}, origin=root) == 4401
    assert refused(root, {"Authorization": "Bearer pal_unknown"}) == 4401
    assert refused(root, bearer) == 4404
    assert refused(root, session, origin=root) == 4404
    assert refused(root, session) == 403
    assert refused(root, session, origin="http://evil.example") == 403
    assert refused(root, session, origin=root.replace("http:", "https:")) == 403
    assert refused(root, session, origin="http://127.0.0.1:1") == 403
    assert refused(root, bearer, origin="http://evil.example") == 403


def test_metrics_are_for_this_machine(root: str) -> None:
    status, body, _ = Visitor(root).get("/metrics")
    assert status == 200
    assert 'palimpsest_open_turns{state="queued"} 0.0' in body
    assert Visitor(root).get("/metrics", **{"X-Forwarded-For": "203.0.113.7"})[0] == 403


def test_a_second_server_says_that_the_port_is_taken(root: str, tmp_path: Path) -> None:
    port = root.rsplit(":", 1)[1]
    ended = manage(tmp_path / "data", "serve", "--port", port)
    assert ended.returncode != 0
    assert f"Port {port} of 127.0.0.1 is taken" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_ctrl_c_leaves_nothing_and_the_second_start_is_quick(
    key: str, administrator: Visitor, server: Running, folder: Path
) -> None:
    wait_until_ready(server.address()[0])
    assert server.end(signal.SIGINT) == 0
    assert not server.leftovers()
    assert "Traceback" not in server.output, server.output
    again = serve(folder)
    try:
        root, path = again.address()
        assert Visitor(root).get("/")[0] == 200
        assert busy() or time.monotonic() - again.began < 4
        assert path == "/"
        assert administrator.cookie("sessionid")
        assert again.end(signal.SIGTERM) == 0
        assert not again.leftovers()
    finally:
        again.end(signal.SIGKILL)


def busy() -> bool:
    """Whether so much else runs here that a time says nothing; `make bench` measures it on a quiet machine."""
    return os.getloadavg()[0] > 0.4 * (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"PALIMPSEST_DATA": "/proc/nowhere"}, "cannot be used"),
        ({"PORT": "eighty"}, "PORT must be a whole number"),
        ({"FILE_STORAGE": "storages.nothing.Here"}, "The storage of files cannot be used"),
        ({"ALLOWED_HOSTS": "*"}, "ALLOWED_HOSTS may not be"),
        ({"DATABASE_URL": "postgres://nobody:secret@127.0.0.1:1/none"}, "cannot be reached"),
        ({"REDIS_URL": "redis://127.0.0.1:1/0"}, "Redis cannot be reached"),
        ({"HOST": "192.0.2.1"}, "cannot be opened"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(wrong: dict[str, str], words: str, tmp_path: Path) -> None:
    ended = manage(tmp_path / "data", "serve", **{"PORT": "0", **wrong})
    assert ended.returncode != 0
    assert words in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert "secret" not in ended.stderr


def test_processes_that_share_redis_need_shared_secrets(tmp_path: Path) -> None:
    for command in (["serve", "--web-only"], ["work"]):
        ended = manage(tmp_path / "data", *command, REDIS_URL="redis://127.0.0.1:1/0")
        assert ended.returncode != 0
        assert "set SECRET_KEY and PALIMPSEST_ENCRYPTION_KEYS" in ended.stderr


def test_a_worker_of_its_own_is_refused_on_the_in_memory_broker(tmp_path: Path) -> None:
    ours = manage(tmp_path / "data", "work")
    celerys = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "palimpsest", "worker"],
        cwd=ROOT,
        env=environment(tmp_path / "data"),
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    for ended in (ours, celerys):
        assert ended.returncode != 0
        assert "Set REDIS_URL" in ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_taken_port_is_found_before_anything_is_made(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ended = manage(tmp_path / "data", "serve", "--port", str(taken.getsockname()[1]))
    assert ended.returncode != 0
    assert not (tmp_path / "data" / "palimpsest.sqlite3").exists()
