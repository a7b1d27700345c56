/** What people do in a conversation: each act asks the server and leaves showing the result to the events. */

import { conversationPath, get, patch, post, remove } from "./api.js";
import { announce, ask, byId, fill, h, icon, iconButton, openDialog, toast } from "./dom.js";
import { headline } from "./card.js";
import { keepOutbox } from "./drafts.js";
import { _ } from "./i18n.js";

/**
 * @param {any} page what the page knows (see app.js)
 * @param {{changed: () => void, fail: (error: any) => void, reload: () => void, open: (target: string | null) => void, send: (content: string, attachments?: any[]) => void, composer: () => import("./composer.js").Composer, transcript: () => import("./transcript.js").Transcript}} frame
 */
export function conversationActs(page, frame) {
  const path = (rest = "") => conversationPath(page.id, rest);
  const { changed, fail } = frame;

  /** Do it, and show a refusal where it is seen. @param {() => Promise<any>} work */
  const attempt = async (work) => {
    try {
      return await work();
    } catch (error) {
      fail(error);
      return null;
    }
  };

  // Turns

  const stop = () => {
    const turn = page.state.turn;
    if (turn?.state !== "running") return;
    if (!page.line?.send("stop", { turn: turn.id })) attempt(() => post(path(`/turns/${turn.id}/stop`)));
  };
  const retryTurn = (/** @type {any} */ turn) => attempt(() => post(path(`/turns/${turn.id}/retry`)));
  const continueTurn = (/** @type {any} */ turn) =>
    attempt(() => post(path(`/turns/${turn.id}/retry`), { continues: true }));

  // Messages

  const message = {
    edit: (/** @type {any} */ message) => rewrite(message),
    regenerate: async (/** @type {any} */ message) => {
      frame.transcript().following = true;
      openMade(await attempt(() => post(path(`/messages/${message.id}/regenerate`))));
    },
    fork: (/** @type {any} */ message) => fork(message),
    pin: (/** @type {any} */ message) =>
      attempt(() => post(path(`/messages/${message.id}/pin`), { pinned: !message.pinned })),
    answers: async (/** @type {any} */ message) => (await import("./answers.js")).openAnswers(page, message, fail),
    fileAddress: (/** @type {any} */ part) => `/api/v1${path(`/attachments/${part.attachment || part.id}`)}`,
    openFile: async (/** @type {any} */ part) => (await import("./files.js")).openFile(page.id, part),
  };

  /** Edit a message that was answered already. @param {any} original */
  async function rewrite(original) {
    const compacted = original.compacted_into != null;
    const text = await askText(
      _("Edit and resend"),
      compacted
        ? _("This message was compacted. A new conversation is made from the originals up to here.")
        : _("What came after it is replaced and stays readable in the full history."),
      original.content,
    );
    if (text == null) return;
    frame.transcript().following = true;
    const made = await attempt(() => post(path(`/messages/${original.id}/edit`), { content: text }));
    openMade(made);
  }

  /** @param {any} original */
  async function fork(original) {
    openMade(await attempt(() => post(path(`/messages/${original.id}/fork`))));
  }

  /** Some acts make a new conversation. @param {any} made */
  function openMade(made) {
    const conversation = made?.conversation?.id || made?.conversation || (made?.agent && made.id);
    if (typeof conversation === "string" && conversation !== page.id) frame.open(conversation);
  }

  /** @param {string} title @param {string} why @param {string} text @returns {Promise<string | null>} */
  async function askText(title, why, text) {
    return new Promise((resolve) => {
      /** @type {string | null} */
      let answer = null;
      const field = h("textarea", { rows: 8, "aria-label": title, dir: "auto" });
      field.value = text;
      const done = (/** @type {Event} */ event) => (event.preventDefault(), (answer = field.value), dialog.close());
      field.addEventListener(
        "keydown",
        (/** @type {KeyboardEvent} */ event) =>
          event.key === "Enter" && (event.ctrlKey || event.metaKey) && done(event),
      );
      const form = h(
        "form.ask",
        { onsubmit: done },
        why && h("p.quiet", null, why),
        field,
        h(
          "div.buttons",
          null,
          h("button", { type: "button", onclick: () => dialog.close() }, _("Cancel")),
          h("button.primary", { type: "submit" }, _("Send")),
        ),
      );
      const dialog = openDialog("sheet", title, form);
      dialog.addEventListener("close", () => resolve(answer));
      field.focus();
    });
  }

  // What waits

  const rows = {
    retryTurn,
    continueTurn,
    editQueued: async (/** @type {any} */ queued) => {
      const text = await askText(_("Edit the waiting message"), "", queued.message.content);
      if (text != null) attempt(() => patch(path(`/turns/${queued.turn}`), { content: text }));
    },
    cancelQueued: (/** @type {any} */ queued) => attempt(() => remove(path(`/turns/${queued.turn}`))),
    sendAgain: (/** @type {any} */ sent) => (drop(sent), frame.send(sent.content, sent.attachments)),
    takeBack: (/** @type {any} */ sent) => (drop(sent), frame.composer().put(sent.content)),
    dismiss: (/** @type {any} */ notice) => {
      page.notices = page.notices.filter((/** @type {any} */ other) => other !== notice);
      changed();
    },
    message,
  };

  /** @param {any} sent */
  function drop(sent) {
    page.outbox = page.outbox.filter((/** @type {any} */ other) => other.client_id !== sent.client_id);
    keepOutbox(page.id, page.outbox);
    changed();
  }

  /** The server refused something. @param {any} problem */
  function refused(problem) {
    const sent = page.outbox.find((/** @type {any} */ other) => other.client_id === problem.client_id);
    if (!sent) return fail(problem);
    page.outbox = page.outbox.map((/** @type {any} */ other) => (other === sent ? { ...sent, problem } : other));
    keepOutbox(page.id, page.outbox);
    changed();
  }

  /** A slash command was answered. @param {any} answer */
  async function answered(answer) {
    drop({ client_id: answer.client_id });
    if (answer.command === "compact") return;
    const { describeCommand } = await import("./commands.js");
    page.notices = [
      ...page.notices.filter((/** @type {any} */ other) => other.command !== answer.command),
      { id: Date.now(), command: answer.command, ...describeCommand(answer) },
    ];
    frame.transcript().following = true;
    changed();
  }

  // Compactions

  const compact = (/** @type {string} */ instructions) => {
    const given = instructions ? { instructions } : {};
    if (!page.line?.send("compact", given)) attempt(() => post(path("/compactions"), given));
  };

  const card = {
    cancel: (/** @type {any} */ one) =>
      page.line?.send("cancel", { compaction: one.id }) || attempt(() => post(path(`/compactions/${one.id}/cancel`))),
    retry: (/** @type {any} */ one) => compact(one.instructions || ""),
    undo: (/** @type {any} */ one) => undo(one),
    summary: async (/** @type {any} */ one) => (await import("./drawer.js")).openSummary(page.id, one, reveal),
    originals: async (/** @type {any} */ one, /** @type {HTMLElement} */ root) =>
      (await import("./drawer.js")).fillOriginals(page.id, one, root, message),
  };

  /** The card may stand far above: say it, and offer the way there. @param {any} done */
  function compacted(done) {
    if (done.summary_message_id == null) return announce(_("The summary is ready and is used after this answer."));
    toast(headline(done), "note", { label: _("Show"), act: () => frame.transcript().revealCard(done.id) });
  }

  /** Why there was no compaction. The event is in the language of whoever found out, the run itself in the reader's. @param {any} data */
  async function uncompacted(data) {
    const run = await get(path(`/compactions/${data.id}`)).catch(() => null);
    const why = run?.error?.message || data.message;
    if (run?.state === "skipped") toast(why, "refusal");
    else announce(_("Compaction failed: {why}", { why }), "assertive");
  }

  /** Where the history would no longer fit, the server says so first, and the person decides. @param {any} one */
  async function undo(one, confirm = false) {
    try {
      await post(path(`/compactions/${one.id}/undo`), { confirm });
    } catch (error) {
      const { code, message: why } = /** @type {any} */ (error);
      if (code !== "would_not_fit") return fail(error);
      const sure = await ask({ title: _("Undo this compaction?"), text: why, action: _("Undo anyway"), danger: true });
      if (sure) await undo(one, true);
    }
  }

  /** Show a message, in the full history if the view does not have it. @param {number} id */
  async function reveal(id) {
    if (frame.transcript().reveal(id)) return;
    const button = /** @type {HTMLElement | null} */ (document.querySelector('#views button[data-view="full"]'));
    if (page.view !== "full") button?.click();
    for (let tries = 0; tries < 80; tries += 1) {
      await new Promise((resolve) => setTimeout(resolve, 120));
      if (frame.transcript().reveal(id)) return;
      if (page.full && !page.full.next) return;
      if (page.full) await frame.transcript().acts.older();
    }
  }

  // Files

  async function attach(/** @type {File[]} */ files) {
    if (!files.length) return;
    const { upload } = await import("./files.js");
    const id = await attempt(async () => page.id || (await createAndOpen()));
    if (!id) return;
    for (const file of files) upload(id, file, frame.composer());
  }

  async function createAndOpen() {
    const typed = frame.composer().field.value;
    const conversation = await createConversation();
    frame.open(conversation.id);
    frame.composer().put(typed);
    return conversation.id;
  }

  const detach = async (/** @type {any} */ attached) => {
    attached.cancel?.();
    if (attached.id) remove(path(`/attachments/${attached.id}`)).catch(() => null);
  };

  // Conversations and agents

  const createConversation = () => post("/conversations", page.agent ? { agent: page.agent } : {});

  async function loadAgents() {
    if (!page.agents.length) page.agents = (await get("/agents")).items;
    page.agent ??= page.agents[0]?.id ?? null;
    return page.agents;
  }

  async function drawHome() {
    page.state = { ...page.state };
    const { renderAgents } = await import("./agentpicker.js");
    await attempt(loadAgents);
    if (page.id) return;
    renderAgents(byId("agents"), page.agents, page.agent, (id) => ((page.agent = id), drawHome()));
  }

  async function switchAgent() {
    await attempt(loadAgents);
    const { chooseAgent } = await import("./agentpicker.js");
    const id = await chooseAgent(page.agents, page.state.conversation?.agent?.id);
    if (id != null) attempt(() => patch(path(), { agent: id }));
  }

  // Panels

  async function openContext() {
    if (!page.id) return;
    const { openContextPanel } = await import("./context.js");
    page.panel = openContextPanel(() => page.state, { compact, mayWrite: page.state.conversation?.role !== "viewer" });
    page.panel.dialog.addEventListener("close", () => (page.panel = null));
  }

  async function openPeople() {
    const { openPeoplePanel } = await import("./people.js");
    page.panel = openPeoplePanel(page, fail);
    page.panel.dialog.addEventListener("close", () => (page.panel = null));
  }

  const openHelp = async () => (await import("./shortcuts.js")).openHelpSheet();
  const drawModel = async () => (await import("./model.js")).drawModelView(page, byId("model-view"), fail);

  /** @param {HTMLElement} at @param {any} sidebar */
  async function openMore(at, sidebar) {
    const { openMenu } = await import("./sidebar.js");
    const conversation = page.state.conversation;
    if (!conversation) return;
    const mayWrite = conversation.role !== "viewer";
    openMenu(at, [
      mayWrite && { icon: "edit", label: _("Rename"), act: () => sidebar.rename(conversation) },
      mayWrite && {
        icon: "archive",
        label: conversation.archived ? _("Take out of the archive") : _("Archive"),
        act: () => sidebar.change(conversation, { archived: !conversation.archived }),
      },
      {
        icon: "download",
        label: _("Export as Markdown"),
        act: () => location.assign(`/api/v1${path("/export")}?format=markdown`),
      },
      { icon: "download", label: _("Export as JSONL"), act: () => location.assign(`/api/v1${path("/export")}`) },
      conversation.role === "owner" && {
        icon: "trash",
        label: _("Delete"),
        danger: true,
        act: () => sidebar.erase(conversation),
      },
    ]);
  }

  /** @param {{name: string, is_staff: boolean}} user */
  function accountMenu(user) {
    return [
      { icon: "moon", label: _("Light or dark"), act: toggleTheme },
      {
        icon: "globe",
        label: document.documentElement.lang.startsWith("zh") ? "English" : "简体中文",
        act: () => submitForm("language-form"),
      },
      { icon: "help", label: _("Help and shortcuts"), act: openHelp },
      user.is_staff && { icon: "settings", label: _("Administration"), act: () => location.assign("/admin/") },
      { icon: "key", label: _("Change password"), act: () => location.assign("/accounts/password/change/") },
      { icon: "logout", label: _("Sign out"), act: () => submitForm("sign-out") },
    ];
  }

  // Hints

  let typedAt = 0;
  /** Said now and then while it goes on, and once when it ends: sent, or taken back. @param {boolean} now */
  const typing = (now) => {
    if (now ? Date.now() - typedAt < 3000 : !typedAt) return;
    typedAt = now ? Date.now() : 0;
    page.line?.send("typing", { typing: now });
  };

  /** One line above the composer: what a send waits for, or how full the context is. */
  function drawHints() {
    const place = byId("hints");
    const banner = page.id && waitBanner(page.state);
    if (banner) return void fill(place, banner);
    const hint = page.id && page.state.context?.advice?.hint;
    const key = hint && `hint:${page.id}:${hint.code}:${Math.floor(page.state.messages.length / 10)}`;
    if (!hint || sessionStorage.getItem(key)) return void fill(place);
    const close = () => (sessionStorage.setItem(key, "seen"), drawHints());
    fill(
      place,
      h(
        "div.hint",
        null,
        icon("layers"),
        h("span", null, hint.message),
        h("button.link", { type: "button", onclick: openContext }, _("Look")),
        iconButton("close", _("Dismiss"), close),
      ),
    );
  }

  function editLast() {
    const mine = page.state.messages.filter((/** @type {any} */ one) => one.role === "user" && !one.is_summary).at(-1);
    if (mine && page.view === "compacted") rewrite(mine);
  }

  return {
    message,
    rows,
    card,
    stop,
    typing,
    attach,
    detach,
    refused,
    answered,
    compact,
    compacted,
    uncompacted,
    createConversation,
    drawHome,
    switchAgent,
    openContext,
    openPeople,
    openHelp,
    openMore,
    drawModel,
    drawHints,
    accountMenu,
    editLast,
    reveal,
  };
}

/** A message waits for a compaction: why, and how far it is. @param {any} state */
function waitBanner(state) {
  const waits = state.queue.find(
    (/** @type {any} */ queued) => queued.reason === "block" || queued.reason === "compaction",
  );
  const run = state.compaction;
  if (!waits) return null;
  const words =
    waits.reason === "block"
      ? _("The context is full. Your message waits until older messages are compacted.")
      : _("A compaction is running. Your message is answered from the compacted context.");
  const bar = h("progress", { max: 100, "aria-label": _("Compaction") });
  if (run) bar.value = Math.max(3, Math.round(100 * (run.fraction || 0)));
  return h("div.hint.wait", { role: "status" }, icon("clock"), h("span", null, words), bar);
}

/** Kept in a cookie, so that the page comes in the right colours. */
function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
}

/** @param {string} id */
function submitForm(id) {
  /** @type {HTMLFormElement} */ (byId(id)).requestSubmit();
}
