"""The image and its composition, without a Docker engine: checked by schema and rules, run by their commands."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import jsonschema
import pytest
import yaml
from cryptography.fernet import Fernet

from tests.platform.processes import ROOT, Running, Visitor, environment, wait_until_ready

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
OURS = ("migrate", "web", "worker")


def test_the_file_has_the_form_of_a_composition() -> None:
    schema = json.loads((Path(__file__).parent / "compose.schema.json").read_text())
    jsonschema.validate(COMPOSE, schema)


def test_services_wait_for_what_they_need() -> None:
    for name, service in SERVICES.items():
        for needed, how in service.get("depends_on", {}).items():
            assert needed in SERVICES, name
            if how["condition"] == "service_healthy":
                assert "test" in SERVICES[needed]["healthcheck"]
    for name in ("web", "worker"):
        assert SERVICES[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
        assert SERVICES[name]["depends_on"]["redis"]["condition"] == "service_healthy"


def test_all_that_must_last_is_on_named_volumes() -> None:
    mounted = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert mounted == set(COMPOSE["volumes"])
    assert re.search(r"PALIMPSEST_DATA=(\S+)", DOCKERFILE.split("FROM")[-1])[1] == "/data"  # type: ignore[index]
    assert all("data:/data" in SERVICES[name]["volumes"] for name in OURS)


def test_secrets_come_from_outside_and_their_absence_is_said() -> None:
    for name in ("SECRET_KEY", "PALIMPSEST_ENCRYPTION_KEYS"):
        wanted = rf"\$\{{{name}:\?.*docs/deploy\.md\}}$"
        assert all(re.match(wanted, SERVICES[service]["environment"][name]) for service in OURS)
    assert SERVICES["postgres"]["environment"]["POSTGRES_PASSWORD"].startswith("${POSTGRES_PASSWORD:?")


def test_every_variable_is_one_that_the_code_reads() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "palimpsest").rglob("*.py"))
    for name in OURS:
        for variable in SERVICES[name]["environment"]:
            assert f'"{variable}"' in code, variable


def test_only_the_web_is_published_and_only_to_this_machine() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"web": ["${PUBLISH:-127.0.0.1:8000}:8000"]}


def test_a_drain_fits_into_the_time_before_a_kill() -> None:
    grace = int(re.search(r":-(\d+)", SERVICES["worker"]["environment"]["SHUTDOWN_GRACE"])[1])  # type: ignore[index]
    assert int(SERVICES["worker"]["stop_grace_period"].removesuffix("s")) >= grace + 8


def test_the_image_is_slim_staged_and_not_root() -> None:
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(stages) == 2
    assert all(stage.endswith("-slim") for stage in stages)
    final = DOCKERFILE.split("FROM")[-1]
    assert re.search(r"^USER palimpsest$", final, re.MULTILINE)
    assert "HEALTHCHECK" in final
    assert "--require-hashes" in DOCKERFILE
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".env", "var", ".venv"} <= set(ignored)


# The commands of the composition, as processes of this machine


def filled(value: str, given: dict[str, str]) -> str:
    """What Compose makes of ${NAME}, ${NAME:-default} and ${NAME:?reason}."""
    return re.sub(r"\$\{(\w+)(?::([-?])([^}]*))?\}", lambda found: given.get(found[1]) or (found[3] or ""), value)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """A database of its own beside the one of DATABASE_URL."""
    url = os.environ.get("DATABASE_URL", "")
    if not url.startswith("postgres") or not os.environ.get("REDIS_URL"):
        pytest.skip("needs DATABASE_URL (PostgreSQL) and REDIS_URL")
    import psycopg

    name = f"platform_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
    yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def given(database: str) -> dict[str, str]:
    return {
        "SECRET_KEY": secrets.token_urlsafe(40),
        "PALIMPSEST_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        "POSTGRES_PASSWORD": "unused",
        "OPENAI_API_KEY": "sk-for-the-tests",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "OPENAI_MODEL": "mock",
    }


def service_environment(name: str, given: dict[str, str], database: str, folder: Path) -> dict[str, str]:
    values = {key: filled(value, given) for key, value in SERVICES[name]["environment"].items()}
    here = {
        "DATABASE_URL": database,
        "REDIS_URL": os.environ["REDIS_URL"],
        "REDIS_PREFIX": database.rsplit("/", 1)[1],
        "HOST": "127.0.0.1",
        "PORT": "0",
        "PUBLIC_URL": "",
    }
    return environment(folder, **{**values, **here})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_migrate_web_and_worker_run_as_composed(given: dict[str, str], database: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"

    def command(name: str) -> list[str]:
        words = SERVICES[name]["command"]
        if words[0] == "sh":
            return ["sh", "-c", words[2].replace("python ", f"{sys.executable} ")]
        return [sys.executable, *words[1:]]

    env = service_environment("migrate", given, database, folder)
    migrated = subprocess.run(
        command("migrate"), cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert migrated.returncode == 0, migrated.stderr
    assert "is ready" in migrated.stdout

    port = free_port()
    worker_env = {**service_environment("worker", given, database, folder), "WORKER_PORT": str(port)}
    started = [
        Running(tmp_path / "web.log", service_environment("web", given, database, folder), command("web")),
        Running(tmp_path / "worker.log", worker_env, command("worker")),
    ]
    web, worker = started
    try:
        root, link = web.address()
        assert link.startswith("/accounts/first/")
        parts = wait_until_ready(root)
        assert parts["worker"] == {"ok": True}
        worker.wait_for("worker is running")
        assert Visitor(f"http://127.0.0.1:{port}").get("/healthz")[0] == 200
        assert "palimpsest_open_turns" in Visitor(f"http://127.0.0.1:{port}").get("/metrics")[1]
        assert worker.end(signal.SIGTERM) == 0
        assert web.end(signal.SIGTERM) == 0
        assert not web.leftovers()
        assert not worker.leftovers()
        assert "Traceback" not in web.output + worker.output
    finally:
        for running in started:
            running.end(signal.SIGKILL)


def test_celerys_own_worker_makes_it_ready_too(given: dict[str, str], database: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    env = service_environment("worker", given, database, folder)
    celery = [sys.executable, "-m", "celery", "-A", "palimpsest", "worker", "--loglevel", "WARNING"]
    migrated = subprocess.run(
        [sys.executable, "manage.py", "migrate"], cwd=ROOT, env=env, capture_output=True, timeout=120, check=False
    )
    assert migrated.returncode == 0
    env["REDIS_PREFIX"] += "-celery"
    started = [
        Running(tmp_path / "web.log", env, [sys.executable, "manage.py", "serve", "--web-only"]),
        Running(tmp_path / "worker.log", env, celery),
    ]
    try:
        wait_until_ready(started[0].address()[0])
        assert started[1].end(signal.SIGTERM) == 0
    finally:
        for running in started:
            running.end(signal.SIGKILL)
