"""Encryption at rest of channel keys, with rotation: the first key encrypts, every key decrypts."""

from __future__ import annotations

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from agents.errors import AgentsError


def encrypt(text: str) -> str:
    """The text as it may be stored."""
    return _fernet().encrypt(text.encode()).decode()


def decrypt(token: str) -> str:
    """The text behind a stored token. Raises `secret_unreadable` when none of the keys fits."""
    try:
        return _fernet().decrypt(token.encode()).decode()
    except InvalidToken:
        raise AgentsError("secret_unreadable") from None


def rotate(token: str) -> str:
    """The same secret under the newest key, so that older keys can be given up."""
    try:
        return _fernet().rotate(token.encode()).decode()
    except InvalidToken:
        raise AgentsError("secret_unreadable") from None


def _fernet() -> MultiFernet:
    keys = [key for key in settings.PALIMPSEST_ENCRYPTION_KEYS if key]
    if not keys:
        raise AgentsError("no_encryption_key")
    try:
        return MultiFernet([Fernet(key) for key in keys])
    except ValueError:
        raise AgentsError("bad_encryption_key") from None
