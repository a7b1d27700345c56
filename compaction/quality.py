"""Whether a summary counts. Every figure is stored with the run and shown; what fails names what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from compaction import prompts, sections
from compaction.identifiers import identifiers, reachable
from compaction.language import Headings, same_language
from compaction.masking import mask
from compaction.statements import Said

REACHABLE_PERCENT = 90
MISSING_SHOWN = 40

_REFUSAL = re.compile(
    r"\A\W*(?:i(?:'|’)?m (?:very )?sorry|sorry|i (?:can(?:'|’)?t|cannot|can not|am unable|won(?:'|’)?t|will not)"
    r"|as an ai|unfortunately|i must decline|抱歉|很抱歉|对不起|我无法|我不能|作为(?:一个|一名)?(?:ai|人工智能))",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"\A\W*(?:<!doctype|<html|error\b|\{\s*\"(?:error|detail|message|code)\"|traceback \(most|http[ /]?\d|\d{3} [a-z]"
    r"|internal server error|bad gateway|service unavailable|too many requests|rate limit|upstream"
    r"|请求失败|错误|服务器)",
    re.IGNORECASE,
)
_SHORT = 1_500  # characters; a refusal or an error text is not longer


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a draft: the code of the failure, and what to tell the model that mends it."""

    code: str
    repair: str
    figures: tuple[tuple[str, Any], ...] = ()
    lost: tuple[str, ...] = ()  # names that cannot be reached


@dataclass(frozen=True, slots=True)
class Quality:
    """The figures of a run (shares in percent, sizes in tokens); stored and shown as they are."""

    sections: int = 0
    sections_missing: tuple[str, ...] = ()
    ratio_percent: int = 0  # the prefix against what it stands for
    names: int = 0
    reachable_percent: int = 100
    written_percent: int = 100  # what the model's own words hold, before code added to them
    missing: tuple[str, ...] = ()
    repaired: bool = False
    repaired_for: str = ""

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def read_draft(
    text: str, finish_reason: str, headings: Headings, conversation: str
) -> tuple[dict[int, str], Fault | None]:
    """The sections of a draft, and the first thing that keeps it from being a summary at all."""
    if finish_reason == "length":
        return {}, Fault("summary_cut_off", "It was cut off before its end. Write at most half as much.")
    if finish_reason == "content_filter":
        return {}, Fault("summary_refused", "It was withheld. Report neutrally what was said and done.")
    bare = sections.strip_reasoning(text)
    if not bare:
        return {}, Fault("summary_empty", "It was empty.")
    bodies = sections.parse(bare)
    missing = sections.missing(bodies, headings)
    if len(missing) > len(prompts.SECTIONS[headings]) // 2 and len(bare) < _SHORT:
        if _ERROR.match(bare):
            return bodies, Fault("summary_is_error", "It was an error text, not a summary.")
        if _REFUSAL.match(bare):
            return bodies, Fault("summary_refused", "It declined. Only report what the transcript holds.")
    if missing:
        named = ", ".join(missing)
        return bodies, Fault(
            "summary_incomplete", f"These sections are missing or empty: {named}", (("missing", named),)
        )
    prose = "\n".join(body for index, body in bodies.items() if index != prompts.USER_MESSAGES)
    if not same_language(conversation, prose):
        return bodies, Fault(
            "summary_wrong_language", "It is not written in the language people use in the transcript."
        )
    return bodies, None


def names_of(messages: Sequence[Said]) -> list[str]:
    """The names, numbers, paths and links people's messages hold, each once, in the order they came up."""
    found: dict[str, None] = {}
    for message in messages:
        found.update(dict.fromkeys(sorted(message.names)))
    return list(found)


def lost_facts(
    wanted: Sequence[str], text: str, find: Callable[[str], set[str]] = identifiers
) -> tuple[int, list[str]]:
    """Share of the wanted names that stand in a text (percent), and those that do not. `find` as in `reachable`."""
    if not wanted:
        return 100, []
    there, missing = reachable(wanted, text, find)
    return there * 100 // len(wanted), missing


def reachable_share(wanted: Sequence[str], missing: Sequence[str]) -> tuple[int, Fault | None]:
    """Share of the wanted names that did not get lost (percent), and the fault where it is too small."""
    percent = (len(wanted) - len(missing)) * 100 // len(wanted) if wanted else 100
    if percent >= REACHABLE_PERCENT:
        return percent, None
    return percent, _lost(missing, percent)


def _lost(missing: Sequence[str], percent: int) -> Fault:
    named = ", ".join(missing[:MISSING_SHOWN]) or "many names, numbers, paths and links"
    return Fault("summary_lost_facts", f"These are missing: {named}", (("percent", percent),), tuple(missing))


def without_secrets(fault: Fault, messages: Sequence[Said]) -> Fault:
    """The fault as it may leave for another provider: of what is missing, it names only what masking left readable."""
    if fault.code != "summary_lost_facts":
        return fault
    readable = mask("\n".join(message.text for message in messages))
    return _lost([name for name in fault.lost if name in readable], dict(fault.figures)["percent"])
