"""Erasing one message: gone from rows, files, summaries and search; everything else stays."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.test import Client
from django.utils import timezone

from chat import history, search
from chat.erasing import TurnRuns, erase_message
from chat.errors import Conflict, Forbidden
from chat.models import Attachment, Conversation, Message, Turn
from compaction.models import Compaction
from compaction.transcript import Prefix
from tests.builders import make_conversation, make_user

pytestmark = pytest.mark.django_db

SECRET = "password hunter2"


@pytest.fixture
def conversation(db: None) -> Conversation:
    return make_conversation([f"My {SECRET}", "Noted.", "And the weather?", "Sunny."])


def _compact(conversation: Conversation, upto: int, generation: int = 1) -> Compaction:
    """An applied compaction of everything live up to a position, as its commit leaves it."""
    text = f"They said {SECRET}"
    summary = Message.objects.create(
        conversation=conversation, position=upto, role="user", content=text, is_summary=True, token_count=20
    )
    live = Message.objects.filter(conversation=conversation, compacted_into=None, position__lte=upto)
    live.exclude(pk=summary.pk).update(compacted_into=summary, compacted_at=timezone.now())
    prefix = Prefix((history.Message("user", text),), text, 20, upto, generation)
    return Compaction.objects.create(
        conversation=conversation,
        reason="auto",
        state="applied",
        prefix=prefix.to_json(),
        summary_message=summary,
        covered_from=1,
        covered_to=upto,
        quality={"lost": [SECRET]},
    )


def _everything(conversation: Conversation) -> str:
    rows = [Message.objects.values(), Compaction.objects.values(), Attachment.objects.values()]
    return str([list(each) for each in rows])


def test_nothing_of_it_is_left_anywhere(conversation: Conversation) -> None:
    first = Message.objects.get(position=1)
    stored = Attachment(
        conversation=conversation,
        message=first,
        name="x",
        kind="text",
        mime="text/plain",
        size=1,
        sha256="x",
        text=SECRET,
    )
    stored.file.save(f"{conversation.pk}/x", ContentFile(b"x"))
    _compact(conversation, 2)
    _compact(conversation, 3, generation=2)
    assert search.find([conversation.pk], "hunter2")
    erase_message(make_user("root", is_superuser=True), conversation.pk, first.pk)
    assert "hunter2" not in _everything(conversation)
    assert not search.find([conversation.pk], "hunter2")

    request, _tools = history.request_for(Conversation.objects.get(pk=conversation.pk))
    assert [message.content for message in request[1:]] == ["", "Noted.", "And the weather?", "Sunny."]


def test_what_came_before_a_summary_of_other_messages_stays(conversation: Conversation) -> None:
    """A summary that does not contain the message stays applied."""
    kept = _compact(conversation, 2)
    last = Message.objects.get(position=3)
    erase_message(make_user("root", is_superuser=True), conversation.pk, last.pk)
    kept.refresh_from_db()
    assert kept.state == "applied"
    assert kept.prefix


def test_the_files_go_after_the_commit(conversation: Conversation, django_capture_on_commit_callbacks: object) -> None:
    first = Message.objects.get(position=1)
    stored = Attachment(conversation=conversation, message=first, name="x", kind="text", mime="x", size=1, sha256="x")
    stored.file.save(f"{conversation.pk}/y", ContentFile(b"x"))
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        erase_message(make_user("root", is_superuser=True), conversation.pk, first.pk)
    assert not default_storage.exists(stored.file.name)


def test_it_needs_the_permission_a_quiet_conversation_and_is_done_once(conversation: Conversation) -> None:
    first = Message.objects.get(position=1)
    root = make_user("root", is_superuser=True)
    with pytest.raises(Forbidden):
        erase_message(conversation.owner, conversation.pk, first.pk)
    running = Turn.objects.create(conversation=conversation, state="running")
    with pytest.raises(TurnRuns):
        erase_message(root, conversation.pk, first.pk)
    running.delete()
    erase_message(root, conversation.pk, first.pk)
    with pytest.raises(Conflict):
        erase_message(root, conversation.pk, first.pk)


def test_the_admin_asks_first_and_writes_it_down(root: Client, clerk: Client, conversation: Conversation) -> None:
    first = Message.objects.get(position=1)
    path = f"/admin/chat/conversation/{conversation.pk}/erase/{first.pk}/"
    assert clerk.post(path).status_code == 403
    assert "for ever" in root.get(path).content.decode()
    assert Message.objects.get(pk=first.pk).content
    root.post(path)
    assert not Message.objects.get(pk=first.pk).content

    assert LogEntry.objects.get().object_id == str(conversation.pk)
