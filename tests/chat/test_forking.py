"""A fork begins anywhere: at what counts now, and at what was replaced, with the branch that stood before it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.messages import ToolCall
from agents.tools import ToolResult
from bench.upstream import fault_of
from chat import branching, claiming, compacting, ending, queueing, sending, turns
from chat.ending import Ending, Said, Spent
from chat.errors import NotFound
from chat.models import Attachment, Conversation, Message, Role, Turn, TurnState
from compaction.models import State
from tests.builders import add_messages, make_conversation, make_user, tool_round
from tests.chat.scripting import compact, long_chat, request, small_agent

pytestmark = pytest.mark.django_db

_names = itertools.count(1)


class Talk:
    """A conversation in which every answer is given here, and a memory of what stood before each message."""

    def __init__(self, conversation: Conversation | None = None) -> None:
        self.conversation = conversation or make_conversation()
        self.owner = self.conversation.owner
        self.live: list[int] = []
        self.branches: dict[int, list[int]] = {}
        self.requests: dict[int, list[dict[str, Any]]] = {}  # the next one, after each message that ended a turn
        self.said_by: dict[int, list[int]] = {}  # turn -> its rows
        self.covered: list[int] = []
        self._note()

    # What people and the agent do

    def ask(self, text: str = "", **answer: Any) -> Turn:
        turn = sending.send_message(self.owner, self.conversation.pk, text or f"question {next(_names)}").turn
        assert turn is not None
        return self.answer(turn, **answer)

    def edit(self, message: int, text: str = "", **answer: Any) -> Turn:
        made = branching.edit_message(self.owner, self.conversation.pk, message, text or f"edited {next(_names)}")
        assert not made.is_new
        del self.live[self.live.index(message) :]
        return self.answer(made.turn, **answer)

    def regenerate(self, message: int, **answer: Any) -> Turn:
        made = branching.regenerate(self.owner, self.conversation.pk, message)
        assert made.turn.user_message_id is not None
        del self.live[self.live.index(made.turn.user_message_id) + 1 :]
        return self.answer(made.turn, **answer)

    def choose(self, turn: Turn) -> None:
        branching.choose_answer(self.owner, self.conversation.pk, turn.pk)
        assert turn.user_message_id is not None
        if set(self.said_by[turn.pk]) <= set(self.live):
            return  # it is shown, perhaps with what went on with it
        del self.live[self.live.index(turn.user_message_id) + 1 :]
        self.live += self.said_by[turn.pk]

    def go_on(self, turn: Turn, **answer: Any) -> Turn:
        made = branching.retry(self.owner, self.conversation.pk, turn.pk, continues=True)
        return self.answer(made, **answer)

    def answer(self, turn: Turn, says: str | None = None, *, rounds: int = 0, how: str = TurnState.DONE) -> Turn:
        """The turn's rounds and its answer; without `how` it is taken back instead."""
        if not how:
            queueing.cancel_queued(self.owner, self.conversation.pk, turn.pk)
            return turn
        claim = claiming.claim_next(self.conversation.pk)
        assert claim is not None
        message: int | None = claim.message
        for _ in range(rounds):
            call = ToolCall(f"call_{next(_names)}", "look", "{}")
            ending.store_round(claim, Said(message or 0, tool_calls=(call,)))
            ending.store_result(claim, call, ToolResult(f"found {next(_names)}"))
            message = ending.next_round(claim).message
        said = Said(message or 0, f"answer {next(_names)}" if says is None else says)
        error = ("upstream", "It broke.", True) if how == TurnState.FAILED else ()
        ending.finish(claim, said, Ending(how, *error), Spent(), go_on=False)
        turn.refresh_from_db()
        self._note(turn)
        return turn

    def cover(self, count: int) -> None:
        """A summary stands for the first messages."""
        self.covered = self.live[:count]
        last = Message.objects.get(pk=self.covered[-1])
        summary = Message.objects.create(
            conversation=self.conversation, position=last.position, role="user", content="in short", is_summary=True
        )
        rows = Message.objects.filter(pk__in=self.covered)
        rows.update(compacted_at=last.created_at, compacted_into=summary)

    def uncover(self) -> None:
        rows = Message.objects.filter(pk__in=self.covered)
        rows.update(compacted_at=None, compacted_into=None)
        self.covered = []

    def _note(self, turn: Turn | None = None) -> None:
        rows = Message.objects.filter(conversation=self.conversation, is_summary=False, position__isnull=False)
        for row in rows.exclude(pk__in=self.branches).order_by("position"):
            if row.retired_at is not None:
                continue  # it said nothing
            self.live.append(row.pk)
            self.branches[row.pk] = list(self.live)
            if turn is not None and row.role != "user":
                self.said_by.setdefault(turn.pk, []).append(row.pk)
        if self.live and not self.covered:
            self.requests[self.live[-1]] = sent(self.conversation)

    # What must hold

    def fork(self, message: int) -> Conversation:
        return branching.fork(self.owner, self.conversation.pk, message)

    def row(self, turn: Turn, at: int = -1) -> int:
        return self.said_by[turn.pk][at]

    def check(self, message: int) -> None:
        made = self.fork(message)
        rows = Message.objects.filter(pk__in=self.branches[message]).order_by("position")
        assert words(Message.objects.filter(conversation=made).order_by("position")) == words(rows)
        assert fault_of([*sent(made), {"role": "user", "content": "go on"}]) == ""
        if message in self.requests:
            assert sent(made) == self.requests[message]

    def check_all(self) -> None:
        for message in self.branches:
            self.check(message)


