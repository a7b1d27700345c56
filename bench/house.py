"""One installation of Palimpsest on this machine, started for a test or a measurement and taken down whatever happens.

Embedded: one process, `manage.py serve`. Scaled: PostgreSQL and Redis with web and worker processes of their own.
Everything listens on loopback, lives in one temporary folder, and its logs stay there until the end.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).resolve().parent.parent
START_LIMIT = 60.0  # seconds
_ADDRESS = re.compile(rb"running.*?(http://127\.0\.0\.1:\d+)")
_OURS = (
    "PALIMPSEST_",
    "DJANGO_",
    "DATABASE_",
    "REDIS_",
    "OPENAI_",
    "SECRET_KEY",
    "HOST",
    "PORT",
    "PUBLIC_URL",
    "ALLOWED_HOSTS",
    "TRUSTED_PROXIES",
    "WORKER_THREADS",
    "STATIC_ROOT",
    "SHUTDOWN_GRACE",
    "DEBUG",
    "PYTEST",
)


def end_tidily() -> None:
    """A SIGTERM ends this program as Ctrl-C does: what it started is stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@dataclass(slots=True)
class Part:
    """One process of an installation."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    url: str = ""

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """End it at once, as a crash of the machine would."""
        self.process.kill()
        self.process.wait(10)

    def terminate(self, seconds: float = 25.0) -> int:
        """Ask it to end; the exit code. Killed when it does not."""
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    def memory(self) -> tuple[float, float]:
        """What it holds (MiB): resident, and with pages that it shares counted in part."""
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        found = dict(re.findall(r"^(Rss|Pss):\s+(\d+) kB", text, re.MULTILINE))
        return int(found["Rss"]) / 1024, int(found["Pss"]) / 1024

    def cpu(self) -> float:
        """Processor time it has used (seconds)."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@dataclass
