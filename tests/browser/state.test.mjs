/** Tests of what the page computes without a page. Run by test_state.py with Node, or in Chromium where there is none. */

import { afterCodePoints, codePoints, cutToCodePoints, furtherOn, receive, startRun, startStream } from "./stream.js";
import { applyEvent, applySnapshot, emptyState, textOf, withOlder } from "./store.js";

/** @type {Record<string, () => void>} */
export const tests = {};

const equal = (found, wanted, what = "") => {
  const [one, other] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (one !== other) throw new Error(`${what} expected ${other}, found ${one}`);
};

const message = (id, more = {}) => ({ id, position: id, role: "user", content: `m${id}`, tool_calls: [], status: "complete", is_summary: false, compacted_into: null, retired_at: null, client_id: null, ...more });
const conversation = { id: "c", title: "", epoch: 0, role: "owner", version: 5 };
const snapshot = (more = {}) => ({ conversation, messages: [message(1), message(2, { role: "assistant" })], next: null, turn: null, queue: [], compaction: null, compactions: [], context: { used_tokens: 1 }, people: [], ...more });
const start = (more) => applySnapshot(emptyState(), 5, snapshot(more));
const play = (state, ...events) => events.reduce((before, [type, seq, data]) => applyEvent(before, { type, seq, data }), state);
const delta = (offset, text, more = {}) => ["delta", null, { turn: 1, attempt: 1, message: 4, offset, text, ...more }];
const begin = ["turn_start", 6, { turn: 1, attempt: 1, user_message: 3, message: 4 }];

/** What both states show must be the same: a snapshot read after the event equals the event applied. */
const shows = (state) => ({ messages: state.messages.map(({ id, content, status }) => [id, content, status]), turn: state.turn && [state.turn.id, state.turn.state], queue: state.queue.map((one) => one.turn), texts: [...state.streams].map(([id, one]) => [id, one.text.text]) });

tests["code points, not code units"] = () => {
  equal(codePoints("a😀é"), 3);
  equal(afterCodePoints("a😀b", 2), "b");
  equal(cutToCodePoints("a😀b", 2), "a😀");
  equal(codePoints("\ud800x"), 2, "a lone half counts once");
};

tests["pieces join, repeated ones are dropped"] = () => {
  const run = startRun();
  equal(receive(run, { offset: 0, text: "ab😀" }), "grown");
  equal(receive(run, { offset: 1, text: "b😀" }), "known");
  equal(receive(run, { offset: 2, text: "😀cd" }), "grown");
  equal([run.text, run.length], ["ab😀cd", 5]);
};

tests["a gap is held back until it is filled, in any order"] = () => {
  const text = "The quick 🦊 jumps over the lazy dog — und zurück.";
  const points = Array.from(text);
  for (let seed = 1; seed < 60; seed += 1) {
    const pieces = [];
    for (let at = 0; at < points.length; at += 1 + ((seed * 7 + at) % 5)) pieces.push({ offset: at, text: points.slice(at, at + 6).join("") });
    pieces.sort((one, other) => ((one.offset * seed) % 11) - ((other.offset * seed) % 11));
    const run = startRun();
    for (const piece of pieces) receive(run, piece);
    equal(run.text, text, `seed ${seed}`);
    equal(run.held.length, 0);
  }
};

tests["of the stored and the shown text the longer stays"] = () => {
  const shown = startStream(1, 1, 4, "hello wor");
  shown.text.held.push({ offset: 11, text: "d!" });
  equal(furtherOn(shown, startStream(1, 1, 4, "hello")).text.text, "hello wor");
  equal(furtherOn(shown, startStream(1, 1, 4, "hello worl")).text.text, "hello worl");
  equal(furtherOn(shown, startStream(1, 1, 4, "hello world")).text.text, "hello worldd!".slice(0, 11) + "d!");
  equal(furtherOn(shown, startStream(1, 2, 4, "new")).text.text, "new", "another attempt replaces");
};

tests["a known event is dropped, a gap asks for a snapshot"] = () => {
  const state = start();
  const known = play(state, ["message", 5, { message: message(3) }]);
  equal([known.messages === state.messages, known.seq, known.wishes], [true, 5, [{ type: "version" }]]);
  const gap = play(state, ["message", 8, { message: message(3) }]);
  equal([gap.wishes, gap.messages.length, gap.seq], [[{ type: "snapshot" }], 2, 5]);
};

