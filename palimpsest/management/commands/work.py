"""`manage.py work`: a worker as a process of its own."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from palimpsest.embedded import all_queues, work
from palimpsest.preflight import CannotStart


class Command(BaseCommand):
    help = "Starts a worker for turns and compactions. Needs REDIS_URL; SIGTERM drains it."
    requires_system_checks: list[str] = []  # `make lint` and the tests run them

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--queue", action="append", choices=all_queues(), help="only this queue; may be given twice (default: all)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            code = work(options["queue"] or all_queues(), self._say)
        except CannotStart as error:
            raise CommandError(str(error)) from None
        sys.exit(code)

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
