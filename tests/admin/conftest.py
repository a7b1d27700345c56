"""Administrators of different reach, and the pages on which they keep a kind of thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db.models import Model
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


@dataclass(frozen=True)
class Pages:
    """The pages of one kind of thing. `fields` is what its form holds unless a test says otherwise."""

    client: Client
    kind: str
    fields: dict[str, Any]

    @property
    def list(self) -> str:
        return f"/admin/{self.kind}/"

    def of(self, row: Model) -> str:
        return f"{self.list}{row.pk}/change/"

    def add(self, **fields: Any) -> str:
        """Fill in the form for a new one; the page that follows."""
        return self._posted(f"{self.list}add/", fields)

    def change(self, row: Model, **fields: Any) -> str:
        """Fill in the form of one that is there; the page that follows."""
        return self._posted(self.of(row), fields)

    def act(self, action: str, row: Model) -> str:
        """Choose an action in the list; the page that follows."""
        chosen = {"action": action, "_selected_action": row.pk}
        return self.client.post(self.list, chosen, follow=True).content.decode()

    def shown(self, row: Model) -> str:
        """Everything that is shown of one: its page, its line in the list, its history."""
        pages = (self.of(row), self.list, f"{self.list}{row.pk}/history/")
        return "".join(self.client.get(page).content.decode() for page in pages)

    def _posted(self, path: str, fields: dict[str, Any]) -> str:
        return self.client.post(path, {**self.fields, **fields}, follow=True).content.decode()


@pytest.fixture
def pages_of(root: Client) -> Callable[..., Pages]:
    """Makes the pages of a kind, as `root` uses them."""
    return lambda kind, **fields: Pages(root, kind, fields)
