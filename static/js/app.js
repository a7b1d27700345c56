/** The page: it knows which conversation is open and in which view, and hands state to the parts that draw it. */

import { clientId, conversationPath, get, useCsrfToken } from "./api.js";
import { Composer } from "./composer.js";
import { announce, byId, h, icon, toast } from "./dom.js";
import { forgetAll, keepDraft, keepOutbox, readOutbox, unacknowledged } from "./drafts.js";
import { _ } from "./i18n.js";
import { renderMeter } from "./meter.js";
import { conversationActs } from "./acts.js";
import { renderRow } from "./rows.js";
import { openMenu, Sidebar } from "./sidebar.js";
import { openLine } from "./socket.js";
import { applyEvent, emptyState, withOlder } from "./store.js";
import { layOut, Transcript } from "./transcript.js";

const boot = JSON.parse(byId("boot").textContent);
useCsrfToken(boot.csrf || "");

/** What the page knows; parts get it handed in. */
const page = {
  /** @type {string | null} */ id: null,
  state: emptyState(),
  /** @type {import("./socket.js").Line | null} */ line: null,
  connection: "connecting",
  retryAt: 0,
  /** @type {"compacted" | "full" | "model"} */ view: "compacted",
  /** @type {import("./history.js").FullHistory | null} */ full: null,
  /** @type {import("./drafts.js").Sent[]} */ outbox: [],
  /** @type {any[]} */ notices: [],
  /** @type {any[]} */ agents: boot.agents || [],
  /** @type {number | null} */ agent: boot.agents?.[0]?.id ?? null,
  /** @type {{refresh: () => void, dialog: HTMLDialogElement} | null} */ panel: null,
  /** @type {number | null} */ wanted: null,
};

/** What was sent over the line that is open: it is sent again over the next one only. @type {Set<string>} */
const sent = new Set();

const mayWrite = () => page.state.conversation?.role !== "viewer";
const answering = () => page.state.turn?.state === "running";

// The parts

const acts = conversationActs(page, {
  changed,
  fail,
  reload: () => page.line?.refresh(),
  open,
  send,
  composer: () => composer,
  transcript: () => transcript,
});
const composer = new Composer(
  { send, stop: acts.stop, typing: acts.typing, attach: acts.attach, detach: acts.detach },
  boot.limits || {},
);
const transcript = new Transcript(byId("scroller"), byId("transcript"), byId("jump"), {
  message: acts.message,
  card: acts.card,
  other: (item) => renderRow(item, acts.rows, transcript.how),
  older: loadOlder,
});
const sidebar = new Sidebar({
  open,
  gone: (id) => id === page.id && open(null),
  changed: (conversation) => conversation.id === page.id && page.line?.refresh(),
});

// Going from one conversation to another

/** @param {string | null} target a conversation, `id#message`, or null for a new one */
export function open(target, { push = true } = {}) {
  const [id, message] = (target || "").split("#");
  page.wanted = message ? Number(message) : null;
  closeSidebar();
  if (id && id === page.id) return message ? acts.reveal(Number(message)) : undefined;
  page.line?.close();
  sent.clear();
  Object.assign(page, {
    id: id || null,
    state: emptyState(),
    line: null,
    full: null,
    notices: [],
    view: "compacted",
    connection: "connecting",
  });
  page.outbox = id ? readOutbox(id) : [];
  transcript.reset();
  composer.turnTo(page.id);
  if (push) history.pushState({ id: page.id }, "", page.id ? `/c/${page.id}` : "/");
  sidebar.mark(page.id);
  document.body.dataset.place = page.id ? "conversation" : "home";
  if (page.id)
    page.line = openLine(page.id, { event: heard, state: connectionChanged, version: () => page.state.seq });
  else acts.drawHome();
  draw();
  if (matchMedia("(pointer: fine)").matches) composer.field.focus();
}

// What the server says

/** @param {any} envelope */
function heard(envelope) {
  if (envelope.conversation && envelope.conversation !== page.id) return;
  const before = page.state;
  if (envelope.type === "error") return acts.refused(envelope.data);
  if (envelope.type === "command_result") return acts.answered(envelope.data);
  page.state = applyEvent(before, envelope);
  carryOut();
  if (envelope.type === "snapshot") afterSnapshot(before.seq ?? 0);
  followInFull(envelope);
  if (envelope.type === "token_update") readModelAgain();
  say(envelope);
  const piece = envelope.type === "delta" || envelope.type === "thinking_delta";
  if (piece && before === page.state) growing.add(envelope.data.message);
  else if (piece) changed();
  else settle();
  scheduleDraw();
}

