"""A tool that is marked to keep its results: the summariser reads them whole, in every compaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agents import tools
from agents.tools import Tool
from chat import compacting, compaction_runs
from chat.models import Conversation
from tests.builders import add_messages, make_conversation, tool_round
from tests.chat.scripting import long_chat, small_agent, summariser

pytestmark = pytest.mark.django_db

NAMES = ("ledger", "weather")


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    """Results of the ledger are kept, those of the weather are not."""
    for name in NAMES:
        tools.register(Tool(name, name, {"type": "object"}, lambda *_: "", keep=name == "ledger"))
    yield
    for name in NAMES:
        tools.unregister(name)


def read_by_summariser(conversation: Conversation) -> str:
    """What the summariser is sent by a compaction that is asked for now."""
    row = compacting.request_compaction(conversation.owner, conversation.pk)
    with summariser() as scripted:
        compaction_runs.run_here(row.pk)
    conversation.refresh_from_db()
    return scripted.read


def test_results_that_are_kept_are_read_whole_in_every_compaction() -> None:
    kept = "entry " * 200 + "the seal is number 4711"
    other = "cloud " * 200 + "the wind is number 1147"
    rounds = [*tool_round("ledger", kept), *tool_round("weather", other)]
    agent = small_agent(tools=list(NAMES))
    conversation = make_conversation(["Look it up.", *rounds, "There.", *long_chat()], agent=agent)

    first = read_by_summariser(conversation)
    add_messages(conversation, long_chat(10))  # so few that the originals still fit the summariser
    second = read_by_summariser(conversation)

    for read in (first, second):
        assert "the seal is number 4711" in read
        assert "the wind is number 1147" not in read
        assert "[tool result cleared: weather" in read
