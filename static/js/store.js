/**
 * The state of one conversation: a snapshot and the events since. Pure functions, no DOM: `applyEvent(state, envelope)`
 * gives the next state, so that "snapshot before + event = snapshot after" can be tested.
 */

import { cutToCodePoints, furtherOn, receive, startStream } from "./stream.js";

/** @typedef {Record<string, any>} Message */
/** @typedef {{type: string, conversation?: string, seq: number | null, data: any}} Envelope */
/** @typedef {{type: "snapshot"} | {type: "version"} | {type: "sync", turn: number, message: number, offset: number, thinking_offset: number}} Wish */
/**
 * @typedef {object} State
 * @property {number | null} seq version of the conversation that is shown; null before the first snapshot
 * @property {any} conversation
 * @property {Message[]} messages the compacted view as far as it is loaded, in reading order
 * @property {string | null} next cursor to older messages
 * @property {any} turn the newest turn while it runs, or that ended otherwise than done
 * @property {any[]} queue
 * @property {any} compaction the open run
 * @property {any[]} compactions cards, in the order in which they were asked for
 * @property {any} context
 * @property {any} current
 * @property {any[]} people
 * @property {Map<number, import("./stream.js").Stream>} streams answers being written, by message
 * @property {Map<number, number>} ended attempts that have ended, by turn: late pieces of them are dropped
 * @property {Wish[]} wishes what the page has to ask the server for
 */

/** @returns {State} */
export function emptyState() {
  return {
    seq: null,
    conversation: null,
    messages: [],
    next: null,
    turn: null,
    queue: [],
    compaction: null,
    compactions: [],
    context: null,
    current: null,
    people: [],
    streams: new Map(),
    ended: new Map(),
    wishes: [],
  };
}

/** Reading order: (position, is_summary, id). @param {Message} one @param {Message} other */
export function inOrder(one, other) {
  return (
    (one.position ?? Infinity) - (other.position ?? Infinity) ||
    Number(one.is_summary) - Number(other.is_summary) ||
    one.id - other.id
  );
}

/** Whether the compacted view shows it. @param {Message} message */
export const isLive = (message) => message.position != null && !message.retired_at && message.compacted_into == null;

/**
 * A new snapshot. Older messages that the reader had loaded stay, where the history before it is still the same. One
 * that is older than what is shown comes from a database that went back (restored, or failed over): ids are given anew
 * there, so nothing of what was known counts any more.
 * @param {State} known @param {number} seq @param {any} data
 * @returns {State}
 */
export function applySnapshot(known, seq, data) {
  const state = known.seq != null && seq < known.seq ? { ...emptyState(), current: known.current } : known;
  const same = state.conversation?.id === data.conversation.id && state.conversation.epoch === data.conversation.epoch;
  const first = data.messages[0]?.position ?? Infinity;
  const older = same ? state.messages.filter((message) => message.position < first) : [];
  const joined = older.length > 0 && state.messages.some((message) => message.id === data.messages[0]?.id);
  const streams = openStreams(state, data);
  return {
    ...emptyState(),
    seq,
    conversation: data.conversation,
    messages: [...(joined ? older : []), ...data.messages].sort(inOrder),
    next: joined ? state.next : data.next,
    turn: data.turn,
    queue: data.queue,
    compaction: data.compaction,
    compactions: data.compactions,
    context: data.context,
    current: state.current,
    people: data.people,
    streams,
    ended: state.ended,
  };
}

/** @param {State} state @param {any} data */
function openStreams(state, data) {
  const streams = new Map();
  const turn = data.turn;
  if (turn?.state === "running" && turn.message != null) {
    const stored = startStream(turn.id, turn.attempt, turn.message, turn.text, turn.thinking);
    streams.set(turn.message, furtherOn(state.streams.get(turn.message), stored));
  }
  return streams;
}

/** @type {Record<string, (state: State, data: any) => State>} */
const STEPS = {
  message: (state, data) => withMessage(state, data.message),
  turn_start: turnStart,
  delta: (state, data) => piece(state, data, "text"),
  thinking_delta: (state, data) => piece(state, data, "thinking"),
  tool_call: toolCall,
  tool_result: (state, data) => withMessage(state, data.message),
  turn_done: turnDone,
  turn_interrupted: turnInterrupted,
  turn_error: turnError,
  queued: (state, data) => ({ ...state, queue: data.queue }),
  token_update: (state, data) => ({ ...state, context: data.context, current: data.current }),
  presence: (state, data) => ({ ...state, people: data.people }),
  conversation: conversationChanged,
  compaction_start: compactionStart,
  compaction_progress: (state, data) => changeCompaction(state, data.id, { state: "running", ...data }),
  compaction_done: compactionDone,
  compaction_error: (state, data) =>
    wish(changeCompaction(state, data.id, { state: data.code === "cancelled" ? "cancelled" : "failed", error: data }), {
      type: "snapshot",
    }),
  compaction_skipped: (state) => wish(state, { type: "snapshot" }),
  compaction_undone: (state, data) =>
    wish(changeCompaction(state, data.id, { state: "undone", can_undo: false }), { type: "snapshot" }),
};

