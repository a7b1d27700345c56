"""`manage.py make_first_agents`: the channel and agent of OPENAI_*, for installations of several processes."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from palimpsest import first_agents


class Command(BaseCommand):
    help = "Makes the first channel and agent from OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL; may be run again."

    def handle(self, *args: Any, **options: Any) -> None:
        made = first_agents.from_environment()
        self.stdout.write(f"Channel {made.name} is ready." if made else "OPENAI_API_KEY is not set: nothing to make.")
