"""The request as a function of rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from agents.messages import ContentPart, Message
from chat import history, viewing
from chat.models import Message as Row
from chat.reading import read_page
from tests.builders import add_messages, make_agent, make_conversation, make_user, tool_round
from tests.chat.scripting import compact, long_chat, reload, small_agent

pytestmark = pytest.mark.django_db


def contents(messages: tuple[Message, ...]) -> list[str]:
    return [message.content for message in messages]


def test_a_request_is_the_system_prompt_and_the_live_messages() -> None:
    conversation = make_conversation(["hello", "hi"], agent=make_agent(system_prompt="Be brief.", tools=[]))

    messages, tools = history.request_for(conversation)

    assert contents(messages) == ["Be brief.", "hello", "hi"]
    assert tools == ()


def test_a_queued_draft_is_in_no_request() -> None:
    conversation = make_conversation(["hello", "hi"])
    history.new_row(conversation, Message(role="user", content="not yet"), position=None).save()

    messages, _ = history.request_for(conversation)

    assert "not yet" not in contents(messages)


def test_a_pending_draft_can_be_looked_at_as_the_next_message() -> None:
    conversation = make_conversation(["hello", "hi"])
    draft = history.new_row(conversation, Message(role="user", content="next"), position=None)

    transcript = history.load_transcript(conversation, pending=[draft])

    assert transcript.live[-1].message.content == "next"
    assert transcript.live[-1].position == 3


def test_a_row_gives_back_the_message_it_was_made_of() -> None:
    part = ContentPart(kind="image", url="data:image/png;base64,AA==", name="a.png", tokens=1600)
    message = Message(role="user", content="look", parts=(part,), thinking="")
    conversation = make_conversation([message, *tool_round("read", "text", path="a.py")])

    live = history.load_transcript(conversation).live

    assert live[0].message == message
    assert live[1].message.tool_calls[0].name == "read"
    assert live[2].message.name == "read"


def test_an_interrupted_call_still_gives_a_valid_request() -> None:
    conversation = make_conversation(["hello", tool_round("read", "text")[0]])

    messages, _ = history.request_for(conversation)

    assert messages[-1].role == "tool"


def test_names_are_sent_only_where_several_people_talk() -> None:
    alice, bob = make_user("Alice B"), make_user()
    alone = make_conversation(["hello"], owner=alice)
    together = make_conversation(["hello"], owner=alice, people=[(bob, "member")])

    assert history.load_transcript(alone).live[0].message.name == ""
    assert history.load_transcript(together).live[0].message.name == "Alice_B"
    assert history.load_transcript(alone).live[0].author == "Alice B"


def test_a_cleared_result_keeps_its_name_and_loses_its_text() -> None:
    conversation = make_conversation(["hello", *tool_round("read", "text " * 500)])
    Row.objects.filter(role="tool").update(cleared_at=timezone.now())

    entry = history.load_transcript(conversation).live[-1]

    assert entry.message.content == "[Old tool result content cleared]"
    assert entry.message.name == "read"
    assert entry.tokens < 20


def test_text_is_cleaned_before_it_is_counted_or_stored() -> None:
    conversation = make_conversation()
    rows = add_messages(conversation, [Message(role="user", content="a\x00b\ud83d\ude00\ud800")])

    assert Row.objects.get(pk=rows[0].pk).content == "a\ufffdb\U0001f600\ufffd"


def test_the_model_view_names_what_nobody_said() -> None:
    picture = ContentPart(kind="image", url="data:image/png;base64,AA==", name="a.png", tokens=1600)
    shown = tool_round("look", "seen")
    shown[1] = replace(shown[1], parts=(picture,))
    conversation = make_conversation([*long_chat(30), *shown, "There it is."], agent=small_agent(sees_images=True))
    row = compact(conversation)
    assert row.state == "applied", row.error_text

    view = viewing.model_view(reload(conversation.pk), conversation.owner)

    assert len(view["kinds"]) == len(view["messages"])
    assert view["kinds"][:3] == ["system", "summary", "acknowledgement"]
    at = view["kinds"].index("images")
    assert view["kinds"][at - 1] == "tool"
    assert view["messages"][at]["role"] == "user"
    assert "user" in view["kinds"]


def test_no_two_messages_share_a_position() -> None:
    conversation = make_conversation(["one", "two"])

    with pytest.raises(IntegrityError), transaction.atomic():
        Row.objects.create(conversation=conversation, position=2, role="user", content="two again")


def test_summaries_share_it_with_a_message_and_with_each_other() -> None:
    conversation = make_conversation(["one", "two", "three"])
    first, second = (
        Row.objects.create(conversation=conversation, position=2, role="user", content=text, is_summary=True)
        for text in ("a summary", "a later one")
    )

    shown = read_page(conversation, "full").rows

    assert [row.content for row in shown] == ["one", "two", first.content, second.content, "three"]
