"""The nine sections of a summary: reading them out of what a model wrote, writing them in their fixed form."""

from __future__ import annotations

import re
from collections.abc import Mapping

from compaction import prompts
from compaction.language import Headings

# Only tags that open a line count: a summary may speak of such tags in its prose.
_TAGS = "think|thinking|thought|reasoning|analysis|scratchpad|reflection"
_REASONING = re.compile(rf"^[ \t]*<({_TAGS})\b[^>\n]*>.*?(?:</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL | re.MULTILINE)
_CLOSED_ONLY = re.compile(rf"^[ \t]*</({_TAGS})\s*>", re.IGNORECASE | re.MULTILINE)
_WRAPPER = re.compile(r"\A\s*<summary>\s*(.*?)\s*(?:</summary>)?\s*\Z", re.IGNORECASE | re.DOTALL)
_FENCE = re.compile(r"\A\s*(`{3,}|~{3,})[a-z]*[ \t]*\n(.*?)\n?\1\s*\Z", re.IGNORECASE | re.DOTALL)

# Numbers and marks before a heading's words; what may follow them.
_LEAD = re.compile(r"[\s#*_\d.)(、．:：-]*(?:[一二三四五六七八九][、.．]\s*)?")
_TAIL = " \t\r#*_:：."
_LONGEST_HEADING = 80
_INDEX = {heading.casefold(): index for headings in prompts.SECTIONS.values() for index, heading in enumerate(headings)}


def strip_reasoning(text: str) -> str:
    """What is left of a model's answer without thinking, scratchpads and wrappers around the whole.

    Reasoning that never ended takes everything after it along, so that it is never taken for the summary. Where only
    the end of the reasoning is marked, what stands before it goes.
    """
    text = _REASONING.sub("", text)
    closings = list(_CLOSED_ONLY.finditer(text))
    if closings:
        text = text[closings[-1].end() :]
    for wrapper, group in ((_WRAPPER, 1), (_FENCE, 2), (_WRAPPER, 1)):
        if match := wrapper.match(text):
            text = match.group(group)
    return text.strip()


def parse(text: str) -> dict[int, str]:
    """The bodies of the sections found, by index. Numbering, marks and case of headings do not matter."""
    places: list[tuple[int, int, int]] = []
    start = 0
    for line in text.split("\n"):
        index = _heading(line)
        if index is not None:
            places.append((index, start, start + len(line)))
        start += len(line) + 1
    bodies: dict[int, str] = {}
    for number, (index, _, end) in enumerate(places):
        until = places[number + 1][1] if number + 1 < len(places) else len(text)
        body = text[end:until].strip()
        bodies[index] = f"{bodies[index]}\n{body}".strip() if index in bodies else body
    return bodies


def _heading(line: str) -> int | None:
    """Which section a line is the heading of."""
    if len(line) > _LONGEST_HEADING:
        return None
    lead = _LEAD.match(line)
    words = line[lead.end() if lead else 0 :].rstrip(_TAIL)
    return _INDEX.get(" ".join(words.split()).casefold())


def render(bodies: Mapping[int, str], headings: Headings) -> str:
    """All nine sections in order; empty ones say so."""
    return "\n\n".join(
        f"## {index + 1}. {heading}\n{bodies.get(index, '').strip() or prompts.NOTHING[headings]}"
        for index, heading in enumerate(prompts.SECTIONS[headings])
    )


def missing(bodies: Mapping[int, str], headings: Headings) -> list[str]:
    """The headings a summary lacks; the section that code fills in is never asked of a model."""
    return [
        heading
        for index, heading in enumerate(prompts.SECTIONS[headings])
        if index != prompts.USER_MESSAGES and not bodies.get(index, "").strip()
    ]
