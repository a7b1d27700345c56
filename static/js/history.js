/** The full history: read page by page, kept up to date by the events, with every card in it. */

import { conversationPath, get } from "./api.js";
import { inOrder } from "./store.js";

/** @typedef {{items: any[], next: string | null, cards: any[]}} FullHistory */

/**
 * The newest part, and of what was loaded before what lies above it.
 * @param {string} conversation @param {FullHistory | null} known @param {import("./store.js").State} state
 * @returns {Promise<FullHistory>}
 */
export async function readFull(conversation, known, state) {
  const [newest, cards] = await Promise.all([
    get(conversationPath(conversation, "/messages"), { view: "full", limit: 100 }),
    get(conversationPath(conversation, "/compactions"), { limit: 100 }),
  ]);
  const ids = new Set(newest.items.map((/** @type {any} */ message) => message.id));
  const first = newest.items[0]?.position ?? Infinity;
  const older = (known?.items || []).filter((message) => !ids.has(message.id) && message.position < first);
  return {
    items: [...older.map((message) => marked(message, state)), ...newest.items],
    next: older.length && known ? known.next : newest.next,
    cards: cards.items.reverse(),
  };
}

/** An older message's mark after a compaction or an undo, without reading it again. @param {any} message @param {import("./store.js").State} state */
function marked(message, state) {
  const cover = state.compactions.find(
    (card) => card.state === "applied" && message.position >= card.covered_from && message.position <= card.covered_to,
  );
  if (cover && message.compacted_into == null && !message.pinned && !message.is_summary)
    return { ...message, compacted_into: cover.summary_message_id };
  const undone = state.compactions.some(
    (card) => card.state === "undone" && card.summary_message_id === message.compacted_into,
  );
  return undone ? { ...message, compacted_into: null } : message;
}

/** A message was stored or changed. @param {FullHistory} full @param {any} message @returns {FullHistory} */
export function withStored(full, message) {
  return { ...full, items: [...full.items.filter((other) => other.id !== message.id), message].sort(inOrder) };
}

/** The snapshot has the newest cards; the full history shows all. @param {FullHistory} full @param {import("./store.js").State} state */
export function withAllCards(full, state) {
  const newest = new Set(state.compactions.map((card) => card.id));
  return { ...state, compactions: [...full.cards.filter((card) => !newest.has(card.id)), ...state.compactions] };
}
