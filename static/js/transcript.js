/**
 * The transcript: which messages and cards are in the page, in what order, and where the reader is. Only a window of
 * them is in the page; older ones come in as the reader scrolls up. It follows the newest only if the reader is there.
 */

import { renderCard, updateProgress } from "./card.js";
import { h, icon } from "./dom.js";
import { _ } from "./i18n.js";
import { refreshMessage, renderMessage, updateMessage } from "./message.js";
import { isLive } from "./store.js";

/** How many items are in the page at most, and by how many the window moves. */
const WINDOW = 160;
const STEP = 60;
const NEAR = 600; // px from an edge at which the window moves

/** Browsers that keep the reader's place themselves do it better, except at the very top, where they never do. */
const ANCHORS = CSS.supports("overflow-anchor", "auto");

/**
 * What the page shows, in order. Pure.
 * @param {import("./store.js").State} state
 * @param {{messages?: any[], outbox?: any[], notices?: any[], full?: boolean}} [more]
 * @returns {any[]}
 */
export function layOut(state, more = {}) {
  const messages = more.messages || state.messages;
  const cards = cardsOf(state, messages, Boolean(more.full));
  const newest = newestTurn(state, messages);
  const rows = [];
  const shown = new Map();
  let calls = [];
  let before = null;
  let card = 0;
  for (const message of messages) {
    while (card < cards.length && placeOf(cards[card]) < message.position) rows.push(cardItem(cards[card++]));
    if (message.is_summary) {
      const own = state.compactions.find((one) => one.summary_message_id === message.id);
      if (!own) rows.push(cardItem(cardFromSummary(message)));
      else if (!cards.includes(own)) rows.push(cardItem(own));
      before = null;
      continue;
    }
    if (message.role === "tool") {
      const open =
        calls.find((pair) => !pair.result && pair.call.id === message.tool_call_id) ||
        calls.find((pair) => !pair.result);
      if (open) open.result = message;
      else
        rows.push(
          messageItem(
            message,
            null,
            [{ call: { name: message.tool_name || "?", arguments: "{}" }, result: message }],
            before,
          ),
        );
      continue;
    }
    if (message.role === "system") continue;
    const stream = state.streams.get(message.id) || null;
    shown.set(message.id, true);
    calls = (message.tool_calls || []).map((/** @type {any} */ call) => ({ call, result: null }));
    rows.push(messageItem(message, stream, calls, before, newest));
    before = message;
  }
  while (card < cards.length) rows.push(cardItem(cards[card++]));
  for (const stream of state.streams.values()) {
    if (shown.has(stream.message)) continue;
    const stub = {
      id: stream.message,
      role: "assistant",
      status: "streaming",
      content: "",
      turn: stream.turn,
      metadata: {},
    };
    rows.push(
      messageItem(
        stub,
        stream,
        stream.calls.map((call) => ({ call, result: null })),
        before,
      ),
    );
  }
  if (state.turn && !more.full) rows.push(...turnItems(state.turn, state));
  for (const queued of state.queue) rows.push({ key: `q${queued.turn}`, kind: "queued", queued });
  for (const sent of more.outbox || []) rows.push({ key: `o${sent.client_id}`, kind: "outbox", sent });
  for (const notice of more.notices || []) rows.push({ key: `n${notice.id}`, kind: "notice", notice });
  return rows;
}

/** @param {any} message @param {any} stream @param {any[]} calls @param {any} before @param {any} [newest] */
function messageItem(message, stream, calls, before, newest) {
  // A replaced answer and the one in its place are two, though they stand side by side.
  const together = before?.turn === message.turn || !(before?.retired_at || message.retired_at);
  const follows = message.role === "assistant" && before?.role === "assistant" && together;
  return {
    key: `m${message.id}`,
    kind: "message",
    message,
    stream,
    calls,
    follows,
    newest: newest != null && message === newest,
  };
}

/** @param {any} compaction */
const cardItem = (compaction) => ({ key: `c${compaction.id}`, kind: "card", compaction });

/** Where a card stands: behind what it covers, or where it was asked for. @param {any} card */
export const placeOf = (card) => card.covered_to ?? card.asked_at_position ?? 0;

/** A summary whose run is not in the snapshot. @param {any} message */
function cardFromSummary(message) {
  return {
    id: `s${message.id}`,
    state: message.retired_at ? "undone" : "applied",
    reason: message.metadata?.reason || "auto",
    compacted_count: message.metadata?.compacted_count || 0,
    summary_message_id: message.id,
    summary_content: message.content,
    tokens_before: null,
    covered_to: message.position,
    can_undo: false,
  };
}

/** The cards between the messages that are shown; in the compacted view those behind the newest summary only. @param {any} state @param {any[]} messages @param {boolean} full */
function cardsOf(state, messages, full) {
  const first = messages.find((message) => !message.is_summary)?.position ?? 0;
  const summaries = new Set(messages.filter((message) => message.is_summary).map((message) => message.id));
  return state.compactions
    .filter((/** @type {any} */ card) => {
      if (card.state === "applied")
        return card.summary_message_id != null && !summaries.has(card.summary_message_id)
          ? full && placeOf(card) >= first
          : false;
      return card.state !== "stale" && (placeOf(card) >= first - 1 || !messages.length);
    })
    .sort((/** @type {any} */ one, /** @type {any} */ other) => placeOf(one) - placeOf(other) || one.id - other.id);
}

