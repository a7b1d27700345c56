"""`manage.py` with a stop-watch: notes when each step of the way from a question to its first token is passed.

    python -m bench.traced serve --port 0 --web-only      as bench/steps.py starts it

Nothing of this is in the product: the functions are wrapped here, at start. Every process writes its notes to a file of
its own in the folder that BENCH_STEPS names. The clock is the machine's, so that notes of several processes compare.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

Which = Callable[..., Any]  # the conversation that a call is about, from its arguments


class Notes:
    """One line a step: name, when (ns, monotonic), processor time of the thread (ns), conversation."""

    def __init__(self, folder: str) -> None:
        self._file = (Path(folder) / f"{os.getpid()}.jsonl").open("ab", buffering=0)

    def note(self, step: str, conversation: object) -> None:
        self._file.write(orjson.dumps([step, time.monotonic_ns(), time.thread_time_ns(), str(conversation)]) + b"\n")


def around(notes: Notes, owner: Any, name: str, which: Which, before: str = "", after: str = "") -> None:
    """Wrap a plain function so that the steps `before` and `after` it are noted."""
    inner = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        conversation = which(*args, **kwargs)
        if before and conversation:
            notes.note(before, conversation)
        try:
            return inner(*args, **kwargs)
        finally:
            if after and conversation:
                notes.note(after, conversation)

    setattr(owner, name, wrapped)


def around_async(notes: Notes, owner: Any, name: str, which: Which, before: str = "", after: str = "") -> None:
    """The same for a coroutine function."""
    inner = getattr(owner, name)

    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        conversation = which(*args, **kwargs)
        if before and conversation:
            notes.note(before, conversation)
        try:
            return await inner(*args, **kwargs)
        finally:
            if after and conversation:
                notes.note(after, conversation)

    setattr(owner, name, wrapped)


def patch(notes: Notes) -> None:
    """Every step of bench/steps.py; a name that is gone fails here, loudly."""
    from agents import provider
    from chat import answering, broadcast, claiming, consumers, locking, sending, streaming, working

    is_chat = lambda self, text: self.conversation if '"chat"' in text[:40] else None  # noqa: E731
    around(notes, consumers.ConversationConsumer, "_received", is_chat, "heard")
    is_send = lambda user, conversation, *_, **__: conversation  # noqa: E731
    around(notes, sending, "send_message", is_send, "db_thread", "web_free")
    around(notes, sending, "queue_message", lambda desk, *_, **__: desk.conversation.pk, "locked")
    around(notes, locking, "_say", lambda desk: desk.conversation.pk, "committed")
    around(notes, sending, "wake", lambda conversation: conversation, "", "published")
    around(notes, working, "work_on", lambda conversation: conversation, "task")
    around(notes, working, "_claim_and_start", lambda conversation: conversation, "worker_thread")
    around(notes, claiming, "advance", lambda desk: desk.conversation.pk, "worker_locked")
    around(notes, working, "claim_next", lambda conversation: conversation, "", "claimed")
    around(notes, working, "load_request", lambda claim, *_: claim.conversation, "", "request_loaded")
    around(notes, working.Worker, "begin", lambda self, claim, request: claim.conversation, "on_loop")
    current: dict[int, object] = {}

    inner_call = answering.Answer._call

    async def call(self: Any) -> Any:
        import asyncio

        current[id(asyncio.current_task())] = self.claim.conversation
        notes.note("call", self.claim.conversation)
        return await inner_call(self)

    answering.Answer._call = call  # type: ignore[method-assign]
    inner_make = answering._completion

    def make(claim: Any, request: Any) -> Any:
        made = inner_make(claim, request)
        belongs[id(made)] = claim.conversation
        return made

    belongs: dict[int, object] = {}
    answering._completion = make
    which = lambda self, *_: belongs.get(id(self._request))  # noqa: E731
    around_async(notes, provider.AnswerStream, "_send", which, "sending", "response")
    first = lambda self, track, text: self.claim.conversation if not self.length else None  # noqa: E731
    around(notes, streaming.Stream, "_add", first, "first_piece")

    def is_first(frame: bytes) -> bool:
        return frame.startswith(b'{"type":"delta"') and b'"offset":0' in frame

    def first_delta(self: Any, address: Any, message: Any) -> Any:
        found = message["type"] == "frame" and any(map(is_first, message["frames"]))
        return address.name.partition(".")[2] if found else None

    around_async(notes, broadcast.Outbox, "_send", first_delta, "handed_over", "layer_has_it")

    def first_frame(self: Any, message: Any) -> Any:
        if message["type"] != "frame":
            return None
        frames = message["frames"]
        return (
            self.conversation if any(b'"offset":0' in f and f.startswith(b'{"type":"delta"') for f in frames) else None
        )

    around(notes, consumers.ConversationConsumer, "_told", first_frame, "back_at_web")


def main() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "palimpsest.settings")
    sys.argv[0] = "manage.py"
    django.setup()
    patch(Notes(os.environ["BENCH_STEPS"]))
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