def words(rows: Any) -> list[tuple[Any, ...]]:
    return list(rows.values_list("role", "content", "tool_call_id", "status", "created_at"))


def texts(conversation: Conversation) -> list[str]:
    return list(
        Message.objects.filter(conversation=conversation).order_by("position").values_list("content", flat=True)
    )


def sent(conversation: Conversation) -> list[dict[str, Any]]:
    """The next request as a provider would get it."""
    return [message.to_openai() for message in request(conversation)]


def question_of(turn: Turn) -> int:
    assert turn.user_message_id is not None
    return turn.user_message_id


@pytest.fixture
def talk() -> Talk:
    return Talk()


def test_a_question_that_was_edited_has_what_stood_before_it(talk: Talk) -> None:
    talk.ask("one", says="first")
    second = talk.ask("two", says="second")
    talk.edit(question_of(second), "two, better", says="third")

    assert texts(talk.fork(question_of(second))) == ["one", "first", "two"]
    assert texts(talk.fork(talk.row(second))) == ["one", "first", "two", "second"]
    talk.check_all()


def test_an_answer_that_was_replaced_and_what_followed_it(talk: Talk) -> None:
    first = talk.ask("one", says="first")
    second = talk.ask("two", says="second")
    talk.regenerate(question_of(first), says="another")
    talk.ask("three", says="third")

    assert texts(talk.fork(talk.row(first))) == ["one", "first"]
    assert texts(talk.fork(talk.row(second))) == ["one", "first", "two", "second"]
    talk.check_all()


def test_answers_chosen_back_and_forth_keep_what_followed_each(talk: Talk) -> None:
    first = talk.ask("one", says="first")
    other = talk.regenerate(question_of(first), says="other")
    talk.choose(first)
    after_first = talk.ask("after the first", says="yes")
    talk.edit(question_of(after_first), how="")  # begun and taken back: the question before is the newest again
    talk.choose(other)
    after_other = talk.ask("after the other", says="no")
    talk.regenerate(question_of(first), says="a third one")
    talk.choose(first)
    talk.choose(other)
    talk.choose(first)

    assert texts(talk.fork(talk.row(after_first))) == ["one", "first", "after the first", "yes"]
    assert texts(talk.fork(talk.row(after_other))) == ["one", "other", "after the other", "no"]
    assert texts(talk.fork(talk.row(other))) == ["one", "other"]
    talk.check_all()


