"""The description of the API is valid, complete, and no address answers a strange request with a fault."""

from __future__ import annotations

import itertools
import re
import uuid
from typing import Any

import orjson
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from chat.models import Attachment, Conversation, Invitation, Message, Participant, Turn
from compaction.models import Compaction
from tests.api.conftest import Caller

pytestmark = pytest.mark.django_db

# Every operation of DESIGN section 6.
PROMISED = {
    "GET /conversations",
    "POST /conversations",
    "GET /conversations/{}",
    "PATCH /conversations/{}",
    "DELETE /conversations/{}",
    "GET /conversations/{}/messages",
    "POST /conversations/{}/messages",
    "POST /conversations/{}/messages/{}/edit",
    "POST /conversations/{}/messages/{}/regenerate",
    "POST /conversations/{}/messages/{}/fork",
    "POST /conversations/{}/messages/{}/pin",
    "PATCH /conversations/{}/turns/{}",
    "DELETE /conversations/{}/turns/{}",
    "POST /conversations/{}/turns/{}/stop",
    "POST /conversations/{}/turns/{}/retry",
    "GET /conversations/{}/context",
    "GET /conversations/{}/compactions",
    "POST /conversations/{}/compactions",
    "POST /conversations/{}/compactions/{}/undo",
    "POST /conversations/{}/compactions/{}/cancel",
    "GET /conversations/{}/summaries/{}/originals",
    "GET /conversations/{}/participants",
    "GET /conversations/{}/attachments",
    "POST /conversations/{}/attachments",
    "GET /conversations/{}/export",
    "POST /import",
    "GET /agents",
}


@pytest.fixture
def description(alice: Caller) -> dict[str, Any]:
    return alice.get("/openapi.json").json


def _operations(description: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path.removeprefix("/api/v1"), operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]


def test_everything_promised_is_described(description: dict[str, Any]) -> None:
    described = {f"{method} {re.sub('{.*?}', '{}', path)}" for method, path, _ in _operations(description)}
    assert described >= PROMISED


def test_the_description_is_valid(description: dict[str, Any]) -> None:
    """The parts of OpenAPI 3.1 that tools stumble over: versions, unique ids, references, path parameters, answers."""
    assert description["openapi"].startswith("3.1")
    assert {"title", "version"} <= description["info"].keys()
    operations = _operations(description)
    ids = [operation["operationId"] for *_, operation in operations]
    assert len(ids) == len(set(ids))
    for method, path, operation in operations:
        named = {given["name"] for given in operation.get("parameters", []) if given["in"] == "path"}
        assert named == set(re.findall(r"{(?:\w+:)?(\w+)}", path)), f"{method} {path}"
        assert ":" not in path, f"{path} has a converter in it"
        assert operation["responses"], f"{method} {path}"
        assert operation["summary"], f"{method} {path}"
    schemas = description["components"]["schemas"]
    for reference in re.findall(r"'\$ref': '#/components/schemas/([^']+)'", str(description)):
        assert reference in schemas


