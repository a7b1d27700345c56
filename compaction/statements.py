"""What people said: the list inside a summary and the copies behind it, chosen by code within a budget."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agents.messages import ContentPart
from compaction import prompts
from compaction.identifiers import identifiers
from compaction.language import Headings
from compaction.stages.assemble import Verbatim
from compaction.transcript import Entry

PASTE_TOKENS = 1_000  # what is longer was not typed: only its beginning and end count as said
PASTE_EDGE = 1_000  # characters of each end
LINE_TOKENS = 8  # number, name and marks of a line (tokens)
_CLIPS = (1_500, 800, 500, 300, 200, 140, 100, 70, 50, 36)  # characters of a message shown, tried in turn
_OLD_LINE = re.compile(r"^- #\d+", re.MULTILINE)
_NAMES_BEHIND = re.compile(r" \[[^\[\]\n]{1,2000}\]\Z")
_LABEL = 12  # characters of number and name before the words
_NAMED_AT_MOST = 60  # identifiers listed behind one message


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a person, as far as it was typed, with the names, numbers, paths and links in it."""

    entry: Entry
    text: str
    names: frozenset[str] = frozenset()
    is_paste: bool = False

    @property
    def label(self) -> str:
        paste = f" ({self.entry.tokens} tokens)" if self.is_paste else ""
        return f"#{self.entry.position} {self.entry.author}".rstrip() + paste


@dataclass(frozen=True, slots=True)
class Statements:
    """The section “all user messages”. `whole` are the ids that stand in it word for word."""

    lines: Mapping[int, str] = field(default_factory=dict)  # by id, in reading order
    old_lines: tuple[str, ...] = ()
    left_out: int = 0
    whole: tuple[int, ...] = ()
    tokens: int = 0

    def text(self, headings: Headings) -> str:
        lines = [*self.old_lines, *self.lines.values()]
        if self.left_out:
            lines.insert(len(self.old_lines), _left_out(self.left_out, headings))
        return "\n".join(lines)


def said(entries: Sequence[Entry]) -> list[Said]:
    """The messages of people among these entries, in order."""
    return [_said(entry) for entry in entries if entry.message.role == "user"]


def _said(entry: Entry) -> Said:
    text = entry.message.content
    if entry.message.parts:
        text = "\n".join([*([text] if text else []), *(_spoken(part) for part in entry.message.parts)])
    if entry.tokens <= PASTE_TOKENS or len(text) <= 2 * PASTE_EDGE:
        return Said(entry, text, frozenset(identifiers(text)))
    names = identifiers(f"{text[:PASTE_EDGE]}\n{text[-PASTE_EDGE:]}")
    gap = f" […{entry.tokens} tokens, read_history #{entry.position}…] "
    return Said(entry, f"{text[:PASTE_EDGE]}{gap}{text[-PASTE_EDGE:]}", frozenset(names), is_paste=True)


def _spoken(part: ContentPart) -> str:
    """What a part adds to a message of a person: its text, or the name of what was attached."""
    return part.text if part.kind == "text" else f"[{part.name or part.kind}]"