def test_a_branch_of_a_branch(talk: Talk) -> None:
    talk.ask("one", says="1")
    second = talk.ask("two", says="2")
    third = talk.ask("three", says="3")
    other_third = talk.edit(question_of(third), "three, otherwise", says="3b")
    other_second = talk.edit(question_of(second), "two, otherwise", says="2b")
    fourth = talk.ask("four", says="4")
    talk.regenerate(question_of(other_second), says="2c")

    assert texts(talk.fork(talk.row(third))) == ["one", "1", "two", "2", "three", "3"]
    assert texts(talk.fork(talk.row(other_third))) == ["one", "1", "two", "2", "three, otherwise", "3b"]
    assert texts(talk.fork(talk.row(fourth))) == ["one", "1", "two, otherwise", "2b", "four", "4"]
    talk.check_all()


def test_in_the_middle_of_replaced_tool_work_the_request_is_valid(talk: Talk) -> None:
    turn = talk.ask("look", rounds=2, says="found it")
    talk.regenerate(question_of(turn), rounds=1, says="found more")

    assert [len(texts(talk.fork(row))) for row in talk.said_by[turn.pk]] == [2, 3, 4, 5, 6]
    talk.check_all()


def test_an_answer_that_was_cut_and_gone_on_with(talk: Talk) -> None:
    first = talk.ask("count", says="one, two", how=TurnState.FAILED)
    rest = talk.go_on(first, says="three")
    after = talk.ask("on", says="four")
    talk.regenerate(question_of(first), says="all of it")
    talk.choose(first)

    assert texts(talk.fork(talk.row(rest))) == ["count", "one, two", "three"]
    assert texts(talk.fork(talk.row(after))) == ["count", "one, two", "three", "on", "four"]
    talk.check_all()


def test_a_question_stopped_while_another_was_answered_is_in_the_branch(talk: Talk) -> None:
    first = talk.ask("one")
    branching.regenerate(talk.owner, talk.conversation.pk, question_of(first))
    claim = claiming.claim_next(talk.conversation.pk)
    assert claim is not None
    waiting = sending.send_message(talk.owner, talk.conversation.pk, "never mind").turn
    assert waiting is not None
    turns.stop(talk.owner, talk.conversation.pk, waiting.pk)
    ending.finish(claim, Said(claim.message, "again"), Ending(TurnState.DONE), Spent(), go_on=False)

    talk.live = [question_of(first)]
    talk.edit(question_of(first), "one, better")

    assert texts(talk.fork(question_of(waiting))) == ["one", "again", "never mind"]


def test_what_a_taken_back_edit_replaced_is_not_lost(talk: Talk) -> None:
    """Nothing names the turn any more that replaced it."""
    first = talk.ask("one", says="first")
    talk.edit(question_of(first), how="")

    assert texts(talk.fork(talk.row(first))) == ["one", "first"]


def test_what_a_taken_back_answer_replaced_can_be_chosen_again(talk: Talk) -> None:
    first = talk.ask("one", says="first")
    talk.regenerate(talk.row(first), how="")

    talk.choose(first)

    assert texts(talk.fork(talk.row(first))) == ["one", "first"]
    assert Message.objects.get(pk=talk.row(first)).retired_at is None


def test_after_a_compaction_and_after_its_undo() -> None:
    talk = Talk(make_conversation(long_chat(), agent=small_agent()))
    turn = talk.ask("what now?", says="this")
    talk.edit(question_of(turn), "what next?", says="that")
    run = compact(talk.conversation)
    assert run.state == State.APPLIED, run.error_text
    later = talk.ask("and then?", says="nothing")
    talk.edit(question_of(later), "and after that?", says="the end")
    del talk.requests[talk.row(later)], talk.requests[talk.live[-1]]  # these were made with the summary

    talk.check(question_of(turn))
    talk.check(talk.row(turn))
    talk.check(talk.row(later))
    compacting.request_undo(talk.owner, run.pk, confirm=True)
    talk.check(talk.row(turn))
    talk.check(talk.row(later))


def test_within_a_compacted_range_an_edit_takes_what_stands_not_what_was_replaced(talk: Talk) -> None:
    first = talk.ask("one", says="first")
    talk.regenerate(question_of(first), says="other")
    talk.choose(first)
    second = talk.ask("two", says="second")
    talk.cover(4)

    made = branching.edit_message(talk.owner, talk.conversation.pk, question_of(second), "two, better")

    assert made.is_new
    assert [text for text in texts(made.conversation) if text != "two, better"] == ["one", "first"]


