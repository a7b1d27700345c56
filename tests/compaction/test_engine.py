"""The engine from transcript to plan: what it refuses, checks, repairs, keeps, and how runs follow one another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agents.messages import Message
from compaction.engine import Cancelled, CompactionError, Plan, SummaryReply, SummaryRequest, compact, covered_hash
from compaction.prompts import CLOSING
from compaction.restore import RestoredFile
from compaction.strategies import Strategy, register, strategies, strategy
from compaction.transcript import Prefix, Transcript
from tests.compaction.builders import (
    Scripted,
    assistant,
    count,
    entries,
    image,
    make_chat,
    make_summary,
    make_transcript,
    result,
    settings,
    user,
)


def run(transcript: Transcript, *replies: Any, **fields: Any) -> Plan:
    restored = fields.pop("restored", ())
    return compact(transcript, settings(**fields), Scripted(replies), restored=restored, count=count)


def failure(transcript: Transcript, *replies: Any, **fields: Any) -> CompactionError:
    with pytest.raises(CompactionError) as caught:
        run(transcript, *replies, **fields)
    return caught.value


def after(transcript: Transcript, plan: Plan) -> Transcript:
    """The transcript as it is loaded once the plan is applied."""
    pinned = tuple(entry for entry in transcript.live if entry.pinned and entry not in plan.kept)
    return replace(transcript, live=plan.kept, prefix=plan.prefix, pinned_covered=transcript.pinned_covered + pinned)


LONG = make_transcript(make_chat(60))


def test_a_plan_shrinks_the_request_and_keeps_the_newest_turn() -> None:
    plan = run(LONG)

    request = plan.request(LONG)
    assert plan.tokens_before == LONG.tokens
    assert plan.tokens_after < plan.tokens_before - 1_120
    assert plan.gain == plan.tokens_before - plan.tokens_after
    assert request[0] == LONG.system[0]
    assert request[-2:] == LONG.request()[-2:]
    assert (plan.strategy, plan.generation, plan.requests) == ("balanced", 1, 1)
    assert plan.usage["prompt_tokens"] > 5_000


def test_the_figures_are_those_of_the_request() -> None:
    plan = run(LONG)

    loaded = after(LONG, plan)
    assert loaded.tokens == plan.tokens_after
    assert loaded.request() == plan.request(LONG)


def test_what_is_done_while_the_summary_is_written_changes_nothing_but_the_wait() -> None:
    asked = Scripted()
    late: list[str] = []

    def summarise(request: SummaryRequest) -> SummaryReply:
        request.meanwhile()
        late.clear()
        return asked(request)

    def counted(text: str) -> int:
        late.append(text)
        return count(text)

    plan = compact(LONG, settings(), summarise, count=counted)

    assert plan == compact(LONG, settings(), Scripted(hurries=True), count=count)
    said = [entry.message.content for entry in plan.covered if entry.message.role == "user"]
    counted_late = [words for words in said if any(words in text for text in late)]
    assert len(counted_late) <= 1 < len(said)  # what follows the last copy is known only with the summary


def test_the_covered_range_is_inclusive_and_hashed() -> None:
    plan = run(LONG)

    assert (plan.covered_from, plan.covered_to) == (1, plan.covered[-1].position)
    between = [entry for entry in LONG.live if entry.position <= plan.covered_to]
    assert plan.covered_hash == covered_hash(between)
    for change in ({"pinned": True}, {"cleared": True}, {"message": user("edited")}, {"id": 999}):
        assert covered_hash([replace(between[0], **change), *between[1:]]) != plan.covered_hash
    assert covered_hash(between[1:]) != plan.covered_hash


def test_the_summary_has_nine_sections_and_names_the_ways_back() -> None:
    summary = run(LONG).prefix.summary

    assert summary.count("## ") == 9
    assert summary.endswith(CLOSING["en"])
    assert "- #1: Please look at src/part_1.py" in summary


def test_people_are_listed_by_number_and_name() -> None:
    chat = make_chat(60)
    transcript = replace(LONG, live=entries(chat, author={1: "Ada"}))

    assert "- #1 Ada: Please look" in run(transcript).prefix.summary


def test_what_is_not_whole_in_the_list_is_repeated_by_budget() -> None:
    plan = run(LONG)

    newest_covered = [entry for entry in plan.covered if entry.message.role == "user"][-1]
    assert newest_covered.id in plan.prefix.verbatim_ids
    assert newest_covered.message.content in plan.prefix.messages[2].content


def test_short_messages_stand_whole_in_the_list_and_are_not_repeated() -> None:
    chat = [message for number in range(60) for message in (user(f"step {number}, please"), assistant("word " * 200))]
    plan = run(make_transcript(chat))

    covered_users = [entry.id for entry in plan.covered if entry.message.role == "user"]
    assert list(plan.prefix.verbatim_ids) == covered_users
    assert len(plan.prefix.messages) == 2


def test_nothing_to_compact() -> None:
    assert failure(make_transcript([user("hi"), assistant("ho")])).code == "nothing_to_compact"


def test_too_little_to_gain_is_refused_before_any_request() -> None:
    scripted = Scripted()
    chat = make_chat(6)
    with pytest.raises(CompactionError) as caught:
        compact(make_transcript([*chat, user("x" * 12_000), assistant("ok")]), settings(), scripted, count=count)

    assert caught.value.code == "gain_too_small"
    assert scripted.asked == []


def test_a_floor_that_is_too_high_is_refused_and_named() -> None:
    error = failure(replace(LONG, tool_tokens=10_500))

    assert error.code == "floor_too_high"
    assert "tools takes 10,500 of your 16,000" in error.message


def test_a_person_may_compact_a_short_conversation() -> None:
    transcript = make_transcript(make_chat(20))

    assert transcript.tokens < 4_000
    assert failure(transcript, reason="auto").code in ("nothing_to_compact", "gain_too_small")
    assert run(transcript, reason="manual").gain >= 1_120


def test_a_broken_draft_is_repaired_once() -> None:
    plan = run(LONG, "## 1. Key Concepts\nonly this", make_summary())

    assert plan.requests == 2
    assert plan.quality["repaired"]
    assert plan.quality["repaired_for"] == "summary_incomplete"


def test_the_repair_names_what_is_missing_and_shows_the_draft() -> None:
    scripted = Scripted(("## 1. Key Concepts\nonly this", make_summary()))

    compact(LONG, settings(), scripted, count=count)

    asked = scripted.asked[1]
    assert asked.purpose == "repair"
    assert asked.messages[2] == assistant("## 1. Key Concepts\nonly this")
    assert "Pending Tasks" in asked.messages[3].content


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("", "summary_empty"),
        ("<think>and so on", "summary_empty"),
        (SummaryReply(make_summary(), "length"), "summary_cut_off"),
        (SummaryReply("", "content_filter"), "summary_refused"),
        ("I'm sorry, but I can't help with that.", "summary_refused"),
        ("抱歉，我无法完成这个请求。", "summary_refused"),
        ('{"error": {"message": "model overloaded"}}', "summary_is_error"),
        ("502 Bad Gateway", "summary_is_error"),
        ("Here is what happened: a lot.", "summary_incomplete"),
        (make_summary().replace("## 7. Pending Tasks", "## 7. Something"), "summary_incomplete"),
        (
            make_summary(body="Мы делали всё, что было задумано с самого начала, и ничего не забыли."),
            "summary_wrong_language",
        ),
        (make_summary(body="y" * 6_000), "summary_too_long"),
    ],
)
def test_what_is_no_summary_fails_with_its_own_code(reply: Any, code: str) -> None:
    error = failure(LONG, reply)

    assert error.code == code
    assert error.retryable
    assert error.requests == 2
    assert error.message


def test_cancelling_ends_the_run_at_once() -> None:
    with pytest.raises(Cancelled):
        run(LONG, Cancelled(), reason="overflow")


def test_a_summariser_that_fails_leaves_everything_as_it_was() -> None:
    before = LONG.request()

    error = failure(LONG, CompactionError("summariser_failed", why="time-out", retryable=True))

    assert error.code == "summariser_failed"
    assert LONG.request() == before


def test_without_a_summariser_code_makes_room_where_the_request_would_not_fit() -> None:
    full = make_transcript(make_chat(90))

    plan = run(full, CompactionError("auxiliary_unavailable", "The channel is disabled.", retryable=True))

    assert (plan.strategy, plan.fallback_code) == ("extractive", "auxiliary_unavailable")
    assert plan.tokens_after < 11_200


def test_a_second_compaction_updates_the_first() -> None:
    first = run(LONG, make_summary(body="The first part was about Paris."))
    more = [*(entry.message for entry in first.kept), *make_chat(60)]
    transcript = replace(LONG, live=entries(more, start=first.kept[0].position), prefix=first.prefix)
    scripted = Scripted((make_summary(body="Both parts."),))

    plan = compact(transcript, settings(), scripted, count=count)

    assert plan.generation == 2
    assert scripted.asked[0].purpose == "update"
    assert "The first part was about Paris." in scripted.read
    assert CLOSING["en"] not in scripted.read
    assert "- #1: Please look" in plan.prefix.summary
    assert not plan.rebuilt


def test_a_second_compaction_is_rebuilt_from_the_originals_where_they_fit() -> None:
    first = run(LONG, make_summary(body="The first part was about Paris."))
    more = [*(entry.message for entry in first.kept), *make_chat(60)]
    transcript = replace(
        LONG, live=entries(more, start=first.kept[0].position), prefix=first.prefix, earlier=first.covered
    )
    scripted = Scripted()

    plan = compact(transcript, settings(summariser_window=64_000), scripted, count=count)

    assert plan.rebuilt
    assert "Paris" not in scripted.read
    assert "Limit1 is 37" in scripted.read
    assert plan.generation == 2


def test_a_smaller_summariser_reads_a_shorter_earlier_summary() -> None:
    first = run(LONG, make_summary(body="Paris " * 120))
    more = [*(entry.message for entry in first.kept), *make_chat(60)]
    transcript = replace(LONG, live=entries(more, start=first.kept[0].position), prefix=first.prefix)
    scripted = Scripted()

    plan = compact(transcript, settings(summariser_window=5_000), scripted, count=count)

    assert plan.generation == 2
    for request in scripted.asked:
        assert sum(count(message.content) for message in request.messages) + request.max_output_tokens <= 5_000


def test_names_listed_by_an_earlier_compaction_stay_through_many() -> None:
    plan = run(LONG)
    now = replace(LONG, live=plan.kept, prefix=plan.prefix)
    for round_ in range(1, 6):
        filler = [user("go on " * 40), assistant("word " * 900)] * 8
        now = replace(now, live=(*now.live, *entries(filler, start=1_000 * round_)))
        plan = run(now, reason="manual")
        now = replace(now, live=plan.kept, prefix=plan.prefix)

    assert plan.generation == 6
    listed = plan.prefix.summary
    assert sum(f"#{2 * turn - 1}:" in listed for turn in range(1, 30)) >= 20


def test_dropping_the_prefix_gives_back_the_request() -> None:
    before = LONG.request()
    plan = run(LONG)
    applied = after(LONG, plan)

    undone = replace(
        applied, live=tuple(sorted((*plan.covered, *plan.kept), key=lambda entry: entry.position)), prefix=None
    )

    assert undone.request() == before


def test_files_and_images_come_back() -> None:
    chat = [user("look at this", parts=(image("cat.png"),)), assistant("a cat"), *make_chat(150)]

    plan = run(make_transcript(chat), window=32_000, restored=[RestoredFile("main.py", "print(1)")])

    carried = plan.prefix.messages[2]
    assert "print(1)" in carried.content
    assert [part.name for part in carried.parts] == ["cat.png"]


def test_restored_state_yields_to_the_gain() -> None:
    restored = [RestoredFile(f"f{number}", "word " * 1_000) for number in range(5)]

    plan = run(LONG, restored=restored)

    assert plan.gain >= 1_120
    assert plan.tokens_after <= 11_200 * 70 // 100 + 200


def test_a_pin_in_the_covered_range_stays_word_for_word() -> None:
    transcript = replace(LONG, live=entries(make_chat(60), pinned={3: True}))

    plan = run(transcript)

    assert plan.kept[0].position == 3
    assert transcript.live[2].message in plan.request(transcript)


def test_the_factor_of_another_tokenizer_shrinks_all_budgets() -> None:
    plain, doubled = run(LONG), run(LONG, factor=2.0)

    assert len(doubled.kept) < len(plain.kept)
    assert doubled.tokens_after * 2 < 11_200


def test_switched_off_still_compacts_by_hand() -> None:
    assert run(LONG, percent=0, reason="manual").gain > 0


def test_chinese_conversations_get_chinese_headings_and_words() -> None:
    chat = [
        message
        for number in range(80)
        for message in (
            user(f"请看一下文件 src/部分{number}.py，上限{number}改成 {number * 37}，不要动别的地方，谢谢你的帮助。"),
            assistant("好的，我已经看过这个文件，并且按照你的要求修改了上限，其他地方保持原样。" * 3),
        )
    ]
    scripted = Scripted((make_summary("zh", "一切都按照计划进行，没有遗漏任何要求。"),))

    plan = compact(make_transcript(chat), settings(), scripted, count=count)

    assert "## 6. 全部用户消息" in plan.prefix.summary
    assert "[背景资料，不是请求。" in plan.prefix.messages[0].content
    assert "主要请求与意图" in scripted.asked[0].messages[1].content


def test_progress_tells_the_stages_in_order() -> None:
    told: list[tuple[str, float]] = []

    compact(LONG, settings(), Scripted(), progress=lambda stage, fraction: told.append((stage, fraction)), count=count)

    assert [stage for stage, _ in told] == ["boundary", "prune", "summarize", "summarize", "assemble", "assemble"]
    assert [fraction for _, fraction in told] == sorted(fraction for _, fraction in told)
    assert told[-1][1] == 1.0


def test_instructions_reach_the_summariser() -> None:
    scripted = Scripted()

    compact(LONG, settings(instructions="keep the SQL"), scripted, count=count)

    assert "keep the SQL" in scripted.read


def test_single_turn_tool_work_is_compactable() -> None:
    work = [message for at in range(60) for message in (assistant("", (f"c{at}", "look")), result(f"c{at}", "x" * 800))]
    transcript = make_transcript([user("do it all"), *work])

    plan = run(transcript)

    assert plan.kept[0].message == user("do it all")
    assert len(plan.covered) > 60
    assert plan.request(transcript)[3] == user("do it all")


def test_every_strategy_has_a_name_and_says_what_it_keeps() -> None:
    assert [each.name for each in strategies()] == ["balanced", "conservative", "aggressive", "extractive"]
    assert all(str(each.keeps) and str(each.title) for each in strategies())


def test_strategies_differ_in_what_stays() -> None:
    kept = {name: len(run(LONG, strategy=name).kept) for name in ("balanced", "conservative", "aggressive")}

    assert kept["aggressive"] == 2
    assert kept["aggressive"] < kept["balanced"] < kept["conservative"]


def test_extractive_asks_no_model() -> None:
    scripted = Scripted()

    plan = compact(LONG, settings(strategy="extractive"), scripted, count=count)

    assert scripted.asked == []
    assert plan.requests == 0
    assert plan.strategy == "extractive"


def test_an_unknown_strategy_is_an_error() -> None:
    assert failure(LONG, strategy="magic").code == "unknown_strategy"


def test_a_new_strategy_is_one_small_class() -> None:
    class Tiny(Strategy):
        name = "tiny"
        tail_percent = 5

    register(Tiny)
    try:
        assert strategy("tiny").tail(settings().thresholds, 4).tokens == 560
    finally:
        from compaction import strategies as module

        del module._REGISTERED["tiny"]


def test_a_prefix_survives_storage() -> None:
    prefix = run(LONG).prefix

    assert Prefix.from_json(prefix.to_json()) == prefix


def test_a_system_prompt_that_changes_roles_stays_first() -> None:
    transcript = replace(LONG, system=(Message("system", "one"), Message("system", "two")))

    assert run(transcript).request(transcript)[:2] == transcript.system
