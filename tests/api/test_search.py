"""/search: only what one may read is found."""

from __future__ import annotations

import pytest

from chat.api.schemas import FoundOut
from chat.models import Conversation
from tests.api.conftest import Caller, expect
from tests.builders import make_conversation

pytestmark = pytest.mark.django_db


def test_people_find_what_was_said_where_they_take_part(people: dict[str, Caller], conversation: Conversation) -> None:
    make_conversation(["The harbour of charlie"], owner=people["charlie"].user)
    found = people["vera"].get("/search", q="harbours").json["items"]
    assert {(row["conversation"], row["position"]) for row in found} == {(str(conversation.pk), n) for n in (1, 4)}
    FoundOut.model_validate(found[0])
    assert found[0]["conversation_title"] == "Sights"
    assert "harbour" in found[0]["excerpt"]
    assert people["anonymous"].get("/search", q="harbour").status == 401


def test_a_search_in_one_conversation_needs_a_part_in_it(people: dict[str, Caller], conversation: Conversation) -> None:
    expect(people, lambda who: who.get("/search", q="station", conversation=str(conversation.pk)), bob=200, vera=200)


@pytest.mark.parametrize(
    "query", ["", "   ", '" OR 1=1 --', "*", "a AND (", "'", "%", "NEAR(", "你", "\x00", "x" * 5_000]
)
def test_any_text_can_be_searched_for(alice: Caller, conversation: Conversation, query: str) -> None:
    assert alice.get("/search", q=query).status == 200
    assert alice.get("/conversations", q=query).status == 200
