"""Export and import: what goes out comes in again as it was."""

from __future__ import annotations

import orjson
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from agents.messages import Message as Spoken
from chat.models import Conversation, Message
from tests.api.conftest import Answer, Caller, expect
from tests.builders import add_messages, make_agent, tool_round

pytestmark = pytest.mark.django_db


def _import(who: Caller, body: bytes, **query: object) -> Answer:
    return Answer(who.client.post("/api/v1/import", body, "application/x-ndjson", query_params=query))


def _fields(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
    names = ("role", "content", "tool_calls", "tool_call_id", "tool_name", "thinking")
    return [tuple(row[name] for name in names) for row in rows]


def test_its_people_export_it(people: dict[str, Caller], here: str) -> None:
    for kind in ("jsonl", "markdown"):
        expect(people, lambda who, kind=kind: who.get(f"{here}/export", format=kind), alice=200, bob=200, vera=200)
    assert people["alice"].get(f"{here}/export", format="pdf").status == 422


def test_an_export_comes_in_again_as_it_was(
    alice: Caller, charlie: Caller, conversation: Conversation, here: str
) -> None:
    add_messages(
        conversation,
        [
            Spoken("user", "Look it up ```twice``` 你好 😀"),
            *tool_round("search", "three\nresults", query="harbour"),
            Spoken("assistant", "Done.", thinking="I should be brief."),
        ],
    )
    summary = Message.objects.create(conversation=conversation, position=2, role="user", content="S", is_summary=True)
    Message.objects.filter(conversation=conversation, position__lte=2, is_summary=False).update(
        compacted_into=summary, compacted_at=timezone.now()
    )
    exported = alice.get(f"{here}/export")
    assert exported.response.headers["Content-Disposition"] == 'attachment; filename="Sights.jsonl"'
    came = _import(charlie, exported.response.content)
    assert came.status == 201
    made = came.json["conversations"][0]
    originals = [row for row in alice.get(f"{here}/messages", view="full").json["items"] if not row["is_summary"]]
    copies = charlie.get(f"/conversations/{made['id']}/messages", view="full").json["items"]
    assert _fields(copies) == _fields(originals)
    assert made["title"] == "Sights"


def test_markdown_is_readable_and_fences_hold(alice: Caller, conversation: Conversation, here: str) -> None:
    add_messages(conversation, tool_round("search", "a ``` fence inside", query="x"))
    text = alice.get(f"{here}/export", format="markdown").response.content.decode()
    assert text.startswith("# Sights\n")
    assert "## alice" in text
    assert "````\na ``` fence inside\n````" in text


def test_bad_lines_are_named_and_good_ones_come_in(alice: Caller, here: str) -> None:
    good = orjson.dumps({"messages": [{"role": "user", "content": "Hi"}]})
    came = _import(alice, b"\n".join([good, b"{broken", good])).json
    assert len(came["conversations"]) == 2
    assert [problem["line"] for problem in came["problems"]] == [2]
    assert _import(alice, b"{broken").code == "nothing_imported"
    assert _import(alice, b"").code == "nothing_imported"


def test_a_file_of_a_form_is_taken_and_the_agent_chosen(alice: Caller, here: str) -> None:
    agent = make_agent(name="Other")
    file = SimpleUploadedFile("a.jsonl", orjson.dumps({"messages": [{"role": "user", "content": "Hi"}]}))
    came = Answer(alice.client.post(f"/api/v1/import?agent={agent.pk}", {"file": file}))
    assert came.json["conversations"][0]["agent"]["name"] == "Other"
    assert _import(alice, b"{}", agent=10**6).code == "agent_unavailable"


def test_strangers_import_nothing(anonymous: Caller) -> None:
    assert _import(anonymous, b"{}").status == 401
    assert not Conversation.objects.exists()
