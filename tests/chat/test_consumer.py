"""A browser's line to a conversation: what it is told, what it may ask, and when it is let go."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import AnonymousUser, User

from chat import asking, broadcast, consumers, people, requests
from chat.access import access_conversation
from chat.consumers import ConversationConsumer
from chat.loop import run_in_db
from chat.models import Conversation, Message, Role, Turn
from chat.outgoing import MOST_WAITING, TOO_SLOW, Outgoing
from chat.presence import Presence
from compaction.models import Compaction
from tests.builders import make_user
from tests.chat.conftest import Chat
from tests.upstream import Play

JSON = dict[str, Any]


class Line:
    """One socket, its events taken one by one."""

    def __init__(self, communicator: WebsocketCommunicator) -> None:
        self.communicator = communicator
        self.events: list[JSON] = []

    async def next(self, seconds: float = 5) -> JSON:
        event: JSON = orjson.loads(await self.communicator.receive_from(timeout=seconds))
        self.events.append(event)
        return event

    async def until(self, *types: str) -> JSON:
        while (event := await self.next())["type"] not in types:
            pass
        return event

    async def ask(self, kind: str, **content: Any) -> None:
        await self.communicator.send_to(orjson.dumps({"type": kind, "data": content}).decode())

    async def closed(self, seconds: float = 5) -> int:
        """The code it is closed with; events before that are skipped."""
        async with asyncio.timeout(seconds):
            while True:
                message = await self.communicator.receive_output(timeout=seconds)
                if message["type"] == "websocket.close":
                    return int(message["code"])


@asynccontextmanager
async def line(chat: Chat, user: Any = None) -> AsyncIterator[Line]:
    application = ConversationConsumer.as_asgi()
    communicator = WebsocketCommunicator(application, "/")
    communicator.scope["user"] = user or chat.alice
    communicator.scope["url_route"] = {"kwargs": {"conversation": chat.conversation.pk}}
    await communicator.connect()
    try:
        yield Line(communicator)
    finally:
        await communicator.disconnect()


@pytest.fixture(autouse=True)
def signed_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Who the session says it is: the socket's own person, unless the test says otherwise."""
    persons: list[Any] = []
    monkeypatch.setattr(asking, "person_of", lambda scope: persons[-1] if persons else scope["user"])
    return persons.append


async def test_a_snapshot_comes_first(chat: Chat) -> None:
    async with line(chat) as alice:
        event = await alice.next()

    assert event["type"] == "snapshot"
    assert event["seq"] == event["data"]["conversation"]["version"]
    assert [person["name"] for person in event["data"]["people"]] == ["alice"]


async def test_a_message_streams_to_everyone(worker: None, chat: Chat) -> None:
    bob = await run_in_db(make_user, "bob")
    await run_in_db(chat.conversation.participants.create, user=bob, role=Role.VIEWER)
    chat.provider.plays("mock", Play(ttft=0, tps=0, text="Hello to both."))
    async with line(chat) as alice, line(chat, bob) as reader:
        await alice.until("snapshot")
        await reader.until("snapshot")
        await alice.ask("chat", content="hello", client_id="c1")
        done = await reader.until("turn_done")
        await alice.until("turn_done")

    assert done["data"]["message"]["content"] == "Hello to both."
    named = [event["data"]["conversation"] for event in reader.events if event["type"] == "conversation"]
    assert [conversation["title"] for conversation in named] == ["hello"], "the first message gave it its title"
    for one in (alice, reader):
        durable = [event["seq"] for event in one.events if event["seq"] is not None]
        assert durable == list(range(durable[0], durable[0] + len(durable)))
        text = "".join(event["data"]["text"] for event in one.events if event["type"] == "delta")
        assert text == "Hello to both."


@pytest.mark.parametrize(("who", "code"), [("anonymous", 4401), ("outsider", 4404)])
async def test_who_has_no_business_here_is_let_go(chat: Chat, who: str, code: int) -> None:
    user = AnonymousUser() if who == "anonymous" else await run_in_db(make_user, "charlie")
    async with line(chat, user) as outsider:
        assert await outsider.closed() == code


async def test_removing_somebody_closes_their_socket(chat: Chat) -> None:
    bob = await run_in_db(make_user, "bob")
    await run_in_db(chat.conversation.participants.create, user=bob, role=Role.MEMBER)
    async with line(chat, bob) as his, line(chat) as hers:
        await his.until("snapshot")
        await hers.until("snapshot")
        await run_in_db(people.remove, chat.alice, chat.conversation.pk, bob.pk)

        assert await his.closed() == 4403
        await hers.ask("ping")
        await hers.until("pong")