tests["events before the first snapshot wait for it"] = () => equal(play(emptyState(), begin).turn, null);

tests["an answer: start, pieces, done"] = () => {
  const answering = play(start(), begin, delta(0, "Hel"), delta(3, "lo"));
  const after = start({ messages: [message(1), message(2, { role: "assistant" })], turn: { id: 1, state: "running", attempt: 1, message: 4, text: "Hello", thinking: "" } });
  equal(shows(answering), shows(after));
  const stored = message(4, { role: "assistant", content: "Hello." });
  const done = play(answering, ["turn_done", 7, { turn: 1, attempt: 1, state: "done", message: stored }], delta(5, " late"));
  equal(shows(done), shows(start({ messages: [message(1), message(2, { role: "assistant" }), stored] })));
};

tests["a gap in the pieces asks to sync from where the text ends"] = () => {
  const state = play(start(), begin, delta(0, "ab"), delta(5, "fg"));
  equal(state.wishes, [{ type: "sync", turn: 1, message: 4, offset: 2, thinking_offset: 0 }]);
  equal(textOf(play(state, delta(2, "cde")), 4), "abcdefg");
};

tests["a higher attempt replaces, a lower one is dropped"] = () => {
  const state = play(start(), begin, delta(0, "first"), delta(0, "second", { attempt: 2 }), delta(5, "late"));
  equal(textOf(state, 4), "second");
};

tests["an interruption cuts to the stored length"] = () => {
  const streaming = message(4, { role: "assistant", content: "", status: "streaming" });
  const state = play(start(), begin, ["message", 7, { message: streaming }], delta(0, "ab😀cd"), ["turn_interrupted", 8, { turn: 1, attempt: 1, message: 4, length: 3 }], delta(6, "x"));
  equal([state.messages.at(-1).content, state.messages.at(-1).status, state.turn.state, state.streams.size], ["ab😀", "interrupted", "interrupted", 0]);
};

tests["an error keeps what was received"] = () => {
  const streaming = message(4, { role: "assistant", content: "", status: "streaming" });
  const state = play(start(), begin, ["message", 7, { message: streaming }], delta(0, "half"), ["turn_error", 8, { turn: 1, code: "stream_cut", message: "cut", retryable: true }]);
  equal([state.messages.at(-1).content, state.messages.at(-1).status, state.turn.error.code], ["half", "failed", "stream_cut"]);
};

tests["a snapshot in mid-answer keeps what was shown further"] = () => {
  const answering = play(start(), begin, delta(0, "Hello wor"));
  const again = applySnapshot(answering, 6, snapshot({ turn: { id: 1, state: "running", attempt: 1, message: 4, text: "Hello", thinking: "" } }));
  equal(textOf(again, 4), "Hello wor");
  equal(textOf(play(again, delta(9, "ld")), 4), "Hello world");
};

tests["a second answer in the same conversation is not taken for the first"] = () => {
  const first = play(start(), begin, delta(0, "one"), ["turn_done", 7, { turn: 1, attempt: 1, state: "done", message: message(4, { role: "assistant", content: "one" }) }]);
  const second = play(first, ["turn_start", 8, { turn: 2, attempt: 1, user_message: 5, message: 6 }], delta(0, "two", { turn: 2, message: 6 }));
  equal(textOf(second, 6), "two");
};

tests["retired, compacted and queued messages leave the view"] = () => {
  const state = play(start(), ["message", 6, { message: message(2, { retired_at: "now" }) }], ["message", 7, { message: message(9, { position: null }) }]);
  equal(state.messages.map((one) => one.id), [1]);
};

tests["a summary stands behind the message whose position it shares"] = () => {
  const state = play(start(), ["message", 6, { message: message(3, { position: 1, is_summary: true }) }]);
  equal(state.messages.map((one) => one.id), [1, 3, 2]);
};

tests["the queue follows its event and its turn's start"] = () => {
  const queue = [{ turn: 1, message: message(3, { position: null }), reason: "turn" }];
  const waiting = play(start(), ["queued", 6, { queue }]);
  equal(waiting.queue.length, 1);
  equal(play(waiting, ["turn_start", 7, begin[2]]).queue.length, 0);
};

