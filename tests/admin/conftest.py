"""Administrators of different reach."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests.builders import make_user


@pytest.fixture
def root(db: None) -> Client:
    """May do everything."""
    client = Client()
    client.force_login(make_user("root", is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def clerk(db: None) -> Client:
    """May look at conversations and compactions, not at what they say."""
    user = make_user("clerk", is_staff=True)
    names = ("view_conversation", "view_compaction", "view_usage")
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    client = Client()
    client.force_login(user)
    return client