def test_an_imported_conversation(talk: Talk) -> None:
    said = ["one", *tool_round("look", "the file"), "first", "two", "second"]
    talk = Talk(make_conversation([said[0]]))
    add_messages(talk.conversation, said[1:3])
    add_messages(talk.conversation, [{"role": "assistant", "content": "first"}, {"role": "user", "content": "two"}])
    add_messages(talk.conversation, [{"role": "assistant", "content": "second"}])
    talk._note()
    talk.regenerate(talk.live[0], says="other")

    talk.check_all()


def test_files_and_pins_come_along_marks_of_the_request_do_not(talk: Talk) -> None:
    turn = talk.ask("look", says="seen")
    row = Message.objects.get(pk=question_of(turn))
    file = Attachment.objects.create(
        conversation=talk.conversation, message=row, owner=talk.owner, name="a.txt", kind="text", size=2, sha256="x"
    )
    file.file.save("a.txt", ContentFile(b"hi"))
    row.parts, row.pinned, row.cleared_at = [{"kind": "file", "attachment": str(file.pk)}], True, row.created_at
    row.save()
    written = Attachment.objects.create(
        conversation=talk.conversation, message_id=talk.row(turn), name="made.txt", kind="text", size=2, sha256="y"
    )
    talk.edit(question_of(turn), "look again")

    made = talk.fork(talk.row(turn))

    copied, answer = Message.objects.filter(conversation=made).order_by("position")
    assert (copied.pinned, copied.cleared_at, copied.retired_at, copied.follows) == (True, None, None, None)
    kept = {each.name: each for each in Attachment.objects.filter(conversation=made)}
    assert set(kept) == {"a.txt", "made.txt"}
    assert (kept["a.txt"].message, kept["made.txt"].message) == (copied, answer)
    assert copied.parts[0]["attachment"] == str(kept["a.txt"].pk) != str(file.pk)
    assert kept["made.txt"].pk != written.pk


def test_what_said_nothing_a_summary_and_a_draft_are_no_points_to_begin_at(talk: Talk) -> None:
    nothing = talk.ask("one", says="", how=TurnState.FAILED)
    blank = Message.objects.get(turn=nothing, role="assistant")
    assert blank.retired_at is not None
    talk.cover(1)
    summary = Message.objects.get(is_summary=True)
    draft = sending.send_message(talk.owner, talk.conversation.pk, "waits").message
    elsewhere = Talk()
    elsewhere.ask()
    assert draft is not None

    for message in (blank.pk, summary.pk, draft.pk, elsewhere.live[0]):
        with pytest.raises(NotFound):
            talk.fork(message)


def test_an_erased_message_is_copied_without_its_words(talk: Talk) -> None:
    turn = talk.ask("secret", says="I see")
    talk.edit(question_of(turn), "harmless")
    Message.objects.filter(pk=question_of(turn)).update(content="", metadata={"erased_at": "then"})

    assert texts(talk.fork(talk.row(turn))) == ["", "I see"]


def test_everyone_here_may_fork_what_was_replaced_and_nobody_else(talk: Talk) -> None:
    turn = talk.ask("one", says="first")
    talk.edit(question_of(turn), "one, better")
    member, viewer, outsider = make_user(), make_user(), make_user()
    talk.conversation.participants.create(user=member, role=Role.MEMBER)
    talk.conversation.participants.create(user=viewer, role=Role.VIEWER)

    for person in (member, viewer):
        made = branching.fork(person, talk.conversation.pk, talk.row(turn))
        assert (made.owner, texts(made)) == (person, ["one", "first"])
    with pytest.raises(NotFound):
        branching.fork(outsider, talk.conversation.pk, talk.row(turn))


def test_the_earlier_answers_stay_behind(talk: Talk) -> None:
    turn = talk.ask("one")
    again = talk.regenerate(question_of(turn))
    answer = Message.objects.get(pk=talk.row(again))
    assert answer.metadata["earlier_answers"] == 1

    made = talk.fork(answer.pk)

    assert Message.objects.get(conversation=made, role="assistant").metadata == {}


