"""A process with the database in its hands: makes people, agents and histories, and reads rows back for comparison.

Speaks JSON lines on its standard streams, so that a test (whose own Django points elsewhere) and the bench can use the
installation that they started. `bench/house.py` starts it with that installation's environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import orjson

from bench import histories

JSON = dict[str, Any]


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "palimpsest.settings")
    import django

    django.setup()
    from palimpsest import garbage

    garbage.started()  # like the processes whose work it does
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what anything prints goes to the log
    answers.write(b'"ready"\n')
    for line in sys.stdin.buffer:
        asked = orjson.loads(line)
        try:
            answer: JSON = {"result": _TASKS[asked["do"]](**asked["with"])}
        except Exception as error:
            import traceback

            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(orjson.dumps(answer, default=str) + b"\n")


def migrate() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def furnish(base_url: str, people: list[str], agents: list[JSON], api_key: str = "bench") -> JSON:
    """A channel at `base_url`, agents with these fields, people with bearer keys and the password "secret"."""
    from django.contrib.auth.models import User

    from agents.models import Agent, Channel, SiteSettings
    from palimpsest.accounts.keys import make_key

    models = [agent["model"] for agent in agents] or ["mock"]
    channel = Channel(name="Bench", supplier="other", base_url=base_url, models=models, is_auxiliary=True)
    channel.api_key = api_key
    channel.save()
    SiteSettings.objects.filter(default_auxiliary_channel__isnull=True).update(default_auxiliary_channel=channel)
    made = {agent["name"]: Agent.objects.create(channel=channel, **agent).pk for agent in agents}
    users = {}
    for name in people:
        user = User.objects.create_user(name, password="secret")
        users[name] = {"id": user.pk, "key": make_key(user, "bench")}
    return {"agents": made, "people": users, "channel": channel.pk}


def converse(
    owner: str, agent: str, messages: list[JSON], title: str = "", people: dict[str, str] | None = None
) -> str:
    """A conversation with a history in OpenAI chat form."""
    from django.contrib.auth.models import User

    from agents.models import Agent
    from tests.builders import make_conversation

    members = [(User.objects.get(username=name), role) for name, role in (people or {}).items()]
    made = make_conversation(
        messages,
        owner=User.objects.get(username=owner),
        agent=Agent.objects.get(name=agent),
        title=title,
        people=members,
    )
    return str(made.pk)


def command(name: str, arguments: list[str]) -> str:
    """What a management command prints."""
    import io

    from django.core.management import call_command

    out = io.StringIO()
    call_command(name, *arguments, stdout=out)
    return out.getvalue()


def newest_conversation(owner: str) -> str:
    from chat.models import Conversation

    return str(Conversation.objects.filter(owner__username=owner).order_by("-created_at", "-pk")[0].pk)


def messages(conversation: str) -> list[JSON]:
    """Every message as it is shown, in order; queued drafts last."""
    from chat.models import Message
    from chat.presenting import present_message

    rows = Message.objects.filter(conversation=conversation).order_by("position", "is_summary", "id")
    return [present_message(row) for row in rows]


def stored(conversation: str, newest: int = 2_000) -> JSON:
    """What every client should show by now: the version, the newest live messages, and what is still open."""
    from django.db import transaction

    from chat.models import LIVE, Conversation, Message, Turn
    from compaction.models import OPEN_STATES, Compaction

    with transaction.atomic():
        version = Conversation.objects.values_list("version", flat=True).get(pk=conversation)
        rows = Message.objects.filter(LIVE, conversation=conversation).order_by("-position", "-is_summary", "-id")
        shown = list(rows.values_list("id", "role", "content", "status")[:newest])[::-1]
        turns = Turn.objects.filter(conversation=conversation, state__in=("queued", "running")).count()
        runs = Compaction.objects.filter(conversation=conversation, state__in=OPEN_STATES).count()
    return {"version": version, "messages": shown, "open_turns": turns, "open_compactions": runs}


def turns(conversation: str) -> list[JSON]:
    from chat.models import Turn

    fields = ("id", "state", "attempt", "error_code", "error_text", "worker", "rounds", "finished_at")
    return list(Turn.objects.filter(conversation=conversation).order_by("id").values(*fields))


def compactions(conversation: str) -> list[JSON]:
    from compaction.models import Compaction

    rows = Compaction.objects.filter(conversation=conversation).order_by("id")
    fields = ("id", "state", "reason", "error_code", "tokens_before", "tokens_after", "generation", "duration_ms")
    return list(rows.values(*fields, "covered_count", "blocking", "floor", "gain"))


def states() -> JSON:
    """How many turns and compactions there are in each state, over all conversations."""
    from django.db.models import Count

    from chat.models import Turn
    from compaction.models import Compaction

    def counted(model: Any) -> JSON:
        return {row["state"]: row["n"] for row in model.objects.values("state").annotate(n=Count("id")).order_by()}

    return {"turns": counted(Turn), "compactions": counted(Compaction)}


def request(conversation: str) -> JSON:
    """The next request, byte for byte as a provider would be sent it."""
    from chat import history
    from chat.models import Conversation

    row = Conversation.objects.select_related("agent__channel").get(pk=conversation)
    sent, tools = history.request_for(row)
    return {"messages": [message.to_openai() for message in sent], "tools": list(tools)}


def go_back(conversation: str, messages: int) -> None:
    """As if restored from a backup of when it had so many messages: what came later was never there."""
    from django.db import transaction

    from chat.models import Conversation, Message, Turn

    with transaction.atomic():
        row = Conversation.objects.select_for_update().get(pk=conversation)
        Message.objects.filter(conversation=row, position__gt=messages).update(turn=None)
        Turn.objects.filter(conversation=row).delete()
        Message.objects.filter(conversation=row, position__gt=messages).delete()
        row.version, row.last_position, row.base = 0, messages, None
        row.save()


def change_agent(name: str, fields: JSON) -> None:
    from agents.models import Agent

    Agent.objects.filter(name=name).update(**fields)


def measure(conversation: str) -> JSON:
    """The meter."""
    from chat import context
    from chat.models import Conversation

    row = Conversation.objects.select_related("agent__channel").get(pk=conversation)
    return context.measure(row).to_event()


_TASKS: dict[str, Callable[..., Any]] = {
    task.__name__: task
    for task in (
        histories.conversations,
        histories.history,
        histories.session,
        histories.compaction_cost,
        histories.decision_cost,
        migrate,
        furnish,
        converse,
        command,
        newest_conversation,
        messages,
        stored,
        turns,
        compactions,
        states,
        request,
        go_back,
        change_agent,
        measure,
    )
}


if __name__ == "__main__":
    main()
