"""The files last touched are put back after a compaction, as they are now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.messages import Message as Spoken
from agents.messages import ToolCall
from chat import history
from chat.chat_lines import read_line
from chat.copying import copy_originals
from chat.extracting import extract
from chat.files import store
from chat.importing import store_conversation
from chat.models import Attachment, Conversation, Message
from chat.restoring import restorable
from chat.tools import space
from chat.touches import touched
from compaction.case import EngineSettings
from compaction.restore import RestoredFile
from compaction.transcript import Entry
from compaction.validate import complete_pairs
from tests.builders import add_messages, make_agent, make_conversation, make_user, tool_round
from tests.chat.scripting import compact, request
from tests.tools.conftest import Use

SESSIONS = Path(__file__).parents[3] / "shared" / "data" / "transcripts" / "pi_sessions.jsonl"
WINDOW = 20_000


def settings(window: int = WINDOW) -> EngineSettings:
    return EngineSettings(window=window, reply=1_000, percent=None, keep_recent=2, strategy="balanced")


def entries(*messages: Spoken) -> list[Entry]:
    return [Entry(number, number, message, 10) for number, message in enumerate(messages, start=1)]


def restored(conversation: Conversation) -> list[RestoredFile]:
    found = restorable(conversation, history.load_transcript(conversation), settings())
    return [file for file in found if isinstance(file, RestoredFile)]


def talk(conversation: Conversation, words: int = 900) -> None:
    """So much talk that what was before leaves the context."""
    add_messages(conversation, [f"{number} " + "word " * words for number in range(24)])


# What calls tell


def test_the_content_of_a_file_is_what_was_written_and_changed_since() -> None:
    found = touched(
        entries(
            *tool_round("write", "ok", path="a.py", content="one two"),
            *tool_round("edit", "ok", path="a.py", oldText="two", newText="three"),
            *tool_round("read", "b content", path="src/b.py"),
        )
    )

    assert [(touch.name, touch.text, touch.position) for touch in found] == [
        ("src/b.py", "b content", 5),
        ("a.py", "one three", 3),
    ]


def test_a_failed_call_touches_nothing() -> None:
    call = Spoken("assistant", tool_calls=(ToolCall("c", "read", '{"path": "a.py"}'),))
    result = Spoken("tool", "no such file", tool_call_id="c", name="read")

    assert touched([Entry(1, 1, call, 10), Entry(2, 2, result, 10, is_error=True)]) == []


def test_a_call_with_a_reused_id_gets_its_own_result() -> None:
    found = touched(
        entries(
            *tool_round("read", "first", call_id="same", path="a.py"),
            *tool_round("read", "second", call_id="same", path="b.py"),
        )
    )

    assert {touch.name: touch.text for touch in found} == {"a.py": "first", "b.py": "second"}


def test_a_change_to_a_file_that_was_never_read_leaves_it_unknown() -> None:
    (touch,) = touched(entries(*tool_round("edit", "ok", path="a.py", old_text="x", new_text="y")))

    assert touch.text is None


@pytest.mark.parametrize("arguments", [{"path": "src"}, {"path": 3}, {"command": "cat a.py"}, {"path": "x\n.py"}, {}])
def test_what_names_no_file_touches_none(arguments: dict[str, object]) -> None:
    assert touched(entries(*tool_round("read", "text", **arguments))) == []


# What is put back


@pytest.mark.django_db
def test_the_current_version_of_a_written_file_is_restored(use: Use) -> None:
    conversation = make_conversation(["Write it."])
    use(conversation, "write_file", name="plan.md", content="first")
    add_messages(conversation, tool_round("write_file", "Wrote plan.md", name="plan.md", content="first"))
    talk(conversation)
    use(conversation, "write_file", name="plan.md", content="second")

    (file,) = restored(conversation)

    assert (file.name, file.text) == ("plan.md", "second")


@pytest.mark.django_db
def test_an_uploaded_file_that_leaves_the_context_is_restored() -> None:
    conversation = make_conversation(["Here is a file."])
    message = Message.objects.get(conversation=conversation)
    row = store(conversation, conversation.owner, "data.csv", extract(b"a,b\n1,2"), message=message)
    message.parts = [{"kind": "file", "name": "data.csv", "text": "a,b\n1,2", "attachment": str(row.pk)}]
    message.save()
    talk(conversation)

    (file,) = restored(conversation)

    assert (file.name, file.text, file.origin) == ("data.csv", "a,b\n1,2", f"#1, {conversation.owner}")


@pytest.mark.django_db
def test_a_file_that_is_gone_is_said_to_be_gone() -> None:
    conversation = make_conversation(["Read it.", *tool_round("read_file", "text", name="gone.md")])
    talk(conversation)

    assert [(file.name, file.text) for file in restored(conversation)] == [("gone.md", None)]


@pytest.mark.django_db
def test_five_files_at_most_the_last_touched_first() -> None:
    rounds = [one for number in range(8) for one in tool_round("read", f"text {number}", path=f"f{number}.py")]
    conversation = make_conversation(["Read them.", *rounds])
    talk(conversation)

    assert [file.name for file in restored(conversation)] == [f"f{number}.py" for number in (7, 6, 5, 4, 3)]


@pytest.mark.django_db
def test_a_fork_has_the_files_that_were_written_before_it(use: Use) -> None:
    conversation = make_conversation(["Write it."])
    use(conversation, "write_file", name="plan.md", content="first")
    position = Message.objects.filter(conversation=conversation).order_by("-position")[0].position or 0
    use(conversation, "write_file", name="plan.md", content="second")

    made = copy_originals(conversation.owner, conversation, position)

    assert Attachment.objects.get(pk=space.find(made.pk, "plan.md").pk).text == "first"


@pytest.mark.django_db
def test_a_recorded_coding_session_gets_its_files_back() -> None:
    if not SESSIONS.exists():
        pytest.skip("the recorded sessions are not here")
    line = SESSIONS.read_bytes().splitlines()[0]
    recorded = json.loads(line)
    cut = recorded["meta"]["compactions"][0]["at"]
    recorded["messages"] = recorded["messages"][:cut]
    spoken = read_line(json.dumps(recorded).encode())
    conversation = store_conversation(spoken, make_user(), make_agent(window=200_000))

    found = restorable(conversation, history.load_transcript(conversation), settings(200_000))
    files = [file for file in found if isinstance(file, RestoredFile)]

    assert len(files) == 5
    assert all(file.name.startswith("/Users/badlogic") and file.text for file in files)
    assert all(file.reader == "read" for file in files)


@pytest.mark.django_db
def test_a_recorded_coding_session_goes_on_after_a_compaction_with_its_files() -> None:
    """No model writes this summary; what is put back is read from the recorded calls and stands in the next request."""
    if not SESSIONS.exists():
        pytest.skip("the recorded sessions are not here")
    recorded = json.loads(SESSIONS.read_bytes().splitlines()[0])
    recorded["messages"] = recorded["messages"][: recorded["meta"]["compactions"][0]["at"]]
    agent = make_agent(window=200_000, compaction_strategy="extractive")
    conversation = store_conversation(read_line(json.dumps(recorded).encode()), make_user(), agent)
    newest = Message.objects.filter(conversation=conversation).order_by("-position")[0]
    before = history.load_transcript(conversation)
    wanted = [
        file.name for file in restorable(conversation, before, settings(200_000)) if isinstance(file, RestoredFile)
    ]

    row = compact(conversation)

    assert row.state == "applied", row.error_text
    sent = request(conversation)
    assert sent == complete_pairs(sent)
    carried = next(message.content for message in sent if "Files last touched" in message.content)
    assert wanted
    assert all(f"`{name}`" in carried for name in wanted)
    assert sent[-1].content == newest.content
    assert history.load_transcript(conversation).tokens < before.tokens // 2