def test_however_long_the_branch_the_statements_are_the_same(talk: Talk) -> None:
    first = talk.ask("one")
    for _ in range(3):
        talk.ask()
    short = count_statements(lambda: talk.regenerate(question_of(first), how=""))
    replaced = list(talk.branches)
    few = [count_statements(lambda row=row: talk.fork(row)) for row in (replaced[0], replaced[-1])]  # type: ignore[misc]

    long = Talk()
    first = long.ask("one")
    for _ in range(40):
        long.ask()

    assert count_statements(lambda: long.regenerate(question_of(first), how="")) <= short
    replaced = list(long.branches)
    assert [count_statements(lambda row=row: long.fork(row)) for row in (replaced[0], replaced[-1])] == few  # type: ignore[misc]
    assert few[0] == few[1], "what was replaced costs what a live message does"


def count_statements(act: Callable[[], Any]) -> int:
    with CaptureQueriesContext(connection) as captured:
        act()
    return len(captured)


# Random histories

ACTS = ("ask", "tools", "cut", "nothing", "edit", "taken back", "again", "again, taken back", "choose", "cover")
OFTEN = ("ask", "taken back", "again", "choose", "choose")
acts = st.lists(st.tuples(st.sampled_from((*OFTEN, *ACTS)), st.integers(0, 5)), min_size=5, max_size=16)
among = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def play(talk: Talk, script: list[tuple[str, int]]) -> None:
    for act, number in script:
        questions = list(Message.objects.filter(pk__in=talk.live, role="user").order_by("position"))
        if act == "cover":
            talk.uncover() if talk.covered else talk.live and talk.cover(1 + number % len(talk.live))
        elif not questions or act in ("ask", "tools", "nothing"):
            talk.ask(rounds=act == "tools", **({"says": "", "how": TurnState.FAILED} if act == "nothing" else {}))
        elif act == "cut":
            cut = talk.ask(says="cut", how=TurnState.FAILED)
            if number % 2:
                talk.go_on(cut)
        elif act == "choose":
            said = [turn for turn in talk.said_by if Turn.objects.filter(pk=turn, continues=False).exists()]
            answers = list(Turn.objects.filter(pk__in=said, user_message=questions[-1]).order_by("id"))
            if answers and questions[-1].pk not in talk.covered and not covers_after(talk, questions[-1].pk):
                talk.choose(answers[number % len(answers)])
        else:
            question = questions[-1 - number % len(questions)].pk
            if question in talk.covered or covers_after(talk, question):
                continue
            how = {"how": ""} if act.endswith("taken back") else {"rounds": number % 2}
            talk.regenerate(question, **how) if act.startswith("again") else talk.edit(question, **how)


def covers_after(talk: Talk, message: int) -> bool:
    return any(talk.live.index(row) >= talk.live.index(message) for row in talk.covered)


@given(acts)
@among
def test_whatever_was_replaced_every_message_has_the_branch_it_stood_in(script: list[tuple[str, int]]) -> None:
    talk = Talk()

    play(talk, script)

    talk.check_all()


@given(acts)
@among
def test_without_notes_of_what_follows_what_it_is_found_out(script: list[tuple[str, int]]) -> None:
    """As of rows that were retired before it was noted. Only choosing among answers makes it a guess."""
    talk = Talk()
    play(talk, script)

    Message.objects.filter(conversation=talk.conversation).update(follows=None)

    if any(act == "choose" for act, _ in script):
        for message in talk.branches:
            made = talk.fork(message)
            answered = [one for one, other in itertools.pairwise(texts(made)) if is_answer(one) and is_answer(other)]
            assert not answered, "two answers to one question"
    else:
        talk.check_all()


def test_without_notes_what_was_replaced_together_belongs_together(talk: Talk) -> None:
    first = talk.ask("one", says="first")
    other = talk.regenerate(question_of(first), says="other")
    talk.choose(first)
    after = talk.ask("after the first", says="yes")
    talk.regenerate(question_of(first), says="a third one")
    talk.choose(other)

    Message.objects.update(follows=None)

    assert texts(talk.fork(talk.row(after))) == ["one", "first", "after the first", "yes"]


def is_answer(text: str) -> bool:
    return text.startswith("answer")
