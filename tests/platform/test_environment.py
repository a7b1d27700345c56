"""The environment is read with care: what is wrong in it is named."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured

from palimpsest import environment, keys


@pytest.mark.parametrize("value", ["eighty", "-1", "99999", "1.5"])
def test_a_port_is_a_number_in_its_range(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("PORT", value)
    with pytest.raises(ImproperlyConfigured, match="PORT must be"):
        environment.number("PORT", 8000, most=65_535)


def test_an_empty_number_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "")
    assert environment.number("PORT", 8000) == 8000


@pytest.mark.parametrize("url", ["oracle://x/y", "mysql://x/y", "nonsense", "postgres://x:port/y"])
def test_a_database_is_sqlite_or_postgresql(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL"):
        environment.database("DATABASE_URL", tmp_path)


def test_sqlite_by_url_is_as_safe_as_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/other.sqlite3")
    config = environment.database("DATABASE_URL", tmp_path)
    assert config["NAME"] == f"{tmp_path}/other.sqlite3"
    assert config["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "WAL" in config["OPTIONS"]["init_command"]


def test_postgresql_has_a_pool_instead_of_lasting_connections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://me:word@db.example:5433/chat?sslmode=require")
    config = environment.database("DATABASE_URL", tmp_path)
    assert config["CONN_MAX_AGE"] == 0
    assert config["OPTIONS"]["pool"]["max_size"] >= 2
    assert config["OPTIONS"]["sslmode"] == "require"


def test_a_pooler_that_keeps_no_plans_is_asked_to_keep_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://me:word@db.example:5433/chat?options=-c%20statement_timeout%3D9s")
    keeps = environment.database("DATABASE_URL", tmp_path)["OPTIONS"]
    monkeypatch.setenv("DATABASE_PREPARE", "0")
    keeps_none = environment.database("DATABASE_URL", tmp_path)["OPTIONS"]

    assert (keeps["prepare_threshold"], keeps_none["prepare_threshold"]) == (0, None)
    assert keeps["options"] == "-c statement_timeout=9s -c plan_cache_mode=force_generic_plan"
    assert keeps_none["options"] == "-c statement_timeout=9s"


def test_hosts_are_those_under_which_the_machine_is_reached() -> None:
    assert environment.default_hosts("127.0.0.1", "") == ["localhost", "127.0.0.1", "[::1]"]
    assert "chat.example.org" in environment.default_hosts("127.0.0.1", "https://chat.example.org")
    assert len(environment.default_hosts("0.0.0.0", "")) > 3
    assert "*" not in environment.default_hosts("0.0.0.0", "")


@pytest.mark.parametrize("value", ["chat.example.org", "ftp://chat.example.org", "https://"])
def test_a_public_address_has_scheme_and_host(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("PUBLIC_URL", value)
    with pytest.raises(ImproperlyConfigured, match="PUBLIC_URL"):
        environment.public_url("PUBLIC_URL")


def test_secrets_are_made_once_and_for_the_owner_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SECRET_KEY", raising=False)
    monkeypatch.delenv("PALIMPSEST_ENCRYPTION_KEYS", raising=False)
    first = keys.load(tmp_path / "data", may_make=True)
    assert keys.load(tmp_path / "data", may_make=True) == first
    assert keys.load(tmp_path / "data", may_make=False) == first
    made = sorted((tmp_path / "data").iterdir())
    assert [path.name for path in made] == ["encryption_key", "secret_key"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in made)


def test_several_processes_without_secrets_do_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SECRET_KEY", raising=False)
    monkeypatch.delenv("PALIMPSEST_ENCRYPTION_KEYS", raising=False)
    with pytest.raises(ImproperlyConfigured, match="SECRET_KEY and PALIMPSEST_ENCRYPTION_KEYS"):
        keys.load(tmp_path, may_make=False)


def test_several_encryption_keys_are_for_rotation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    new, old = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    monkeypatch.setenv("SECRET_KEY", "x")
    monkeypatch.setenv("PALIMPSEST_ENCRYPTION_KEYS", f"{new}, {old}")
    assert keys.load(tmp_path, may_make=False) == ("x", [new, old])
    monkeypatch.setenv("PALIMPSEST_ENCRYPTION_KEYS", "short")
    with pytest.raises(ImproperlyConfigured, match="PALIMPSEST_ENCRYPTION_KEYS needs"):
        keys.load(tmp_path, may_make=False)


def test_files_are_kept_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILE_STORAGE", "storages.backends.s3.S3Storage")
    monkeypatch.setenv("FILE_STORAGE_OPTIONS", '{"bucket_name": "palimpsest"}')
    assert environment.storage("FILE_STORAGE", "x") == {
        "BACKEND": "storages.backends.s3.S3Storage",
        "OPTIONS": {"bucket_name": "palimpsest"},
    }


@pytest.mark.parametrize("value", ["bucket", "[1]"])
def test_the_options_of_a_storage_are_an_object(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("FILE_STORAGE_OPTIONS", value)
    with pytest.raises(ImproperlyConfigured, match="FILE_STORAGE_OPTIONS"):
        environment.storage("FILE_STORAGE", "x")
