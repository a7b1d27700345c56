"""Another way on: nothing that was said is changed, and everything stays readable."""

from __future__ import annotations

import pytest

from bench.upstream import fault_of
from chat import branching, context, turns
from chat.errors import Forbidden, NotFound
from chat.models import Conversation, Message, MessageStatus, Role, Turn
from tests.builders import add_messages, make_user, tool_round
from tests.chat.conftest import Chat, until
from tests.upstream import Play


def said(conversation: Conversation) -> list[str]:
    """What the conversation consists of now."""
    rows = Message.objects.filter(conversation=conversation, retired_at__isnull=True, position__isnull=False)
    return [row.content for row in rows.order_by("position")]


def plays(chat: Chat, *texts: str) -> None:
    chat.provider.plays("mock", *(Play(ttft=0, tps=0, text=text) for text in texts))


@pytest.fixture
def talked(worker: None, chat: Chat) -> Chat:
    """Two questions with their answers."""
    plays(chat, "first answer", "second answer", "another answer", "a third answer")
    chat.ended(chat.send("first question"))
    chat.ended(chat.send("second question"))
    return chat


def test_regenerating_retires_the_answer_and_what_followed(talked: Chat) -> None:
    first_answer = talked.messages()[1]

    branch = branching.regenerate(talked.alice, talked.conversation.pk, first_answer.pk)

    talked.ended(branch.turn)
    assert not branch.is_new
    assert said(talked.conversation) == ["first question", "another answer"]
    assert talked.answer(branch.turn).metadata["earlier_answers"] == 1
    retired = Message.objects.filter(retired_by=branch.turn)
    assert [row.content for row in retired.order_by("position")] == ["first answer", "second question", "second answer"]
    talked.conversation.refresh_from_db()
    assert talked.conversation.live_tokens == context.recount_live_tokens(talked.conversation)


def test_an_earlier_answer_can_be_chosen_for_the_newest_question(talked: Chat) -> None:
    answer = talked.messages()[-1]
    branch = branching.regenerate(talked.alice, talked.conversation.pk, answer.pk)
    talked.ended(branch.turn)
    epoch = Conversation.objects.get().epoch

    answers = branching.earlier_answers(talked.alice, talked.conversation.pk, answer.pk)
    branching.choose_answer(talked.alice, talked.conversation.pk, answers[0].turn.pk)

    assert [(one.messages[-1].content, one.chosen) for one in answers] == [
        ("second answer", False),
        ("another answer", True),
    ]
    assert said(talked.conversation)[-2:] == ["second question", "second answer"]
    talked.conversation.refresh_from_db()
    assert talked.conversation.epoch > epoch
    assert talked.conversation.live_tokens == context.recount_live_tokens(talked.conversation)
    branching.choose_answer(talked.alice, talked.conversation.pk, branch.turn.pk)
    assert said(talked.conversation)[-1] == "another answer"


def test_an_earlier_answer_to_an_older_question_cannot_be_chosen(talked: Chat) -> None:
    with pytest.raises(branching.NotTheNewest):
        branching.choose_answer(talked.alice, talked.conversation.pk, Turn.objects.order_by("id")[0].pk)


def test_editing_keeps_the_earlier_branch_readable(talked: Chat) -> None:
    question = talked.messages()[2]

    branch = branching.edit_message(talked.alice, talked.conversation.pk, question.pk, "a better question")

    talked.ended(branch.turn)
    assert said(talked.conversation) == ["first question", "first answer", "a better question", "another answer"]
    question.refresh_from_db()
    assert (question.content, question.retired_by) == ("second question", branch.turn)


def test_editing_within_a_compacted_range_leads_into_a_new_conversation(talked: Chat) -> None:
    rows = talked.messages()
    summary = Message.objects.create(
        conversation=talked.conversation, position=2, role="user", content="summary", is_summary=True
    )
    Message.objects.filter(pk__in=[rows[0].pk, rows[1].pk]).update(
        compacted_at=rows[0].created_at, compacted_into=summary
    )

    branch = branching.edit_message(talked.alice, talked.conversation.pk, rows[0].pk, "asked otherwise")

    talked.ended(branch.turn)
    assert branch.is_new
    assert said(branch.conversation) == ["asked otherwise", "another answer"]
    assert said(talked.conversation)[0] == "first question"