def list_statements(messages: Sequence[Said], earlier: str, budget: int) -> Statements:
    """Every message in one line, shortened evenly until all fit `budget` (tokens); `earlier` is the section so far.

    Earlier lines may take half, and what new ones do not need. Where even the shortest lines do not fit, those in the
    middle go: the first says what it is all about, the newest what holds now.
    """
    old, old_tokens = shorten_old(earlier, max(budget // 2, budget - _cost(messages, _CLIPS[0])))
    room = max(0, budget - old_tokens)
    clip, cost = _widest(messages, room)
    chosen = list(messages)
    left_out = 0
    if cost > room:
        each = max(1, cost // max(1, len(messages)))
        fit = max(2, room // each)
        first = fit // 4
        left_out = max(0, len(chosen) - fit)
        chosen = chosen[:first] + chosen[len(chosen) - (fit - first) :] if left_out else chosen
    lines: dict[int, str] = {}
    whole = []
    for message in chosen:
        shown = _one_line(message.text, clip)
        lines[message.entry.id] = f"- {message.label}: {shown}"
        if shown == message.entry.message.content and not message.entry.message.parts:
            whole.append(message.entry.id)
    return Statements(lines, tuple(old), left_out, tuple(whole), old_tokens + _cost(chosen, clip))


def _widest(messages: Sequence[Said], room: int) -> tuple[int, int]:
    """The most characters of each message with which all fit `room` (tokens), else the fewest; and what they cost."""
    clip = _CLIPS[bisect_left(_CLIPS, True, hi=len(_CLIPS) - 1, key=lambda tried: _cost(messages, tried) <= room)]
    return clip, _cost(messages, clip)


def _cost(messages: Sequence[Said], clip: int) -> int:
    """What the lines cost (tokens), from the counts the messages already have."""
    total = 0
    for message in messages:
        length = len(message.entry.message.content) or 1
        shown = min(length, clip)
        total += LINE_TOKENS + min(message.entry.tokens, -(-message.entry.tokens * shown // length))
    return total


def shorten_old(earlier: str, budget: int) -> tuple[list[str], int]:
    """The lines of an earlier list, shortened evenly to a budget (tokens, at three characters each)."""
    starts = [match.start() for match in _OLD_LINE.finditer(earlier)] if earlier else []
    if not starts:
        return [], 0
    lines = [earlier[at:end].rstrip() for at, end in zip(starts, [*starts[1:], len(earlier)], strict=True)]
    for clip in (10_000, *_CLIPS, 12):
        cost = sum(len(_shorten(line, clip)) for line in lines) // 3
        if cost <= budget:
            break
    else:
        fit = max(2, len(lines) * budget // max(1, cost))
        lines = lines[: fit // 2] + lines[len(lines) - (fit - fit // 2) :] if fit < len(lines) else lines
        cost = sum(len(_shorten(line, clip)) for line in lines) // 3
    return [_shorten(line, clip) for line in lines], cost


def _shorten(line: str, clip: int) -> str:
    """A line of an earlier list with at most `clip` characters of words; the names behind them stay."""
    names = _NAMES_BEHIND.search(line)
    words = line[: names.start()] if names else line
    return _one_line(words, clip + _LABEL) + (names.group() if names else "")


def _one_line(text: str, clip: int) -> str:
    short = text if len(text) <= clip else f"{text[: clip - 1]}…"
    return " ".join(short.split()) if "\n" in short or "\r" in short or "\t" in short else short


def _left_out(count: int, headings: Headings) -> str:
    if headings == "zh":
        return f"- （另有 {count} 条消息，可用 `search_history` 查找）"
    return f"- ({count} more messages; find them with `search_history`)"


def unseen(missing: Sequence[str], messages: Sequence[Said], statements: Statements, verbatim: Verbatim) -> list[str]:
    """Which of the missing names stand neither in the list nor in a copy, told without reading either again."""
    left = set(missing)
    copied = set(verbatim.ids)
    for message in messages:
        here = left & message.names
        if not here:
            continue
        line = statements.lines.get(message.entry.id, "")
        left -= here if message.entry.id in copied else {name for name in here if name in line}
    if left and statements.old_lines:
        old = "\n".join(statements.old_lines)
        left = {name for name in left if name not in old}
    return [name for name in missing if name in left]


def name_missing(
    statements: Statements, messages: Sequence[Said], missing: Sequence[str], budget: int
) -> tuple[Statements, list[str]]:
    """Names, numbers, paths and links that stand nowhere else, listed behind the message that holds them.

    Newest messages come first; what no longer fits `budget` (tokens) is given back.
    """
    wanted = set(missing)
    lines = dict(statements.lines)
    left = budget
    for message in reversed(messages) if missing else ():
        here = _in_order(wanted & message.names, message.text)[:_NAMED_AT_MOST]
        cost = sum(2 + len(name.encode()) // 3 for name in here) + LINE_TOKENS
        if not here or cost > left:
            continue
        left -= cost
        wanted.difference_update(here)
        lines[message.entry.id] = f"{lines.get(message.entry.id, f'- {message.label}:')} [{', '.join(here)}]"
        if not wanted:
            break
    order = [message.entry.id for message in messages if message.entry.id in lines]
    whole = tuple(id_ for id_ in statements.whole if lines[id_] == statements.lines.get(id_))
    tokens = statements.tokens + budget - left
    longer = Statements({id_: lines[id_] for id_ in order}, statements.old_lines, statements.left_out, whole, tokens)
    return longer, [name for name in missing if name in wanted]


def _in_order(names: Iterable[str], text: str) -> list[str]:
    return sorted(names, key=lambda name: (text.find(name), name))


def repeat_verbatim(messages: Sequence[Said], whole: Sequence[int], budget: int, headings: Headings) -> Verbatim:
    """Copies of what is not whole in the list, newest first by budget (tokens) but in reading order; pastes are not."""
    standing = set(whole)
    chosen: list[Said] = []
    left = budget
    for message in reversed(messages):
        if left <= LINE_TOKENS:
            break
        cost = message.entry.tokens + LINE_TOKENS
        if message.entry.id in standing or message.is_paste or not message.text or cost > left:
            continue
        chosen.append(message)
        left -= cost
    if not chosen:
        return Verbatim(ids=tuple(whole))
    chosen.reverse()
    copies = "\n\n".join(f"{message.label}:\n{message.text}" for message in chosen)
    ids = standing | {message.entry.id for message in chosen}
    return Verbatim(f"{prompts.VERBATIM[headings]}\n\n{copies}", tuple(sorted(ids)), budget - left)
