/**
 * What a person has typed and what has not reached the server yet, kept in this browser. A message stays in the outbox
 * until the server shows it under its client_id; it is sent again after every reconnect, and the server takes it once.
 */

/** @typedef {{client_id: string, content: string, attachments: any[], at: number, problem?: {code: string, message: string} | null}} Sent */

const OLDEST = 7 * 24 * 3600 * 1000;

/** @param {string} key @returns {any} */
function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key) || "null");
  } catch {
    return null;
  }
}

/** @param {string} key @param {any} value */
function write(key, value) {
  try {
    if (value == null || value === "" || (Array.isArray(value) && !value.length)) localStorage.removeItem(key);
    else localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // A full or forbidden storage: the page still works, it only forgets on reload.
  }
}

/** @param {string | null} conversation */
export const readDraft = (conversation) => read(`draft:${conversation || "new"}`) || "";
/** @param {string | null} conversation @param {string} text */
export const keepDraft = (conversation, text) => write(`draft:${conversation || "new"}`, text);

/** @param {string} conversation @returns {Sent[]} */
export function readOutbox(conversation) {
  const kept = read(`outbox:${conversation}`);
  return Array.isArray(kept) ? kept.filter((sent) => Date.now() - sent.at < OLDEST) : [];
}

/** @param {string} conversation @param {Sent[]} outbox */
export const keepOutbox = (conversation, outbox) => write(`outbox:${conversation}`, outbox);

/**
 * The outbox without what the server has: as a message or as a queued draft.
 * @param {Sent[]} outbox @param {import("./store.js").State} state @returns {Sent[]}
 */
export function unacknowledged(outbox, state) {
  if (!outbox.length) return outbox;
  const known = new Set();
  for (const message of state.messages) if (message.client_id) known.add(message.client_id);
  for (const queued of state.queue) if (queued.message?.client_id) known.add(queued.message.client_id);
  const rest = outbox.filter((sent) => !known.has(sent.client_id));
  return rest.length === outbox.length ? outbox : rest;
}

/** Forget what a person typed, when they sign out. */
export function forgetAll() {
  for (const key of Object.keys(localStorage)) if (/^(draft|outbox):/.test(key)) localStorage.removeItem(key);
}
