"""A browser's line to one conversation. It forwards frames as they are, and turns what is asked into function calls."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final

from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer
from django.utils.translation import gettext as _
from pydantic import ValidationError

from chat import asking, broadcast, requests
from chat.errors import ChatError, NotFound
from chat.events import CommandResult, Event, Pong, Problem, encode
from chat.events import Presence as PresenceEvent
from chat.loop import run_in_db
from chat.outgoing import Outgoing
from chat.presence import Presence
from palimpsest import metrics

logger = logging.getLogger("palimpsest.sockets")

SIGN_IN: Final = 4401
FORBIDDEN: Final = 4403
NOT_FOUND: Final = 4404
TOO_MUCH: Final = 4429
FAILED: Final = 4500

LONGEST_REQUEST: Final = 8 * 1024 * 1024  # characters
MOST_REQUESTS_WAITING: Final = 200
RECHECK_SECONDS: Final = 60.0


class ConversationConsumer(AsyncConsumer):  # type: ignore[misc]
    """Requests are done one after the other on a task of their own, so that frames never wait for them."""

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Without the stock dispatch's hop to a database thread before every message."""
        kind = message["type"]
        if kind == "websocket.receive":
            self._received(message.get("text") or "")
        elif kind == "websocket.connect":
            await self._connect()
        elif kind == "websocket.disconnect":
            await self._disconnect()
            raise StopConsumer
        else:
            self._told(message)

    def _told(self, message: dict[str, Any]) -> None:
        """What the layer brings; it is handed over as it arrives, with no task or queue between."""
        kind = message["type"]
        if kind == "frame":
            self.outgoing.put(message["frames"])
        elif kind.startswith("presence."):
            self._heard(message)
        elif kind == "recheck":
            self._ask(None)

    # Coming and going

    async def _connect(self) -> None:
        self.user = self.scope["user"]
        self.conversation = self.scope["url_route"]["kwargs"]["conversation"]
        self.outgoing = Outgoing(self.base_send)
        self.presence = Presence(self.user.pk or 0, self.user.get_username())
        self.checked_at = time.monotonic()
        self._requests: asyncio.Queue[requests.Request | None] = asyncio.Queue(MOST_REQUESTS_WAITING)
        self._working: asyncio.Task[None] | None = None
        self._groups = [
            broadcast.conversation_group(self.conversation),
            broadcast.user_group(self.user.pk or 0),
        ]
        self.channel_layer.attach(self.channel_name, self._told)
        metrics.SOCKETS.inc()
        await self.base_send({"type": "websocket.accept"})
        if not self.user.is_authenticated:
            self.outgoing.close(SIGN_IN)
            return
        self._working = asyncio.get_running_loop().create_task(self._work())

    async def _disconnect(self) -> None:
        metrics.SOCKETS.dec()
        self.outgoing.end()
        if self._working is not None:
            self._working.cancel()
            broadcast.publish_to_conversation(self.conversation, {"type": "presence.left", "user": self.user.pk})
        for group in self._groups:
            try:
                await self.channel_layer.group_discard(group, self.channel_name)
            except Exception as error:
                logger.debug("a group could not be left: %s", error)

    async def _enter(self) -> bool:
        """Join first, then read: what happens in between arrives behind the snapshot."""
        self.outgoing.hold()
        try:
            for group in self._groups:
                await self.channel_layer.group_add(group, self.channel_name)
        except Exception as error:
            # Without the layer there is no stream, but the conversation can be read and written.
            logger.warning("a socket cannot join its conversation: %s", error)
        if not await self._send_snapshot():
            return False
        broadcast.publish_to_conversation(self.conversation, self.presence.sign(ask=self.channel_name))
        return True

    async def _send_snapshot(self) -> bool:
        self.outgoing.hold()
        try:
            frame, people = await run_in_db(asking.snapshot, self.user, self.conversation)
        except ChatError as error:
            self.outgoing.close(NOT_FOUND if isinstance(error, NotFound) else FORBIDDEN)
            return False
        self.presence.people = people
        self.outgoing.release(frame)
        return True

    async def _send_anew(self) -> None:
        """A snapshot does not know who is here; who sees it drawn once more should not lose them."""
        if await self._send_snapshot():
            self._tell_presence()

    # What is asked

    def _received(self, text: str) -> None:
        try:
            if len(text) > LONGEST_REQUEST:
                raise ValueError(_("This is too long to be sent."))  # noqa: TRY301
            request = requests.parse(text)
        except (ValidationError, ValueError) as error:
            logger.debug("a request was not understood: %s", error)
            self._tell(Problem("invalid", _("The server did not understand this request."), _client_id(text)))
        else:
            self._ask(request)

    def _ask(self, request: requests.Request | None) -> None:
        try:
            self._requests.put_nowait(request)
        except asyncio.QueueFull:
            self.outgoing.close(TOO_MUCH)

    async def _work(self) -> None:
        try:
            if not await self._enter():
                return
            while not self.outgoing.closed:
                try:
                    async with asyncio.timeout_at(self._recheck_at()):
                        request = await self._requests.get()
                except TimeoutError:
                    # The layer may have lost the word that somebody was removed, and who keeps silent sends no ping.
                    await self._recheck()
                    continue
                try:
                    await self._answer(request)
                except ChatError as error:
                    self._tell(
                        Problem(error.code, str(error.message), getattr(request and request.data, "client_id", None))
                    )
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("a socket failed")
            self.outgoing.close(FAILED)

    async def _answer(self, request: requests.Request | None) -> None:
        match request:
            case None:
                await self._recheck()
            case requests.Ping():
                await self._ping()
            case requests.Typing(data=data):
                if self.presence.may_only_read:
                    return
                sign = {"type": "presence.typing", "user": self.user.pk, "typing": data.typing}
                broadcast.publish_to_conversation(self.conversation, sign)
            case requests.Sync(data=data) if data.turn is None or data.message is None:
                await self._send_anew()
            case requests.Sync(data=data):
                frames = await run_in_db(asking.sync, self.conversation, data, self.channel_name)
                if frames is None:
                    await self._send_anew()
                else:
                    self.outgoing.put(frames)
            case _:
                result = await self._do(request)
                if result is not None:
                    self._tell(CommandResult(result.command, result.result, request.data.client_id))  # type: ignore[union-attr]

    async def _do(self, request: Any) -> Any:
        """What changes something. Whoever lost the right to it meanwhile is told, and an outsider is let go."""
        try:
            return await run_in_db(asking.do, self.user, self.conversation, request)
        except NotFound:
            await self._recheck()
            raise

    async def _ping(self) -> None:
        version = await run_in_db(asking.version, self.user, self.conversation)
        if version is None:
            self.outgoing.close(FORBIDDEN)
            return
        self._tell(Pong(version))
        if self.presence.must_announce:
            broadcast.publish_to_conversation(self.conversation, self.presence.sign())
        if self.presence.forget_the_silent():
            self._tell_presence()

    def _recheck_at(self) -> float:
        """When this person's rights are looked at again, by the loop's clock (seconds)."""
        return asyncio.get_running_loop().time() + self.checked_at + RECHECK_SECONDS - time.monotonic()

    async def _recheck(self) -> bool:
        """Ask again who this is and whether they may be here; the socket is closed where not."""
        self.checked_at = time.monotonic()
        verdict = await run_in_db(asking.rights, self.scope, self.user, self.conversation)
        if verdict is None:
            return True
        self.outgoing.close(verdict)
        return False

    # Who is here

    def _heard(self, message: dict[str, Any]) -> None:
        mine = message["user"] == self.user.pk
        asker = message.get("ask")
        if asker and asker != self.channel_name:
            # Only whoever asks is told: a conversation with many sockets would else drown in its own signs.
            broadcast.tell_channel(asker, self.presence.reply())
        elif mine and message["type"] == "presence.left":
            broadcast.publish_to_conversation(self.conversation, self.presence.sign())
        if self.presence.heard(message) or asker == self.channel_name:
            self._tell_presence()

    def _tell_presence(self) -> None:
        # Behind a snapshot that is being read, it would speak of the people before it.
        if len(self.presence.people) > 1 and not self.outgoing.is_held:
            self._tell(PresenceEvent(self.presence.shown()))

    def _tell(self, event: Event) -> None:
        self.outgoing.put([encode(event, self.conversation)])


def _client_id(text: str) -> str | None:
    """Whose request could not be read, so that the page knows which of its messages was refused."""
    import orjson

    try:
        found = orjson.loads(text)["data"]["client_id"]
    except (ValueError, KeyError, TypeError):
        return None
    return found[:100] if isinstance(found, str) else None