/** What the state wishes to ask the server for. */
function carryOut() {
  const { wishes } = page.state;
  if (!wishes.length) return;
  page.state = { ...page.state, wishes: [] };
  for (const wish of wishes) {
    if (wish.type === "snapshot") page.line?.refresh();
    else if (wish.type === "sync") askFrom(wish);
    else page.line?.doubt();
  }
}

let askedAt = 0;

/** Ask for what is missing, at most twice a second: the pieces that follow would all ask again. @param {any} wish */
function askFrom(wish) {
  if (Date.now() - askedAt < 500) return;
  askedAt = Date.now();
  page.line?.send("sync", {
    turn: wish.turn,
    message: wish.message,
    offset: wish.offset,
    thinking_offset: wish.thinking_offset,
  });
  setTimeout(() => {
    const stream = page.state.streams.get(wish.message);
    if (stream?.text.held.length || stream?.thinking.held.length) page.line?.refresh();
  }, 4000);
}

/** @param {number} before the version that was shown */
function afterSnapshot(before) {
  if (before > (page.state.seq ?? 0)) page.full = null;
  sidebar.put(page.state.conversation);
  if (page.view === "full") loadFull();
  if (page.view === "model") acts.drawModel();
  sendOutbox();
  if (page.wanted != null) {
    const message = page.wanted;
    page.wanted = null;
    requestAnimationFrame(() => acts.reveal(message));
  }
}

/** What the outbox holds is acknowledged by what the state shows. */
function settle() {
  const rest = unacknowledged(page.outbox, page.state);
  if (rest === page.outbox || !page.id) return changed();
  page.outbox = rest;
  keepOutbox(page.id, rest);
  sidebar.touch(page.id);
  changed();
}