/**
 * The next state. A durable event that is already known is dropped, and the page finds out whether it crossed a snapshot
 * on its way or the database went back; one that comes too early asks for a snapshot.
 * @param {State} state @param {Envelope} envelope
 * @returns {State}
 */
export function applyEvent(state, envelope) {
  if (envelope.type === "snapshot") return applySnapshot(state, envelope.seq ?? 0, envelope.data);
  if (state.seq == null) return state;
  if (envelope.seq != null) {
    if (envelope.seq <= state.seq) return wish(state, { type: "version" });
    if (envelope.seq > state.seq + 1) return wish(state, { type: "snapshot" });
  }
  const step = STEPS[envelope.type];
  const next = step ? step(state, envelope.data) : state;
  return envelope.seq == null ? next : withVersion(next, envelope.seq);
}

/** @param {State} state @param {number} seq @returns {State} */
function withVersion(state, seq) {
  return { ...state, seq, conversation: { ...state.conversation, version: seq } };
}

/** @param {State} state @param {Wish} wanted @returns {State} */
function wish(state, wanted) {
  return { ...state, wishes: [...state.wishes.filter((other) => other.type !== wanted.type), wanted] };
}

/** A message as stored now: put in its place, or taken out where the view no longer has it. @param {State} state @param {Message} message @returns {State} */
export function withMessage(state, message) {
  const messages = state.messages.filter((other) => other.id !== message.id);
  if (isLive(message)) place(messages, message);
  const streams = message.status === "streaming" ? state.streams : without(state.streams, message.id);
  return {
    ...state,
    messages,
    streams,
    queue: state.queue.filter((queued) => queued.message?.id !== message.id || message.position == null),
  };
}

/** @param {Message[]} messages @param {Message} message */
function place(messages, message) {
  let at = messages.length;
  while (at > 0 && inOrder(messages[at - 1], message) > 0) at -= 1;
  messages.splice(at, 0, message);
}

/** @param {Map<number, any>} map @param {number} key */
function without(map, key) {
  if (!map.has(key)) return map;
  const rest = new Map(map);
  rest.delete(key);
  return rest;
}

/** Where people came, went or got another role, the reader's own rights may be others too. @param {State} state @param {any} data @returns {State} */
function conversationChanged(state, data) {
  const { people, ...changed } = data.conversation;
  const next = { ...state, conversation: { ...state.conversation, ...changed, role: state.conversation.role } };
  return people ? wish(next, { type: "snapshot" }) : next;
}

/** @param {State} state @param {any} data @returns {State} */
function turnStart(state, data) {
  const streams = new Map(state.streams);
  const shown = streams.get(data.message);
  if (!shown || shown.attempt < data.attempt)
    streams.set(data.message, startStream(data.turn, data.attempt, data.message));
  const turn = {
    id: data.turn,
    state: "running",
    attempt: data.attempt,
    user_message: data.user_message,
    message: data.message,
    text: "",
    thinking: "",
    rounds: 0,
    error: null,
    created_at: new Date().toISOString(),
  };
  return { ...state, turn, streams, queue: state.queue.filter((queued) => queued.turn !== data.turn) };
}

/**
 * A piece of an answer. Changes the stream in place: pieces are many, and only the one message is drawn again.
 * @param {State} state @param {any} data @param {"text" | "thinking"} part
 * @returns {State}
 */
function piece(state, data, part) {
  if ((state.ended.get(data.turn) ?? -1) >= data.attempt) return state;
  const stored = state.messages.find((message) => message.id === data.message);
  if (stored && stored.status !== "streaming") return state;
  let next = state;
  let stream = state.streams.get(data.message);
  if (stream && data.attempt < stream.attempt) return state;
  if (!stream || data.attempt > stream.attempt) {
    stream = startStream(data.turn, data.attempt, data.message);
    next = { ...state, streams: new Map(state.streams).set(data.message, stream) };
    if (next.turn?.id === data.turn) next.turn = { ...next.turn, message: data.message, attempt: data.attempt };
  }
  const result = receive(stream[part], { offset: data.offset, text: data.text });
  return result === "gap"
    ? wish(next, {
        type: "sync",
        turn: data.turn,
        message: data.message,
        offset: stream.text.length,
        thinking_offset: stream.thinking.length,
      })
    : next;
}

