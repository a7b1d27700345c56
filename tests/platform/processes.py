"""Runs `manage.py` as people do: in a process of its own, with an environment of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parent.parent.parent
_NOT_OURS = re.compile(
    r"PALIMPSEST|DJANGO|DATABASE|REDIS|OPENAI|SECRET_KEY|HOST$|PORT$|PUBLIC_URL|ALLOWED|STATIC_ROOT|PYTEST|DEBUG|SIGNUP"
)
_ADDRESS = re.compile(r"(http://[\d.]+:\d+)(/\S*)")


def environment(folder: Path, **own: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not _NOT_OURS.search(name)}
    return {**kept, "PALIMPSEST_DATA": str(folder), "PYTHONUNBUFFERED": "1", **own}


def manage(folder: Path, *arguments: str, timeout: float = 40, **own: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environment(folder, **own),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )


class Running:
    """A command that goes on until it is told to end; in a process group of its own, so that leftovers are seen."""

    def __init__(self, log: Path, env: Mapping[str, str], command: list[str]) -> None:
        self.log = log
        self.began = time.monotonic()
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, words: str, seconds: float = 40) -> re.Match[str]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if found := re.search(words, self.output):
                return found
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.output}"
            time.sleep(0.02)
        raise AssertionError(f"no “{words}” within {seconds} s:\n{self.output}")

    def address(self) -> tuple[str, str]:
        """What it printed: the root of its addresses, and the path of the link."""
        found = self.wait_for(_ADDRESS.pattern)
        return found[1], found[2]

    def end(self, number: signal.Signals = signal.SIGINT, seconds: float = 20) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                raise AssertionError(f"still running {seconds} s after {number.name}:\n{self.output}") from None
        return self.process.returncode

    def leftovers(self) -> bool:
        """Whether a process of its group is still there."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True


def serve(folder: Path, *arguments: str, **own: str) -> Running:
    log = folder.parent / f"serve-{time.monotonic_ns()}.log"
    command = [sys.executable, "manage.py", "serve", "--port", "0", *arguments]
    return Running(log, environment(folder, **own), command)


class Visitor:
    """A browser without a screen: cookies, forms, redirects."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.jar = CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.jar))

    def get(self, path: str, **headers: str) -> tuple[int, str, Any]:
        return self._open(urllib.request.Request(self.root + path, headers=headers))

    def post(self, path: str, **fields: str) -> tuple[int, str, Any]:
        fields["csrfmiddlewaretoken"] = self.cookie("csrftoken")
        request = urllib.request.Request(self.root + path, urlencode(fields).encode(), {"Referer": self.root + path})
        return self._open(request)

    def cookie(self, name: str) -> str:
        return next((cookie.value or "" for cookie in self.jar if cookie.name == name), "")

    def _open(self, request: urllib.request.Request) -> tuple[int, str, Any]:
        try:
            with self._opener.open(request, timeout=10) as answer:
                return answer.status, answer.read().decode(errors="replace"), answer
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), error


def wait_until_ready(root: str, seconds: float = 30) -> dict[str, Any]:
    import json

    until = time.monotonic() + seconds
    body = ""
    while time.monotonic() < until:
        try:
            status, body, _ = Visitor(root).get("/readyz")
        except OSError:
            status = 0
        if status == 200:
            found: dict[str, Any] = json.loads(body)
            return found
        time.sleep(0.1)
    raise AssertionError(f"not ready after {seconds} s: {body}")
