"""The summary the fast provider writes when it is asked for one: nine sections that quote the transcript's names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from compaction.identifiers import identifiers
from compaction.prompts import SECTIONS

_TRANSCRIPT = re.compile(r"<<<(?:TRANSCRIPT|SUMMARY) (\w+)>>>\n(.*?)\n<<<END (?:TRANSCRIPT|SUMMARY) \1>>>", re.DOTALL)
_FAULTS = re.compile(r"<<<FAULTS (\w+)>>>\n(.*?)\n<<<END FAULTS \1>>>", re.DOTALL)
_TURN = re.compile(r"^### #(\d+) (\w+)[^\n]*\n", re.MULTILINE)
_CHARACTERS_PER_TOKEN = 3
_QUOTED = 300  # characters of a quoted message


def is_summary_request(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether these messages ask for a summary in the nine sections; a request that only holds one does not."""
    return any(
        "<<<TRANSCRIPT " in content and f"## 9. {headings[8]}" in content and f"## 1. {headings[0]}" in content
        for message in messages
        if message.get("role") == "user" and isinstance(content := message.get("content"), str)
        for headings in SECTIONS.values()
    )


def write(messages: Sequence[dict[str, Any]], max_tokens: int) -> str:
    """A faithful summary of at most about `max_tokens` tokens."""
    asked = "\n".join(message["content"] for message in messages if isinstance(message.get("content"), str))
    headings = SECTIONS["zh"] if f"## 9. {SECTIONS['zh'][8]}" in asked else SECTIONS["en"]
    spoken = _spoken(asked)
    users = [text for role, text in spoken if role == "user"] or [text for _, text in spoken] or ["-"]
    last = spoken[-1][1] if spoken else "-"
    room = max_tokens * _CHARACTERS_PER_TOKEN - 6 * _QUOTED
    names = _names(asked, users, max(0, room))
    bodies = (
        "\n".join(f"- {_quote(text)}" for text in users[:3]),
        f"- {names}",
        f"- {' '.join(name for name in names.split(', ') if '/' in name or '.' in name) or '-'}"[: _QUOTED * 2],
        f"- {_quote(users[len(users) // 2])}",
        f"- {_quote(users[-1])}",
        "-",
        f"- {_quote(users[-1])}",
        f"- {_quote(last)}",
        f"- {_quote(users[-1])}",
    )
    return "\n\n".join(f"## {i}. {heading}\n{bodies[i - 1]}" for i, heading in enumerate(headings, start=1))


def _spoken(asked: str) -> list[tuple[str, str]]:
    """(role, text) of the transcript's messages; an earlier summary counts as what people said."""
    spoken: list[tuple[str, str]] = []
    for _, body in _TRANSCRIPT.findall(asked):
        starts = list(_TURN.finditer(body))
        if not starts:
            spoken.append(("user", body))
        for number, start in enumerate(starts):
            end = starts[number + 1].start() if number + 1 < len(starts) else len(body)
            spoken.append((start[2], body[start.end() : end].strip()))
    return [(role, text) for role, text in spoken if text]


def _names(asked: str, users: Sequence[str], room: int) -> str:
    """What a repair names first, then the names of people's messages, newest last, as many as there is room for."""
    found: dict[str, None] = {}
    for _, faults in _FAULTS.findall(asked):
        found.update(dict.fromkeys(sorted(identifiers(faults))))
    for text in users:
        found.update(dict.fromkeys(sorted(identifiers(text))))
    kept, used = [], 0
    for name in found:
        used += len(name) + 2
        if used > room:
            break
        kept.append(name)
    return ", ".join(kept) or "-"


def _quote(text: str) -> str:
    return " ".join(text.split())[:_QUOTED] or "-"
