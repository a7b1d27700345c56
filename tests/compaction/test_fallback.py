"""The summary without a model: what binds comes first, at a third of the size or less, in English and Chinese."""

from __future__ import annotations

import pytest

from compaction.engine import Plan, compact
from compaction.fallback import pick_statements, statements_of, weigh
from compaction.identifiers import identifiers
from compaction.statements import said
from tests.compaction.builders import (
    Scripted,
    assistant,
    conversations,
    count,
    entries,
    make_transcript,
    real_messages,
    result,
    settings,
    user,
)


def extract(messages: list, window: int = 16_000) -> Plan:  # type: ignore[type-arg]
    return compact(make_transcript(messages), settings(window, strategy="extractive"), Scripted(), count=count)


RULES = {
    "en": [
        "Never touch the file config/prod.yaml, whatever happens.",
        "From now on the maximum must be 250 entries per page.",
        "Actually the customer is called Zoltan Kessler, not Kesler.",
        "We decided to use PostgreSQL instead of MongoDB.",
        "Don't deploy without asking me first.",
        "The report always goes to https://reports.example/q3 on Fridays.",
        "Make sure that tests/test_login.py stays green.",
        "I meant the second table, orders_2024.",
    ],
    "zh": [
        "任何时候都不要修改 config/prod.yaml 这个文件。",
        "从现在开始，每页最多必须是250条。",
        "其实客户的名字叫「左尔坦」，不是我刚才说的那个。",
        "我们决定用 PostgreSQL，而不是 MongoDB。",
        "没有问过我之前禁止上线。",
        "报告总是要在星期五发到 https://reports.example/q3 。",
        "务必保证 tests/test_login.py 一直通过。",
        "我刚才说错了，应该是第二张表 orders_2024。",
    ],
}
SMALL_TALK = {
    "en": "It is a nice day today and the coffee tastes great. How are you doing over there? ",
    "zh": "今天天气真好，咖啡也很香。你那边怎么样呀？",
}


def chat_with_rules(language: str) -> list:  # type: ignore[type-arg]
    chat = []
    for number, rule in enumerate(RULES[language] * 1):
        chat += [user(SMALL_TALK[language] * 2 + rule), assistant(SMALL_TALK[language] * 40)]
        chat += [user(SMALL_TALK[language] * 6), assistant(SMALL_TALK[language] * 30 + str(number))]
    return chat


@pytest.mark.parametrize("language", ["en", "zh"])
def test_rules_corrections_names_and_paths_are_kept_at_a_third_of_the_size(language: str) -> None:
    chat = [*chat_with_rules(language), *[user(SMALL_TALK[language]), assistant(SMALL_TALK[language] * 120)] * 3]

    plan = extract(chat)

    covered = [rule for rule in RULES[language] if any(rule in entry.message.content for entry in plan.covered)]
    kept = [rule for rule in covered if rule.rstrip("。.") in plan.prefix.messages[0].content]
    assert len(covered) == len(RULES[language])
    assert len(kept) >= 0.95 * len(covered)
    assert plan.prefix.tokens * 3 <= sum(entry.tokens for entry in plan.covered)


@pytest.mark.parametrize("name", ["beam_100k", "tau_airline", "pi_sessions", "memorybank_zh", "memorybank_en"])
def test_on_real_conversations_names_stay_reachable_at_a_third_of_the_size(name: str) -> None:
    for conversation in list(conversations(name))[:8]:
        transcript = make_transcript([m for m in real_messages(conversation) if m.role != "system"])
        if transcript.tokens < 3_000:
            continue
        chosen = settings(transcript.tokens, strategy="extractive", reason="manual")
        plan = compact(transcript, chosen, Scripted(), count=count)

        assert plan.prefix.tokens * 3 <= sum(entry.tokens for entry in plan.covered) + 300, conversation["id"]
        assert plan.quality["reachable_percent"] >= 95, conversation["id"]


def test_what_binds_weighs_more_than_small_talk() -> None:
    for rules, talk in ((RULES["en"], SMALL_TALK["en"]), (RULES["zh"], SMALL_TALK["zh"])):
        for rule in rules:
            assert weigh(rule, frozenset(identifiers(rule))) > max(map(weigh, statements_of(talk)))


def test_newest_comes_before_older_where_not_all_fit() -> None:
    people = said(entries([user(f"You must never forget rule {'abc' * 20} {number}.") for number in range(20)]))

    picked = pick_statements(people, "", 200)

    assert 0 < len(picked.lines) < 20
    assert list(picked.lines) == list(range(21 - len(picked.lines), 21))
    assert picked.left_out == 20 - len(picked.lines)


def test_everything_is_kept_where_it_fits() -> None:
    people = said(entries([user("one"), user("two")]))

    assert pick_statements(people, "", 500).whole == (1, 2)


def test_a_paste_is_head_tail_and_a_reference() -> None:
    paste = "HEAD must stay. " + "log line with nothing in it\n" * 800 + " TAIL must stay."
    chat = [user(paste), assistant("read it"), *chat_with_rules("en"), user("now"), assistant("ok " * 3_000)]

    plan = extract(chat)

    summary = plan.prefix.summary
    assert "HEAD must stay." in summary
    assert "TAIL must stay." in summary
    assert "#1 (" in summary
    assert summary.count("log line") < 60


def test_tools_and_files_are_listed() -> None:
    work = [
        message
        for at in range(40)
        for message in (
            assistant("", (f"c{at}", "read_file", f'{{"path": "src/mod_{at}.py"}}')),
            result(f"c{at}", "y" * 1_000, name="read_file"),
        )
    ]
    chat = [user("Refactor it."), *work, assistant("It is done."), *[user("next"), assistant("fine " * 300)] * 4]

    summary = extract(chat).prefix.summary

    assert "read_file ×40" in summary
    assert "`src/mod_39.py` (read_file, #80)" in summary


def test_sentences_are_told_apart_in_both_scripts() -> None:
    assert statements_of("One. Two! v1.2 is out; three?\nfour") == ["One.", "Two!", "v1.2 is out;", "three?", "four"]
    assert statements_of("第一句。第二句！第三句") == ["第一句。", "第二句！", "第三句"]