def test_in_the_middle_of_a_compacted_range_editing_and_answering_again_start_from_the_originals(
    worker: None, chat: Chat
) -> None:
    """Whatever the summary says: the new conversation has the words before it, and the old one is as it was."""
    add_messages(chat.conversation, [f"said {number}" for number in range(8)])
    rows = chat.messages()
    summary = Message.objects.create(
        conversation=chat.conversation, position=6, role="user", content="summary", is_summary=True
    )
    covered = Message.objects.filter(pk__in=[row.pk for row in rows[:6]])
    covered.update(compacted_at=rows[0].created_at, compacted_into=summary)
    before = list(Message.objects.filter(conversation=chat.conversation).order_by("id").values())
    plays(chat, "answered anew")

    edited = branching.edit_message(chat.alice, chat.conversation.pk, rows[4].pk, "said otherwise")
    again = branching.regenerate(chat.alice, chat.conversation.pk, rows[3].pk)

    for branch, words in (
        (edited, ["said 0", "said 1", "said 2", "said 3", "said otherwise", "answered anew"]),
        (again, ["said 0", "said 1", "said 2", "answered anew"]),
    ):
        chat.ended(branch.turn)
        assert branch.is_new
        assert said(branch.conversation) == words
        made = Message.objects.filter(conversation=branch.conversation)
        assert not made.exclude(compacted_into=None, compacted_at=None, is_summary=False).exists()
        branch.conversation.refresh_from_db()
        assert branch.conversation.live_tokens == context.recount_live_tokens(branch.conversation)
    assert list(Message.objects.filter(conversation=chat.conversation).order_by("id").values()) == before


def test_a_fork_from_any_point_can_be_gone_on_from(worker: None, chat: Chat) -> None:
    """From a call without its result, from the result, from a covered message, and while an answer is written."""
    add_messages(chat.conversation, ["look", *tool_round("read_file", "the file", path="a.txt"), "I have looked"])
    rows = chat.messages()
    summary = Message.objects.create(
        conversation=chat.conversation, position=1, role="user", content="summary", is_summary=True
    )
    Message.objects.filter(pk=rows[0].pk).update(compacted_at=rows[0].created_at, compacted_into=summary)
    chat.provider.plays("mock", Play(ttft=0, tps=20, n=2000))
    running = chat.send("and now?")
    until(lambda: chat.provider.requests and chat.provider.requests[-1].written > 3)
    question, answer = Message.objects.filter(turn=running).order_by("position")

    made = [branching.fork(chat.alice, chat.conversation.pk, row.pk) for row in (*rows, question, answer)]

    turns.stop(chat.alice, chat.conversation.pk, running.pk)
    chat.ended(running, "stopped")
    assert [len(said(one)) for one in made] == [1, 2, 3, 4, 5, 5], "what is still being written is no original yet"
    plays(chat, "gone on")
    for one in made:
        there = Chat(chat.alice, one, chat.provider)
        there.ended(there.send("go on"))
        assert said(one)[-1] == "gone on"
        assert fault_of(chat.provider.last["messages"]) == ""


def test_a_fork_has_the_originals_up_to_a_message(talked: Chat) -> None:
    made = branching.fork(talked.alice, talked.conversation.pk, talked.messages()[1].pk)

    copies = Message.objects.filter(conversation=made).order_by("position")
    assert said(made) == ["first question", "first answer"]
    assert [row.position for row in copies] == [1, 2]
    originals = talked.messages()[:2]
    assert [row.created_at for row in copies] == [row.created_at for row in originals]
    assert [row.author_id for row in copies] == [talked.alice.pk, None]
    assert made.live_tokens == sum(row.token_count for row in originals)
    plays(talked, "forked answer")
    talked.conversation = made
    talked.ended(talked.send("on from here"))
    assert said(made)[-1] == "forked answer"


