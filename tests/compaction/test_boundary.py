"""Where the cut falls: every shape of history, tail budgets, pins, and calls that stay with their results."""

from __future__ import annotations

import pytest

from agents.messages import Message
from compaction.stages.boundary import Cut, TailBudget, cut, floor
from tests.compaction.builders import assistant, entries, make_transcript, result, user

WORDS = "word " * 100  # 125 tokens by the cheap counter, 129 with the message


def rounds(number: int, size: int = 100) -> list[Message]:
    """That many completed tool rounds."""
    made = []
    for at in range(number):
        made += [assistant("", (f"c{at}", "look")), result(f"c{at}", "x" * size * 4)]
    return made


def kept(divided: Cut) -> list[int]:
    return [entry.position for entry in divided.kept]


def covered(divided: Cut) -> list[int]:
    return [entry.position for entry in divided.covered]


def budget(tokens: int, limit: int | None = None, keep_recent: int = 0) -> TailBudget:
    return TailBudget(tokens, tokens * 2 if limit is None else limit, keep_recent)


def test_the_longest_tail_within_the_budget_stays() -> None:
    live = entries([user(WORDS), assistant(WORDS)] * 5)

    assert kept(cut(live, budget(600))) == [7, 8, 9, 10]


def test_the_cut_falls_before_a_message_of_a_person() -> None:
    live = entries([user(WORDS), assistant(WORDS), assistant(WORDS)] * 3)

    assert kept(cut(live, budget(600))) == [7, 8, 9]


def test_nothing_is_covered_when_everything_fits() -> None:
    assert not cut(entries([user("hi"), assistant("ho")]), budget(600)).covered


def test_an_empty_history_has_nothing_to_cover() -> None:
    assert cut((), budget(600)) == Cut((), (), 0, 0)


def test_keep_recent_lengthens_the_tail() -> None:
    live = entries([user(WORDS), assistant(WORDS)] * 5)

    assert kept(cut(live, budget(300, limit=900, keep_recent=6))) == [5, 6, 7, 8, 9, 10]


def test_keep_recent_yields_where_the_tail_would_pass_the_limit() -> None:
    live = entries([user(WORDS), assistant(WORDS)] * 5)

    assert kept(cut(live, budget(300, limit=600, keep_recent=6))) == [7, 8, 9, 10]


def test_single_turn_work_of_a_hundred_messages_is_cut_between_rounds() -> None:
    live = entries([user("do it"), *rounds(50)])

    divided = cut(live, budget(1_000))

    assert kept(divided)[0] == 1
    assert live[divided.covered[-1].position].message.role == "assistant"
    assert 800 <= divided.kept_tokens <= 1_000


def test_only_the_last_round_stays_where_even_that_is_too_large() -> None:
    live = entries([user("do it"), *rounds(3, size=1_000)])

    assert kept(cut(live, budget(100))) == [1, 6, 7]


def test_parallel_calls_stay_together() -> None:
    batch = [assistant("", *((f"p{at}", "look") for at in range(6))), *(result(f"p{at}", WORDS) for at in range(6))]
    live = entries([user("go"), *rounds(3), *batch, assistant("", ("z", "look")), result("z", WORDS)])

    divided = cut(live, budget(400))

    assert covered(divided) == list(range(2, 15))
    assert kept(divided) == [1, 15, 16]


def test_ids_used_again_are_paired_by_position() -> None:
    turns = [[user(WORDS), assistant("", ("same", "look")), result("same", WORDS), assistant(WORDS)] for _ in range(4)]
    live = entries([message for turn in turns for message in turn])

    assert kept(cut(live, budget(500))) == [13, 14, 15, 16]


def test_a_result_that_came_late_keeps_its_call_on_its_side() -> None:
    live = entries(
        [
            user(WORDS),
            assistant("", ("a", "x")),
            user(WORDS),
            result("a", WORDS),
            assistant(WORDS),
            user("ok"),
            assistant("ok"),
        ]
    )

    for tokens in range(0, 900, 20):
        divided = cut(live, budget(tokens))
        assert (2 in kept(divided)) == (4 in kept(divided))


def test_a_result_that_came_after_the_newest_message_forbids_the_cut_there() -> None:
    live = entries([user(WORDS), assistant("", ("a", "x")), user("now"), result("a", WORDS)])

    assert not {2, 4} & set(covered(cut(live, budget(50))))