async def test_signing_out_closes_the_socket(chat: Chat, signed_in: Callable[[Any], None]) -> None:
    async with line(chat) as alice:
        await alice.until("snapshot")
        signed_in(AnonymousUser())
        broadcast.publish_to_user(chat.alice.pk, {"type": "recheck"})

        assert await alice.closed() == 4401


async def test_a_viewer_is_told_why_nothing_happens(chat: Chat) -> None:
    viewer = await run_in_db(make_user, "viewer")
    await run_in_db(chat.conversation.participants.create, user=viewer, role=Role.VIEWER)
    async with line(chat, viewer) as reader:
        await reader.until("snapshot")
        await reader.ask("chat", content="hello", client_id="c7")
        event = await reader.until("error")

    assert (event["data"]["code"], event["data"]["client_id"]) == ("forbidden", "c7")


async def test_a_viewer_changes_nothing_whatever_the_socket_is_asked(chat: Chat) -> None:
    vera = await run_in_db(make_user, "vera")
    await run_in_db(chat.conversation.participants.create, user=vera, role=Role.VIEWER)
    turn = await run_in_db(chat.send, "waits")
    run = await run_in_db(Compaction.objects.create, conversation=chat.conversation, reason="manual", state="queued")
    asked: list[tuple[str, JSON]] = [
        ("chat", {"content": "mine"}),
        ("chat", {"content": "/compact everything"}),
        ("compact", {"instructions": "everything"}),
        ("cancel", {"turn": turn.pk}),
        ("cancel", {"compaction": run.pk}),
        ("stop", {"turn": turn.pk}),
    ]
    assert {kind for kind, _ in asked} == {
        name for member in typing.get_args(requests.Request) for name in typing.get_args(_kind(member))
    } - {"sync", "typing", "ping"}

    def everything() -> list[list[Any]]:
        return [list(model.objects.order_by("pk").values()) for model in (Conversation, Message, Turn, Compaction)]

    before = await run_in_db(everything)
    async with line(chat) as hers, line(chat, vera) as reader:
        await hers.until("snapshot")
        await reader.until("snapshot")
        for kind, content in asked:
            await reader.ask(kind, **content)
            assert (await reader.until("error"))["data"]["code"] == "forbidden", kind
        await reader.ask("typing")
        await reader.ask("ping")
        await reader.until("pong")
        await hers.ask("ping")
        await hers.until("pong")

    assert await run_in_db(everything) == before
    shown = [person for event in hers.events if event["type"] == "presence" for person in event["data"]["people"]]
    assert not any(person["typing"] for person in shown)


def _kind(request: Any) -> Any:
    return request.model_fields["type"].annotation


async def test_a_snapshot_that_was_asked_for_does_not_forget_who_is_here(chat: Chat) -> None:
    bob = await run_in_db(make_user, "bob")
    await run_in_db(chat.conversation.participants.create, user=bob, role=Role.MEMBER)

    def online(event: JSON) -> list[str]:
        return [person["name"] for person in event["data"]["people"] if person["online"]]

    async with line(chat) as hers, line(chat, bob) as his:
        await his.until("snapshot")
        await hers.until("snapshot")
        while online(await hers.until("presence")) != ["alice", "bob"]:
            pass
        await hers.ask("sync")
        await hers.until("snapshot")
        assert online(await hers.until("presence")) == ["alice", "bob"]


async def test_who_was_removed_is_let_go_even_if_the_word_is_lost(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "publish_to_user", lambda *_: None)
    monkeypatch.setattr(consumers, "RECHECK_SECONDS", 0.4)
    bob = await run_in_db(make_user, "bob")
    await run_in_db(chat.conversation.participants.create, user=bob, role=Role.MEMBER)
    async with line(chat, bob) as his:
        await his.until("snapshot")
        await run_in_db(people.remove, chat.alice, chat.conversation.pk, bob.pk)

        assert await his.closed() == 4403  # it never sent a ping


@pytest.mark.parametrize(
    "text", [" ", "{", "[]", '{"type": "unknown", "data": {}}', '{"type": "stop", "data": {"turn": "x"}}']
)
async def test_what_is_not_understood_is_answered(chat: Chat, text: str) -> None:
    async with line(chat) as alice:
        await alice.until("snapshot")
        await alice.communicator.send_to(text)
        assert (await alice.until("error"))["data"]["code"] == "invalid"
        await alice.ask("ping")
        await alice.until("pong")


async def test_pong_tells_the_version(chat: Chat) -> None:
    async with line(chat) as alice:
        snapshot = await alice.until("snapshot")
        await alice.ask("ping")
        assert (await alice.until("pong"))["data"]["version"] == snapshot["seq"]


async def test_a_sync_without_a_turn_is_a_new_snapshot(chat: Chat) -> None:
    async with line(chat) as alice:
        await alice.until("snapshot")
        await alice.ask("sync")
        await alice.until("snapshot")


