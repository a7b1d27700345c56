"""A summary without any model: people's statements, last answers, files and tools, taken word for word by code.

What a sentence weighs is told by grammar alone: negation, necessity, quantity and contrast are closed classes of words
in every language, so nothing here is a list of topics.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compaction.language import Headings
from compaction.prompts import NOTHING
from compaction.sections import parse
from compaction.stages.prune import tool_names
from compaction.statements import LINE_TOKENS, Said, Statements, list_statements, said, shorten_old
from compaction.transcript import Entry

_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n+")
# Necessity, prohibition and quantity make a rule; contrast and reversal a correction; choice and intent a decision.
_RULE_WORDS = re.compile(
    r"\b(?:must(?:n't)?|never|always|only|do(?:es)?n't|should(?:n't)?|shall|can't|cannot|wo(?:uld)?n't|needs?|required?"
    r"|ensure|remember|avoid|prefer|unless|without|except|do not|ha(?:ve|s) to|make sure|from now on|at (?:least|most)"
    r"|no (?:more than|longer)|actually|instead|rather|wrong|incorrect|correction|meant|but|however|changed?|replaced?"
    r"|renamed?|switch(?:ed)?|sorry|wait)\b"
)
_DECISION_WORDS = re.compile(
    r"\b(?:decided?|decision|choose|chosen?|agreed?|let's|(?:we|i)'ll|want|use|plan|deadline|called|named?|because|will)\b"
)
_RULE_HAN = re.compile(
    r"必须|不要|不能|不可|不得|不准|不许|禁止|一定|务必|永远|总是|始终|每次|只能|只要|只用|仅|应该|应当|需要|至少|至多|最多"
    r"|除非|除了|记住|请勿|切勿|以后|别(?!人|的|处|墅)"
    r"|其实|而不是|不是|改成|改为|换成|更正|纠正|错了|不对|但是|不过|应为|刚才"
)
_DECISION_HAN = re.compile(r"决定|选择|选用|采用|使用|同意|我们要|我要|想要|希望|打算|计划|截止|叫做|名叫|叫|因为|为了")
_TOKENS_PER_LATIN = 4  # characters
_LAST_ANSWERS = 3
_LONGEST = 600  # characters of one statement
_ERRORS_SHOWN = 8
_TOOLS_SHOWN = 20
_PATH_KEYS = ("path", "file_path", "filename", "file", "filepath", "notebook_path", "url")


@dataclass(frozen=True, slots=True)
class _Statement:
    """One sentence a person typed: whose message, what it weighs, where it stands."""

    said: Said
    text: str
    weight: int
    order: int


def extract(entries: Sequence[Entry], earlier: str, budget: int, headings: Headings) -> dict[int, str]:
    """The sections code can write beside the statements, within `budget` (tokens).

    `earlier` is an earlier summary whose sections are carried on where there is room.
    """
    people = said(entries)
    answers = [entry for entry in entries if entry.message.role == "assistant" and entry.message.content]
    before = parse(earlier) if earlier else {}
    small = max(30, budget // 10)
    bodies = {
        0: _joined(before.get(0, ""), _first(people, small), small * 2),
        1: _joined(before.get(1, ""), "", small),
        2: _joined(before.get(2, ""), _files_and_tools(entries, small * 2, headings), small * 3),
        3: _joined(before.get(3, ""), _errors(entries, small), small * 2),
        4: _answers(answers[-_LAST_ANSWERS:-1], small // 2),
        6: _open_points(people, small),
        7: _answers(answers[-1:], small * 2),
        8: _newest(people, small, headings),
    }
    return {index: body or NOTHING[headings] for index, body in bodies.items()}


def pick_statements(people: Sequence[Said], earlier: str, budget: int) -> Statements:
    """The section “all user messages” from whole sentences: the weightiest that fit, newest before older."""
    if sum(message.entry.tokens + LINE_TOKENS for message in people) <= budget and not earlier:
        return list_statements(people, earlier, budget)
    old, old_tokens = shorten_old(earlier, budget // 2)
    room = budget - old_tokens
    chosen = _pick(people, room)
    lines: dict[int, str] = {}
    for statement in chosen:
        id_ = statement.said.entry.id
        lines[id_] = f"{lines[id_]} {statement.text}" if id_ in lines else f"- {statement.said.label}: {statement.text}"
    whole = tuple(
        message.entry.id
        for message in people
        if lines.get(message.entry.id) == f"- {message.label}: {message.entry.message.content}"
        and not message.entry.message.parts
    )
    tokens = old_tokens + sum(_cost(line) + 3 for line in lines.values())
    return Statements(lines, tuple(old), len(people) - len(lines), whole, tokens)


def statements_of(text: str) -> list[str]:
    """The sentences of a text as they stand there."""
    return [sentence for piece in _SENTENCE_END.split(text) if (sentence := piece.strip())]


def weigh(sentence: str, names: frozenset[str] = frozenset()) -> int:
    """How much a sentence binds what comes after: rules and corrections, then decisions and facts, then small talk."""
    folded = sentence.casefold().replace("’", "'")
    is_foreign = not sentence.isascii()
    if _RULE_WORDS.search(folded) or (is_foreign and _RULE_HAN.search(sentence)):
        return 3
    if _DECISION_WORDS.search(folded) or (is_foreign and _DECISION_HAN.search(sentence)):
        return 2
    return 2 if any(name in sentence for name in names) else 1


def _pick(people: Sequence[Said], room: int) -> list[_Statement]:
    """The weightiest statements that fit `room` (tokens), newest first among equals, back in reading order."""
    chosen: list[_Statement] = []
    seen: set[str] = set()
    begun: set[int] = set()
    for statement in sorted(_statements(people), key=lambda each: (each.weight, each.order), reverse=True):
        id_ = statement.said.entry.id
        cost = _cost(statement.text) + (0 if id_ in begun else LINE_TOKENS)
        if cost > room or (folded := statement.text.casefold()) in seen:
            continue
        seen.add(folded)
        begun.add(id_)
        chosen.append(statement)
        room -= cost
    return sorted(chosen, key=lambda statement: statement.order)


def _statements(people: Sequence[Said]) -> Iterator[_Statement]:
    order = 0
    for message in people:
        for sentence in statements_of(message.text):
            order += 1
            short = sentence[:_LONGEST]
            yield _Statement(message, short, weigh(short, message.names), order)


def _first(people: Sequence[Said], room: int) -> str:
    return f"- {people[0].label}: {_clip(people[0].text, room)}" if people else ""


def _answers(answers: Sequence[Entry], room: int) -> str:
    return "\n".join(f"- #{entry.position}: {_clip(entry.message.content, room)}" for entry in answers)


def _newest(people: Sequence[Said], room: int, headings: Headings) -> str:
    if not people:
        return ""
    lead = "最近的请求" if headings == "zh" else "The newest request of this part"
    return f"{lead}, {people[-1].label}: {_clip(people[-1].text, room)}"


def _open_points(people: Sequence[Said], room: int) -> str:
    """Boxes not ticked and questions of the newest messages: what may still be open, in people's own words."""
    found: list[str] = []
    for message in people[-6:]:
        lines = (line.strip() for line in message.text.split("\n"))
        found += [f"- {message.label}: {line}" for line in lines if line.startswith(("- [ ]", "* [ ]", "TODO", "待办"))]
    return _clip("\n".join(found), room)


