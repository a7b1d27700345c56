"""Daphne in this process's main thread, told by us when to open, when to stop taking people in and when to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from daphne.endpoints import build_endpoint_description_strings
from daphne.http_protocol import HTTPFactory
from daphne.server import Server
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from palimpsest.bodies import PIECE, BoundedFactory

LARGEST_SOCKET_MESSAGE = 32 * 1024 * 1024  # bytes, either way


class WebServer(Server):  # type: ignore[misc]
    """Listens on one address. Signals are not its business."""

    def __init__(self, application: Any, host: str, port: int, on_open: Callable[[int], object]) -> None:
        super().__init__(
            application=application,
            endpoints=build_endpoint_description_strings(host=host, port=port),
            signal_handlers=False,
            server_name="palimpsest",
            http_timeout=None,
            request_buffer_size=PIECE,
            application_close_timeout=10,
            # Holds for what is sent too: with Daphne's 1 MiB a snapshot of long messages would never arrive.
            websocket_max_message_size=LARGEST_SOCKET_MESSAGE,
        )
        self.on_open = on_open
        self.failure: str | None = None
        self._ports: list[Any] = []

    @property
    def http_factory(self) -> BoundedFactory:
        return self._factory

    @http_factory.setter
    def http_factory(self, made: HTTPFactory) -> None:
        """Daphne makes its own when it runs; ours stands in its place."""
        self._factory = BoundedFactory(made.server)

    def listen_success(self, port: Any) -> None:
        super().listen_success(port)
        self._ports.append(port)
        self.on_open(port.getHost().port)

    def listen_error(self, failure: Any) -> None:
        """Daphne would end as if all were well; the caller reads `failure`."""
        self.failure = failure.getErrorMessage()
        self.stop()

    def close_doors(self) -> None:
        """Take no new connections; open ones go on. From any thread."""
        self._on_reactor(self._stop_listening)

    def end(self) -> None:
        """Close what is open and return from `run()`. From any thread."""
        self._on_reactor(self.stop)

    def _stop_listening(self) -> list[Deferred[Any]]:
        ports, self._ports = self._ports, []
        return [port.stopListening() for port in ports]

    @staticmethod
    def _on_reactor(call: Callable[[], object]) -> None:
        reactor.callFromThread(call)
