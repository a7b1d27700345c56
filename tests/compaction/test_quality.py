"""What the gate finds in a text: names, numbers, paths and links in any script, and the language it is written in."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compaction.identifiers import Finder, identifiers, reachable
from compaction.language import headings_for, same_language, script_of
from compaction.masking import mask
from compaction.quality import read_draft
from compaction.sections import parse, strip_reasoning
from compaction.stages.prune import prune
from compaction.statements import said
from tests.compaction.builders import conversations, entries, from_openai, make_summary, user

ENGLISH = "We looked at the plan and it was clear to all of us that the work had to be done in the morning. " * 10
FRENCH = "Nous avons vu que le plan de la semaine est à faire dans la matinée et que tout le monde est prêt. " * 10
CHINESE = "我们看过了这个计划，大家都清楚这项工作必须在早上完成，没有别的办法，也没有时间再等下去了。" * 10
JAPANESE = "この計画は朝のうちに終わらせる必要があると全員がわかっています。ほかに方法はありません。" * 10


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://a.example/x?y=1, please", {"https://a.example/x?y=1"}),
        ("edit src/app/main.py and utils.py", {"src/app/main.py", "utils.py"}),
        ("call my_func or fooBar on HTTP2", {"my_func", "fooBar", "HTTP2"}),
        ("it costs 12.50 on 2023-04-27", {"12.50", "2023-04-27"}),
        ("then Alice met Bob", {"Alice", "Bob"}),
        ("Then it went on. Nobody came.", set()),
        ("and/or either way", set()),
        ("我在读《百年孤独》和「挪威的森林」", {"百年孤独", "挪威的森林"}),
        ("テストはサンフランシスコで", {"テスト", "サンフランシスコ"}),
        ("修改 src/main.py 的第42行", {"src/main.py", "42"}),
        ("write to ann@mail.example", {"ann@mail.example"}),
        ("~/notes and ./run.sh", {"~/notes", "./run.sh"}),
    ],
)
def test_identifiers(text: str, found: set[str]) -> None:
    assert identifiers(text) == found


PIECES = st.sampled_from([*"aA1bZ \n\r\u2028./\\@~-_:*'’,;!?(「」“”カナタ漢", "http", "https://", "Ada", "src/a.py"])


@given(st.lists(PIECES, max_size=40).map("".join), st.integers(0, 40))
@example("keep src/a.py\nand Bob", 15)
def test_a_text_that_was_followed_line_by_line_has_the_same_names(text: str, seen: int) -> None:
    find = Finder()
    find.follow(text[:seen])

    assert find(text) == identifiers(text)


def test_short_numbers_are_not_found_inside_others() -> None:
    assert reachable(["42", "Alice", "main.py"], "1420 people like ALICE and src/main.py") == (2, ["42"])


def test_many_names_are_found_as_few_are() -> None:
    text = " ".join(f"Part{number}x in src/part_{number}.py, not OTHER{number}" for number in range(0, 900, 3))
    names = [f"part_{number}.py" for number in range(900)] + ["OTHER1", "src", "x in", "ther3", "Abc"]

    assert reachable(names, text) == (
        sum(reachable([name], text)[0] for name in names),
        [name for name in names if not reachable([name], text)[0]],
    )


HOSTILE = ["a", "aB", "a.", "/", "“", "http", "中", "A ", "<think>", "#", "[", "`", "a_b=", "password", "-----BEGIN "]
HOSTILE += ["eyJ", "\n", "sk-", "x://", "x://y:", "是", "1.", "- #1", "## ", "```\n", "ア"]


@pytest.mark.parametrize("piece", HOSTILE)
def test_every_pass_over_hostile_text_is_linear(piece: str) -> None:
    hostile = piece * (200_000 // len(piece))
    started = time.process_time()

    identifiers(hostile)
    same_language(ENGLISH, hostile)
    parse(strip_reasoning(hostile))
    mask(hostile)
    prune(entries([user(hostile)]))
    said(entries([user(hostile)]))

    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    ("text", "script", "headings"),
    [
        (ENGLISH, "latin", "en"),
        (CHINESE, "han", "zh"),
        (JAPANESE, "kana", "en"),
        ("ok", "", "en"),
        ("帮我把 parse_config 改成 read_config，放到 src/config/reader.py 里面，测试也要一起改好，谢谢", "han", "zh"),
        ("나는 오늘 아침에 회의에 갔다가 늦게 집에 돌아왔습니다", "hangul", "en"),
    ],
)
def test_the_language_is_told_by_its_letters(text: str, script: str, headings: str) -> None:
    assert script_of(text) == script
    assert headings_for(script_of(text)) == headings


@pytest.mark.parametrize(
    ("conversation", "summary", "same"),
    [
        (ENGLISH, ENGLISH, True),
        (FRENCH, ENGLISH, False),
        (ENGLISH, FRENCH, False),
        (FRENCH, FRENCH, True),
        (CHINESE, ENGLISH, False),
        (ENGLISH, CHINESE, False),
        (JAPANESE, JAPANESE, True),
        (FRENCH, "None.", True),
    ],
)
def test_a_summary_in_another_language_is_seen(conversation: str, summary: str, same: bool) -> None:
    assert same_language(conversation, summary) is same


@pytest.mark.parametrize("name", ["beam_100k", "longmemeval_3", "aider_history", "pi_sessions", "memorybank_zh"])
def test_real_answers_read_as_the_language_of_their_conversation(name: str) -> None:
    for conversation in conversations(name):
        spoken = "\n".join(from_openai(m).content for m in conversation["messages"] if m["role"] == "user")
        written = "\n".join(from_openai(m).content for m in conversation["messages"] if m["role"] == "assistant")
        assert same_language(spoken[-40_000:], written[-40_000:]), conversation["id"]


def test_recorded_summaries_read_as_the_language_of_their_session() -> None:
    [conversation] = conversations("pi_sessions")
    spoken = "\n".join(from_openai(m).content for m in conversation["messages"] if m["role"] == "user")

    for compaction in conversation["meta"]["compactions"]:
        assert same_language(spoken, compaction["summary"])


def test_a_good_draft_has_no_fault() -> None:
    bodies, fault = read_draft(f"<think>x</think>\n{make_summary()}", "stop", "en", ENGLISH)

    assert fault is None
    assert len(bodies) == 9


def test_a_summary_that_speaks_of_errors_is_no_error() -> None:
    assert (
        read_draft(make_summary(body="I'm sorry was what the 502 Bad Gateway page said."), "stop", "en", "")[1] is None
    )


def test_english_headings_are_accepted_in_a_chinese_summary() -> None:
    assert read_draft(make_summary("en", CHINESE[:80]), "stop", "zh", CHINESE)[1] is None
