"""Lean clients for the load: a websocket and a streaming HTTP request, a few microseconds a frame, so that the load's
own work is not what is measured. They speak to our own servers on loopback only and check no more than that needs."""

from __future__ import annotations

import asyncio
import base64
import os
import struct
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httptools
import orjson


class Socket(asyncio.Protocol):
    """A websocket client. `heard` is called with each text frame's bytes as they arrive."""

    def __init__(self, heard: Callable[[bytes], None]) -> None:
        self.heard = heard
        self.received = 0  # bytes on the wire
        self.frames = 0
        self.closed = asyncio.get_running_loop().create_future()
        self.opened = asyncio.get_running_loop().create_future()
        self._buffer = bytearray()
        self._parts = bytearray()

    @classmethod
    async def open(cls, base_url: str, path: str, key: str, heard: Callable[[bytes], None]) -> Socket:
        parts = urlsplit(base_url)
        loop = asyncio.get_running_loop()
        _, socket = await loop.create_connection(lambda: cls(heard), parts.hostname, parts.port)
        nonce = base64.b64encode(os.urandom(16)).decode()
        socket.transport.write(
            (
                f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Key: {nonce}\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer {key}\r\n\r\n"
            ).encode()
        )
        await asyncio.wait_for(socket.opened, 30)
        return socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in (self.opened, self.closed):
            if not waiting.done():
                waiting.set_exception(exc or ConnectionError("closed")) if waiting is self.opened else (
                    waiting.set_result(None)
                )

    def data_received(self, received: bytes) -> None:
        self.received += len(received)
        self._buffer += received
        if not self.opened.done():
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._buffer[:end])
            del self._buffer[: end + 4]
            if not head.startswith(b"HTTP/1.1 101"):
                self.opened.set_exception(ConnectionError(head.split(b"\r\n")[0].decode()))
                self.transport.close()
                return
            self.opened.set_result(None)
        self._read_frames()

    def _read_frames(self) -> None:
        buffer, at, size = self._buffer, 0, len(self._buffer)
        while size - at >= 2:
            opcode, length, start = buffer[at], buffer[at + 1], at + 2
            if length == 126:
                if size < start + 2:
                    break
                length, start = int.from_bytes(buffer[start : start + 2], "big"), start + 2
            elif length == 127:
                if size < start + 8:
                    break
                length, start = int.from_bytes(buffer[start : start + 8], "big"), start + 8
            if size < start + length:
                break
            self._frame(opcode, bytes(buffer[start : start + length]))
            at = start + length
        if at:
            del buffer[:at]

    def _frame(self, opcode: int, content: bytes) -> None:
        kind, is_last = opcode & 15, opcode & 128
        if kind in (0, 1):
            if is_last and not self._parts:
                self.frames += 1
                self.heard(content)
                return
            self._parts += content
            if is_last:
                whole, self._parts = bytes(self._parts), bytearray()
                self.frames += 1
                self.heard(whole)
        elif kind == 9:
            self._write(0x8A, content)
        elif kind == 8:
            self.transport.close()

    def send(self, type: str, **content: Any) -> None:  # noqa: A002
        self._write(0x81, orjson.dumps({"type": type, "seq": None, "data": content}))

    def _write(self, opcode: int, content: bytes) -> None:
        """Masked with zeros, which leaves the content as it is."""
        length = len(content)
        if length < 126:
            head = struct.pack("!BB", opcode, 0x80 | length)
        elif length < 65_536:
            head = struct.pack("!BBH", opcode, 0x80 | 126, length)
        else:
            head = struct.pack("!BBQ", opcode, 0x80 | 127, length)
        self.transport.write(head + b"\0\0\0\0" + content)

    def close(self) -> None:
        self.transport.abort()


class Direct(asyncio.Protocol):
    """A streaming completion straight from the provider. `heard` is called with the body's bytes as they arrive."""

    def __init__(self, heard: Callable[[bytes], None]) -> None:
        self.heard = heard
        self.done = asyncio.get_running_loop().create_future()
        self.parser = httptools.HttpResponseParser(self)

    @classmethod
    async def open(cls, base_url: str, heard: Callable[[bytes], None]) -> Direct:
        parts = urlsplit(base_url)
        _, made = await asyncio.get_running_loop().create_connection(lambda: cls(heard), parts.hostname, parts.port)
        made.host = parts.netloc
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's is no subclass
        self.host = ""

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("the provider closed the connection"))

    def data_received(self, received: bytes) -> None:
        self.parser.feed_data(received)

    def on_body(self, body: bytes) -> None:
        self.heard(body)

    def on_message_complete(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def ask(self, model: str, text: str) -> None:
        body = orjson.dumps(
            {
                "model": model,
                "stream": True,
                "stream_options": {"include_usage": True},
                "messages": [{"role": "user", "content": text}],
            }
        )
        self.transport.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: Bearer bench\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