class House:
    """`with House() as house:` embedded; `House(database_url=…, redis_url=…, web=2, workers=2)` scaled."""

    database_url: str = ""
    redis_url: str = ""
    web: int = 1
    workers: int = 1
    env: dict[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = ("manage.py",)  # what Python runs
    parts: list[Part] = field(default_factory=list)
    started_in: float = 0.0  # seconds from the start of the process to its first page, in an empty folder
    started_again_in: float = 0.0  # the same once more
    is_under_repair: bool = False  # somebody killed a part and is starting it again

    def __post_init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="palimpsest-house-"))
        self._clerk: subprocess.Popen[bytes] | None = None
        self._asking = threading.Lock()
        self._count = 0

    def __enter__(self) -> House:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_scaled(self) -> bool:
        return bool(self.redis_url)

    @property
    def url(self) -> str:
        return self.web_parts[0].url

    @property
    def urls(self) -> list[str]:
        return [part.url for part in self.web_parts]

    @property
    def web_parts(self) -> list[Part]:
        return [part for part in self.parts if part.url and part.is_running]

    @property
    def worker_parts(self) -> list[Part]:
        """The processes that answer turns: the workers, or embedded the one there is."""
        return [part for part in self.parts if part.is_running and part.name.startswith("worker")] or self.web_parts

    def environment(self) -> dict[str, str]:
        """Nothing of the caller's own configuration reaches the installation."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        own = {
            "PALIMPSEST_DATA": str(self.folder / "data"),
            "HOST": "127.0.0.1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "palimpsest.settings",
        }
        if self.database_url:
            own["DATABASE_URL"] = self.database_url
        if self.redis_url:
            own["REDIS_URL"] = self.redis_url
            own["REDIS_PREFIX"] = self.folder.name  # tests of several processes may share a Redis
        if self.is_scaled:
            own["SECRET_KEY"], own["PALIMPSEST_ENCRYPTION_KEYS"] = self._secrets()
        return {**kept, **own, **self.env}

    def _secrets(self) -> tuple[str, str]:
        if not hasattr(self, "_made"):
            from cryptography.fernet import Fernet

            self._made = (secrets.token_urlsafe(50), Fernet.generate_key().decode())
        return self._made

    # Start and end

    def start(self) -> None:
        """Start every part and wait until all of it is ready."""
        if self.is_scaled:
            self.ask("migrate")
            began = time.monotonic()
            for _ in range(self.web):
                self.start_web()
            self.started_in = time.monotonic() - began
            for _ in range(self.workers):
                self.start_worker()
        else:
            began = time.monotonic()
            self.start_web()
            self.started_in = time.monotonic() - began
        self.wait_until_ready()

    def start_again(self) -> None:
        """Stop the web process and start it once more: the start of every day, with everything in place."""
        part = self.web_parts[0]
        part.terminate()
        began = time.monotonic()
        self.start_web(int(part.url.rsplit(":", 1)[1]))
        self.started_again_in = time.monotonic() - began
        self.wait_until_ready()

    def start_web(self, port: int = 0) -> Part:
        options = ["--web-only"] if self.is_scaled else []
        part = self._spawn("web", ["serve", "--port", str(port), *options])
        self._wait(part, lambda: bool(_ADDRESS.search(part.log.read_bytes())))
        found = _ADDRESS.search(part.log.read_bytes())
        assert found
        part.url = found[1].decode()
        self._wait(part, lambda: self.status(part.url, "/healthz") == 200)
        return part

    def start_worker(self) -> Part:
        part = self._spawn("worker", ["work"])
        self._wait(part, lambda: b"worker is running" in part.log.read_bytes())
        return part

    def wait_until_ready(self, seconds: float = START_LIMIT) -> None:
        for part in self.web_parts:
            self._wait(part, lambda part=part: self.status(part.url, "/readyz") == 200, seconds)

    def close(self) -> None:
        """Stop everything that was started here, and remove its folder."""
        running = [part for part in self.parts if part.is_running]
        for part in running:
            part.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + 25
        for part in running:
            try:
                part.process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                part.kill()
        if self._clerk:
            self._clerk.kill()
            self._clerk.wait(5)
            self._clerk = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def logs(self, lines: int = 40) -> str:
        return "\n".join(f"--- {part.name}\n{part.tail(lines)}" for part in self.parts)

    def _spawn(self, name: str, arguments: list[str]) -> Part:
        self._count += 1
        log = self.folder / f"{name}-{self._count}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, *self.program, *arguments],
                cwd=ROOT,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        part = Part(f"{name}-{self._count}", process, log)
        self.parts.append(part)
        return part

    def _wait(self, part: Part, condition: Any, seconds: float = START_LIMIT) -> None:
        until = time.monotonic() + seconds
        while not condition():
            if not part.is_running:
                raise RuntimeError(f"{part.name} ended with {part.process.returncode}:\n{part.tail()}")
            if time.monotonic() > until:
                raise RuntimeError(f"{part.name} is not ready after {seconds:.0f} s:\n{part.tail()}")
            time.sleep(0.02)

    @staticmethod
    def status(url: str, path: str) -> int:
        """The HTTP status of a page; 0 where nothing answers."""
        try:
            with urllib.request.urlopen(url + path, timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    # The clerk

    def ask(self, task: str, **arguments: Any) -> Any:
        """Have the clerk do something in the installation's database (see `bench/clerk.py`)."""
        with self._asking:
            clerk = self._clerk or self._start_clerk()
            assert clerk.stdin
            assert clerk.stdout
            clerk.stdin.write(orjson.dumps({"do": task, "with": arguments}) + b"\n")
            clerk.stdin.flush()
            answer = orjson.loads(clerk.stdout.readline() or b'{"error": "the clerk has gone"}')
        if "error" in answer:
            raise RuntimeError(f"{task}: {answer['error']}\n{(self.folder / 'clerk.log').read_text()[-3000:]}")
        return answer["result"]

    def _start_clerk(self) -> subprocess.Popen[bytes]:
        (self.folder / "data").mkdir(exist_ok=True, mode=0o700)
        with (self.folder / "clerk.log").open("wb") as log:
            self._clerk = subprocess.Popen(
                [sys.executable, "-m", "bench.clerk"],
                cwd=ROOT,
                env=self.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._clerk.stdout
        if self._clerk.stdout.readline() != b'"ready"\n':
            raise RuntimeError(f"the clerk did not start:\n{(self.folder / 'clerk.log').read_text()[-3000:]}")
        return self._clerk
