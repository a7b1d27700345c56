"""What a run reads before it works: one statement has to hold all that the ORM would find in many."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from agents.messages import Message
from agents.models import Calibration, Channel, SiteSettings
from agents.provider import Endpoint
from chat import compacting, compaction_runs
from chat.compaction_work import Work, load_work
from chat.models import Conversation, Participant
from chat.models import Message as Row
from chat.range_guard import fingerprint, line_of, stored_marks, stored_state
from compaction.engine import SummaryRequest
from compaction.models import Compaction
from tests.builders import add_messages, make_conversation, make_user, tool_round
from tests.chat.scripting import compact, long_chat, small_agent
from tests.upstream import Provider

pytestmark = pytest.mark.django_db


@pytest.fixture
def conversation() -> Conversation:
    return make_conversation(long_chat(), agent=small_agent())


def load(conversation: Conversation) -> Work:
    row = compacting.request_compaction(conversation.owner, conversation.pk)
    run = compaction_runs.claim(row.pk)
    assert run
    work = load_work(row.pk, run.worker)
    assert work
    return work


def channel(name: str) -> Channel:
    return Channel.objects.create(name=name, base_url="http://127.0.0.1:9/v1", models=["m"], is_auxiliary=True)


def test_the_run_with_all_it_depends_on_is_what_the_orm_reads(conversation: Conversation) -> None:
    work = load(conversation)

    stored = Compaction.objects.select_related("conversation__agent__channel", "requested_by").get()
    assert work.compaction == stored
    assert work.compaction.requested_by == conversation.owner
    assert (work.compaction.heartbeat_at, work.compaction.quality) == (stored.heartbeat_at, stored.quality)
    assert work.conversation.base == stored.conversation.base
    assert work.conversation.agent.tools == stored.conversation.agent.tools
    assert work.conversation.agent.channel.models == stored.conversation.agent.channel.models


def test_a_run_of_another_worker_is_not_read(conversation: Conversation) -> None:
    work = load(conversation)

    assert load_work(work.compaction.pk, "somebody else") is None


def test_the_agents_own_choice_comes_before_the_sites(conversation: Conversation) -> None:
    own, sites = channel("own"), channel("site")
    SiteSettings.objects.create(id=1, default_auxiliary_channel=sites)
    agent = conversation.agent
    agent.auxiliary_channel = own
    agent.save()

    work = load(conversation)

    assert work.summariser
    assert work.summariser.channel == own


@pytest.mark.parametrize("has_settings", [True, False])
def test_without_a_choice_the_agents_channel_writes(conversation: Conversation, has_settings: bool) -> None:
    if has_settings:
        SiteSettings.objects.create(id=1)

    work = load(conversation)

    assert work.summariser
    assert work.summariser.channel == conversation.agent.channel


def test_a_chosen_channel_that_was_deleted_is_not_replaced(conversation: Conversation) -> None:
    agent = conversation.agent
    agent.auxiliary_channel_id = 4711
    agent.save()
    SiteSettings.objects.create(id=1, default_auxiliary_channel=channel("site"))

    work = load(conversation)

    assert work.summariser is None
    assert work.refusal
    assert work.refusal.code == "auxiliary_unavailable"


@pytest.mark.parametrize("named", ["", "of its own"])
def test_the_factor_is_that_of_the_model_in_use(conversation: Conversation, named: str) -> None:
    agent = conversation.agent
    agent.model = named
    agent.save()
    agent.refresh_from_db()
    Calibration.objects.create(channel=agent.channel, model=agent.model_name, factor=1.5)
    Calibration.objects.create(channel=agent.channel, model="another", factor=0.7)

    assert load(conversation).settings.factor == 1.5


def test_the_prefix_before_it_is_the_newest_applied(conversation: Conversation) -> None:
    first = compact(conversation)
    assert first.prefix

    work = load(conversation)

    assert work.transcript.prefix
    assert work.transcript.prefix.to_json() == first.prefix


def test_who_spoke_is_said_where_several_people_do(conversation: Conversation) -> None:
    assert not load(conversation).transcript.live[0].message.name
    Compaction.objects.all().delete()
    Participant.objects.create(conversation=conversation, user=make_user("bob"), role="member")

    assert load(conversation).transcript.live[0].message.name


def test_the_fingerprint_of_a_range_is_read_by_other_releases_too(conversation: Conversation) -> None:
    pinned = Row.objects.get(conversation=conversation, position=2)
    Row.objects.filter(pk=pinned.pk).update(pinned=True)

    lines = [
        f"{row.pk} {hashlib.md5(row.content.encode()).hexdigest()} {row.token_count} {row.pinned:d} 0\n"
        for row in Row.objects.filter(conversation=conversation, position__range=(1, 4)).order_by("position")
    ]

    expected = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert load(conversation).covered_hash(1, 4) == expected
    assert fingerprint(map(line_of, stored_marks(conversation, 1, 4))) == expected


CHANGES: dict[str, Callable[[QuerySet[Row]], Any]] = {
    "content": lambda rows: rows.update(content="another text"),
    "pin": lambda rows: rows.update(pinned=True),
    "clearing": lambda rows: rows.filter(role="tool").update(cleared_at=timezone.now()),
    "retirement": lambda rows: rows.update(retired_at=timezone.now()),
    "removal": lambda rows: rows.delete(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_in_the_range_is_seen_by_the_guard(conversation: Conversation, change: str) -> None:
    add_messages(conversation, tool_round("read_file", "what it says", path="notes.md"))
    last = conversation.last_position
    before = load(conversation).state(1, last)
    assert stored_state(conversation, 1, last) == (before, False)

    with transaction.atomic():  # of its own, as every change is
        CHANGES[change](Row.objects.filter(conversation=conversation, position=last))

    assert stored_state(conversation, 1, last) != (before, False)


def test_a_change_outside_of_it_is_not(conversation: Conversation) -> None:
    before = load(conversation).state(1, 20)

    Row.objects.filter(conversation=conversation, position=21).update(content="another text")

    assert stored_state(conversation, 1, 20) == (before, False)


def test_a_failure_while_the_summary_is_written_closes_the_call(upstream: Provider) -> None:
    def fails() -> None:
        upstream.wait_for(requests=1)
        raise RuntimeError("a fault of ours")

    run = compaction_runs.Run(compaction=1, worker="w")
    endpoint = Endpoint(base_url=upstream.base_url, api_key="k", model="mock-hang1", supplier="other", channel_id=1)
    request = SummaryRequest((Message("user", "Summarise."),), 1_024, meanwhile=fails)

    with pytest.raises(RuntimeError):
        run.ask(endpoint, request)

    upstream.wait_until(lambda provider: provider.requests[0].outcome == "aborted")
