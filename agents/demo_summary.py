"""The demo model as summariser: nine sections written by code, from what people said and what was done."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from agents.demo_words import clip, is_chinese, links_and_paths, names, sentences
from agents.messages import Message
from agents.tokens import count_text

SECTIONS = 9
_USER_MESSAGES = 5
_HEADING = re.compile(r"^\s*(?:#{1,4}\s*)?(?:\*\*)?([1-9])[.)、．:：]\s*([^\n]{2,80}?)(?:\*\*)?\s*$", re.MULTILINE)
_ASKS = re.compile(r"summar|memory of a conversation|compact|摘要|总结|概括|压缩", re.IGNORECASE)
_FENCED = r"<<<{label} (\w+)>>>\n(.*?)\n<<<END {label} \1>>>"
_ENTRY = re.compile(r"^### #(\d+) (user|assistant|tool|system)\b ?([^\n]*)$", re.MULTILINE)
_LOOSE_ENTRY = re.compile(
    r"^\W{0,4}(user|human|assistant|tool|system|用户|助手)\W{0,4}[:：]\W{0,2}", re.MULTILINE | re.IGNORECASE
)
_CALL = re.compile(r"^\[call ([\w-]+)\((.*)\)\]$", re.MULTILINE)
_WORDS = re.compile(r"at most about (\d+) words")
_MISSING = re.compile(r"missing: ([^\n]+)")
_RULE = re.compile(
    r"\b(must|never|always|only|don['’]?t|do not|should|need|prefer|avoid|make sure|instead|rather|actually|no longer"
    r"|remember|decided?|want|deadline)\b|必须|不要|不能|禁止|一定|总是|始终|只能|应该|需要|记住|改成|改为|而不是|其实|决定|希望",
    re.IGNORECASE,
)
_TROUBLE = re.compile(
    r"\b(errors?|fail(s|ed|ure)?|exception|traceback|bug|broken|wrong|fix(ed)?|crash(es|ed)?)\b|报错|错误|失败|异常|修复|故障",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"\b(todo|later|still|not yet|pending|remaining|next)\b|- \[ \]|待办|稍后|还没|尚未|接下来|下一步", re.IGNORECASE
)
# What each section may take of the whole (percent).
_SHARES = (22, 20, 14, 9, 12, 1, 6, 11, 5)
_LEAST = 60  # and at least (tokens)


@dataclass(frozen=True, slots=True)
class Form:
    """What was asked for: the nine titles, and how long the whole may be (tokens)."""

    titles: tuple[str, ...]
    budget: int
    text: str  # the message that asks
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """One message of the conversation that is summarised."""

    number: int
    role: str
    name: str
    text: str

    @property
    def label(self) -> str:
        return f"#{self.number} {self.name if self.role != 'tool' else ''}".strip()


def form_of(messages: Sequence[Message], max_tokens: int) -> Form | None:
    """The form of a summary that these messages ask for, or None where they ask for something else."""
    for message in reversed(messages):
        if message.role not in ("system", "user"):
            continue
        titles = _titles(message.content)
        if titles and any(_ASKS.search(text[-3000:]) or _ASKS.search(text[:500]) for text in _instructions(messages)):
            last = messages[-1].content
            words = _WORDS.findall(message.content)
            budget = min(max_tokens * 9 // 10, int(words[-1]) * 5 // 4 if words else max_tokens)
            if "half as much" in last[-3000:]:
                budget //= 2
            missing = _MISSING.findall(last[-20_000:]) if last != message.content or "FAULTS" in last else []
            named = tuple(name.strip() for line in missing for name in line.split(", ") if name.strip())
            return Form(titles, budget, message.content, named)
    return None


def summarise(messages: Sequence[Message], form: Form) -> str:
    """The summary, in the language of the conversation and within the form's budget."""
    earlier = _fenced("SUMMARY", form.text)
    lines = _transcript(messages, form)
    source_tokens = count_text("\n".join(line.text for line in lines)) + count_text(earlier)
    budget = max(150, min(form.budget, source_tokens // 3))
    writer = _Writer(lines, _sections_of(earlier, form.titles), form.missing)
    text = writer.write(form.titles, budget)
    while count_text(text) > form.budget and budget > 60:
        budget = budget * 3 // 4
        text = writer.write(form.titles, budget)
    return text


class _Writer:
    """Fills the sections from the lines of a conversation."""

    def __init__(self, lines: Sequence[Line], earlier: dict[int, str], missing: Sequence[str]) -> None:
        self._lines = lines
        self._earlier = earlier
        self._missing = missing
        self._people = [line for line in lines if line.role == "user"]
        self._answers = [line for line in lines if line.role == "assistant" and line.text.strip()]
        self._chinese = is_chinese("\n".join(line.text[:300] for line in self._people[-60:]) or str(earlier))

    def write(self, titles: Sequence[str], budget: int) -> str:
        """All nine sections in order within about `budget` (tokens)."""
        makers: tuple[Callable[[], Iterable[str]], ...] = (
            self._requests,
            self._concepts,
            self._files,
            self._troubles,
            self._solved,
            lambda: (),
            self._pending,
            self._current,
            self._next,
        )
        parts = []
        for index, (title, make) in enumerate(zip(titles, makers, strict=True)):
            body = (
                "-" if index == _USER_MESSAGES else self._body(index, make, max(_LEAST, budget * _SHARES[index] // 100))
            )
            parts.append(f"## {index + 1}. {title}\n{body}")
        return "\n\n".join(parts)

    def _body(self, index: int, make: Callable[[], Iterable[str]], room: int) -> str:
        """As many whole lines as fit `room` (tokens); what the earlier summary said may take half."""
        kept: list[str] = []
        earlier = [line for line in self._earlier.get(index, "").split("\n") if line.strip(" -")]
        room -= _fill(kept, earlier, room // 2 if self._lines else room)
        _fill(kept, (line for line in make() if line not in kept), room)
        return "\n".join(kept) or ("无。" if self._chinese else "None.")

    def _requests(self) -> Iterable[str]:
        if self._people:
            yield f"- {self._people[0].label}: {clip(self._people[0].text, 400)}"
        for line in reversed(self._people[1:]):
            for sentence in sentences(line.text[:4000]):
                if _RULE.search(sentence):
                    yield f"- {line.label}: {clip(sentence, 240)}"

    def _concepts(self) -> Iterable[str]:
        """Names and figures people used, the frequent first, a dozen a line."""
        counted: Counter[str] = Counter()
        for line in self._people:
            counted.update(names(line.text[:20_000]))
        found = list(dict.fromkeys([*self._missing, *(name for name, _ in counted.most_common())]))
        for start in range(0, len(found), 12):
            yield "- " + ", ".join(found[start : start + 12])

    def _files(self) -> Iterable[str]:
        seen: dict[str, str] = {}
        for line in reversed(self._lines):
            for name, arguments in _CALL.findall(line.text):
                for path in links_and_paths(arguments[:2000]):
                    seen.setdefault(path, f"{name}, #{line.number}")
        for line in reversed(self._people):
            for path in links_and_paths(line.text[:20_000]):
                seen.setdefault(path, line.label)
        for path, where in seen.items():
            yield f"- `{path}` ({where})"

    def _troubles(self) -> Iterable[str]:
        for line in reversed(self._lines):
            for sentence in sentences(line.text[:1500])[:12]:
                if _TROUBLE.search(sentence):
                    yield f"- {line.label}: {clip(sentence, 200)}"
                    break

    def _solved(self) -> Iterable[str]:
        for line in reversed(self._answers[:-1]):
            said = sentences(_CALL.sub("", line.text)[:1500])
            if said:
                yield f"- #{line.number}: {clip(said[0], 220)}"

    def _pending(self) -> Iterable[str]:
        for line in reversed(self._people[-12:]):
            for sentence in sentences(line.text[:4000]):
                if _OPEN.search(sentence):
                    yield f"- {line.label}: {clip(sentence, 200)}"

    def _current(self) -> Iterable[str]:
        if self._people:
            yield f"- {self._people[-1].label}: {clip(self._people[-1].text, 300)}"
        if self._answers:
            yield f"- #{self._answers[-1].number}: {clip(_CALL.sub('', self._answers[-1].text), 500)}"
        if calls := [name for line in self._lines[-6:] for name, _ in _CALL.findall(line.text)]:
            yield f"- {'最近的工具' if self._chinese else 'Last tools'}: {', '.join(calls)}"

    def _next(self) -> Iterable[str]:
        if not self._people:
            return
        newest = self._people[-1]
        answered = bool(self._answers) and self._answers[-1].number > newest.number
        if self._chinese:
            state = "已回答，等待下一条消息" if answered else "尚未回答"
            yield f"- 最近的请求 {newest.label}（{state}）：{clip(newest.text, 200)}"
        else:
            state = "answered; wait for the next message" if answered else "not answered yet"
            yield f"- Newest request, {newest.label} ({state}): {clip(newest.text, 200)}"


def _fill(kept: list[str], lines: Iterable[str], room: int) -> int:
    """Adds lines while they fit; what was spent (tokens, at about four bytes each)."""
    spent = 0
    for line in lines:
        cost = len(line.encode()) // 4 + 2
        if spent + cost <= room:
            kept.append(line)
            spent += cost
        elif spent > room * 3 // 4:
            break
    return spent


def _titles(text: str) -> tuple[str, ...]:
    """The last nine titles numbered 1 to 9 in a row, as they are asked for at the end of a prompt."""
    titles: list[str] = []
    for match in reversed(list(_HEADING.finditer(text[-20_000:]))):
        if int(match[1]) == SECTIONS - len(titles):
            titles.append(match[2].strip(" *:："))
        if len(titles) == SECTIONS:
            return tuple(reversed(titles))
    return ()


def _instructions(messages: Sequence[Message]) -> list[str]:
    return [message.content for message in messages if message.role == "system"] + [messages[-1].content]


def _fenced(label: str, text: str) -> str:
    found = re.search(_FENCED.format(label=label), text, re.DOTALL)
    return found[2] if found else ""


def _transcript(messages: Sequence[Message], form: Form) -> list[Line]:
    """The conversation to summarise: fenced in the prompt, else the messages before the one that asks."""
    if fenced := _fenced("TRANSCRIPT", form.text):
        return _lines(fenced)
    before = [message for message in messages if message.role != "system" and message.content != form.text]
    if len(before) > 1:
        return [Line(at, message.role, "", message.content) for at, message in enumerate(before, start=1)]
    return _lines(form.text)


def _lines(text: str) -> list[Line]:
    if found := list(_ENTRY.finditer(text)):
        bodies = _between(found, text)
        return [
            Line(int(match[1]), match[2], match[3].strip(), body) for match, body in zip(found, bodies, strict=True)
        ]
    roles = {"human": "user", "用户": "user", "助手": "assistant"}
    loose = list(_LOOSE_ENTRY.finditer(text))
    return [
        Line(at, roles.get(match[1].lower(), match[1].lower()), "", body)
        for at, (match, body) in enumerate(zip(loose, _between(loose, text), strict=True), start=1)
    ] or [Line(1, "user", "", text)]


def _between(found: Sequence[re.Match[str]], text: str) -> list[str]:
    """What stands behind each match, up to the next one."""
    ends = [match.start() for match in found[1:]] + [len(text)]
    return [text[match.end() : end].strip() for match, end in zip(found, ends, strict=False)]


def _sections_of(earlier: str, titles: Sequence[str]) -> dict[int, str]:
    """The bodies of an earlier summary under the same titles."""
    found = [match for match in _HEADING.finditer(earlier) if match[2].strip(" *:：") in titles]
    bodies = _between(found, earlier)
    return {titles.index(match[2].strip(" *:：")): body for match, body in zip(found, bodies, strict=True)}