tests["a compaction: start, progress, ready, done"] = () => {
  const running = play(start(), ["compaction_start", 6, { id: 7, reason: "manual", message_count: 2, blocking: true }], ["compaction_progress", null, { id: 7, stage: "summarize", fraction: 0.4 }]);
  equal([running.compaction.id, running.compaction.fraction, running.compactions.length], [7, 0.4, 1]);
  const ready = play(running, ["compaction_done", 7, { id: 7, success: true, summary_message_id: null }]);
  equal([ready.compaction.state, ready.wishes[0].type], ["ready", "snapshot"]);
  const done = play(running, ["compaction_done", 7, { id: 7, success: true, summary_message_id: 8, compacted_count: 2 }]);
  equal([done.compaction, done.compactions[0].state, done.wishes[0].type], [null, "applied", "snapshot"]);
  const failed = play(running, ["compaction_error", 7, { id: 7, code: "summary_empty", message: "empty", retryable: true }]);
  equal([failed.compaction, failed.compactions[0].state, failed.compactions[0].error.code], [null, "failed", "summary_empty"]);
};

tests["older messages stay after a snapshot of the same epoch only"] = () => {
  const long = start({ messages: [message(4), message(5)], next: "x" });
  const loaded = withOlder(long, [message(2), message(3)], "y");
  const again = applySnapshot(loaded, 6, snapshot({ messages: [message(4), message(5), message(6)], next: "x" }));
  equal([again.messages.map((one) => one.id), again.next], [[2, 3, 4, 5, 6], "y"]);
  const other = applySnapshot(loaded, 6, snapshot({ conversation: { ...conversation, epoch: 1 }, messages: [message(4), message(5)], next: "x" }));
  equal([other.messages.map((one) => one.id), other.next], [[4, 5], "x"]);
};

tests["after a snapshot from a database that went back nothing known counts, and ids come anew"] = () => {
  const before = play(start(), ["message", 6, { message: message(3) }], ["turn_start", 7, { turn: 1, attempt: 1, user_message: 3, message: 4 }], delta(0, "what was lost"), ["turn_done", 8, { turn: 1, attempt: 1, state: "done", message: message(4, { role: "assistant", content: "what was lost" }) }]);
  const restored = applySnapshot(withOlder(before, [message(0)], null), 5, snapshot({ messages: [message(2)], next: "x" }));
  equal([restored.seq, restored.messages.map((one) => one.id), restored.next], [5, [2], "x"]);
  const again = play(restored, ["message", 6, { message: message(3) }], ["turn_start", 7, { turn: 1, attempt: 1, user_message: 3, message: 4 }], delta(0, "said anew"));
  equal(textOf(again, 4), "said anew");
};

tests["who came, went or got another role comes with a snapshot"] = () => {
  const changed = play(start(), ["conversation", 6, { conversation: { ...conversation, title: "new", people: [], role: "" } }]);
  equal([changed.conversation.title, changed.conversation.role, changed.wishes], ["new", "owner", [{ type: "snapshot" }]]);
  equal(play(start(), ["conversation", 6, { conversation: { ...conversation, title: "new" } }]).wishes, []);
};

tests["tool calls and results find their place"] = () => {
  const streaming = message(4, { role: "assistant", content: "", status: "streaming" });
  const state = play(start(), begin, ["message", 7, { message: streaming }], ["tool_call", 8, { turn: 1, message: 4, id: "a", name: "read_file", arguments: "{}" }], ["tool_result", 9, { turn: 1, message: message(5, { role: "tool", tool_call_id: "a" }) }]);
  equal([state.messages.at(-2).tool_calls.length, state.messages.at(-1).role], [1, "tool"]);
};

tests["a call that its message already holds is shown once"] = () => {
  const stored = message(4, { role: "assistant", tool_calls: [{ id: "a", type: "function", function: { name: "read_file", arguments: "{}" } }] });
  const state = play(start(), begin, ["message", 7, { message: stored }], ["tool_call", 8, { turn: 1, message: 4, id: "a", name: "read_file", arguments: "{}" }]);
  equal(state.messages.find((one) => one.id === 4).tool_calls.length, 1);
};

/** @returns {string[]} what failed */
export function run() {
  const failed = [];
  for (const [name, test] of Object.entries(tests)) {
    try {
      test();
    } catch (error) {
      failed.push(`${name}: ${error.stack || error}`);
    }
  }
  return failed;
}