async def test_a_late_reader_gets_what_it_misses_and_nothing_twice(worker: None, chat: Chat) -> None:
    chat.provider.plays("mock", Play(ttft=0, tps=100, n=150))
    turn = await run_in_db(chat.send)
    await asyncio.sleep(0.7)
    async with line(chat) as alice:
        opened = (await alice.until("snapshot"))["data"]["turn"]
        text = opened["text"]
        await alice.ask("sync", turn=turn.pk, message=opened["message"], offset=len(text))
        while (event := await alice.next())["type"] != "turn_done":
            if event["type"] == "delta" and event["data"]["offset"] <= len(text):
                text += event["data"]["text"][len(text) - event["data"]["offset"] :]

    assert text == event["data"]["message"]["content"]
    assert text.count(" k") == 150


async def test_people_see_who_is_here_and_who_types(chat: Chat) -> None:
    bob = await run_in_db(make_user, "bob")
    await run_in_db(chat.conversation.participants.create, user=bob, role=Role.MEMBER)
    async with line(chat) as hers:
        await hers.until("snapshot")
        async with line(chat, bob) as his:
            await his.until("snapshot")
            await his.ask("typing")

            def is_typing(event: JSON) -> bool:
                return any(one["name"] == "bob" and one["online"] and one["typing"] for one in event["data"]["people"])

            while not is_typing(await hers.until("presence")):
                pass
        while any(one["name"] == "bob" and one["online"] for one in (await hers.until("presence"))["data"]["people"]):
            pass


def test_somebody_who_stays_silent_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("chat.presence.time.monotonic", lambda: clock[0])
    mine = Presence(1, "alice")
    mine.people = [{"id": 1, "name": "alice"}, {"id": 2, "name": "bob"}]
    assert mine.heard({"type": "presence.here", "user": 2})
    assert [person["online"] for person in mine.shown()] == [True, True]

    clock[0] += 100

    assert mine.forget_the_silent()
    assert [person["online"] for person in mine.shown()] == [True, False]


async def test_a_slow_line_waits_alone_and_is_closed_when_too_far_behind() -> None:
    sent: list[JSON] = []
    free = asyncio.Event()

    async def send(message: JSON) -> None:
        if message["type"] == "websocket.send":
            await free.wait()
        sent.append(message)

    outgoing = Outgoing(send)
    frame = b"x" * 100_000
    for _ in range(MOST_WAITING // len(frame) + 3):
        outgoing.put([frame])
    await asyncio.sleep(0.01)

    assert outgoing.closed
    assert sent == [{"type": "websocket.close", "code": TOO_SLOW}]


async def test_a_long_snapshot_is_no_reason_to_close_a_line() -> None:
    sent: list[int] = []

    async def send(message: JSON) -> None:
        assert message["type"] == "websocket.send"
        sent.append(len(message["text"]))

    outgoing = Outgoing(send)
    outgoing.hold()
    outgoing.put([b"event"])
    outgoing.release(b"x" * (MOST_WAITING + 1))
    await asyncio.sleep(0.01)

    assert sent == [MOST_WAITING + 1, 5]


async def test_daphnes_buffer_is_watched() -> None:
    class Transport:
        producer: Any = "the HTTP request"

        def unregisterProducer(self) -> None:
            self.producer = None

        def registerProducer(self, producer: Any, streaming: bool) -> None:
            assert self.producer is None
            self.producer = producer

    class Protocol:
        transport = Transport()

    from functools import partial

    sent: list[JSON] = []

    async def reply(protocol: Protocol, message: JSON) -> None:
        sent.append(message)

    outgoing = Outgoing(partial(reply, Protocol()))
    Protocol.transport.producer.pauseProducing()
    outgoing.put([b"one"])
    await asyncio.sleep(0.01)
    assert sent == []

    Protocol.transport.producer.resumeProducing()
    await asyncio.sleep(0.01)
    assert sent == [{"type": "websocket.send", "text": "one"}]


async def test_frames_that_come_during_a_snapshot_follow_it() -> None:
    sent: list[str] = []

    async def send(message: JSON) -> None:
        sent.append(message["text"])

    outgoing = Outgoing(send)
    outgoing.hold()
    outgoing.put([b"event"])
    outgoing.release(b"snapshot")
    await asyncio.sleep(0.01)

    assert sent == ["snapshot", "event"]


def test_only_people_of_the_conversation_have_a_version(chat: Chat) -> None:
    outsider: User = make_user()
    access_conversation(chat.alice, chat.conversation.pk)

    assert asking.version(chat.alice, chat.conversation.pk) == 0
    assert asking.version(outsider, chat.conversation.pk) is None
