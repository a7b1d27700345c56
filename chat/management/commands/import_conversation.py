"""manage.py import_conversation FILE.jsonl --user NAME [--agent NAME]: OpenAI chat form, one a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents.models import Agent
from chat.importing import Imported, import_lines


class Command(BaseCommand):
    help = (
        "Imports conversations from a file with one JSON object a line: {id, messages, meta?}, messages in OpenAI chat "
        "form with tool calls and results. A bad line is named with its number and reason; nothing of it is stored."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", help="a .jsonl file")
        parser.add_argument("--user", required=True, help="who owns the conversations")
        parser.add_argument("--agent", default="", help="who answers in them; by default the first agent")

    def handle(self, *args: Any, **options: Any) -> None:
        user = get_user_model().objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"There is no user named {options['user']}.")
        agent = _agent(options["agent"])
        good = bad = 0
        try:
            with Path(options["file"]).open("rb") as file:
                for imported in import_lines(file, user, agent):
                    good, bad = good + (not imported.reason), bad + bool(imported.reason)
                    self._tell(imported)
        except OSError as error:
            raise CommandError(f"{options['file']} cannot be read: {error.strerror}.") from None
        self.stdout.write(f"{good} conversations imported, {bad} bad lines.")
        if bad:
            raise CommandError(f"{bad} lines could not be imported; see above.")

    def _tell(self, imported: Imported) -> None:
        if imported.conversation is None:
            self.stderr.write(f"line {imported.line}: {imported.reason}")
            return
        made = imported.conversation
        self.stdout.write(
            f"line {imported.line}: {imported.messages} messages, {made.live_tokens} tokens, {made.pk} {made.title}"
        )


def _agent(name: str) -> Agent:
    agents = Agent.objects.select_related("channel")
    agent = agents.filter(name=name).first() if name else agents.filter(enabled=True).order_by("id").first()
    if agent is None:
        raise CommandError(f"There is no agent named {name}." if name else "There is no agent yet.")
    return agent
