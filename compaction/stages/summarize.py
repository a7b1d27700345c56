"""Asking a model for the summary: what it reads, how much it may write, in how many parts, and the one repair."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agents.messages import Message
from compaction import masking, prompts, sections
from compaction.errors import CompactionError
from compaction.prompts import Brief
from compaction.transcript import Entry

TEMPERATURE = 0.3
OUTPUT_CAP = 20_000
OUTPUT_FLOOR = 1_024
OUTPUT_PERCENT = 15  # of the trigger
_LINE_TOKENS = 9  # number, role and name of a rendered message (tokens)
_REPAIR_TOKENS = 700  # kept free for what a repair adds (tokens)
_LEAST_INPUT = 400  # less of the transcript than this is not worth a request (tokens)
_SAFETY_PERCENT = 4  # of the summariser's window: its tokenizer may differ

Purpose = Literal["first", "update", "fold", "repair"]


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """One call to the summariser: no tools, thinking off. `part` of `parts` lets the caller show real progress.

    `meanwhile` is work that needs no answer: whoever asks may do it while the model writes. `follow` takes what is
    written so far, now and then. Both can be left undone.
    """

    messages: tuple[Message, ...]
    max_output_tokens: int
    temperature: float = TEMPERATURE
    purpose: Purpose = "first"
    part: int = 1
    parts: int = 1
    meanwhile: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    follow: Callable[[str], None] = field(default=lambda text: None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SummaryReply:
    """What the summariser answered; `usage` as the provider reported it."""

    text: str
    finish_reason: str = "stop"
    usage: dict[str, Any] | None = None


Summarise = Callable[[SummaryRequest], SummaryReply]


@dataclass(frozen=True, slots=True)
class Reader:
    """What the summariser can take (tokens, as our own counts) and what is asked of it."""

    window: int
    max_output: int
    instructions: str = ""
    mask_secrets: bool = False


@dataclass(slots=True)
class Calls:
    """The calls of one run: counts them and adds up what they used."""

    summarise: Summarise
    on_part: Callable[[float], None]
    meanwhile: Callable[[], None] = lambda: None
    follow: Callable[[str], None] = lambda text: None
    requests: int = 0
    usage: dict[str, Any] = field(default_factory=dict)

    def ask(self, request: SummaryRequest) -> SummaryReply:
        self.requests += 1
        reply = self.summarise(replace(request, meanwhile=self.meanwhile, follow=self.follow))
        _add_up(self.usage, reply.usage or {})
        self.on_part(request.part / request.parts)
        return reply


@dataclass(frozen=True, slots=True)
class Draft:
    """The last answer with the request it came from, so that it can be repaired."""

    reply: SummaryReply
    request: SummaryRequest
    brief: Brief


def output_cap(trigger: int, model_limit: int | None) -> int:
    """How long a summary may be (tokens): 15 % of the trigger, at least 1,024, never more than the model can write."""
    return min(OUTPUT_CAP, model_limit or OUTPUT_CAP, max(OUTPUT_FLOOR, trigger * OUTPUT_PERCENT // 100))


def input_budget(reader: Reader, brief: Brief, count: Callable[[str], int]) -> int:
    """How much of the transcript one request can hold beside its instructions and the answer (tokens)."""
    fixed = sum(count(message.content) for message in prompts.summary_request("", brief))
    return reader.window * (100 - _SAFETY_PERCENT) // 100 - reader.max_output - fixed - _REPAIR_TOKENS


def fits_whole(entries: Sequence[Entry], reader: Reader, brief: Brief, count: Callable[[str], int]) -> bool:
    """Whether the summariser can read these pruned entries in one request."""
    return sum(entry.tokens + _LINE_TOKENS for entry in entries) <= input_budget(reader, brief, count)


def summarize(
    entries: Sequence[Entry], reader: Reader, brief: Brief, calls: Calls, count: Callable[[str], int]
) -> Draft:
    """A draft from pruned entries, read in as many parts as the summariser's window makes necessary."""
    parts = _in_parts(entries, reader, brief, count)
    draft: Draft | None = None
    for number, text in enumerate(parts, start=1):
        earlier = sections.strip_reasoning(draft.reply.text) if draft else brief.earlier
        step = replace(brief, earlier=earlier, part=number, parts=len(parts))
        draft = _ask(text, step, reader, calls, "fold" if number > 1 else "update" if brief.earlier else "first")
        if number < len(parts):
            _must_be_usable(draft.reply)
    assert draft is not None
    return draft