def test_every_schema_is_a_json_schema(description: dict[str, Any]) -> None:
    from jsonschema import Draft202012Validator

    for schema in description["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def _of(path: str, conversation: Conversation) -> str:
    """The address with this conversation and some attachment filled in."""
    return path.replace("{conversation_id}", str(conversation.pk)).replace("{attachment_id}", str(uuid.uuid4()))


STRANGE = ["0", "-1", str(10**30), "null", "\x00", "%", "🦜", "a" * 3_000, "1.0.9" + "9" * 30]


def test_no_strange_request_is_answered_with_a_fault(
    alice: Caller, conversation: Conversation, description: dict[str, Any]
) -> None:
    numbers = [str(10**30), "0"]
    for method, path, operation in _operations(description):
        for number in numbers:
            filled = path.replace("{conversation_id}", str(conversation.pk)).replace(
                "{attachment_id}", str(uuid.uuid4())
            )
            filled = re.sub("{.*?}", number, filled)
            queries = [given["name"] for given in operation.get("parameters", []) if given["in"] == "query"]
            for query, value in [("", ""), *itertools.product(queries, STRANGE)]:
                if method == "DELETE" and filled.endswith(str(conversation.pk)):
                    continue
                response = alice.client.generic(
                    method, f"/api/v1{filled}", b"{}", "application/json", query_params={query: value} if query else {}
                )
                assert response.status_code < 500, f"{method} {filled} {query}={value!r}: {response.content[:300]!r}"


BODIES = [b"", b"null", b"[]", b"{", b"\xff", b'{"content": "\\ud800"}', b'{"title": "\\u0000"}', b'{"agent": 1e400}']


def test_no_strange_body_is_answered_with_a_fault(
    alice: Caller, conversation: Conversation, description: dict[str, Any]
) -> None:
    message = Message.objects.filter(conversation=conversation).first()
    assert message
    for method, path, _operation in _operations(description):
        if method in ("POST", "PATCH"):
            filled = path.replace("{conversation_id}", str(conversation.pk))
            filled = re.sub("{.*?}", str(message.pk), filled)
            for body in BODIES:
                response = alice.client.generic(method, f"/api/v1{filled}", body, "application/json")
                assert response.status_code < 500, f"{method} {filled} {body!r}: {response.content[:300]!r}"


def test_nobody_gets_anywhere_without_a_session_or_key(
    anonymous: Caller, conversation: Conversation, description: dict[str, Any]
) -> None:
    before = [model.objects.count() for model in (Conversation, Message, Turn, Compaction)]
    for method, path, _operation in _operations(description):
        filled = _of(path, conversation)
        response = anonymous.client.generic(method, f"/api/v1{re.sub('{.*?}', '1', filled)}", b"{}", "application/json")
        assert response.status_code == 401, f"{method} {path}"
        assert set(response.json()) == {"code", "message"}
    assert [model.objects.count() for model in (Conversation, Message, Turn, Compaction)] == before


def test_an_outsider_finds_nothing_at_any_address_of_a_conversation(
    charlie: Caller, conversation: Conversation, description: dict[str, Any]
) -> None:
    bodies = {
        "messages": b'{"content": "x"}',
        "edit": b'{"content": "x"}',
        "participants": b'{"username": "alice", "role": "viewer"}',
    }
    for method, path, _operation in _operations(description):
        if "{conversation_id}" not in path:
            continue
        filled = re.sub("{.*?}", str(conversation.messages.first().pk), _of(path, conversation))
        body = bodies.get(path.rsplit("/", 1)[-1], b"{}")
        if method == "PATCH":
            body = (
                b'{"role": "viewer"}' if "participants" in path else b'{"content": "x"}' if "turns" in path else b"{}"
            )
        response = charlie.client.generic(method, f"/api/v1{filled}", body, "application/json")
        assert response.status_code == 404, f"{method} {filled}: {response.status_code} {response.content[:200]!r}"


def test_a_viewer_changes_nothing_at_any_address_of_a_conversation(
    people: dict[str, Caller], conversation: Conversation, description: dict[str, Any]
) -> None:
    """With everything there is to change, so that nothing is refused only because it does not exist."""
    alice, bob, vera = people["alice"], people["bob"], people["vera"]
    here = f"/conversations/{conversation.pk}"
    message = conversation.messages.get(position=1)
    summary = Message.objects.create(
        conversation=conversation, position=2, role="user", content="so far", is_summary=True
    )
    alice.post(f"{here}/messages", {"content": "waits"})
    turn = Turn.objects.get(conversation=conversation)
    covered = {"covered_from": 1, "covered_to": 2, "summary_message": summary, "prefix": []}
    applied = Compaction.objects.create(conversation=conversation, reason="manual", state="applied", **covered)
    file = SimpleUploadedFile("notes.txt", b"notes", "text/plain")
    uploaded = alice.client.post(f"/api/v1{here}/attachments", {"file": file}).json()
    invitation = alice.post(f"{here}/invitations", {}).json
    ids = {
        "conversation_id": conversation.pk,
        "message_id": message.pk,
        "summary_id": summary.pk,
        "turn_id": turn.pk,
        "compaction_id": applied.pk,
        "attachment_id": uploaded["id"],
        "user_id": bob.user.pk if bob.user else 0,
        "invitation_id": invitation["id"],
    }
    bodies: dict[str, Any] = {
        "edit": {"content": "x"},
        "messages": {"content": "x"},
        "participants": {"username": "charlie", "role": "viewer"},
        "PATCH {user_id}": {"role": "viewer"},
        "PATCH {turn_id}": {"content": "x"},
        "PATCH {conversation_id}": {"title": "mine"},
    }
    tables = (Conversation, Message, Turn, Compaction, Participant, Invitation, Attachment)
    before = [list(table.objects.order_by("pk").values()) for table in tables]
    refused = 0
    for method, path, _operation in _operations(description):
        if "{conversation_id}" not in path or method == "GET" or path.endswith("/fork"):
            continue  # a fork is a conversation of their own
        last = path.rsplit("/", 1)[-1]
        body = bodies.get(last) or bodies.get(f"{method} {last}") or {}
        filled = f"/api/v1{path.format(**ids)}"
        if method == "POST" and last == "attachments":
            file = SimpleUploadedFile("more.txt", b"more", "text/plain")
            response = vera.client.post(filled, {"file": file})
        else:
            response = vera.client.generic(method, filled, orjson.dumps(body), "application/json")
        assert response.status_code == 403, f"{method} {path}: {response.status_code} {response.content[:200]!r}"
        refused += 1
    assert refused > 20
    assert vera.post(f"{here}/messages", {"content": "/compact"}).status == 403
    assert [list(table.objects.order_by("pk").values()) for table in tables] == before


def test_a_key_does_what_a_session_does(alice: Caller, conversation: Conversation, client: Any) -> None:
    from palimpsest.accounts.keys import make_key

    headers = {"Authorization": f"Bearer {make_key(alice.user)}"}
    path = f"/api/v1/conversations/{conversation.pk}"
    assert client.get(path, headers=headers).json()["role"] == "owner"
    changed = client.patch(path, b'{"title": "By key"}', "application/json", headers=headers)
    assert changed.json()["title"] == "By key"
    assert client.get(path, headers={"Authorization": "Bearer pal_wrong"}).status_code == 401
