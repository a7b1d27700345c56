"""What the fast provider should do with one request: read from the model's name, or handed in by a test."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

_KNOB = re.compile(r"([a-z]+)(\d+)?(?:x(\d+))?\Z")


@dataclass(frozen=True, slots=True)
class Play:
    """One answer. Every knob but `text`, `calls` and `error_body` can be written into a model's name.

    A model's name is knobs joined by dashes, `mock-ttft20-tps50-n200`; unknown words are ignored, so that
    `gpt-4o-tps50` is a name too. Token i is the text " k<i>@<us>", us = CLOCK_MONOTONIC (microseconds) when written.

        ttft20      first token after 20 ms            tps50     tokens a second (0: as fast as the socket takes them)
        n200        how many tokens                    w8        filler characters added to each token
        think10     ten pieces of reasoning first      prose     readable sentences instead of numbered tokens
        err429      answer with this status            err503x2  only the first two requests of this name and question
        errctx      context exceeded, whatever came    ctx8000   context exceeded above 8,000 tokens (characters / 4)
        hang        never answer                       hang50    silent after 50 tokens, socket open
        cut50       socket closed after 50 tokens      fail50    an error event in the stream after 50 tokens
        tool2       two parallel tool calls            rounds3   three rounds of them before the answer (default 1)
        nousage     no usage, even when asked          exact     count prompt tokens with tiktoken instead of chars / 4
        strict      refuse what strict providers do: a call without its result, a result without its call
        sumwait500  a summary takes 500 ms             sumempty, sumcut, sumerr, sumjunk: ways a summariser goes wrong
    """

    ttft: float = 20.0  # ms
    tps: float = 50.0
    n: int = 200
    w: int = 0
    think: int = 0
    prose: bool = False
    status: int = 0
    failures: int = -1  # how many requests fail; -1: all
    ctx: int = -1
    hang: int = -1
    cut: int = -1
    fail: int = -1
    tool: int = 0
    rounds: int = 1
    usage: bool = True
    exact: bool = False
    strict: bool = False
    sumwait: int = 0  # ms
    summary: str = ""  # "", empty, cut, err, junk
    retry_after: str = "1"
    finish: str = "stop"
    text: str | None = None
    calls: tuple[tuple[str, str], ...] = ()  # (name, arguments) of explicit tool calls
    error_body: dict[str, Any] | None = field(default=None, hash=False)


DEFAULT = Play()


def read(model: str, default: Play = DEFAULT) -> Play:
    """The play a model's name asks for."""
    changes: dict[str, Any] = {}
    for word in model.split("-"):
        if match := _KNOB.match(word):
            changes.update(_knob(match[1], int(match[2]) if match[2] else None, int(match[3]) if match[3] else None))
    return replace(default, **changes) if changes else default


def _knob(name: str, number: int | None, times: int | None) -> dict[str, Any]:
    if name in ("prose", "exact", "strict") and number is None:
        return {name: True}
    if name == "nousage":
        return {"usage": False}
    if name == "errctx":
        return {"ctx": 0}
    if name == "hang":
        return {"hang": number or 0}
    if name in ("sumempty", "sumcut", "sumerr", "sumjunk"):
        return {"summary": name[3:]}
    if number is None:
        return {}
    if name == "err":
        return {"status": number, "failures": -1 if times is None else times}
    if name in ("ttft", "tps", "n", "w", "think", "ctx", "cut", "fail", "tool", "rounds", "sumwait"):
        return {name: number}
    return {}
