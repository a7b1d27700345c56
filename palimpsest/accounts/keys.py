"""Bearer keys: made once, shown once, stored as a digest."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.models import User
from django.db.models import Q
from django.utils import timezone

from palimpsest.accounts.models import ApiKey

PREFIX = "pal_"
_USE_NOTED_EVERY = timedelta(minutes=1)


def make_key(user: User, name: str = "") -> str:
    """A new key of a person. The only time that it can be read."""
    key = PREFIX + secrets.token_urlsafe(32)
    ApiKey.objects.create(user=user, name=name, digest=_digest(key), hint=key[:8])
    return key


def user_of_key(key: str) -> User | None:
    """Whose key this is; None for one that is unknown or revoked, or whose owner is not active.

    Only the digest is looked up, so the time it takes tells nothing about the key.
    """
    found = (
        ApiKey.objects.select_related("user")
        .filter(digest=_digest(key), revoked_at__isnull=True, user__is_active=True)
        .first()
    )
    if found is None:
        return None
    _note_use(found)
    return found.user


def key_in(authorization: str) -> str | None:
    """The key in an Authorization header; None where it is of another scheme."""
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() == "bearer" and key.strip() else None


def _note_use(key: ApiKey) -> None:
    now = timezone.now()
    if key.last_used_at is None or key.last_used_at < now - _USE_NOTED_EVERY:
        stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=now - _USE_NOTED_EVERY)
        ApiKey.objects.filter(stale, pk=key.pk).update(last_used_at=now)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