def repair(draft: Draft, faults: Sequence[str], reader: Reader, calls: Calls, count: Callable[[str], int]) -> Draft:
    """The one repair: the same request again with what is wrong, and with the draft where it is of use and fits."""
    text = sections.strip_reasoning(draft.reply.text)
    if reader.mask_secrets:
        faults = [masking.mask(fault) for fault in faults]
    asked = sum(count(message.content) for message in draft.request.messages)
    free = reader.window * (100 - _SAFETY_PERCENT) // 100 - reader.max_output - _REPAIR_TOKENS - asked
    is_useful = bool(text) and draft.reply.finish_reason == "stop" and bool(sections.parse(text))
    keep_draft = is_useful and count(text) <= free
    messages = prompts.repair_request(draft.request.messages, text, faults, draft.brief, keep_draft=keep_draft)
    request = replace(draft.request, messages=messages, purpose="repair")
    return Draft(calls.ask(request), request, draft.brief)


def _ask(text: str, brief: Brief, reader: Reader, calls: Calls, purpose: Purpose) -> Draft:
    if reader.mask_secrets:
        brief = replace(brief, earlier=masking.mask(brief.earlier), instructions=masking.mask(brief.instructions))
    messages = prompts.summary_request(text, brief)
    request = SummaryRequest(messages, reader.max_output, TEMPERATURE, purpose, brief.part, brief.parts)
    return Draft(calls.ask(request), request, brief)


def _must_be_usable(reply: SummaryReply) -> None:
    """A part that failed fails the run: going on would lose everything before it."""
    if reply.finish_reason == "length":
        raise CompactionError("summary_cut_off")
    if not sections.strip_reasoning(reply.text):
        raise CompactionError("summary_empty")


def _in_parts(entries: Sequence[Entry], reader: Reader, brief: Brief, count: Callable[[str], int]) -> list[str]:
    """The transcript as the texts of one or more requests."""
    whole = input_budget(reader, brief, count)
    show = _render_masked if reader.mask_secrets else render
    if sum([entry.tokens + _LINE_TOKENS for entry in entries]) <= whole:
        return ["\n\n".join([show(entry) for entry in entries])]
    # From the second part on the summary so far is read as well; the first may have an earlier one already.
    budget = input_budget(reader, replace(brief, earlier="", parts=2), count) - max(
        reader.max_output, count(brief.earlier)
    )
    if budget < _LEAST_INPUT:
        raise CompactionError("summariser_window_too_small", window=reader.window)
    parts: list[list[str]] = [[]]
    left = budget
    for text, tokens in _pieces(entries, budget, count, show):
        if tokens > left and parts[-1]:
            parts.append([])
            left = budget
        parts[-1].append(text)
        left -= tokens
    return ["\n\n".join(part) for part in parts]


def _pieces(
    entries: Sequence[Entry], budget: int, count: Callable[[str], int], show: Callable[[Entry], str]
) -> Iterator[tuple[str, int]]:
    """Every message as a rendered text with its cost (tokens); one that is larger than a request is divided."""
    for entry in entries:
        tokens = entry.tokens + _LINE_TOKENS
        if tokens <= budget:
            yield show(entry), tokens
        else:
            yield from _divided(show(entry), tokens, budget, count)


def _divided(text: str, tokens: int, budget: int, count: Callable[[str], int]) -> Iterator[tuple[str, int]]:
    """A giant message in pieces of at most `budget` tokens: cut at equal lengths, cut again where still too large."""
    size = max(1, len(text) * budget // (tokens * 5 // 4))
    at = 0
    while at < len(text):
        piece = text[at : at + size]
        cost = count(piece)
        while cost > budget and len(piece) > 1:
            piece = piece[: len(piece) // 2]
            cost = count(piece)
        yield piece, cost
        at += len(piece)


def render(entry: Entry) -> str:
    """One message as the summariser reads it: number, role, name, text and calls."""
    message = entry.message
    name = message.name if message.role == "tool" else entry.author
    text = f"### #{entry.position} {f'{message.role} {name}'.rstrip()}\n{message.content}"
    for call in message.tool_calls:
        text += f"\n[call {call.name}({call.arguments})]"
    return text


def _render_masked(entry: Entry) -> str:
    """The same without secrets: a message is masked whole, before it may be divided in the middle of one."""
    return masking.mask(render(entry))


def _add_up(total: dict[str, Any], usage: dict[str, Any]) -> None:
    for name, value in usage.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            total[name] = total.get(name, 0) + value
        elif isinstance(value, dict):
            _add_up(total.setdefault(name, {}), value)