/** The newest answer that ended, which alone can be written again. @param {any} state @param {any[]} messages */
function newestTurn(state, messages) {
  if (state.turn?.state === "running") return null;
  const last = messages.filter((message) => message.role !== "tool" && !message.is_summary && isLive(message)).at(-1);
  return last?.role === "assistant" ? last : null;
}

/** @param {any} turn @param {any} state */
function turnItems(turn, state) {
  if (turn.state === "running")
    return state.streams.size || turn.message != null ? [] : [{ key: `w${turn.id}`, kind: "waiting", turn }];
  return turn.state === "failed" || turn.state === "interrupted" || turn.state === "stopped"
    ? [{ key: `t${turn.id}`, kind: "turn", turn }]
    : [];
}

/** Whether an element still shows what the item says. @param {any} one @param {any} other */
function sameItem(one, other) {
  if (!one || one.kind !== other.kind) return false;
  if (one.kind === "message") {
    return (
      one.message === other.message &&
      Boolean(one.stream) === Boolean(other.stream) &&
      one.follows === other.follows &&
      one.newest === other.newest &&
      one.calls.length === other.calls.length &&
      one.calls.every(
        (/** @type {any} */ pair, /** @type {number} */ at) =>
          pair.call === other.calls[at].call && pair.result === other.calls[at].result,
      )
    );
  }
  return (
    one.compaction === other.compaction &&
    one.turn === other.turn &&
    one.queued === other.queued &&
    one.sent === other.sent &&
    one.notice === other.notice
  );
}

/**
 * @typedef {object} TranscriptActs
 * @property {import("./message.js").MessageActs} message
 * @property {import("./card.js").CardActs} card
 * @property {(item: any) => HTMLElement} other draws turns, queued messages, the outbox and notices
 * @property {() => Promise<void>} older load more above
 */

export class Transcript {
  /** @param {HTMLElement} scroller @param {HTMLElement} list @param {HTMLElement} jump @param {TranscriptActs} acts */
  constructor(scroller, list, jump, acts) {
    this.scroller = scroller;
    this.list = list;
    this.jump = jump;
    this.acts = acts;
    /** @type {any[]} */
    this.items = [];
    /** @type {Map<string, {item: any, element: HTMLElement}>} */
    this.drawn = new Map();
    this.end = 0;
    this.start = 0;
    this.following = true;
    this.loading = false;
    this.more = false;
    this.how = { mayWrite: false, me: 0, many: false, agent: "" };
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    // At the very top there is nothing to scroll, and so no scroll event.
    scroller.addEventListener("wheel", (event) => event.deltaY < 0 && scroller.scrollTop < NEAR && this.up(), {
      passive: true,
    });
    jump.addEventListener("click", () => this.toNewest());
    new ResizeObserver(() => this.following && this.stick()).observe(list);
  }

  /** Another conversation or view. */
  reset() {
    this.items = [];
    this.drawn.clear();
    this.list.replaceChildren();
    this.start = this.end = 0;
    this.following = true;
    this.loading = false;
  }

  /** @param {any[]} items @param {any} how @param {boolean} more whether there are older ones to load */
  show(items, how, more) {
    const changedHow = JSON.stringify(how) !== JSON.stringify(this.how);
    if (changedHow) this.drawn.clear();
    this.how = how;
    this.more = more;
    const first = this.items[this.start]?.key;
    const atEnd = this.end >= this.items.length;
    const span = this.end - this.start;
    this.items = items;
    const kept = first ? items.findIndex((item) => item.key === first) : -1;
    if (this.following) {
      this.end = items.length;
      this.start = kept >= 0 && this.end - kept <= WINDOW ? kept : Math.max(0, this.end - STEP);
    } else {
      this.start = Math.max(0, kept);
      this.end = Math.min(items.length, this.start + (atEnd ? WINDOW : span));
    }
    this.draw();
  }

  /** Put the window's items into the page, using again every element that still fits; the reader stays in place. */
  draw() {
    const wanted = this.items.slice(this.start, this.end);
    this.inPlace(() => {
      /** @type {HTMLElement[]} */
      const elements = wanted.map((item) => this.element(item));
      const keep = new Set(elements);
      for (const child of [...this.list.children]) if (!keep.has(/** @type {any} */ (child))) child.remove();
      elements.forEach((element, at) => {
        if (this.list.children[at] !== element) this.list.insertBefore(element, this.list.children[at] || null);
      });
      const keys = new Set(wanted.map((item) => item.key));
      for (const key of this.drawn.keys()) if (!keys.has(key)) this.drawn.delete(key);
    });
    requestAnimationFrame(() => this.reachUp());
  }

