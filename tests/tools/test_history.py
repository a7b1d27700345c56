"""What was compacted is found again: by words and their endings, by pairs of characters, on both databases."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from chat import search
from chat.importing import import_lines
from chat.models import Conversation, Message
from chat.search_words import Term, indexed, terms_of
from tests.builders import add_messages, make_agent, make_conversation, make_user, tool_round
from tests.tools.conftest import Use, turn_in

pytestmark = pytest.mark.django_db


def positions(conversation: Conversation, query: str, **more: int) -> list[int]:
    return [hit.position for hit in search.find([conversation.pk], query, **more)]


def test_words_are_found_with_other_endings() -> None:
    conversation = make_conversation(["We deployed the staging cluster on Monday.", "Good.", "Lunch was fine."])

    assert positions(conversation, "deploying clusters") == [1]


@pytest.mark.parametrize(
    ("said", "query"),
    [
        ("我今天去了北京，预算是三万元。", "预算"),
        ("昨日は東京タワーに行きました。", "東京タワー"),
        ("서울에서 회의가 있었습니다.", "회의"),
        ("我今天去了北京，预算是三万元。", "元"),
        ("Wir haben die Verträge unterschrieben.", "Vertrag unterschrieb"),
        ("Позвонил Дмитрий по договору", "дмитрий"),
        ("the file src/billing_rules.py is wrong", "billing"),
        ("call ＡＢＣ１２３ now", "abc123"),
    ],
)
def test_every_language_is_found(said: str, query: str) -> None:
    conversation = make_conversation(["hello there", "hi", said, "ok"])

    assert positions(conversation, query) == [3]


def test_the_rarest_words_decide() -> None:
    talk = [f"We talked about the budget of project {number}." for number in range(40)]
    conversation = make_conversation([*talk, "The budget of the zeppelin is 40,000 euros.", "Noted."])

    assert positions(conversation, "What was the budget of the zeppelin?")[0] == 41


def test_compacted_messages_are_found_and_marked() -> None:
    conversation = make_conversation(["The password hint is heliotrope.", "Noted.", "Next topic."])
    summary = Message.objects.create(
        conversation=conversation, position=2, role="user", content="Summary of heliotrope.", is_summary=True
    )
    Message.objects.filter(conversation=conversation, position__lte=2, is_summary=False).update(
        compacted_into=summary, compacted_at=timezone.now()
    )

    (hit,) = search.find([conversation.pk], "heliotrope")

    assert (hit.position, hit.is_compacted, hit.author) == (1, True, conversation.owner.get_username())


def test_what_was_replaced_is_not_found() -> None:
    conversation = make_conversation(["a question", "an answer about heliotrope"])
    Message.objects.filter(conversation=conversation, position=2).update(retired_at=timezone.now())

    assert positions(conversation, "heliotrope") == []


def test_another_conversation_is_never_found() -> None:
    make_conversation(["The secret is heliotrope."])
    conversation = make_conversation(["Nothing here."])

    assert positions(conversation, "heliotrope") == []


def test_what_a_tool_was_given_and_said_is_found() -> None:
    conversation = make_conversation(["go", *tool_round("run", "exit code 137\nkilled", command="make\nmoonshine")])

    assert positions(conversation, "moonshine") == [2]
    assert positions(conversation, "killed 137") == [3]


def test_a_message_being_written_is_found_once_it_is_complete() -> None:
    conversation = make_conversation(["hello"])
    row = Message.objects.create(
        conversation=conversation, position=2, role="assistant", content="heliotr", status="streaming"
    )
    assert positions(conversation, "heliotr") == []

    Message.objects.filter(pk=row.pk).update(content="heliotrope", status="complete")

    assert positions(conversation, "heliotrope") == [2]


def test_a_draft_is_found_once_it_has_a_place_and_erased_words_no_more() -> None:
    conversation = make_conversation(["hello"])
    row = Message.objects.create(conversation=conversation, role="user", content="heliotrope")
    assert positions(conversation, "heliotrope") == []

    Message.objects.filter(pk=row.pk).update(position=2)
    assert positions(conversation, "heliotrope") == [2]

    Message.objects.filter(pk=row.pk).update(content="")
    assert search.search_index.holders([conversation.pk], [Term("heliotrope")]) == [set()]


def test_deleted_messages_leave_the_index() -> None:
    conversation = make_conversation(["heliotrope"])
    Message.objects.filter(conversation=conversation).delete()

    assert search.search_index.holders([conversation.pk], [Term("heliotrope")]) == [set()]


def test_imported_conversations_are_found() -> None:
    line = json.dumps({"messages": [{"role": "user", "content": "heliotrope and 预算"}]})
    (imported,) = import_lines(io.BytesIO(line.encode()), make_user(), make_agent())

    assert imported.conversation is not None
    assert positions(imported.conversation, "预算") == [1]


@pytest.mark.parametrize("query", ['"', "'; DROP TABLE x", "a OR b* NEAR(", "((", "...", "\x00", "的", "NOT", "*"])
def test_a_query_is_only_words(query: str) -> None:
    conversation = make_conversation(["plain text"])

    assert isinstance(positions(conversation, query), list)


def test_a_huge_message_is_indexed_in_bounded_time() -> None:
    conversation = make_conversation(["x" * 1_000_000 + " 汉" * 1000, "字" * 150_000 + " heliotrope"])

    assert positions(conversation, "heliotrope") == [2]


def test_words_that_all_messages_hold_still_find_something() -> None:
    conversation = make_conversation(["alpha beta gamma"] * 1_200)

    assert len(positions(conversation, "alpha beta")) == 10


def test_in_a_large_conversation_rare_words_decide_among_many_common_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LARGE", 100)
    talk = "The budget and the schedule of the team for the garden, the kitchen, the office and the roof."
    conversation = make_conversation([talk] * 150 + ["The zeppelin was in the budget.", "Noted."])

    query = "Which budget, schedule, team, garden, kitchen, office, roof was there for the zeppelin?"

    assert positions(conversation, query)[0] == 151


def test_in_a_large_conversation_a_question_of_common_words_alone_finds_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "LARGE", 100)
    conversation = make_conversation(["alpha beta gamma delta epsilon"] * 150)

    assert len(positions(conversation, "alpha beta gamma delta epsilon")) == 10
    assert len(positions(conversation, "alpha")) == 10


def test_words_that_nobody_said_do_not_hide_the_common_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LARGE", 100)
    conversation = make_conversation(["the budget"] * 150)

    assert len(positions(conversation, "heliotrope zeppelin moonshine quixotic budget")) == 10


def test_in_a_large_conversation_a_long_question_looks_for_few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LARGE", 100)
    words = [f"word{letter}{letter}" for letter in "abcdefghijklmnop"]
    conversation = make_conversation([word for word in words for _ in range(20)])
    asked: list[Term] = []
    holders = search.search_index.holders

    def counted(scope: Sequence[UUID], terms: Sequence[Term]) -> list[set[int]]:
        asked.extend(terms)
        return holders(scope, terms)

    monkeypatch.setattr(search.search_index, "holders", counted)

    assert len(positions(conversation, " ".join(words))) == 10
    assert len(asked) <= search.MOST_RARE + search.LEAST_SOUGHT


def test_all_conversations_together_are_searched_when_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LARGE", 100)
    several = [make_conversation(["the budget"] * 60 + [f"zeppelin{number}"]) for number in range(3)]

    (hit,) = search.find([one.pk for one in several], "the budget of zeppelin2", limit=1)

    assert (hit.conversation, hit.position) == (several[2].pk, 61)


def test_a_word_counts_once_though_several_that_are_sought_begin_like_it() -> None:
    looked_for = search._Pattern(terms_of("trial triangles 预算 data"))

    places = looked_for.places("a triangle, a trial_data: retrial 预算")

    assert places == {0: [14], 1: [2], 2: [34], 3: [20]}


def test_both_kinds_of_index_hold_the_same_words() -> None:
    assert terms_of("What is the BUDGET of 北京?") == [Term("budget"), Term("北京", "pair")]
    assert "北京" in indexed("a-b", "去北京", "[]").split()


def test_triggers_come_back_after_a_table_was_made_anew() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite makes tables anew")
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER chat_search_insert")

    call_command("migrate", verbosity=0)

    assert positions(make_conversation(["heliotrope"]), "heliotrope") == [1]


# The tools


def test_the_model_finds_and_reads_originals(use: Use) -> None:
    conversation = make_conversation([f"message about topic{number}" for number in range(1, 31)])

    found = use(conversation, "search_history", query="topic17")
    read = use(conversation, "read_history", first=16, last=18)

    assert "#17 " in found.content
    assert all(f"topic{number}" in read.content for number in (16, 17, 18))
    assert "topic15" not in read.content


def test_the_question_being_answered_is_not_found(use: Use) -> None:
    conversation = make_conversation(["The code word is heliotrope.", "Noted."])
    (question,) = add_messages(conversation, ["What was the code word, heliotrope?"])
    turn = turn_in(conversation)
    turn.user_message = question
    turn.save()

    assert "#3" not in use(conversation, "search_history", turn, query="heliotrope").content


def test_long_messages_are_read_in_pieces(use: Use) -> None:
    conversation = make_conversation(["".join(f"{number:06d} " for number in range(20_000)), "ok"])

    first = use(conversation, "read_history", first=1, last=2).content
    assert "[Read on with first=1, last=2, offset=30000]" in first

    second = use(conversation, "read_history", first=1, last=2, offset=30_000).content
    assert "004300" in second


def test_a_range_without_messages_says_so(use: Use) -> None:
    conversation = make_conversation(["hello", "hi"])

    result = use(conversation, "read_history", first=900)

    assert result.is_error
    assert "no message" in result.content


def test_new_agents_have_the_tools_that_read_what_is_in_the_conversation() -> None:
    """Else a long file, of which a message carries the beginning, would be out of the model's reach."""
    assert make_agent().tools == ["list_files", "read_file", "read_history", "search_files", "search_history"]
