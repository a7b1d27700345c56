"""Conversations and compactions in the admin: metadata for all administrators, content for few, changes for none."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from chat import purging
from chat.models import Attachment, Conversation, Message, Turn
from compaction.models import Compaction
from palimpsest.accounts.keys import user_of_key
from palimpsest.accounts.models import ApiKey
from tests.builders import make_conversation, make_user

pytestmark = pytest.mark.django_db

SAID = "the secret plan"


@pytest.fixture
def conversation(db: None) -> Conversation:
    made = make_conversation([SAID, "Understood."], title=f"About {SAID}")
    summary = Message.objects.create(conversation=made, position=2, role="user", content=SAID, is_summary=True)
    Message.objects.filter(conversation=made, is_summary=False).update(
        compacted_into=summary, compacted_at=timezone.now()
    )
    Compaction.objects.create(
        conversation=made,
        reason="auto",
        state="applied",
        prefix={"messages": [SAID]},
        summary_message=summary,
        instructions=SAID,
        gain=900,
        duration_ms=1_500,
        model="small",
    )
    Compaction.objects.create(
        conversation=made, reason="auto", state="failed", error_code="summary_empty", model="small"
    )
    return made


def test_a_clerk_sees_that_there_is_one_and_never_what_it_says(clerk: Client, conversation: Conversation) -> None:
    done = Compaction.objects.get(state="applied")
    for path in (
        "/admin/chat/conversation/",
        f"/admin/chat/conversation/{conversation.pk}/change/",
        "/admin/compaction/compaction/",
        f"/admin/compaction/compaction/{done.pk}/change/",
    ):
        page = clerk.get(path)
        assert page.status_code == 200, path
        assert SAID not in page.content.decode(), path
    assert clerk.get(f"/admin/chat/conversation/{conversation.pk}/content/").status_code == 403


def test_reading_needs_its_permission_and_is_logged(clerk: Client, conversation: Conversation) -> None:
    user = User.objects.get(username="clerk")
    user.user_permissions.add(Permission.objects.get(codename="view_content"))
    page = clerk.get(f"/admin/chat/conversation/{conversation.pk}/content/")
    assert SAID in page.content.decode()
    assert LogEntry.objects.get().user == user


def test_nothing_is_changed_or_deleted_by_hand(root: Client, conversation: Conversation) -> None:
    done = Compaction.objects.get(state="applied")
    for path in (f"/admin/chat/conversation/{conversation.pk}", f"/admin/compaction/compaction/{done.pk}"):
        assert root.post(f"{path}/change/", {"title": "x"}).status_code == 403
        assert root.post(f"{path}/delete/", {"post": "yes"}).status_code == 403
    assert root.get("/admin/chat/message/").status_code == 404


def test_the_health_of_compactions_is_summed_up(clerk: Client, conversation: Conversation) -> None:
    page = clerk.get("/admin/compaction/compaction/").content.decode()
    assert "1 (50 %)" in page
    assert "<td>900</td>" in page
    assert "<td>1.5</td>" in page
    only_failed = clerk.get("/admin/compaction/compaction/?state__exact=failed").content.decode()
    assert "1 (100 %)" in only_failed


def test_purging_asks_first_needs_a_permission_and_removes_everything(
    root: Client, clerk: Client, conversation: Conversation
) -> None:
    other = make_conversation(["keep me"])
    stored = Attachment(conversation=conversation, name="a.txt", kind="text", mime="text/plain", size=1, sha256="x")
    stored.file.save(f"{conversation.pk}/a", ContentFile(b"x"))
    Turn.objects.create(conversation=conversation, user_message=conversation.messages.first(), state="done")
    form = {"action": "purge", "_selected_action": str(conversation.pk)}
    clerk.post("/admin/chat/conversation/", {**form, "confirmed": "yes"})
    assert "There is no way back" in root.post("/admin/chat/conversation/", form).content.decode()
    assert Conversation.objects.filter(pk=conversation.pk).exists()
    root.post("/admin/chat/conversation/", {**form, "confirmed": "yes"})
    assert list(Conversation.objects.all()) == [other]
    assert Message.objects.count() == 1
    assert not Compaction.objects.exists()
    assert not Turn.objects.exists()
    assert not default_storage.exists(stored.file.name)
    assert LogEntry.objects.filter(object_id=str(conversation.pk)).exists()


def test_deleted_conversations_are_purged_after_a_while(conversation: Conversation) -> None:
    Conversation.objects.filter(pk=conversation.pk).update(deleted_at=timezone.now() - timedelta(days=10))
    call_command("purge_conversations")
    assert Conversation.objects.exists()
    call_command("purge_conversations", days=7)
    assert not Conversation.objects.exists()


def test_a_worker_purges_once_an_hour(conversation: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr("threading.Thread.start", lambda thread: started.append(thread.name))
    monkeypatch.setattr(purging, "_next_at", 0.0)
    purging.now_and_then()
    purging.now_and_then()
    assert started == ["purge"]


def test_usage_is_summed_by_day_person_and_agent(clerk: Client, conversation: Conversation) -> None:
    for tokens in (100, 250):
        Turn.objects.create(
            conversation=conversation,
            requested_by=conversation.owner,
            state="done",
            usage={"prompt_tokens": tokens, "completion_tokens": 7},
        )
    Turn.objects.create(conversation=conversation, requested_by=conversation.owner, state="failed")
    page = clerk.get("/admin/chat/usage/").content.decode()
    assert "<td>350</td>" in page
    assert "<td>14</td>" in page
    assert conversation.owner.username in page


def test_a_key_is_shown_once_and_revoked(root: Client) -> None:
    person = make_user("script")
    page = root.post(
        "/admin/accounts/apikey/add/", {"user": person.pk, "name": "nightly"}, follow=True
    ).content.decode()
    key = page.split("<code>")[1].split("</code>")[0]
    assert user_of_key(key) == person
    assert key not in root.get("/admin/accounts/apikey/").content.decode()
    row = ApiKey.objects.get()
    root.post("/admin/accounts/apikey/", {"action": "revoke", "_selected_action": row.pk})
    assert user_of_key(key) is None


def test_a_person_who_owns_conversations_is_switched_off_not_deleted(root: Client, conversation: Conversation) -> None:
    owner = conversation.owner
    assert root.post(f"/admin/auth/user/{owner.pk}/delete/", {"post": "yes"}).status_code == 403
    root.post("/admin/auth/user/", {"action": "delete_selected", "_selected_action": owner.pk, "post": "yes"})
    assert User.objects.filter(pk=owner.pk).exists()
    guest = make_user("guest")
    root.post(f"/admin/auth/user/{guest.pk}/delete/", {"post": "yes"})
    assert not User.objects.filter(pk=guest.pk).exists()


def test_every_page_of_the_admin_keeps_to_the_content_policy(root: Client, conversation: Conversation) -> None:
    """No inline script or style anywhere, so that the site's policy needs no exception here."""
    agent = conversation.agent
    for path in ("/admin/", "/admin/agents/agent/", f"/admin/agents/agent/{agent.pk}/change/", "/admin/chat/usage/"):
        page = root.get(path)
        assert "script-src 'unsafe" not in page.headers["Content-Security-Policy"]
        assert " style=" not in page.content.decode().split("<body", 1)[1], path