/** The full history is not in the snapshot: its list follows the same events. @param {any} envelope */
function followInFull(envelope) {
  const message = envelope.data?.message;
  if (page.full && fullView && message?.id && message.position != null)
    page.full = fullView.withStored(page.full, message);
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let modelLater;

/** The next request has changed. */
function readModelAgain() {
  clearTimeout(modelLater);
  modelLater = setTimeout(() => page.view === "model" && acts.drawModel(), 700);
}

/** For people who listen. @param {any} envelope */
function say(envelope) {
  const { type, data } = envelope;
  if (type === "turn_done")
    announce(
      data.state === "stopped"
        ? _("The answer was stopped.")
        : _("The answer is complete. {text}", { text: (data.message?.content || "").slice(0, 400) }),
    );
  else if (type === "turn_error") announce(data.message, "assertive");
  else if (type === "turn_interrupted") announce(_("The answer was interrupted."), "assertive");
  else if (type === "compaction_start") announce(_("Compaction started."));
  else if (type === "compaction_done") acts.compacted(data);
  else if (type === "compaction_error") acts.uncompacted(data);
  else if (type === "compaction_skipped") acts.uncompacted(data);
  else if (type === "compaction_undone") announce(_("Compaction undone."));
  else if (type === "conversation")
    data.conversation?.deleted ? gone(_("This conversation was deleted.")) : sidebar.put(page.state.conversation);
}

/** @param {string} why */
function gone(why) {
  toast(why, "problem");
  open(null);
  sidebar.load();
}

/** @param {string} connection @param {number} [retryAt] */
function connectionChanged(connection, retryAt = 0) {
  page.connection = connection;
  if (connection !== "open") sent.clear();
  page.retryAt = retryAt;
  if (connection === "signed_out") location.assign(`/accounts/login/?next=${encodeURIComponent(location.pathname)}`);
  else if (connection === "forbidden" || connection === "missing")
    gone(_("This conversation does not exist, or you are no longer part of it."));
  changed();
}

// Saying something

/** @param {string} content @param {any[]} attachments */
async function send(content, attachments = []) {
  try {
    if (!page.id) await begin(content);
  } catch (error) {
    composer.put(content);
    return fail(error);
  }
  const fresh = {
    client_id: clientId(),
    content,
    attachments: attachments.map(({ id, name, kind, tokens }) => ({ id, name, kind, tokens })),
    at: Date.now(),
    problem: null,
  };
  page.outbox = [...page.outbox, fresh];
  keepOutbox(/** @type {string} */ (page.id), page.outbox);
  sendOne(fresh);
  transcript.following = true;
  changed();
}

/** The first message makes the conversation. @param {string} content */
async function begin(content) {
  const conversation = await acts.createConversation();
  keepDraft(null, "");
  const attached = composer.attached;
  open(conversation.id);
  composer.attached = attached;
  sidebar.put({ ...conversation, title: conversation.title || content.trim().split("\n")[0].slice(0, 60) });
  sidebar.mark(conversation.id);
}

/** @param {import("./drafts.js").Sent} one */
function sendOne(one) {
  const data = { content: one.content, attachments: one.attachments.map((file) => file.id), client_id: one.client_id };
  if (page.state.seq != null && page.line?.send("chat", data)) sent.add(one.client_id);
}

/** After every (re)connect whatever the server does not show is sent again; it takes each only once. */
function sendOutbox() {
  page.outbox = unacknowledged(page.outbox, page.state);
  if (page.id) keepOutbox(page.id, page.outbox);
  for (const one of page.outbox) if (!one.problem && !sent.has(one.client_id)) sendOne(one);
}

// Views and older messages

/** Loaded with the first full view. @type {typeof import("./history.js") | null} */
let fullView = null;

/** @param {"compacted" | "full" | "model"} view */
async function showView(view) {
  if (view === page.view || !page.id) return;
  page.view = view;
  transcript.reset();
  if (view === "full") await loadFull();
  if (view === "model") acts.drawModel();
  changed();
}

async function loadFull() {
  const id = String(page.id);
  try {
    const { readFull } = fullView ?? (fullView = await import("./history.js"));
    const full = await readFull(id, page.full, page.state);
    if (id === page.id) page.full = full;
  } catch (error) {
    fail(error);
  }
  changed();
}

async function loadOlder() {
  const id = String(page.id);
  const full = page.view === "full";
  const before = full ? page.full?.next : page.state.next;
  if (!before) return;
  try {
    const older = await get(conversationPath(id, "/messages"), { view: page.view, before, limit: 60 });
    if (id !== page.id) return;
    if (full && page.full) page.full = { ...page.full, items: [...older.items, ...page.full.items], next: older.next };
    else page.state = withOlder(page.state, older.items, older.next);
    drawTranscript();
  } catch (error) {
    fail(error);
  }
}

// Drawing

/** Messages whose text has grown since the last frame. @type {Set<number>} */
const growing = new Set();
let stale = true;
let scheduled = false;

function changed() {
  stale = true;
  scheduleDraw();
}

function scheduleDraw() {
  if (scheduled) return;
  scheduled = true;
  const run = () => {
    scheduled = false;
    if (!stale)
      for (const message of growing) if (!transcript.grow(message, page.state.streams.get(message))) stale = true;
    if (stale) draw();
    growing.clear();
  };
  // A hidden page has no frames, but its title and announcements go on.
  if (document.hidden) setTimeout(run, 250);
  else requestAnimationFrame(run);
}

function draw() {
  stale = false;
  drawTop();
  drawConnection();
  drawTranscript();
  acts.drawHints();
  renderMeter(byId("meter"), page.id ? page.state.context : null, acts.openContext);
  page.panel?.refresh();
  composer.show({
    answering: answering(),
    mayWrite: !page.id || mayWrite(),
    offline: page.connection !== "open",
    placeholder: placeholder(),
  });
}

function placeholder() {
  if (!page.id) return _("Write a message");
  if (!mayWrite()) return _("You can read this conversation, but not write in it");
  return answering()
    ? _("Write the next message; it is answered after this one")
    : _("Write a message, or / for commands");
}

function drawTranscript() {
  if (!page.id) return;
  const offline = page.connection !== "open";
  const how = {
    mayWrite: mayWrite(),
    me: boot.user.id,
    many: page.state.people.length > 1,
    agent: page.state.conversation?.agent?.name || "",
  };
  const full = page.view === "full";
  byId("model-view").hidden = page.view !== "model";
  byId("transcript").hidden = page.view === "model";
  if (page.view === "model") return;
  const outbox = page.outbox.map((one) => (offline ? { ...one, offline } : one));
  const items =
    full && !page.full
      ? []
      : layOut(full && page.full && fullView ? fullView.withAllCards(page.full, page.state) : page.state, {
          messages: full ? page.full?.items : undefined,
          outbox,
          notices: page.notices,
          full,
        });
  byId("transcript").setAttribute("aria-busy", String(page.state.seq == null));
  transcript.show(items, how, Boolean(full ? page.full?.next : page.state.next));
}

function drawTop() {
  const { conversation, people } = page.state;
  const title = page.id ? conversation?.title || _("New conversation") : _("New conversation");
  byId("title").textContent = title;
  document.title = `${answering() ? "● " : ""}${title} · Palimpsest`;
  byId("agent-name").textContent = conversation ? conversation.agent.name : "";
  byId("agent-button").hidden = !conversation;
  byId("people-button").hidden = !page.id;
  byId("people-count").textContent = people.length > 1 ? String(people.length) : "";
  byId("views").hidden = !page.id;
  byId("more-button").hidden = !page.id;
  document
    .querySelectorAll("#views button")
    .forEach((/** @type {any} */ button) =>
      button.setAttribute("aria-pressed", String(button.dataset.view === page.view)),
    );
  const typing = people.filter((person) => person.typing && person.id !== boot.user.id).map((person) => person.name);
  byId("typing").textContent = typing.length ? _("{names} is writing…", { names: typing.join(", ") }) : "";
}

function drawConnection() {
  const bar = byId("connection");
  const down = Boolean(page.id) && page.connection === "waiting";
  bar.hidden = !down;
  if (!down) return;
  bar.replaceChildren(
    icon("warning"),
    h("span", null, _("Connection lost. What you write is kept and sent when it is back.")),
    h("button.link", { type: "button", onclick: () => page.line?.retryNow() }, _("Try now")),
  );
}

/** @param {any} error */
function fail(error) {
  toast(error?.message || _("That did not work."), "problem");
}

// The frame of the page

function closeSidebar() {
  document.body.classList.remove("sidebar-open");
}

function listen() {
  // Notes stand above the writing field, however high it is.
  const dock = byId("dock");
  new ResizeObserver(() => byId("toasts").style.setProperty("--dock", `${dock.offsetHeight}px`)).observe(dock);
  byId("new").addEventListener("click", (/** @type {Event} */ event) => (event.preventDefault(), open(null)));
  byId("menu").addEventListener("click", () => document.body.classList.toggle("sidebar-open"));
  byId("veil").addEventListener("click", closeSidebar);
  document
    .querySelectorAll("#views button")
    .forEach((/** @type {any} */ button) => button.addEventListener("click", () => showView(button.dataset.view)));
  byId("people-button").addEventListener("click", acts.openPeople);
  byId("agent-button").addEventListener("click", acts.switchAgent);
  byId("more-button").addEventListener("click", () => acts.openMore(byId("more-button"), sidebar));
  byId("account").addEventListener("click", () => openMenu(byId("account"), acts.accountMenu(boot.user)));
  byId("sign-out")?.addEventListener("submit", forgetAll);
  addEventListener("popstate", () =>
    open(location.pathname.startsWith("/c/") ? location.pathname.slice(3) : null, { push: false }),
  );
  addEventListener("keydown", shortcut);
  setInterval(() => page.state.compaction && transcript.tick(page.state.compaction), 1000);
}

/** @param {KeyboardEvent} event */
function shortcut(event) {
  const command = event.ctrlKey || event.metaKey;
  const writing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName || "");
  const dialog = document.querySelector("dialog[open]");
  if (event.key === "Escape" && !dialog) {
    if (document.body.classList.contains("sidebar-open")) closeSidebar();
    else if (answering() && mayWrite()) acts.stop();
  } else if (dialog) return;
  else if (command && event.key.toLowerCase() === "k")
    (event.preventDefault(), document.body.classList.add("sidebar-open"), byId("search").focus());
  else if (command && event.shiftKey && event.key.toLowerCase() === "o") (event.preventDefault(), open(null));
  else if (event.altKey && /^[123]$/.test(event.key))
    (event.preventDefault(), showView(/** @type {any} */ (["compacted", "full", "model"][Number(event.key) - 1])));
  else if (event.altKey && event.key.toLowerCase() === "c") (event.preventDefault(), acts.openContext());
  else if (!writing && event.key === "?") (event.preventDefault(), acts.openHelp());
  else if (!writing && event.key === "/") (event.preventDefault(), composer.field.focus());
  else if (event.key === "ArrowUp" && document.activeElement === composer.field && !composer.field.value)
    acts.editLast();
}

listen();
sidebar.load();
open(boot.conversation ? boot.conversation + location.hash : null, { push: false });
document.body.dataset.ready = "yes";
