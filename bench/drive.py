"""The load: chats through Palimpsest's sockets, and the same straight from the provider, in one run."""

from __future__ import annotations

import asyncio
import random
import re
import time
from dataclasses import dataclass, field

import orjson

from bench.lines import Direct, Socket

ENDS = ("turn_done", "turn_error", "turn_interrupted")
PATIENCE = 120.0  # seconds for one answer
_NUMBERED = re.compile(r" k(\d+)@(\d+)")


@dataclass(slots=True)
class Answer:
    """One answer as it came. Times are CLOCK_MONOTONIC (seconds)."""

    asked_at: float
    first_at: float = 0.0
    ended_at: float = 0.0
    text: str = ""
    stored: str = ""
    fault: str = ""
    frames: int = 0

    @property
    def first_token(self) -> float:
        """From the question to the first piece (ms)."""
        return (self.first_at - self.asked_at) * 1000

    def wrong_tokens(self, n: int) -> tuple[int, int]:
        """(lost, doubled) of an answer that should have `n` numbered tokens."""
        numbers = [int(number) for number, _ in _NUMBERED.findall(self.text)]
        return n - len(set(numbers)), len(numbers) - len(set(numbers))

    def lags(self) -> list[float]:
        """From a token's writing to the end of the frames that brought it: only the last one is known (ms)."""
        found = _NUMBERED.findall(self.text[-60:])
        return [self.ended_at * 1000 - int(found[-1][1]) / 1000] if found else []


@dataclass(slots=True)
class Chat:
    """One conversation with its socket; asks one question after another."""

    base_url: str
    key: str
    conversation: str
    socket: Socket | None = None
    answer: Answer | None = None
    snapshot_bytes: int = 0
    told_bytes: int = 0  # frames other than pieces, since the last question
    _pieces: list[str] = field(default_factory=list)
    _ended: asyncio.Future[None] | None = None
    _joined: asyncio.Future[None] | None = None

    async def open(self) -> Chat:
        self._joined = asyncio.get_running_loop().create_future()
        path = f"/ws/conversations/{self.conversation}/"
        self.socket = await Socket.open(self.base_url, path, self.key, self._hear)
        await asyncio.wait_for(self._joined, 60)
        return self

    async def ask(self, text: str) -> Answer:
        """Send a message and wait for the end of its answer."""
        assert self.socket
        self.begin(text)
        return await self.wait()

    def begin(self, text: str) -> None:
        assert self.socket
        self._ended = asyncio.get_running_loop().create_future()
        self._pieces = []
        self.told_bytes = 0
        self.answer = Answer(time.monotonic())
        self.socket.send("chat", content=text, attachments=[], client_id=f"b{time.monotonic_ns()}-{random.random()}")

    async def wait(self) -> Answer:
        assert self.answer
        assert self._ended
        try:
            await asyncio.wait_for(self._ended, PATIENCE)
        except TimeoutError:
            self.answer.fault = "no end"
        self.answer.text = "".join(self._pieces)
        if not self.answer.fault and self.answer.stored != self.answer.text:
            self.answer.fault = f"shown {len(self.answer.text)} characters, stored {len(self.answer.stored)}"
        return self.answer

    def close(self) -> None:
        if self.socket:
            self.socket.close()

    def _hear(self, frame: bytes) -> None:
        answer = self.answer
        if frame.startswith(b'{"type":"delta"'):
            if answer:
                if not answer.first_at:
                    answer.first_at = time.monotonic()
                answer.frames += 1
                self._pieces.append(orjson.loads(frame)["data"]["text"])
            return
        self.told_bytes += len(frame)
        if frame.startswith(b'{"type":"snapshot"'):
            self.snapshot_bytes = len(frame)
            if self._joined and not self._joined.done():
                self._joined.set_result(None)
        elif frame.startswith((b'{"type":"turn_', b'{"type":"error"')) and answer and self._ended:
            self._end(orjson.loads(frame), answer)

    def _end(self, envelope: dict[str, object], answer: Answer) -> None:
        kind, content = envelope["type"], envelope["data"]
        if kind not in (*ENDS, "error") or not self._ended or self._ended.done():
            return
        assert isinstance(content, dict)
        answer.ended_at = time.monotonic()
        if kind == "turn_done":
            answer.stored = (content["message"] or {}).get("content", "")
        else:
            answer.fault = f"{kind}: {content.get('code') or content.get('message')}"
        self._ended.set_result(None)


async def direct(base_url: str, model: str, text: str = "Hello") -> Answer:
    """The same answer straight from the provider, over a connection that is open already."""
    pieces: list[bytes] = []
    answer = Answer(0.0)

    def hear(body: bytes) -> None:
        if not answer.first_at and b" k0@" in body:
            answer.first_at = time.monotonic()
        pieces.append(body)

    line = await Direct.open(base_url, hear)
    answer.asked_at = time.monotonic()
    line.ask(model, text)
    try:
        await asyncio.wait_for(line.done, PATIENCE)
    except (TimeoutError, ConnectionError) as error:
        answer.fault = str(error) or "no end"
    answer.ended_at = time.monotonic()
    line.transport.close()
    answer.text = "".join(
        f" k{i}@{at}"
        for i, at in re.findall(rb" k(\d+)@(\d+)", b"".join(pieces))
        for i, at in [(i.decode(), at.decode())]
    )
    return answer


async def in_turn(chats: list[Chat], rounds: int, spread: float) -> list[Answer]:
    """Every chat asks `rounds` questions one after another; the chats start spread over `spread` seconds."""

    async def one(number: int, chat: Chat) -> list[Answer]:
        await asyncio.sleep(spread * number / max(1, len(chats)))
        answers = []
        for asked in range(rounds):
            answers.append(await chat.ask(f"Question {asked} of chat {number}"))
            await asyncio.sleep(0.05 + random.random() * 0.1)
        return answers

    return [
        answer for found in await asyncio.gather(*(one(i, chat) for i, chat in enumerate(chats))) for answer in found
    ]


async def direct_in_turn(base_url: str, model: str, chats: int, rounds: int, spread: float) -> list[Answer]:
    """The same load without Palimpsest."""

    async def one(number: int) -> list[Answer]:
        await asyncio.sleep(spread * number / max(1, chats))
        answers = []
        for asked in range(rounds):
            answers.append(await direct(base_url, model, f"Question {asked} of chat {number}"))
            await asyncio.sleep(0.05 + random.random() * 0.1)
        return answers

    return [answer for found in await asyncio.gather(*(one(i) for i in range(chats))) for answer in found]


def tokens_a_second(answers: list[Answer]) -> float:
    """All tokens by the time from the first question to the last end."""
    tokens = sum(len(_NUMBERED.findall(answer.text)) for answer in answers)
    took = max(answer.ended_at for answer in answers) - min(answer.asked_at for answer in answers)
    return tokens / took if took else 0.0
