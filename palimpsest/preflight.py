"""What must be there before anything starts; what is missing is said in one sentence."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.core.files.storage import storages
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

_MIGRATION_LOCK = 7_425_836_110  # any number that nothing else in the database uses


class CannotStart(Exception):
    """A sentence for the person at the terminal."""


def check_folder() -> None:
    """The data folder can be written."""
    folder = Path(settings.PALIMPSEST_DATA)
    probe = folder / ".writable"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise CannotStart(
            f"The data folder {folder} cannot be written: {error.strerror or error}. "
            "Set PALIMPSEST_DATA to a folder that you may write."
        ) from error


def check_storage() -> None:
    """The storage of people's files can be made; whether it answers is seen with the first file."""
    try:
        storages["default"]
    except Exception as error:
        raise CannotStart(
            f"The storage of files cannot be used: {_first_line(error)}. Check FILE_STORAGE and FILE_STORAGE_OPTIONS."
        ) from error


def check_port(host: str, port: int) -> None:
    """The address is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            raise CannotStart(f"{_address_problem(host, port, error)}") from error


def _address_problem(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        other = port + 1 if port < 65_535 else port - 1
        return f"Port {port} of {host} is taken. Stop what uses it, or choose another one: PORT={other}."
    if error.errno == errno.EACCES:
        return f"Port {port} of {host} may not be opened: ports below 1024 need more rights. Choose another PORT."
    return f"The address {host}:{port} cannot be opened: {error.strerror or error}. Set HOST and PORT."


def check_database() -> None:
    """The database answers."""
    try:
        with _without_pool():
            connection.ensure_connection()
            connection.close()
    except (DatabaseError, OSError) as error:
        raise CannotStart(
            f"The database ({describe_database()}) cannot be reached: {_first_line(error)}. Check DATABASE_URL."
        ) from error


@contextlib.contextmanager
def _without_pool() -> Iterator[None]:
    """A pool would try for its whole time-out before it says why; a single connection says it at once."""
    options = connection.settings_dict["OPTIONS"]
    pool = options.pop("pool", None)
    try:
        yield
    finally:
        if pool is not None:
            options["pool"] = pool


def check_broker() -> None:
    """Redis answers, where one is used."""
    if settings.EMBEDDED:
        return
    import redis

    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=3, socket_connect_timeout=3)
    try:
        client.ping()
    except redis.RedisError as error:
        raise CannotStart(f"Redis cannot be reached: {_first_line(error)}. Check REDIS_URL.") from error
    finally:
        client.close()


def unapplied_migrations() -> int:
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def migrate() -> None:
    """Bring the database up to date; of several processes that start at once, one does it and the others wait."""
    if not unapplied_migrations():
        return
    with _one_at_a_time():
        call_command("migrate", interactive=False, verbosity=0)


def check_migrations() -> None:
    if unapplied_migrations():
        raise CannotStart("The database is not up to date. Run: manage.py migrate")


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [_MIGRATION_LOCK])
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_MIGRATION_LOCK])


def describe_database() -> str:
    """Which database, without its password."""
    chosen = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"SQLite, {chosen['NAME']}"
    return f"PostgreSQL, {chosen['NAME']} at {chosen['HOST'] or 'localhost'}:{chosen['PORT'] or 5432}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