def test_an_unanswered_call_is_covered_with_its_turn() -> None:
    live = entries([user(WORDS), assistant("", ("a", "x")), user(WORDS), assistant(WORDS), user("ok"), assistant("ok")])

    assert covered(cut(live, budget(50))) == [1, 2, 3, 4]


def test_several_roles_in_a_row() -> None:
    live = entries(
        [user(WORDS), user(WORDS), assistant(WORDS), assistant(WORDS), user("now"), user("please"), assistant("ok")]
    )

    assert covered(cut(live, budget(50))) == [1, 2, 3, 4]


def test_a_first_message_of_the_assistant() -> None:
    live = entries([assistant(WORDS), user(WORDS), assistant(WORDS), user("now"), assistant("ok")])

    assert covered(cut(live, budget(50))) == [1, 2, 3]


def test_one_giant_message_is_never_covered_unanswered() -> None:
    assert not cut(entries([user(WORDS * 100)]), budget(50)).covered


def test_a_giant_message_stays_while_it_is_the_newest_even_when_answered() -> None:
    live = entries([user(WORDS), assistant(WORDS), user(WORDS * 100), assistant("ok")])

    divided = cut(live, budget(50))

    assert covered(divided) == [1, 2]


def test_unanswered_messages_stay_all() -> None:
    live = entries([user(WORDS), assistant(WORDS), user("one"), user("two"), user("three")])

    assert kept(cut(live, budget(2))) == [3, 4, 5]


def test_unanswered_messages_before_tool_work_stay() -> None:
    live = entries([user(WORDS), assistant(WORDS), user("one"), user("two"), *rounds(4)])

    divided = cut(live, budget(150))

    assert {3, 4} <= set(kept(divided))
    assert covered(divided)[:2] == [1, 2]


def test_only_tool_messages_since_the_last_user_turn() -> None:
    live = entries([user(WORDS), assistant("", ("a", "x"), ("b", "x")), result("a", WORDS), result("b", WORDS)])

    assert not cut(live, budget(50)).covered


def test_no_message_of_a_person_at_all() -> None:
    live = entries([assistant(WORDS)] * 6)

    assert covered(cut(live, budget(300))) == [1, 2, 3, 4]


def test_pins_inside_the_covered_range_stay_with_their_whole_round() -> None:
    messages = [
        user(WORDS),
        assistant("", ("a", "x"), ("b", "x")),
        result("a", WORDS),
        result("b", WORDS),
        assistant(WORDS),
    ]
    live = entries([*messages, user("now"), assistant("ok")], pinned={3: True})

    divided = cut(live, budget(50))

    assert covered(divided) == [1, 5]
    assert kept(divided) == [2, 3, 4, 6, 7]


def test_a_system_message_in_the_history_stays() -> None:
    live = entries(
        [Message(role="system", content="rules"), user(WORDS), assistant(WORDS), user("now"), assistant("ok")]
    )

    assert kept(cut(live, budget(50)))[0] == 1


def test_a_stray_result_does_not_begin_the_tail() -> None:
    live = entries(
        [user(WORDS), result("gone", WORDS), assistant(WORDS), result("gone", WORDS), user("now"), assistant("ok")]
    )

    assert live[covered(cut(live, budget(50)))[-1]].message.role == "user"


@pytest.mark.parametrize("tokens", range(0, 3_000, 150))
def test_both_sides_add_up(tokens: int) -> None:
    live = entries([user(WORDS), *rounds(3), assistant(WORDS)] * 3)

    divided = cut(live, budget(tokens))

    assert divided.covered_tokens == sum(entry.tokens for entry in divided.covered)
    assert divided.kept_tokens == sum(entry.tokens for entry in divided.kept)
    assert sorted(covered(divided) + kept(divided)) == list(range(1, len(live) + 1))


def test_the_floor_is_system_tools_pins_and_the_newest_turn() -> None:
    live = [user(WORDS), assistant(WORDS), user(WORDS), *rounds(5), assistant("done")]
    transcript = make_transcript(live, pinned={2: True}, tool_tokens=1_000)

    assert floor(transcript) == transcript.system_tokens + 1_000 + 129 + 129 + 5
