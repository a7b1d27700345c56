"""Any history becomes a request a provider accepts, and an accepted one is left alone."""

from __future__ import annotations

import pytest

from agents.messages import Message, ToolCall
from compaction.validate import NO_RESULT, complete_pairs, fault, merge_neighbours, pair, with_readable_calls
from tests.compaction.builders import assistant, result, user


def test_a_valid_request_is_unchanged() -> None:
    messages = [user("hi"), assistant("", ("a", "look"), ("b", "look")), result("b"), result("a"), assistant("done")]

    assert fault(messages) == ""
    assert complete_pairs(messages) == tuple(messages)


def test_an_interrupted_call_gets_a_result() -> None:
    completed = complete_pairs([user("hi"), assistant("", ("a", "look"), ("b", "look")), result("a"), user("go on")])

    assert fault(completed) == ""
    assert completed[3] == Message(role="tool", content=NO_RESULT, tool_call_id="b", name="look")


def test_a_call_at_the_end_gets_a_result() -> None:
    completed = complete_pairs([user("hi"), assistant("", ("a", "look"))])

    assert [message.role for message in completed] == ["user", "assistant", "tool"]
    assert fault(completed) == ""


def test_results_out_of_order_move_behind_their_call() -> None:
    late = [user("hi"), assistant("", ("a", "x")), user("and?"), result("a", "late"), assistant("done")]

    assert [message.role for message in complete_pairs(late)] == ["user", "assistant", "tool", "user", "assistant"]


def test_a_reused_id_belongs_to_the_nearest_call_that_waits() -> None:
    messages = [assistant("", ("a", "x")), result("a", "first"), assistant("", ("a", "x")), result("a", "second")]

    completed = complete_pairs(messages)

    assert pair(messages) == {1: 0, 3: 2}
    assert [message.content for message in completed if message.role == "tool"] == ["first", "second"]
    assert len({message.tool_call_id for message in completed if message.role == "tool"}) == 2
    assert fault(completed) == ""


def test_a_second_result_does_not_go_back_to_a_call_of_an_earlier_turn() -> None:
    messages = [user("1"), assistant("", ("a", "x")), user("2"), assistant("", ("a", "x")), result("a"), result("a")]

    assert pair(messages) == {4: 3}
    assert fault(complete_pairs(messages)) == ""


def test_batches_of_one_turn_may_share_an_id() -> None:
    messages = [user("1"), assistant("", ("a", "x")), assistant("", ("a", "x")), result("a", "2"), result("a", "1")]

    assert pair(messages) == {3: 2, 4: 1}


def test_ids_that_are_missing_are_made_up() -> None:
    completed = complete_pairs([user("hi"), assistant("", ("", "x"), ("", "y")), result("", "one"), result("", "two")])

    assert fault(completed) == ""
    assert [message.content for message in completed[2:]] == ["one", "two"]


def test_a_pinned_result_without_its_call_keeps_its_words() -> None:
    completed = complete_pairs([user("hi"), result("a", "the table", name="look"), user("thanks")])

    assert fault(completed) == ""
    assert completed[1].tool_calls[0].name == "look"
    assert completed[2].content == "the table"


def test_a_second_result_of_one_call_is_not_lost() -> None:
    completed = complete_pairs([assistant("", ("a", "x")), result("a", "one"), result("a", "two")])

    assert fault(completed) == ""
    assert [message.content for message in completed if message.role == "tool"] == ["one", "two"]


def test_an_answer_stopped_before_its_first_word_is_left_out() -> None:
    assert complete_pairs([user("hi"), assistant(""), user("again")]) == (user("hi"), user("again"))


def test_completing_twice_changes_nothing() -> None:
    once = complete_pairs([assistant("", ("a", "x"), ("a", "x")), result("b"), user("hi"), result("a")])

    assert complete_pairs(once) == once


def test_neighbours_of_one_role_merge_for_strict_suppliers() -> None:
    messages = [user("one"), user("two"), assistant("a"), assistant("b", ("c", "x")), result("c"), user("three")]

    merged = merge_neighbours(messages)

    assert [message.role for message in merged] == ["user", "assistant", "tool", "user"]
    assert merged[0].content == "one\n\ntwo"
    assert merged[1].tool_calls[0].id == "c"


@pytest.mark.parametrize(
    ("name", "arguments", "sent"),
    [
        ("look", '{"a": 1}', ("look", '{"a": 1}')),
        ("look", "{not json", ("look", '{"not_json":"{not json"}')),
        ("look", "[1]", ("look", '{"not_json":"[1]"}')),
        ("look", "null", ("look", '{"not_json":"null"}')),
        ("functions.look up", "{}", ("functions_look_up", "{}")),
        ("看", "{}", ("_", "{}")),
        ("", "{}", ("unknown", "{}")),
        ("x" * 100, "{", ("x" * 64, '{"not_json":"{"}')),
    ],
)
def test_a_call_that_no_provider_takes_back_is_sent_as_one_it_takes(
    name: str, arguments: str, sent: tuple[str, str]
) -> None:
    fine = ToolCall("b", "look", '{"b": 2}')
    messages = [user("hi"), Message("assistant", tool_calls=(ToolCall("a", name, arguments), fine)), result("a")]

    made = with_readable_calls(messages)

    assert made[1].tool_calls == (ToolCall("a", *sent), fine)
    assert (made[0], made[2]) == (messages[0], messages[2])
    assert with_readable_calls(made) == made
