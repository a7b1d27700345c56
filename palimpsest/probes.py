"""A worker serves no pages; with WORKER_PORT it answers /healthz and /metrics all the same."""

from __future__ import annotations

import hmac
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from django.conf import settings
from django.db import close_old_connections

from palimpsest import health, metrics


def listen(host: str, port: int) -> ThreadingHTTPServer:
    """Answer probes on a thread of their own."""
    server = ThreadingHTTPServer((host, port), _Probe)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()
    return server


class _Probe(BaseHTTPRequestHandler):
    server_version = "palimpsest"
    sys_version = ""

    def do_GET(self) -> None:
        if self.path == "/healthz":
            well = health.beats_here()
            self._answer(200 if well else 503, b'{"status": "ok"}' if well else b'{"status": "unavailable"}')
        elif self.path == "/metrics" and self._may_read_metrics():
            try:
                content, kind = metrics.exposition()
            finally:
                close_old_connections()
            self._answer(200, content, kind)
        else:
            self._answer(404, b'{"code": "not_found", "message": "Only /healthz and /metrics are here."}')

    def _may_read_metrics(self) -> bool:
        if not settings.METRICS_TOKEN:
            return self.client_address[0] in ("127.0.0.1", "::1")
        given = self.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {settings.METRICS_TOKEN}".encode())

    def _answer(self, status: int, content: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Probes come every few seconds; they are no story."""
