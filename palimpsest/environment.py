"""What the environment says, checked: every mistake in it ends in one sentence that names the variable."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

env = environ.Env()

SQLITE = "django.db.backends.sqlite3"


def text(name: str, default: str = "") -> str:
    return str(env.str(name, default=default)).strip()


def words(name: str, default: list[str]) -> list[str]:
    """A list separated by commas."""
    return [word.strip() for word in env.list(name, default=default) if word.strip()]


def flag(name: str, default: bool = False) -> bool:
    return bool(env.bool(name, default=default))


def number(name: str, default: int, least: int = 0, most: int | None = None) -> int:
    """A whole number between `least` and `most`."""
    value = text(name)
    if not value:
        return default
    try:
        parsed = int(value)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a whole number, not “{value}”.") from None
    if parsed < least or (most is not None and parsed > most):
        limits = f"at least {least}" if most is None else f"between {least} and {most}"
        raise ImproperlyConfigured(f"{name} must be {limits}, not {parsed}.")
    return parsed


def one_of(name: str, default: str, choices: tuple[str, ...]) -> str:
    value = text(name, default) or default
    if value not in choices:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(choices)}, not “{value}”.")
    return value


def storage(name: str, default: str) -> dict[str, Any]:
    """A class of Django's storage API, with the JSON object in `<name>_OPTIONS` as its arguments."""
    written = text(f"{name}_OPTIONS")
    try:
        options = json.loads(written or "{}")
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise ImproperlyConfigured(f"{name}_OPTIONS must be a JSON object, not “{written}”.")
    return {"BACKEND": text(name, default) or default, "OPTIONS": options}


def public_url(name: str) -> str:
    """The site's own address as people type it, without a path; empty where unset."""
    value = text(name).rstrip("/")
    if value and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname):
        raise ImproperlyConfigured(f"{name} must look like https://chat.example.org, not “{value}”.")
    return value


def redis_url(name: str) -> str:
    value = text(name)
    if value and urlsplit(value).scheme not in ("redis", "rediss", "unix"):
        raise ImproperlyConfigured(f"{name} must begin with redis://, rediss:// or unix://.")
    return value


def database(name: str, data: Path) -> dict[str, Any]:
    """Django's DATABASES entry: SQLite in the data folder, or the SQLite or PostgreSQL that a URL names."""
    url = text(name)
    if not url:
        return _sqlite(data / "palimpsest.sqlite3", data)
    scheme = url.partition("://")[0]
    if scheme not in ("postgres", "postgresql", "sqlite"):
        raise ImproperlyConfigured(f"{name} must begin with postgres:// or sqlite:///.")
    try:
        config: dict[str, Any] = env.db_url_config(url)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} cannot be read: {error}.") from error
    return _sqlite(Path(config["NAME"]), data) if scheme == "sqlite" else _postgresql(config)


def _sqlite(path: Path, data: Path) -> dict[str, Any]:
    return {
        "ENGINE": SQLITE,
        "NAME": str(path),
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            # IMMEDIATE: a read that turns into a write would otherwise fail as "locked" whatever the timeout.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
        "TEST": {"NAME": str(data / "test.sqlite3")},
    }


def _postgresql(config: dict[str, Any]) -> dict[str, Any]:
    # The pool replaces CONN_MAX_AGE, which leaves a connection open for every thread under ASGI.
    config["CONN_MAX_AGE"] = 0
    options = config.setdefault("OPTIONS", {})
    options.setdefault("connect_timeout", 5)
    # Both hold for the statements of chat/prepared.py alone: Django's own are never prepared.
    keeps_plans = flag("DATABASE_PREPARE", True)
    options["prepare_threshold"] = 0 if keeps_plans else None
    if keeps_plans:
        # PostgreSQL would plan each of them five times on every connection before it keeps what it has planned.
        options["options"] = f"{options.get('options', '')} -c plan_cache_mode=force_generic_plan".strip()
    options["pool"] = {"min_size": 1, "max_size": number("DATABASE_POOL", 16, least=2), "timeout": 10}
    return config


def default_hosts(host: str, public: str) -> list[str]:
    """The host names under which people reach this machine, when ALLOWED_HOSTS says nothing."""
    hosts = ["localhost", "127.0.0.1", "[::1]"]
    if public:
        hosts.append(urlsplit(public).hostname or "")
    if host in ("0.0.0.0", "::", "[::]"):  # noqa: S104 - compared, not bound
        name = socket.gethostname()
        hosts += [name, *_addresses(name)]
    elif host:
        hosts.append(f"[{host}]" if ":" in host and not host.startswith("[") else host)
    return list(dict.fromkeys(entry.lower() for entry in hosts if entry))


def _addresses(name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(name, None)
    except OSError:
        return []
    return [f"[{address[4][0]}]" if address[0] == socket.AF_INET6 else str(address[4][0]) for address in found]
