"""Who is here and who is typing. Nothing of it is stored: sockets tell each other, and forget who stays silent."""

from __future__ import annotations

import time
from typing import Any, Final

from chat.models import Role

JSON = dict[str, Any]

ANNOUNCE_SECONDS: Final = 25.0  # between two signs of life of a socket
GONE_SECONDS: Final = 80.0  # without a sign of life
TYPING_SECONDS: Final = 6.0


class Presence:
    """What one socket knows about the people of its conversation."""

    def __init__(self, user_id: int, name: str) -> None:
        self.user_id = user_id
        self.name = name
        self.people: list[JSON] = []
        self._seen: dict[int, float] = {user_id: time.monotonic()}
        self._typing: dict[int, float] = {}
        self._announced_at = 0.0

    def sign(self, *, ask: str = "") -> JSON:
        """A sign of life for everyone; with `ask`, this socket's channel, the others give it theirs in return."""
        self._announced_at = time.monotonic()
        return self.reply() | {"ask": ask}

    def reply(self) -> JSON:
        """A sign of life for one socket that asked."""
        return {"type": "presence.here", "user": self.user_id, "name": self.name}

    @property
    def must_announce(self) -> bool:
        return time.monotonic() - self._announced_at > ANNOUNCE_SECONDS

    def heard(self, message: JSON) -> bool:
        """Take in a sign of somebody; whether anything visible changed."""
        user = message["user"]
        before = self._visible(user)
        match message["type"]:
            case "presence.here":
                self._seen[user] = time.monotonic()
            case "presence.typing":
                self._seen[user] = time.monotonic()
                self._typing[user] = time.monotonic() if message["typing"] else 0.0
            case "presence.left":
                self._seen.pop(user, None)
                self._typing.pop(user, None)
        return before != self._visible(user)

    @property
    def may_only_read(self) -> bool:
        return any(person["id"] == self.user_id and person["role"] == Role.VIEWER for person in self.people)

    def forget_the_silent(self) -> bool:
        """Whether somebody is no longer here, or no longer types."""
        before = {person["id"]: self._visible(person["id"]) for person in self.people}
        limit = time.monotonic() - GONE_SECONDS
        self._seen = {user: at for user, at in self._seen.items() if at > limit or user == self.user_id}
        self._typing = {user: at for user, at in self._typing.items() if at > time.monotonic() - TYPING_SECONDS}
        return any(before[user] != self._visible(user) for user in before)

    def shown(self) -> list[JSON]:
        """Everyone of the conversation, with who is here and who is typing now."""
        return [
            {**person, "online": online, "typing": typing}
            for person in self.people
            for online, typing in [self._visible(person["id"])]
        ]

    def _visible(self, user: int) -> tuple[bool, bool]:
        typing = time.monotonic() - self._typing.get(user, -TYPING_SECONDS) < TYPING_SECONDS
        return user in self._seen, typing and user != self.user_id
