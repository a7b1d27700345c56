"""`manage.py collect_static`: collects static files if they changed; `serve` does so too, an image does it once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from palimpsest.preflight import CannotStart
from palimpsest.static import collect_if_changed


class Command(BaseCommand):
    help = "Collects static files under hashed names, if one of them has changed."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            done = collect_if_changed()
        except CannotStart as error:
            raise CommandError(str(error)) from None
        self.stdout.write("Static files are collected." if done else "Static files have not changed.")
