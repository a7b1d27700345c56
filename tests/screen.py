"""What a browser shows of a conversation: a snapshot and the events since, as `static/js/store.js` keeps them.

Written a second time on purpose, in Python and without a page, so that what any client shows can be compared with the
database. Pure: `apply` takes an envelope and returns what the client has to ask for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

JSON = dict[str, Any]
Wish = Literal["snapshot", "sync", "version"]


@dataclass(slots=True)
class Run:
    """A text that arrives in pieces. Offsets count code points, as Python's strings do."""

    text: str = ""
    held: list[tuple[int, str]] = field(default_factory=list)
    doubled: int = 0  # code points that came although they were there already

    def receive(self, offset: int, text: str) -> bool:
        """Take a piece in; False where one before it is missing."""
        if offset > len(self.text):
            self.held.append((offset, text))
            self.held.sort()
            return False
        known = len(self.text) - offset
        if self.text[offset:][: len(text)] != text[:known]:
            raise AssertionError(f"at {offset} came {text[:known][:80]!r}, shown was {self.text[offset:][:80]!r}")
        self.doubled += min(known, len(text))
        self.text += text[known:]
        while self.held and self.held[0][0] <= len(self.text):
            start, piece = self.held.pop(0)
            self.text += piece[len(self.text) - start :]
        return True


@dataclass(slots=True)
class Stream:
    """One answer being written: keyed by its message, owned by an attempt of a turn."""

    turn: int
    attempt: int
    message: int
    content: Run = field(default_factory=Run)
    thinking: Run = field(default_factory=Run)