  /** Where nothing can be scrolled there is no scroll event: what stands above comes in by itself. */
  reachUp() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const short = scrollHeight <= clientHeight + NEAR;
    if ((this.start > 0 && scrollTop < NEAR) || (short && this.more && this.items.length > 0)) this.up();
  }

  /** @param {any} item @returns {HTMLElement} */
  element(item) {
    const known = this.drawn.get(item.key);
    if (known && sameItem(known.item, item)) {
      known.item = item;
      return known.element;
    }
    const element = (known && this.updated(known, item)) || this.make(item);
    this.drawn.set(item.key, { item, element });
    return element;
  }

  /** An element that only needs a change: a streaming message, the progress of a card. @param {any} known @param {any} item */
  updated(known, item) {
    if (
      item.kind === "card" &&
      ["queued", "running", "ready"].includes(item.compaction.state) &&
      known.item.compaction.state === item.compaction.state &&
      known.element.isConnected
    ) {
      updateProgress(known.element, item.compaction);
      return known.element;
    }
    if (item.kind !== "message" || known.item.follows !== item.follows) return null;
    refreshMessage(known.element, item, this.acts.message, this.how);
    return known.element;
  }

  /** @param {any} item @returns {HTMLElement} */
  make(item) {
    if (item.kind === "message") return renderMessage(item, this.acts.message, this.how);
    if (item.kind === "card") return renderCard(item.compaction, this.acts.card, this.how);
    return this.acts.other(item);
  }

  /** A streaming message has grown. @param {number} message @param {any} stream */
  grow(message, stream) {
    const known = this.drawn.get(`m${message}`);
    if (!known || !known.item.stream) return false;
    known.item.stream = stream;
    updateMessage(known.element, known.item, this.acts.message);
    if (this.following) this.stick();
    return true;
  }

  /** Every second, for the elapsed time. @param {any} compaction */
  tick(compaction) {
    const known = this.drawn.get(`c${compaction.id}`);
    if (known) updateProgress(known.element, compaction);
  }

  /** Change the page without moving what the reader is looking at. @param {() => void} change */
  inPlace(change) {
    if (this.following) {
      change();
      this.stick();
      return;
    }
    const { scroller } = this;
    if (ANCHORS && scroller.scrollTop > 0) {
      change();
      return;
    }
    const top = scroller.getBoundingClientRect().top;
    const anchor = [...this.list.children].find((child) => child.getBoundingClientRect().bottom > top + 1);
    const before = anchor?.getBoundingClientRect().top ?? 0;
    change();
    if (anchor?.isConnected) scroller.scrollTop += anchor.getBoundingClientRect().top - before;
  }

  stick() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  toNewest() {
    this.following = true;
    this.end = this.items.length;
    this.start = Math.max(0, this.end - STEP);
    this.draw();
    this.jump.hidden = true;
  }

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const below = scrollHeight - scrollTop - clientHeight;
    this.following = below < 40 && this.end >= this.items.length;
    this.jump.hidden = below < 300 && this.end >= this.items.length;
    if (scrollTop < NEAR) this.up();
    else if (below < NEAR && this.end < this.items.length) this.down();
  }

  /** Show older ones: those that are loaded, or else load more. */
  async up() {
    if (this.start > 0) {
      this.start = Math.max(0, this.start - STEP);
      this.end = Math.min(this.end, this.start + WINDOW);
      this.draw();
      return;
    }
    if (!this.more || this.loading) return;
    this.loading = true;
    this.list.classList.add("loading");
    try {
      await this.acts.older();
    } finally {
      this.loading = false;
      this.list.classList.remove("loading");
    }
    if (this.start > 0) this.up();
  }

  down() {
    this.end = Math.min(this.items.length, this.end + STEP);
    this.start = Math.max(0, this.end - WINDOW, this.start);
    this.draw();
  }

  /** @param {number} id of a message; whether it is among what is loaded */
  reveal(id) {
    return this.bring(`m${id}`);
  }

  /** @param {number} id of a compaction */
  revealCard(id) {
    return this.bring(`c${id}`);
  }

  /** Bring an item into view and focus it. @param {string} key @returns {boolean} */
  bring(key) {
    const at = this.items.findIndex((item) => item.key === key);
    if (at < 0) return false;
    this.following = false;
    if (at < this.start || at >= this.end) {
      this.start = Math.max(0, at - STEP);
      this.end = Math.min(this.items.length, this.start + WINDOW);
      this.draw();
    }
    const element = this.drawn.get(key)?.element;
    element?.scrollIntoView({ block: "center" });
    element?.focus({ preventScroll: true });
    element?.classList.add("found");
    setTimeout(() => element?.classList.remove("found"), 2500);
    return true;
  }
}

/** Three dots while nothing has come yet. */
export function renderWaiting() {
  return h(
    "p.waiting",
    { role: "status" },
    h("span.dots", { "aria-hidden": "true" }, h("i"), h("i"), h("i")),
    h("span.offscreen", null, _("Waiting for the answer")),
  );
}

/** @param {string} symbol @param {...any} children */
export const line = (symbol, ...children) => h("div.line", null, icon(symbol), ...children);
