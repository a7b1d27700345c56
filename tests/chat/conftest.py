"""A worker as in production, a provider on loopback, and a conversation with an agent that lives there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from celery.contrib.testing.worker import start_worker
from django.contrib.auth.models import User

from chat import bell, loop, sending, waking, working
from chat.models import Conversation, Message, Turn, TurnState
from chat.tasks import compact
from palimpsest.celery import app
from tests.builders import make_agent, make_channel, make_conversation, make_user
from tests.upstream import Play, Provider, listening_provider


@pytest.fixture(scope="session")
def provider_thread() -> Iterator[Provider]:
    with listening_provider(Play(ttft=0, tps=0, n=20)) as provider:
        yield provider


@pytest.fixture
def provider(provider_thread: Provider) -> Provider:
    provider_thread.clear()
    return provider_thread


@pytest.fixture(scope="module")
def worker_process() -> Iterator[None]:
    """A Celery worker on threads, with its process loop. Stopping it takes seconds, so a module's tests share it."""
    with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, loglevel="WARNING"):
        bell.open_for_turns()
        yield
        bell.close_for_turns()
    loop.close_process_loop()


@pytest.fixture
def worker(worker_process: None, transactional_db: None) -> Iterator[None]:
    """The worker, with nothing left of the test when it ends."""
    yield
    here = working.worker()
    here.home.soon(here.hand_back)
    until(lambda: not here.answers)
    loop.database_threads().submit(time.sleep, 0.05).result()


@pytest.fixture(autouse=True)
def nobody_listens(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wake-up calls of a test that asked for no worker get lost: its module's may be there to hear them."""
    if "worker" not in request.fixturenames:
        monkeypatch.setattr(waking, "ring", lambda *_: None)
        monkeypatch.setattr(compact, "delay", lambda *_: None)


@dataclass
class Chat:
    """Alice in a conversation with an agent of the provider."""

    alice: User
    conversation: Conversation
    provider: Provider

    def send(self, text: str = "hello", *, user: User | None = None, **more: Any) -> Turn:
        turn = sending.send_message(user or self.alice, self.conversation.pk, text, **more).turn
        assert turn is not None
        return turn

    def another(self) -> Chat:
        """Another conversation of Alice's with the same agent."""
        return Chat(self.alice, make_conversation(owner=self.alice, agent=self.conversation.agent), self.provider)

    def ended(self, turn: Turn, state: str = TurnState.DONE, seconds: float = 10) -> Turn:
        """The turn once it has ended."""
        until(lambda: Turn.objects.filter(pk=turn.pk).exclude(state__in=("queued", "running")).exists(), seconds)
        turn.refresh_from_db()
        assert turn.state == state, (turn.state, turn.error_code, turn.error_text)
        return turn

    def answer(self, turn: Turn) -> Message:
        return Message.objects.filter(turn=turn, role="assistant").order_by("-id")[0]

    def messages(self) -> list[Message]:
        return list(Message.objects.filter(conversation=self.conversation).order_by("position", "id"))


@pytest.fixture
def chat(transactional_db: None, provider: Provider) -> Chat:
    alice = make_user("alice")
    channel = make_channel(base_url=provider.base_url, models=["mock"])
    return Chat(alice, make_conversation(owner=alice, agent=make_agent(channel=channel)), provider)


def until(true: Callable[[], Any], seconds: float = 10) -> None:
    """Wait until something is true; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "this did not happen in time"
        time.sleep(0.02)