def _files_and_tools(entries: Sequence[Entry], room: int, headings: Headings) -> str:
    """Paths that calls named, last touched first, and how often each tool was used."""
    tools: Counter[str] = Counter(tool_names(entries).values())
    paths: dict[str, str] = {}
    for entry in reversed(entries):
        for call in entry.message.tool_calls:
            path = _path_of(call.arguments)
            if path and path not in paths:
                paths[path] = f"{call.name}, #{entry.position}"
    used = ", ".join(f"{name} ×{times}" for name, times in tools.most_common(_TOOLS_SHOWN))
    lines = [f"- {'工具' if headings == 'zh' else 'Tools'}: {used}"] if tools else []
    for path, how in paths.items():
        line = f"- `{path}` ({how})"
        room -= _cost(line)
        if room < 0:
            break
        lines.append(line)
    return "\n".join(lines)


def _path_of(arguments: str) -> str:
    """The file a call names, if it names one."""
    if not any(key in arguments[:2_000] for key in ("path", "file", "url")):
        return ""
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return ""
    values = [parsed.get(key) for key in _PATH_KEYS] if isinstance(parsed, dict) else []
    return next((value for value in values if isinstance(value, str) and 0 < len(value) <= 300), "")


def _errors(entries: Sequence[Entry], room: int) -> str:
    failed = [entry for entry in entries if entry.is_error][-_ERRORS_SHOWN:]
    lines = [f"- #{entry.position} {entry.message.name}: {_clip(entry.message.content, 60)}" for entry in failed]
    return _clip("\n".join(lines), room)


def _joined(earlier: str, new: str, room: int) -> str:
    """Earlier text, shortened to half the room (tokens), before the new one."""
    if not earlier.strip() or earlier.strip() in NOTHING.values():
        return new
    return f"{_clip(earlier, room // 2)}\n{new}".strip()


def _clip(text: str, tokens: int) -> str:
    """The beginning of a text, at most about this many tokens, cut between characters."""
    if _cost(text) <= tokens:
        return text
    share = tokens / max(1, _cost(text))
    return f"{text[: max(1, int(len(text) * share))].rstrip()}…"


def _cost(text: str) -> int:
    """About what a text costs (tokens): a quarter of its bytes is near enough in Latin and in Chinese script."""
    return len(text.encode("utf-8", "surrogatepass")) // _TOKENS_PER_LATIN + 1
