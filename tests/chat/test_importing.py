"""Importing conversations: whole or not at all, and every bad line named."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agents.models import Agent
from chat import chat_lines, context, history
from chat.importing import Imported, import_lines
from chat.models import Conversation, Participant
from chat.models import Message as Row
from tests.builders import make_agent, make_user
from tests.compaction.builders import SHARED

pytestmark = pytest.mark.django_db

USER = {"role": "user", "content": "hello"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "done"}


def bring_in(*conversations: Any) -> list[Imported]:
    lines = [said if isinstance(said, bytes) else json.dumps(said).encode() for said in conversations]
    return list(import_lines(io.BytesIO(b"\n".join(lines)), make_user(), make_agent()))


def messages(*said: Any, **more: Any) -> dict[str, Any]:
    return {"id": "x", "messages": list(said), **more}


def test_a_conversation_comes_in_with_its_calls_thinking_and_usage() -> None:
    usage = {"usage": {"fields": ["message", "prompt_tokens", "completion_tokens"], "rows": [[1, 10, 5]]}}
    thought = {**CALL, "reasoning_content": "hm"}
    (imported,) = bring_in(messages(USER, thought, RESULT, {"role": "assistant", "content": "so"}, meta=usage))

    rows = list(Row.objects.order_by("position"))
    assert [row.role for row in rows] == ["user", "assistant", "tool", "assistant"]
    assert [row.position for row in rows] == [1, 2, 3, 4]
    assert (rows[1].thinking, rows[1].usage) == ("hm", {"prompt_tokens": 10, "completion_tokens": 5})
    assert (rows[2].tool_name, rows[2].tool_call_id) == ("f", "c1")
    made = imported.conversation
    assert (made.title, made.last_position, made.base) == ("hello", 4, None)
    assert made.live_tokens == context.recount_live_tokens(made)
    assert Participant.objects.get().role == "owner"


def test_system_messages_stay_at_their_place_and_are_sent_word_for_word() -> None:
    (imported,) = bring_in(messages({"role": "system", "content": "Policy."}, USER))

    sent, _ = history.request_for(imported.conversation)

    assert [(m.role, m.content) for m in sent][1:] == [("system", "Policy."), ("user", "hello")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{not json", "not JSON"),
        (b"[1, 2]", "not a JSON object"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"[" * 100_000, "not JSON"),
        ({"id": "x"}, "“messages” is missing"),
        (messages(), "“messages” is missing"),
        (messages("hello"), "message 0: not an object"),
        (messages({"role": "boss", "content": "x"}), "message 0: the role “boss”"),
        (messages({"role": ["user"], "content": "x"}), "message 0: the role"),
        (messages(USER, {"role": "user"}), "message 1: “content” is missing"),
        (messages(USER, {"role": "assistant", "content": None}), "message 1: “content” is missing"),
        (messages(USER, {"role": "user", "content": 7}), "message 1: “content” is neither"),
        (messages(USER, RESULT), "message 1: a tool's result without its call (“c1”)"),
        (messages(USER, CALL, RESULT, RESULT), "message 3: a tool's result without its call"),
        (messages(USER, {"role": "assistant", "tool_calls": [{"id": "a"}]}), "a tool call names no function"),
        (messages(USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}), "a tool call has no id"),
        (messages({"role": "user", "content": [{"type": "audio"}]}), "neither text nor an image"),
        (
            messages(
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}
            ),
            "an image cannot be read",
        ),
    ],
)
def test_a_bad_line_is_named_and_nothing_of_it_is_stored(line: Any, reason: str) -> None:
    bad, good = bring_in(line, messages(USER))

    assert bad.line == 1
    assert reason in bad.reason
    assert good.conversation is not None
    assert Conversation.objects.count() == 1


def test_a_huge_line_is_passed_over_without_being_read_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_lines, "LONGEST_LINE", 1000)

    bad, good = bring_in(messages({"role": "user", "content": "x" * 5000}), messages(USER))

    assert "longer than" in bad.reason
    assert (good.line, good.messages) == (2, 1)


def test_text_is_cleaned() -> None:
    bring_in(b'{"messages": [{"role": "user", "content": "a\\u0000b\\ud83d\\ude00\\ud800"}]}')

    assert Row.objects.get().content == "a\ufffdb\U0001f600\ufffd"


def test_an_unanswered_call_comes_in_and_the_request_is_valid() -> None:
    (imported,) = bring_in(messages(USER, CALL))

    sent, _ = history.request_for(imported.conversation)

    assert sent[-1].role == "tool"


def test_reused_call_ids_come_in() -> None:
    (imported,) = bring_in(messages(USER, CALL, RESULT, CALL, RESULT))

    assert imported.messages == 5


def test_an_image_becomes_a_file_of_the_conversation() -> None:
    import base64

    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (8, 6), "red").save(buffer, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    said = {
        "role": "user",
        "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}],
    }

    (imported,) = bring_in(messages(said))

    row = Row.objects.get()
    assert (row.content, row.parts[0]["width"]) == ("look", 8)
    assert imported.conversation.attachments.get().message == row
    assert imported.conversation.live_tokens == row.token_count == context.recount_live_tokens(imported.conversation)


def test_the_command_names_bad_lines_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_user("alice")
    agent = make_agent(name="helper")
    file = tmp_path / "chats.jsonl"
    file.write_text(f"{json.dumps(messages(USER))}\nnonsense\n")

    with pytest.raises(CommandError, match="1 lines"):
        call_command("import_conversation", str(file), user="alice", agent="helper")

    said = capsys.readouterr()
    assert "line 2: the line is not JSON" in said.err
    assert "line 1: 1 messages" in said.out
    assert Conversation.objects.get().agent == agent


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"user": "nobody"}, "no user"),
        ({"user": "alice", "agent": "x"}, "no agent"),
        ({"user": "alice"}, "cannot be read"),
    ],
)
def test_the_command_says_what_is_missing(options: dict[str, str], reason: str) -> None:
    make_user("alice")
    Agent.objects.all().delete()
    make_agent()

    with pytest.raises(CommandError, match=reason):
        call_command("import_conversation", "/does/not/exist.jsonl", **options)


@pytest.mark.skipif(not (SHARED / "transcripts").is_dir(), reason="the shared transcripts are not here")
def test_a_real_session_of_974_messages_comes_in_within_two_seconds() -> None:
    user, agent = make_user(), make_agent()
    started = time.monotonic()
    with (SHARED / "transcripts" / "pi_sessions.jsonl").open("rb") as file:
        imported = list(import_lines(file, user, agent))

    assert time.monotonic() - started < 10  # the figure of a quiet machine is in docs/benchmarks.md
    assert imported[0].messages == 974
    assert Row.objects.filter(usage__isnull=False).count() > 400
