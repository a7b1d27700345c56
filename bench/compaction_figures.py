"""What one compaction does to real conversations, by strategy: python -m bench.compaction_figures

The summaries are written by the offline demo model, so that the figures can be had again anywhere; the time is what the
engine takes beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.nested import SHARED, demo_model, without_project

CASES = (("pi_sessions", 128_000), ("pi_sessions", 200_000), ("beam_100k", 128_000), ("beam_1m", 1_000_000))
_ROW = "{:12} {:>9} {:13} {:>8} {:>8} {:>8} {:>7} {:>9} {:>9} {:>7}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="the folder that holds transcripts/")
    options = parser.parse_args()
    without_project()
    print(
        _ROW.format("file", "window", "strategy", "before", "after", "covered", "kept", "requests", "reachable", "ms")
    )
    for name, window in CASES:
        path = options.data / "transcripts" / f"{name}.jsonl"
        if not path.exists():
            sys.exit(f"{path} is not there: the real transcripts are not part of a plain clone")
        with path.open(encoding="utf-8") as lines:
            for row in _compact(json.loads(next(lines)), window):
                print(_ROW.format(name, f"{window:,}", *row))


def _compact(conversation: dict[str, Any], window: int) -> Iterator[tuple[str, ...]]:
    """One row for each strategy: the conversation up to where the window would be full, compacted once."""
    from agents.messages import Message, ToolCall
    from agents.tokens import count_message
    from compaction.engine import EngineSettings, compact
    from compaction.strategies import strategies
    from compaction.transcript import Entry, Transcript

    entries: list[Entry] = []
    for at, given in enumerate(conversation["messages"], start=1):
        message = Message(
            role=given["role"],
            content=given["content"] or "",
            tool_calls=tuple(ToolCall.from_openai(call) for call in given.get("tool_calls") or ()),
            tool_call_id=given.get("tool_call_id") or "",
            name=given.get("name") or "",
        )
        entries.append(Entry(at, at, message, count_message(message)))
    transcript = Transcript(live=tuple(_until(entries, EngineSettings(window).thresholds.trigger)))
    for each in strategies():
        asked = 0.0

        def summarise(request: Any) -> Any:
            nonlocal asked
            began = time.process_time()
            reply = demo_model(request)
            asked += time.process_time() - began
            return reply

        began = time.process_time()
        plan = compact(transcript, EngineSettings(window, strategy=each.name, reason="manual"), summarise)
        took = time.process_time() - began - asked
        yield (
            each.name,
            f"{plan.tokens_before:,}",
            f"{plan.tokens_after:,}",
            f"{len(plan.covered):,}",
            f"{len(plan.kept):,}",
            f"{plan.requests}",
            f"{plan.quality['reachable_percent']} %",
            f"{took * 1000:.0f}",
        )


def _until(entries: list[Any], trigger: int) -> Iterator[Any]:
    """The beginning of a conversation, up to the end of the turn or tool round in which the trigger is reached."""
    tokens = 0
    for at, entry in enumerate(entries):
        tokens += entry.tokens
        yield entry
        is_boundary = at + 1 == len(entries) or entries[at + 1].message.role != "tool"
        if tokens >= trigger and is_boundary:
            return


if __name__ == "__main__":
    main()
