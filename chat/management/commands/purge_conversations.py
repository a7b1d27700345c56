"""manage.py purge_conversations: remove what was deleted long enough ago, and files that were never sent."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from chat.purging import KEPT_DAYS, purge_deleted, purge_unsent_files


class Command(BaseCommand):
    help = "Removes the rows and files of conversations that were deleted some days ago. Run it daily."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--days", type=int, default=KEPT_DAYS, help="days since the deletion (default %(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        conversations = purge_deleted(days=max(0, options["days"]))
        files = purge_unsent_files()
        self.stdout.write(f"{conversations} conversations purged, {files} unsent files removed.")