/** @param {State} state @param {any} data @returns {State} */
function toolCall(state, data) {
  const call = { id: data.id, name: data.name, arguments: data.arguments };
  const stored = state.messages.find((message) => message.id === data.message);
  if (stored) {
    const known = (stored.tool_calls || []).some(
      (/** @type {any} */ other) => other.id === call.id && (other.function?.name ?? other.name) === call.name,
    );
    return known ? state : withMessage(state, { ...stored, tool_calls: [...(stored.tool_calls || []), call] });
  }
  const stream = state.streams.get(data.message) || startStream(data.turn, state.turn?.attempt ?? 1, data.message);
  return { ...state, streams: new Map(state.streams).set(data.message, { ...stream, calls: [...stream.calls, call] }) };
}

/** @param {State} state @param {number} turn @param {number} attempt */
function endedWith(state, turn, attempt) {
  return new Map(state.ended).set(turn, attempt);
}

/** The stored text decides. @param {State} state @param {any} data @returns {State} */
function turnDone(state, data) {
  let next = { ...state, ended: endedWith(state, data.turn, data.attempt), streams: new Map() };
  if (data.message) next = withMessage(next, data.message);
  if (state.turn && state.turn.id !== data.turn) return next;
  const stopped = data.state !== "done" && state.turn;
  next.turn = stopped
    ? {
        ...state.turn,
        state: data.state,
        message: data.message?.id ?? null,
        text: data.message?.content ?? "",
        thinking: data.message?.thinking ?? "",
      }
    : null;
  return next;
}

/** Cut to the stored length, whatever was shown. @param {State} state @param {any} data @returns {State} */
function turnInterrupted(state, data) {
  const text = cutToCodePoints(textOf(state, data.message), data.length);
  let next = { ...state, ended: endedWith(state, data.turn, data.attempt), streams: new Map() };
  const stored = state.messages.find((message) => message.id === data.message);
  if (stored) next = withMessage(next, { ...stored, status: "interrupted", content: text });
  next.turn = {
    ...state.turn,
    id: data.turn,
    attempt: data.attempt,
    state: "interrupted",
    message: data.message,
    text,
  };
  return stored ? next : wish(next, { type: "snapshot" });
}

/** @param {State} state @param {any} data @returns {State} */
function turnError(state, data) {
  const error = { code: data.code, message: data.message, retryable: data.retryable };
  const message = state.turn?.id === data.turn ? state.turn.message : null;
  const stored = state.messages.find((other) => other.id === message && other.status === "streaming");
  let next = { ...state, streams: new Map(), ended: endedWith(state, data.turn, state.turn?.attempt ?? 0) };
  if (stored) next = withMessage(next, { ...stored, status: "failed", content: textOf(state, stored.id) });
  next.turn = { ...(state.turn || { id: data.turn }), state: "failed", error };
  return next;
}

/** What is shown of a message: what has streamed in, or else what is stored. @param {State} state @param {number} id */
export function textOf(state, id) {
  const stream = state.streams.get(id);
  if (stream) return stream.text.text;
  return state.messages.find((message) => message.id === id)?.content || "";
}

/** @param {State} state @param {any} data @returns {State} */
function compactionStart(state, data) {
  const last = state.messages.filter((message) => message.position != null).at(-1);
  const known = state.compactions.find((card) => card.id === data.id);
  const card = known || {
    id: data.id,
    reason: data.reason,
    state: "running",
    blocking: data.blocking,
    stage: "",
    fraction: 0,
    asked_at_position: last?.position ?? 0,
    covered_to: null,
    compacted_count: data.message_count,
    summary_message_id: null,
    error: null,
    can_undo: false,
    created_at: new Date().toISOString(),
    started_at: new Date().toISOString(),
  };
  return { ...state, compaction: card, compactions: known ? state.compactions : [...state.compactions, card] };
}

/** @param {State} state @param {number} id @param {any} change @returns {State} */
function changeCompaction(state, id, change) {
  const compactions = state.compactions.map((card) => (card.id === id ? { ...card, ...change } : card));
  const open = compactions.find((card) => ["queued", "running", "ready"].includes(card.state)) || null;
  return { ...state, compactions, compaction: open };
}

/** Applied, or ready and waiting for the next boundary. Which messages it covers comes with the next snapshot. @param {State} state @param {any} data @returns {State} */
function compactionDone(state, data) {
  const change =
    data.summary_message_id == null
      ? { ...data, state: "ready", fraction: 1 }
      : { ...data, state: "applied", can_undo: true };
  return wish(changeCompaction(state, data.id, change), { type: "snapshot" });
}

/** Older messages, loaded by the reader. @param {State} state @param {Message[]} items @param {string | null} next @returns {State} */
export function withOlder(state, items, next) {
  const known = new Set(state.messages.map((message) => message.id));
  return {
    ...state,
    messages: [...items.filter((message) => !known.has(message.id)), ...state.messages].sort(inOrder),
    next,
  };
}