@dataclass(slots=True)
class Screen:
    """What is on the page. `doubled` counts code points that were sent twice, `gaps` holes that had to be asked for."""

    seq: int | None = None
    conversation: JSON = field(default_factory=dict)
    messages: dict[int, JSON] = field(default_factory=dict)
    older: str | None = None
    turn: JSON | None = None
    queue: list[JSON] = field(default_factory=list)
    compaction: JSON | None = None
    compactions: dict[int, JSON] = field(default_factory=dict)
    context: JSON = field(default_factory=dict)
    people: list[JSON] = field(default_factory=list)
    streams: dict[int, Stream] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    gaps: int = 0
    snapshots: int = 0

    # What a person sees

    def shown(self) -> list[tuple[int, str, str]]:
        """(id, role, text) of everything on the page, in reading order."""
        rows = sorted(self.messages.values(), key=lambda row: (row["position"], row["is_summary"], row["id"]))
        stored = [(row["id"], row["role"], self.text_of(row["id"])) for row in rows]
        being_written = sorted(set(self.streams) - set(self.messages))
        return stored + [(message, "assistant", self.text_of(message)) for message in being_written]

    def text_of(self, message: int) -> str:
        if stream := self.streams.get(message):
            return stream.content.text
        return str(self.messages.get(message, {}).get("content", ""))

    def knows(self, client_id: str) -> bool:
        """Whether a message of this page is among the messages or in the queue."""
        queued = (one["message"] or {} for one in self.queue)
        return any(row.get("client_id") == client_id for row in (*self.messages.values(), *queued))

    @property
    def is_idle(self) -> bool:
        """Nothing runs and nothing waits."""
        running = self.turn is not None and self.turn.get("state") == "running"
        return not running and not self.queue and self.compaction is None

    @property
    def answers(self) -> list[str]:
        return [text for _, role, text in self.shown() if role == "assistant"]

    # What arrives

    def apply(self, envelope: JSON) -> Wish | None:
        """Take an event in. Returns what the client has to ask for."""
        kind, seq, content = envelope["type"], envelope["seq"], envelope["data"]
        if kind == "snapshot":
            self._snapshot(seq, content)
            return None
        if self.seq is None:
            return None
        if seq is not None:
            if seq <= self.seq:
                return "version"
            if seq > self.seq + 1:
                self.gaps += 1
                return "snapshot"
        step = getattr(self, f"_{kind}", None)
        wish: Wish | None = step(content) if step else None
        if seq is not None:
            self.seq = seq
        return wish

    def _snapshot(self, seq: int, content: JSON) -> None:
        if self.seq is not None and seq < self.seq:  # the database went back: ids are given anew
            self.streams, self.ended = {}, {}
        before = dict(self.streams)
        self.snapshots += 1
        self.seq = seq
        self.conversation = content["conversation"]
        self.messages = {row["id"]: row for row in content["messages"]}
        self.older = content["next"]
        self.turn, self.queue = content["turn"], content["queue"]
        self.compaction = content["compaction"]
        self.compactions = {row["id"]: row for row in content["compactions"]}
        self.context, self.people = content["context"], content["people"]
        self.streams = {}
        turn = self.turn
        if turn and turn["state"] == "running" and turn["message"] is not None:
            stored = Stream(turn["id"], turn["attempt"], turn["message"])
            stored.content.text, stored.thinking.text = turn["text"], turn["thinking"]
            self.streams[turn["message"]] = _further_on(before.get(turn["message"]), stored)

    def _message(self, content: JSON) -> None:
        self._put(content["message"])

    def _tool_result(self, content: JSON) -> None:
        self._put(content["message"])

    def _turn_start(self, content: JSON) -> None:
        shown = self.streams.get(content["message"])
        if shown is None or shown.attempt < content["attempt"]:
            self.streams[content["message"]] = Stream(content["turn"], content["attempt"], content["message"])
        self.turn = {
            "id": content["turn"],
            "state": "running",
            "attempt": content["attempt"],
            "message": content["message"],
            "error": None,
        }
        self.queue = [waiting for waiting in self.queue if waiting["turn"] != content["turn"]]

    def _delta(self, content: JSON) -> Wish | None:
        return self._piece(content, "content")

    def _thinking_delta(self, content: JSON) -> Wish | None:
        return self._piece(content, "thinking")

    def _piece(self, content: JSON, part: Literal["content", "thinking"]) -> Wish | None:
        if self.ended.get(content["turn"], -1) >= content["attempt"]:
            return None
        stored = self.messages.get(content["message"])
        if stored and stored["status"] != "streaming":
            return None
        stream = self.streams.get(content["message"])
        if stream and content["attempt"] < stream.attempt:
            return None
        if stream is None or content["attempt"] > stream.attempt:
            stream = Stream(content["turn"], content["attempt"], content["message"])
            self.streams[content["message"]] = stream
            if self.turn and self.turn["id"] == content["turn"]:
                self.turn = {**self.turn, "message": content["message"], "attempt": content["attempt"]}
        if getattr(stream, part).receive(content["offset"], content["text"]):
            return None
        self.gaps += 1
        return "sync"

    def _turn_done(self, content: JSON) -> None:
        self._end(content["turn"], content["attempt"])
        if content["message"]:
            self._put(content["message"])
        if self.turn is None or self.turn["id"] == content["turn"]:
            self.turn = None if content["state"] == "done" else {**(self.turn or {}), "state": content["state"]}

    def _turn_interrupted(self, content: JSON) -> Wish | None:
        text = self.text_of(content["message"])[: content["length"]]
        self._end(content["turn"], content["attempt"])
        self.turn = {**(self.turn or {}), "id": content["turn"], "state": "interrupted", "message": content["message"]}
        stored = self.messages.get(content["message"])
        if stored and len(text) == content["length"]:
            self._put({**stored, "status": "interrupted", "content": text})
            return None
        return "snapshot" if content["message"] is not None else None

    def _turn_error(self, content: JSON) -> None:
        running = self.turn["message"] if self.turn and self.turn["id"] == content["turn"] else None
        stored = self.messages.get(running) if running is not None else None
        if stored and stored["status"] == "streaming":
            text = self.text_of(stored["id"])
            self._put({**stored, "status": "failed", "content": text})
        self._end(content["turn"], self.turn["attempt"] if self.turn else 0)
        error = {name: content[name] for name in ("code", "message", "retryable")}
        self.turn = {**(self.turn or {"id": content["turn"]}), "state": "failed", "error": error}

    def _queued(self, content: JSON) -> None:
        self.queue = content["queue"]

    def _token_update(self, content: JSON) -> None:
        self.context = content["context"]

    def _presence(self, content: JSON) -> None:
        self.people = content["people"]

    def _conversation(self, content: JSON) -> Wish | None:
        role = self.conversation.get("role")
        self.conversation = {**self.conversation, **content["conversation"], "role": role}
        return "snapshot" if "people" in content["conversation"] else None

    def _compaction_start(self, content: JSON) -> None:
        card = {
            "state": "running",
            "stage": "",
            "fraction": 0.0,
            "compacted_count": content["message_count"],
            **content,
        }
        self.compactions.setdefault(content["id"], card)
        self.compaction = self.compactions[content["id"]]

    def _compaction_progress(self, content: JSON) -> None:
        self._change(content["id"], {"state": "running", **content})

    def _compaction_done(self, content: JSON) -> Wish:
        state = "ready" if content["summary_message_id"] is None else "applied"
        self._change(content["id"], {**content, "state": state})
        return "snapshot"

    def _compaction_error(self, content: JSON) -> Wish:
        state = "cancelled" if content["code"] == "cancelled" else "failed"
        self._change(content["id"], {"state": state, "error": content})
        return "snapshot"

    def _compaction_skipped(self, content: JSON) -> Wish:
        return "snapshot"

    def _compaction_undone(self, content: JSON) -> Wish:
        self._change(content["id"], {"state": "undone"})
        return "snapshot"

    # Parts

    def _put(self, row: JSON) -> None:
        self.messages.pop(row["id"], None)
        if row["position"] is not None and not row["retired_at"] and row["compacted_into"] is None:
            self.messages[row["id"]] = row
        if row["status"] != "streaming":
            self.streams.pop(row["id"], None)
        if row["position"] is not None:
            self.queue = [one for one in self.queue if (one["message"] or {}).get("id") != row["id"]]

    def _end(self, turn: int, attempt: int) -> None:
        self.ended[turn] = attempt
        self.streams.clear()

    def _change(self, compaction: int, change: JSON) -> None:
        self.compactions[compaction] = {**self.compactions.get(compaction, {"id": compaction}), **change}
        is_open = (row for row in self.compactions.values() if row["state"] in ("queued", "running", "ready"))
        self.compaction = next(is_open, None)


def _further_on(shown: Stream | None, stored: Stream) -> Stream:
    """The stored text and what was shown of the same attempt are one text: the longer is further on."""
    if shown is None or (shown.attempt, shown.turn) != (stored.attempt, stored.turn):
        return stored
    for name in ("content", "thinking"):
        run, other = getattr(shown, name), getattr(stored, name)
        if len(other.text) > len(run.text):
            run.receive(len(run.text), other.text[len(run.text) :])
    return shown
