"""Keys of channels: encrypted at rest, readable after rotation, and a clear word when they are not."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.fernet import Fernet

from agents import secrets
from agents.errors import AgentsError

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


def test_what_is_stored_does_not_show_the_secret(settings: Any) -> None:
    settings.PALIMPSEST_ENCRYPTION_KEYS = [OLD]
    token = secrets.encrypt("sk-123 ü")
    assert "sk-123" not in token
    assert secrets.decrypt(token) == "sk-123 ü"
    assert secrets.encrypt("sk-123 ü") != token


def test_rotation(settings: Any) -> None:
    settings.PALIMPSEST_ENCRYPTION_KEYS = [OLD]
    token = secrets.encrypt("sk-123")
    settings.PALIMPSEST_ENCRYPTION_KEYS = [NEW, OLD]
    assert secrets.decrypt(token) == "sk-123"
    rotated = secrets.rotate(token)
    settings.PALIMPSEST_ENCRYPTION_KEYS = [NEW]
    assert secrets.decrypt(rotated) == "sk-123"
    with pytest.raises(AgentsError) as caught:
        secrets.decrypt(token)
    assert caught.value.code == "secret_unreadable"


@pytest.mark.parametrize(("keys", "code"), [([], "no_encryption_key"), (["short"], "bad_encryption_key")])
def test_keys_that_cannot_be_used(settings: Any, keys: list[str], code: str) -> None:
    settings.PALIMPSEST_ENCRYPTION_KEYS = keys
    with pytest.raises(AgentsError) as caught:
        secrets.encrypt("x")
    assert caught.value.code == code


@pytest.mark.parametrize("token", ["", "no token", "gAAAAA=="])
def test_a_damaged_token(settings: Any, token: str) -> None:
    settings.PALIMPSEST_ENCRYPTION_KEYS = [OLD]
    with pytest.raises(AgentsError):
        secrets.decrypt(token)
