"""A conversation's own files: read in pieces, written as new versions, never left for anything outside."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.files.base import ContentFile
from django.utils import timezone

from chat import context
from chat.copying import copy_originals
from chat.extracting import extract
from chat.files import store
from chat.models import Attachment, Conversation, Message
from chat.purging import purge_conversation
from chat.tools import space
from tests.builders import make_conversation
from tests.tools.conftest import Use, turn_in

pytestmark = pytest.mark.django_db


def with_file(name: str, text: str) -> Conversation:
    """A conversation whose first message brought a file."""
    conversation = make_conversation(["Here is a file.", "Thank you."])
    message = Message.objects.get(conversation=conversation, position=1)
    store(conversation, conversation.owner, name, extract(text.encode()), message=message)
    return conversation


def test_files_are_listed_and_read(use: Use) -> None:
    conversation = with_file("plan.md", "one\ntwo\nthree")

    assert use(conversation, "list_files").content.startswith("plan.md (text, 13 bytes")
    assert use(conversation, "read_file", name="plan.md").content == "plan.md, lines 1-3 of 3:\none\ntwo\nthree"
    assert use(conversation, "read_file", name="plan.md", first_line=2, last_line=2).content.endswith("of 3:\ntwo")


def test_long_files_are_read_on_where_the_last_read_ended(use: Use) -> None:
    conversation = with_file("long.txt", "\n".join(f"line {number}" for number in range(1, 3_001)))

    first = use(conversation, "read_file", name="long.txt").content
    assert "line 1000\n[read on with first_line=1001]" in first

    rest = use(conversation, "read_file", name="long.txt", first_line=2_901).content
    assert rest.endswith("line 3000")


def test_a_line_without_end_is_read_by_characters(use: Use) -> None:
    conversation = with_file("one-line.json", "x" * 100_000)

    assert "[read on with offset=40000]" in use(conversation, "read_file", name="one-line.json").content
    assert use(conversation, "read_file", name="one-line.json", offset=90_000).content.endswith("x" * 10_000)


def test_what_is_written_is_read_and_an_edit_makes_a_new_version(use: Use) -> None:
    conversation = make_conversation(["hello"])

    assert not use(conversation, "write_file", name="src/app.py", content="a = 1\nb = 2\n").is_error
    assert not use(conversation, "edit_file", name="src/app.py", old_text="b = 2", new_text="b = 3").is_error

    assert use(conversation, "read_file", name="src/app.py").content.endswith("a = 1\nb = 3\n")
    assert Attachment.objects.filter(conversation=conversation, name="src/app.py").count() == 2
    assert use(conversation, "list_files").content.count("src/app.py") == 1


def test_an_edit_that_could_mean_several_places_is_refused(use: Use) -> None:
    conversation = with_file("a.txt", "x x")

    assert "2 times" in use(conversation, "edit_file", name="a.txt", old_text="x", new_text="y").content
    assert "does not hold" in use(conversation, "edit_file", name="a.txt", old_text="z", new_text="y").content
    assert not use(conversation, "edit_file", name="a.txt", old_text="x", new_text="y", all=True).is_error
    assert use(conversation, "read_file", name="a.txt").content.endswith("y y")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/../../b", "..", "..\\x", "", "/", "a\nb", "x" * 300, "a/" * 20]
)
def test_no_name_leads_out(use: Use, name: str) -> None:
    conversation = make_conversation(["hello"])

    assert use(conversation, "write_file", name=name, content="x").is_error
    assert not Attachment.objects.filter(conversation=conversation).exists()


@pytest.mark.parametrize("name", ["/etc/passwd", "./etc//passwd", "\\etc\\passwd"])
def test_absolute_names_are_names_inside(use: Use, name: str) -> None:
    conversation = make_conversation(["hello"])

    use(conversation, "write_file", name=name, content="mine")

    assert use(conversation, "read_file", name="etc/passwd").content.endswith("mine")


def test_another_conversations_files_are_out_of_reach(use: Use) -> None:
    with_file("secret.txt", "heliotrope")
    conversation = make_conversation(["hello"])

    assert "There is no file" in use(conversation, "read_file", name="secret.txt").content
    assert "no files" in use(conversation, "list_files").content
    assert "No file holds" in use(conversation, "search_files", text="heliotrope").content


def test_files_are_searched(use: Use) -> None:
    conversation = with_file("a.txt", "first\nsecond Heliotrope line\nthird")

    assert use(conversation, "search_files", text="heliotrope").content == "a.txt:2: second Heliotrope line"


@pytest.mark.parametrize(
    ("held", "wanted"), [("Über die Brücke", "ÜBER DIE"), ("Москва", "москва"), ("港口计划", "港口")]
)
def test_files_are_searched_whatever_the_case_in_every_language(use: Use, held: str, wanted: str) -> None:
    conversation = with_file("a.txt", held)

    assert use(conversation, "search_files", text=wanted).content == f"a.txt:1: {held}"


def test_what_a_replaced_answer_wrote_is_gone_with_it(use: Use) -> None:
    conversation = make_conversation(["hello"])
    use(conversation, "write_file", name="a.txt", content="first")
    turn = turn_in(conversation)
    use(conversation, "write_file", turn, name="a.txt", content="second")

    Message.objects.filter(turn=turn).update(retired_at=timezone.now())

    assert use(conversation, "read_file", name="a.txt").content.endswith("first")


def test_what_a_tool_wrote_is_no_attachment_in_the_meter(use: Use) -> None:
    conversation = with_file("sent.txt", "word " * 500)
    use(conversation, "write_file", name="written.txt", content="word " * 5_000)
    conversation.refresh_from_db()

    assert context.measure(conversation).raw_parts["messages"] < 50  # no part of it was taken for the file


def test_unsent_files_are_not_there_yet(use: Use) -> None:
    conversation = make_conversation(["hello"])
    store(conversation, conversation.owner, "draft.txt", extract(b"not sent"))

    assert "no files" in use(conversation, "list_files").content


def test_edits_of_one_round_do_not_undo_each_other() -> None:
    conversation = make_conversation(["hello"])
    order: list[int] = []

    def edit(number: int) -> None:
        with space.alone(conversation.pk):
            order.append(number)
            order.append(number)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(edit, range(8)))

    assert order[::2] == order[1::2]


def test_a_file_that_is_too_long_is_refused(use: Use) -> None:
    conversation = make_conversation(["hello"])

    assert "too long" in use(conversation, "write_file", name="a.txt", content="x" * 1_000_001).content


def test_the_storage_never_sees_a_name(use: Use) -> None:
    conversation = make_conversation(["hello"])
    use(conversation, "write_file", name="a/b/c.html", content="<script>")

    row = Attachment.objects.get(conversation=conversation)

    assert row.file.name == f"{conversation.pk}/{row.pk}" or row.file.name.endswith(f"{conversation.pk}/{row.pk}")
    assert ContentFile(row.file.read()).read() == b"<script>"


def test_purging_a_conversation_leaves_its_fork_the_files(use: Use) -> None:
    conversation = make_conversation(["hello"])
    use(conversation, "write_file", name="a.txt", content="kept")
    conversation.refresh_from_db()
    made = copy_originals(conversation.owner, conversation, conversation.last_position)
    Conversation.objects.filter(pk=conversation.pk).update(deleted_at=timezone.now())

    purge_conversation(conversation.pk)

    assert space.find(made.pk, "a.txt").file.read() == b"kept"
