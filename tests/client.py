"""A client that behaves as the browser does: joins, draws a snapshot, applies events, asks for what it missed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.screen import JSON, Screen

_numbers = itertools.count(1)
PATIENCE = 15.0  # seconds
CROSSING = 5.0  # an event may arrive so much later than the snapshot that it is part of (seconds)


class ChatClient:
    """One tab. `async with ChatClient(server, key, conversation) as tab: await tab.say("Hello")`.

    `base_url` is "http://127.0.0.1:8000"; `cookies` are sent instead of a key. With `returns` the tab comes back by
    itself when its socket is lost, as a browser does; `ping_every` (seconds) is how soon it notices that it missed
    something.
    """

    def __init__(
        self,
        base_url: str,
        key: str,
        conversation: str,
        *,
        returns: bool = True,
        ping_every: float = 2.0,
        cookies: str = "",
    ) -> None:
        self.base_url, self.conversation = base_url.rstrip("/"), conversation
        # A browser sends its cookie and names its origin; a script sends its key.
        session = {"Cookie": cookies, "Origin": self.base_url}
        self.headers = session if cookies else {"Authorization": f"Bearer {key}"}
        self.returns, self.ping_every = returns, ping_every
        self.screen = Screen()
        self.events: list[JSON] = []
        self.close_code: int | None = None
        self.pieces: list[tuple[float, int, str]] = []  # (monotonic, message, text) of every delta
        self.longest: dict[int, str] = {}  # the longest text that was ever on the screen, by message
        self._socket: ClientConnection | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Condition()
        self._asked_at: dict[str, float] = {}
        self._seq_at_ping = 0
        self._snapshot_at = 0.0
        self._closed = False
        self.broken: Exception | None = None

    async def __aenter__(self) -> ChatClient:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect and wait for the snapshot."""
        before = self.screen.snapshots
        await self._connect()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._ping())]
        await self.until(lambda: self.screen.snapshots > before or self.close_code is not None)

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._socket:
            with contextlib.suppress(Exception):
                await self._socket.close()
            self._socket = None

    async def reload(self) -> None:
        """Press F5: everything shown is forgotten and drawn again."""
        await self.close()
        self._closed = False
        self.screen, self.close_code = Screen(), None
        await self.open()

    async def lose_socket(self) -> None:
        """The line breaks without a word; the page stays and comes back by itself."""
        if self._socket:
            self._socket.transport.abort()

    # What a person does

    async def say_for_sure(self, text: str, seconds: float = 120.0) -> str:
        """Send a message and see that it is there; sent again with the same id where the line broke in between."""
        client_id = f"test-{time.monotonic_ns()}-{next(_numbers)}"
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(ConnectionClosed, OSError):
                await self.send("chat", content=text, attachments=[], client_id=client_id)
            with contextlib.suppress(AssertionError):
                await self.until(lambda: self.screen.knows(client_id), 3.0)
                return client_id
        raise AssertionError(f"the message {text!r} was not taken within {seconds} s")

    async def send(self, type: str, **content: Any) -> None:  # noqa: A002
        assert self._socket is not None
        await self._socket.send(
            orjson.dumps({"type": type, "conversation": self.conversation, "seq": None, "data": content}).decode()
        )

    async def say(self, text: str, **more: Any) -> str:
        """Send a message; returns its client id."""
        client_id = f"test-{time.monotonic_ns()}-{next(_numbers)}"
        await self.send("chat", content=text, attachments=[], client_id=client_id, **more)
        return client_id

    async def ask(self, text: str, seconds: float = PATIENCE) -> str:
        """Send a message and wait for the end of its answer; returns the answer's text."""
        ended = len(self.of("turn_done", "turn_error", "turn_interrupted"))
        await self.say(text)
        await self.until(lambda: len(self.of("turn_done", "turn_error", "turn_interrupted")) > ended, seconds)
        last = self.of("turn_done", "turn_error", "turn_interrupted")[-1]
        if last["type"] != "turn_done":
            raise AssertionError(f"the turn ended with {last}")
        return str((last["data"]["message"] or {}).get("content", ""))

    # What a test asks

    def of(self, *types: str) -> list[JSON]:
        """The events of these types so far, in order."""
        return [event for event in self.events if event["type"] in types]

    async def until(self, condition: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Wait until something holds; asked again whenever something arrives."""
        try:
            async with asyncio.timeout(seconds), self._news:
                await self._news.wait_for(lambda: condition() or self.broken)
        except TimeoutError:
            kinds = [event["type"] for event in self.events[-12:]]
            turn, queue = self.screen.turn, len(self.screen.queue)
            raise AssertionError(f"waited {seconds} s in vain; newest {kinds}, turn {turn}, {queue} queued") from None
        if self.broken:
            raise self.broken

    async def until_idle(self, seconds: float = PATIENCE) -> None:
        """Nothing runs, nothing waits, and nothing was missed."""
        await self.until(lambda: self.screen.is_idle, seconds)

    @property
    def is_settled(self) -> bool:
        """Nothing runs, nothing waits, and no answer to a question of the page is outstanding."""
        return self.screen.is_idle and "snapshot" not in self._asked_at

    # The line

    async def _connect(self) -> None:
        address = self.base_url.replace("http", "ws", 1) + f"/ws/conversations/{self.conversation}/"
        self._socket = await connect(
            address,
            additional_headers=self.headers,
            max_size=None,
            compression=None,
            ping_interval=None,
            open_timeout=10,
            close_timeout=1,
            proxy=None,
        )

    async def _read(self) -> None:
        while not self._closed:
            try:
                assert self._socket is not None
                async for frame in self._socket:
                    await self._take(orjson.loads(frame))
                raise ConnectionClosed(None, None)  # noqa: TRY301
            except (ConnectionClosed, OSError):
                code = self._socket.close_code if self._socket else None
                if self._closed or not self.returns or code in (4401, 4403, 4404):
                    self.close_code = code or 1006
                    async with self._news:
                        self._news.notify_all()
                    return
                await self._come_back()
            except Exception as error:
                self.broken = error
                async with self._news:
                    self._news.notify_all()
                raise

    async def _come_back(self) -> None:
        self._asked_at.clear()
        while not self._closed:
            await asyncio.sleep(0.1)
            try:
                await self._connect()
                return
            except Exception:  # refused while the server is away
                continue

    async def _take(self, envelope: JSON) -> None:
        kind = envelope["type"]
        if kind == "pong":
            version = envelope["data"]["version"]
            if self.screen.seq is not None and (version > self.screen.seq or version < self._seq_at_ping):
                await self._wish("snapshot")
        else:
            self.events.append(envelope)
            if kind == "snapshot":
                self._asked_at.pop("snapshot", None)
                self._snapshot_at = time.monotonic()
            wish = self.screen.apply(envelope)
            if wish == "version":  # known already: it crossed a snapshot on its way, or the database went back
                wish = "snapshot" if time.monotonic() - self._snapshot_at > CROSSING else None
            if kind == "delta":
                self._remember(envelope["data"])
            if wish:
                await self._wish(wish, envelope["data"])
        async with self._news:
            self._news.notify_all()

    def _remember(self, piece: JSON) -> None:
        text = self.screen.text_of(piece["message"])
        if len(text) > len(self.longest.get(piece["message"], "")):
            self.longest[piece["message"]] = text
        self.pieces.append((time.monotonic(), piece["message"], piece["text"]))

    async def _wish(self, wish: str, content: JSON | None = None) -> None:
        """Ask for a snapshot, or for the text from where ours ends; not again within a second."""
        now = time.monotonic()
        if now - self._asked_at.get(wish, 0) < 1.0:
            return
        self._asked_at[wish] = now
        if wish == "snapshot":
            await self.send("sync")
        elif content and (stream := self.screen.streams.get(content["message"])):
            await self.send(
                "sync",
                turn=content["turn"],
                message=content["message"],
                offset=len(stream.content.text),
                thinking_offset=len(stream.thinking.text),
            )

    async def _ping(self) -> None:
        while not self._closed:
            await asyncio.sleep(self.ping_every)
            with contextlib.suppress(Exception):
                self._seq_at_ping = self.screen.seq or 0
                await self.send("ping")


class Api:
    """The HTTP API with a bearer key."""

    def __init__(self, base_url: str, key: str) -> None:
        self.root = base_url.rstrip("/") + "/api/v1"
        self.headers = {"Authorization": f"Bearer {key}"}

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The answer's JSON. A refusal raises with the status and the body."""
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.root + path, json=body, headers={**self.headers, **headers}) as answer,
        ):
            content = await answer.read()
            if answer.status >= 400:
                raise AssertionError(f"{method} {path}: {answer.status} {content[:500].decode(errors='replace')}")
            return orjson.loads(content) if content else None

    async def get(self, path: str) -> Any:
        return await self.call("GET", path)

    async def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return await self.call("POST", path, body or {}, **headers)

    async def new_conversation(self, agent: int, title: str = "") -> str:
        made = await self.post("/conversations", {"agent": agent, "title": title})
        return str(made["id"])

    async def all_messages(self, conversation: str, view: str) -> list[JSON]:
        """Every message of a view, in reading order."""
        found: list[JSON] = []
        before = ""
        while True:
            page = await self.get(f"/conversations/{conversation}/messages?view={view}&limit=200{before}")
            found = page["items"] + found
            if not page["next"]:
                return found
            before = f"&before={page['next']}"
