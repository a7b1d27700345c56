"""Random histories with tool calls, parallel batches, media, pins, interruptions: compacted and undone many times."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import event, given
from hypothesis import strategies as st

from agents.messages import Message
from compaction.engine import CompactionError, Plan, SummaryReply, SummaryRequest, compact
from compaction.identifiers import identifiers
from compaction.masking import mask
from compaction.sections import parse, render, strip_reasoning
from compaction.transcript import Entry, Prefix, Transcript
from compaction.validate import complete_pairs, fault, pair
from tests.compaction.builders import SYSTEM, assistant, cost, count, image, make_summary, result, settings, user

WORDS = ["alpha", "beta", "Gamma", "src/main.py", "42", "naïve", "图书馆", "你好", "https://a.example/x"]
WORDS += ["\n-", "item;", "ok?", "don't!"]

# Drawn as a whole: a text is one choice, so that thousands of histories can be drawn in minutes.
TEXTS = [" ".join(WORDS[at % len(WORDS) :: 1 + at % 4] * times) for at in range(13) for times in (1, 1, 2, 5, 12, 40)]
texts = st.sampled_from(TEXTS)
ids = st.sampled_from(["a", "b", "c", "call_1", ""])


@st.composite
def rounds(draw: st.DrawFn) -> list[Message]:
    """One batch of calls with results that may be missing, strange or out of order."""
    called = draw(st.lists(ids, min_size=1, max_size=4))
    answered = draw(st.permutations([id_ for id_ in called if draw(st.integers(0, 9))]))
    stray = draw(st.lists(ids, max_size=1)) if not draw(st.integers(0, 9)) else []
    calls = [(id_, "look", '{"path": "src/main.py"}') for id_ in called]
    return [assistant(draw(st.just("") | texts), *calls), *(result(id_, draw(texts)) for id_ in [*answered, *stray])]


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """Messages of people, rounds, and an answer unless the turn was interrupted."""
    asked = [
        user(draw(texts), parts=(image(),) if not draw(st.integers(0, 7)) else ())
        for _ in range(draw(st.sampled_from([1, 1, 1, 1, 2, 3, 0])))
    ]
    work = [message for batch in draw(st.lists(rounds(), max_size=5)) for message in batch]
    answer = [assistant(draw(texts))] if draw(st.integers(0, 9)) else []
    return [*asked, *work, *answer]


histories = st.lists(turns(), min_size=1, max_size=8).map(lambda made: [message for turn in made for message in turn])


@dataclass
class Conversation:
    """A conversation as the database would hold it: all entries, and the compactions applied to it."""

    entries: list[Entry] = field(default_factory=list)
    applied: list[Plan] = field(default_factory=list)

    def add(self, messages: list[Message], pins: set[int]) -> None:
        for message in messages:
            id_ = len(self.entries) + 1
            self.entries.append(Entry(id_, id_, message, cost(message), pinned=id_ in pins))

    @property
    def prefix(self) -> Prefix | None:
        return self.applied[-1].prefix if self.applied else None

    def transcript(self) -> Transcript:
        covered = {entry.id for plan in self.applied for entry in plan.covered}
        live = tuple(entry for entry in self.entries if entry.id not in covered)
        pinned = tuple(entry for entry in self.entries if entry.id in covered and entry.pinned)
        return Transcript(
            live=live, system=(SYSTEM,), system_tokens=cost(SYSTEM), prefix=self.prefix, pinned_covered=pinned
        )


def summarise(request: SummaryRequest) -> SummaryReply:
    if len(request.messages[-1].content) % 2:  # sometimes there is time for it, sometimes none
        request.meanwhile()
    return SummaryReply(make_summary(body="Gamma src/main.py 42 naïve https://a.example/x and all the rest of it."))


def check_plan(before: Transcript, plan: Plan) -> None:
    request = plan.request(before)
    assert fault(request) == ""
    assert request[0] == SYSTEM
    assert plan.tokens_after < plan.tokens_before
    assert sorted((*plan.covered, *plan.kept), key=lambda entry: entry.id) == list(before.live)
    contents = [message.content for message in request]
    assert all(entry.message.content in contents for entry in before.live if entry.pinned)
    people = [entry.message for entry in before.live if entry.message.role == "user"]
    assert not people or people[-1] in request
    split = {id(entry) for entry in plan.covered}
    for at, caller in pair([entry.message for entry in before.live]).items():
        assert (id(before.live[at]) in split) == (id(before.live[caller]) in split)


@given(st.data())
def test_any_history_is_compacted_and_undone_without_harm(data: st.DataObject) -> None:
    conversation = Conversation()
    for step in data.draw(
        st.lists(st.sampled_from(["talk", "talk", "compact", "compact", "undo"]), min_size=3, max_size=8)
    ):
        if step == "talk" or not conversation.entries:
            length = len(conversation.entries)
            pins = set(data.draw(st.lists(st.integers(length + 1, length + 40), max_size=2)))
            conversation.add(data.draw(histories), pins)
        elif step == "undo" and conversation.applied:
            conversation.applied.pop()
        else:
            before = conversation.transcript()
            reason = data.draw(st.sampled_from(["manual", "auto", "overflow"]))
            strategy = data.draw(st.sampled_from(["balanced", "conservative", "aggressive", "extractive"]))
            window = data.draw(st.sampled_from([6_000, 12_000, 40_000]))
            chosen = settings(window, reason=reason, strategy=strategy, summariser_window=40_000)
            try:
                plan = compact(before, chosen, summarise, count=count)
            except CompactionError as error:
                event(error.code)
                assert conversation.transcript().request() == before.request()
                continue
            event(f"compacted, generation {plan.generation}")
            check_plan(before, plan)
            conversation.applied.append(plan)
            assert conversation.transcript().request() == plan.request(before)
            assert conversation.transcript().tokens == plan.tokens_after
            undone = Conversation(conversation.entries, conversation.applied[:-1])
            assert undone.transcript().request() == before.request()
    conversation.applied.clear()
    untouched = complete_pairs((SYSTEM, *(entry.message for entry in conversation.entries)))
    assert conversation.transcript().request() == untouched


@given(histories)
def test_any_history_becomes_a_valid_request(messages: list[Message]) -> None:
    request = complete_pairs(messages)

    assert fault(request) == ""
    assert complete_pairs(request) == request
    said = [message.content for message in messages if message.role == "tool"]
    assert sorted(said) == sorted(
        message.content
        for message in request
        if message.role == "tool" and not message.content.startswith("[no result")
    )


@given(st.text(max_size=400))
def test_reading_any_text_never_fails(text: str) -> None:
    bodies = parse(strip_reasoning(text))

    assert set(parse(render(bodies, "en"))) == set(range(9))
    assert all(name.strip() for name in identifiers(text))
    mask(text)


@given(st.data())
def test_a_hash_changes_with_any_flag(data: st.DataObject) -> None:
    from compaction.engine import covered_hash

    conversation = Conversation()
    conversation.add(data.draw(histories), set())
    entries = conversation.entries
    if not entries:
        return
    at = data.draw(st.integers(0, len(entries) - 1))
    changed = [*entries[:at], replace(entries[at], pinned=True), *entries[at + 1 :]]

    assert covered_hash(entries) != covered_hash(changed)
    assert covered_hash(entries) == covered_hash(tuple(entries))