def test_continuing_goes_on_without_a_new_question(worker: None, chat: Chat) -> None:
    chat.provider.plays("mock", Play(ttft=0, tps=0, n=30, cut=10), Play(ttft=0, tps=0, text=" the rest"))
    turn = chat.ended(chat.send("count"), "failed")

    more = branching.retry(chat.alice, chat.conversation.pk, turn.pk, continues=True)

    chat.ended(more)
    assert [row.role for row in chat.messages()] == ["user", "assistant", "assistant"]
    assert chat.messages()[1].status == MessageStatus.FAILED
    assert [message["role"] for message in chat.provider.last["messages"]] == ["system", "user", "assistant", "user"]


def test_an_answer_that_was_gone_on_with_is_chosen_whole(worker: None, chat: Chat) -> None:
    chat.provider.plays(
        "mock",
        Play(ttft=0, tps=0, n=30, cut=10),
        Play(ttft=0, tps=0, text=" the rest"),
        Play(ttft=0, tps=0, text="counted anew"),
    )
    turn = chat.ended(chat.send("count"), "failed")
    more = chat.ended(branching.retry(chat.alice, chat.conversation.pk, turn.pk, continues=True))
    whole = said(chat.conversation)
    chat.ended(branching.regenerate(chat.alice, chat.conversation.pk, chat.messages()[0].pk).turn)

    answers = branching.earlier_answers(chat.alice, chat.conversation.pk, chat.messages()[0].pk)
    assert [[row.content for row in one.messages] for one in answers] == [whole[1:], ["counted anew"]]

    for chosen in (turn, more):  # whichever of its turns is named
        branching.choose_answer(chat.alice, chat.conversation.pk, answers[1].turn.pk)
        branching.choose_answer(chat.alice, chat.conversation.pk, chosen.pk)
        assert said(chat.conversation) == whole
    chat.conversation.refresh_from_db()
    assert chat.conversation.live_tokens == context.recount_live_tokens(chat.conversation)


def test_an_answer_that_was_replaced_cannot_be_gone_on_with(worker: None, chat: Chat) -> None:
    chat.provider.plays("mock", Play(ttft=0, tps=0, text="whole"), Play(ttft=0, tps=0, n=30, cut=10))
    first = chat.ended(chat.send("count"))
    again = branching.regenerate(chat.alice, chat.conversation.pk, chat.messages()[0].pk).turn
    chat.ended(again, "failed")
    branching.choose_answer(chat.alice, chat.conversation.pk, first.pk)

    with pytest.raises(branching.NothingToContinue):
        branching.retry(chat.alice, chat.conversation.pk, again.pk, continues=True)


def test_retrying_a_failed_turn_replaces_it(worker: None, chat: Chat) -> None:
    chat.provider.plays("mock", Play(status=401), Play(ttft=0, tps=0, text="now it works"))
    turn = chat.ended(chat.send("hello"), "failed")

    again = branching.retry(chat.alice, chat.conversation.pk, turn.pk)

    chat.ended(again)
    assert said(chat.conversation) == ["hello", "now it works"]


def test_nothing_branches_while_an_answer_is_open(chat: Chat) -> None:
    row = Message.objects.create(conversation=chat.conversation, role="user", content="x", position=1)
    chat.conversation.last_position = 1
    chat.conversation.save()
    chat.send("waits")

    with pytest.raises(branching.TurnOpen):
        branching.regenerate(chat.alice, chat.conversation.pk, row.pk)


def test_whose_right_it_is(chat: Chat) -> None:
    bob, viewer, outsider = make_user("bob"), make_user(), make_user()
    chat.conversation.participants.create(user=bob, role=Role.MEMBER)
    chat.conversation.participants.create(user=viewer, role=Role.VIEWER)
    row = Message.objects.create(
        conversation=chat.conversation, role="user", content="x", position=1, author=chat.alice
    )

    with pytest.raises(Forbidden):
        branching.edit_message(bob, chat.conversation.pk, row.pk, "his words")
    with pytest.raises(Forbidden):
        branching.regenerate(viewer, chat.conversation.pk, row.pk)
    with pytest.raises(NotFound):
        branching.fork(outsider, chat.conversation.pk, row.pk)
    assert said(branching.fork(viewer, chat.conversation.pk, row.pk)) == ["x"]
