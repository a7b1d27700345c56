"""`manage.py serve`: everything on one machine, in one process."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from palimpsest.embedded import serve
from palimpsest.preflight import CannotStart


class Command(BaseCommand):
    help = "Starts web server and worker in one process, and prints the address."
    requires_system_checks: list[str] = []  # `make lint` and the tests run them

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default=settings.HOST, help="the address to open (HOST)")
        parser.add_argument("--port", type=int, default=settings.PORT, help="the port to open, 0 for a free one (PORT)")
        parser.add_argument("--web-only", action="store_true", help="without the worker: `manage.py work` runs it")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["web_only"] and settings.EMBEDDED:
            raise CommandError("Without REDIS_URL the worker lives in this process: leave out --web-only.")
        try:
            code = serve(options["host"], options["port"], web_only=options["web_only"], say=self._say)
        except CannotStart as error:
            raise CommandError(str(error)) from None
        sys.exit(code)

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
