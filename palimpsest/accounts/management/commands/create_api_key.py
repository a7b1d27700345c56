"""`manage.py create_api_key USER`: a bearer key for scripts."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from palimpsest.accounts.keys import make_key


class Command(BaseCommand):
    help = "Prints a new API key of a person. It is shown only now: stored is its digest alone."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", help="the person's user name")
        parser.add_argument("--name", default="", help="what the key is for")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"There is no user “{options['user']}”.")
        if not user.is_active:
            raise CommandError(f"The user “{user.username}” is not active, so a key would not work.")
        self.stdout.write(make_key(user, options["name"]))
