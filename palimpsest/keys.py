"""The two secrets of an installation: from the environment, or made once in the data folder."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from cryptography.fernet import Fernet, MultiFernet
from django.core.exceptions import ImproperlyConfigured


def load(data: Path, *, may_make: bool) -> tuple[str, list[str]]:
    """SECRET_KEY and PALIMPSEST_ENCRYPTION_KEYS (newest first).

    What the environment lacks is read from `data` (mode 0600); where `may_make`, it is made there. Several processes
    must share their secrets: raises ImproperlyConfigured for one that has none and may not make its own.
    """
    try:
        secret = os.environ.get("SECRET_KEY") or _kept(data / "secret_key", _new_secret if may_make else None)
        encryption = os.environ.get("PALIMPSEST_ENCRYPTION_KEYS") or _kept(
            data / "encryption_key", _new_encryption_key if may_make else None
        )
    except OSError as error:
        raise ImproperlyConfigured(
            f"The data folder {data} cannot be used: {error.strerror or error}. "
            "Set PALIMPSEST_DATA to a folder that you may write."
        ) from error
    if not secret or not encryption:
        raise ImproperlyConfigured(
            "REDIS_URL is set, so several processes share this installation: "
            "set SECRET_KEY and PALIMPSEST_ENCRYPTION_KEYS in the environment of each (see docs/deploy.md)."
        )
    return secret, _checked(encryption)


def _checked(encryption: str) -> list[str]:
    encryption_keys = [key.strip() for key in encryption.split(",") if key.strip()]
    try:
        MultiFernet([Fernet(key) for key in encryption_keys])
    except ValueError as error:
        raise ImproperlyConfigured(
            "PALIMPSEST_ENCRYPTION_KEYS needs one or more keys, separated by commas, each 32 bytes in URL-safe base64. "
            "docs/deploy.md says how to make one."
        ) from error
    return encryption_keys


def _new_secret() -> str:
    return secrets.token_urlsafe(50)


def _new_encryption_key() -> str:
    return Fernet.generate_key().decode()


def _kept(path: Path, make: Callable[[], str] | None) -> str:
    """The secret in a file; made there on first use, or empty where there is none and it may not be made."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        if make is None:
            return ""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Written in full under another name, then linked: of two starts at once both read the one that came first.
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(make())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text().strip()
