/** The list of conversations: search, pin, archive, rename, delete. */

import { conversationPath, get, patch, remove } from "./api.js";
import { ask, byId, fill, h, icon, iconButton, toast } from "./dom.js";
import { _, when } from "./i18n.js";

/** @typedef {{open: (id: string) => void, gone: (id: string) => void, changed: (conversation: any) => void}} SidebarActs */

export class Sidebar {
  /** @param {SidebarActs} acts */
  constructor(acts) {
    this.acts = acts;
    /** @type {any[]} */
    this.conversations = [];
    /** @type {string | null} */
    this.next = null;
    this.archived = false;
    this.loadedAt = 0;
    this.query = "";
    /** @type {any[]} */
    this.found = [];
    /** @type {string | null} */
    this.current = null;
    this.list = byId("conversations");
    const search = byId("search");
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let later;
    search.addEventListener("input", () => {
      clearTimeout(later);
      later = setTimeout(() => this.search(search.value.trim()), 220);
    });
    byId("archived").addEventListener("click", () => this.showArchived(!this.archived));
    document.addEventListener("visibilitychange", () => this.lookAgain());
    this.list.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
  }

  async load() {
    this.loadedAt = Date.now();
    try {
      const page = await get("/conversations", { archived: String(this.archived), q: this.query, limit: 50 });
      this.conversations = page.items;
      this.next = page.next;
    } catch (error) {
      toast(/** @type {Error} */ (error).message, "problem");
    }
    this.draw();
  }

  /** Back after a while: others may have written meanwhile. */
  lookAgain() {
    if (document.hidden || this.query || Date.now() - this.loadedAt < 30_000) return;
    this.load();
  }

  async more() {
    const page = await get("/conversations", {
      archived: String(this.archived),
      q: this.query,
      limit: 50,
      cursor: this.next,
    });
    this.conversations.push(...page.items);
    this.next = page.next;
    this.draw();
  }

  /** @param {boolean} archived */
  showArchived(archived) {
    this.archived = archived;
    byId("archived").setAttribute("aria-pressed", String(archived));
    this.load();
  }

  /** Titles and, from three letters on, what was said. @param {string} query */
  async search(query) {
    this.query = query;
    this.found = [];
    await this.load();
    if (query.length < 2) return;
    try {
      const answer = await get("/search", { q: query, limit: 20 });
      if (this.query === query) this.found = answer.items;
    } catch {
      this.found = [];
    }
    this.draw();
  }

  /** A conversation was made or has changed. @param {any} conversation */
  put(conversation) {
    const at = this.conversations.findIndex((other) => other.id === conversation.id);
    const known = at >= 0 ? this.conversations[at] : null;
    if (known && ["title", "pinned", "archived"].every((name) => known[name] === conversation[name])) return;
    if (at >= 0) this.conversations.splice(at, 1);
    if (conversation.archived === this.archived && !conversation.deleted && !this.query) {
      const merged = { ...known, ...conversation };
      const place =
        at >= 0 && known.pinned === merged.pinned
          ? at
          : merged.pinned
            ? 0
            : this.conversations.filter((other) => other.pinned).length;
      this.conversations.splice(place, 0, merged);
    }
    this.draw();
  }

  /** Something was said in it: it moves up. @param {string} id */
  touch(id) {
    const at = this.conversations.findIndex((other) => other.id === id);
    if (at < 0) return;
    const [conversation] = this.conversations.splice(at, 1);
    conversation.updated_at = new Date().toISOString();
    const place = conversation.pinned ? 0 : this.conversations.filter((other) => other.pinned).length;
    this.conversations.splice(place, 0, conversation);
    if (place !== at) this.draw();
  }

  /** @param {string | null} id */
  mark(id) {
    this.current = id;
    this.list
      .querySelectorAll("a")
      .forEach((/** @type {HTMLElement} */ link) =>
        link.dataset.id === id ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current"),
      );
  }

  draw() {
    const rows = this.conversations.map((conversation) => this.row(conversation));
    const found = this.found.map((hit) => this.hit(hit));
    fill(
      this.list,
      ...rows,
      !rows.length &&
        h(
          "li.empty",
          null,
          this.query ? _("No title matches.") : this.archived ? _("Nothing is archived.") : _("No conversations yet."),
        ),
      this.next && h("li", null, h("button.link", { type: "button", onclick: () => this.more() }, _("Show more"))),
      found.length > 0 && h("li.group", null, _("In messages")),
      ...found,
    );
    this.mark(this.current);
  }

  /** @param {any} conversation */
  row(conversation) {
    const title = conversation.title || _("New conversation");
    const open = (/** @type {MouseEvent} */ event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
      event.preventDefault();
      this.acts.open(conversation.id);
    };
    const menu = iconButton("more", _("Actions for {title}", { title }), () => this.menu(conversation, menu), {
      "aria-haspopup": "menu",
    });
    return h(
      "li.conversation",
      null,
      h(
        "a",
        { href: `/c/${conversation.id}`, data: { id: conversation.id }, onclick: open },
        h("span.title", { dir: "auto" }, title),
        h(
          "span.sub",
          null,
          conversation.pinned && icon("pin"),
          conversation.role && conversation.role !== "owner" && icon("people"),
          `${conversation.agent?.name || ""} · ${when(conversation.updated_at)}`,
        ),
      ),
      menu,
    );
  }

  /** @param {any} hit */
  hit(hit) {
    const act = (/** @type {Event} */ event) => (
      event.preventDefault(),
      this.acts.open(`${hit.conversation}#${hit.message}`)
    );
    return h(
      "li.conversation",
      null,
      h(
        "a",
        { href: `/c/${hit.conversation}`, onclick: act },
        h("span.title", null, hit.conversation_title || _("New conversation")),
        h("span.sub", null, hit.excerpt),
      ),
    );
  }

  /** @param {any} conversation @param {HTMLElement} at */
  menu(conversation, at) {
    const own = conversation.role === "owner" || !conversation.role;
    const mayWrite = conversation.role !== "viewer";
    openMenu(at, [
      mayWrite && { icon: "edit", label: _("Rename"), act: () => this.rename(conversation) },
      mayWrite && {
        icon: "pin",
        label: conversation.pinned ? _("Unpin") : _("Pin to the top"),
        act: () => this.change(conversation, { pinned: !conversation.pinned }),
      },
      mayWrite && {
        icon: "archive",
        label: conversation.archived ? _("Take out of the archive") : _("Archive"),
        act: () => this.change(conversation, { archived: !conversation.archived }),
      },
      own && { icon: "trash", label: _("Delete"), danger: true, act: () => this.erase(conversation) },
    ]);
  }

  /** @param {any} conversation */
  async rename(conversation) {
    const title = await ask({
      title: _("Rename the conversation"),
      input: conversation.title || "",
      label: _("Title"),
      action: _("Rename"),
    });
    if (typeof title === "string") this.change(conversation, { title });
  }

  /** @param {any} conversation @param {any} change */
  async change(conversation, change) {
    try {
      const changed = await patch(conversationPath(conversation.id), change);
      this.put(changed);
      this.acts.changed(changed);
    } catch (error) {
      toast(/** @type {Error} */ (error).message, "problem");
    }
  }

  /** @param {any} conversation */
  async erase(conversation) {
    const sure = await ask({
      title: _("Delete this conversation?"),
      text: _("“{title}” with all its messages and files disappears for everyone in it.", {
        title: conversation.title || _("New conversation"),
      }),
      action: _("Delete"),
      danger: true,
    });
    if (!sure) return;
    try {
      await remove(conversationPath(conversation.id));
      this.conversations = this.conversations.filter((other) => other.id !== conversation.id);
      this.draw();
      this.acts.gone(conversation.id);
    } catch (error) {
      toast(/** @type {Error} */ (error).message, "problem");
    }
  }

  /** Arrow keys move through the list. @param {KeyboardEvent} event */
  key(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = /** @type {HTMLElement[]} */ ([...this.list.querySelectorAll("a")]);
    const at = links.indexOf(/** @type {any} */ (document.activeElement));
    if (at < 0) return;
    event.preventDefault();
    links[Math.max(0, Math.min(links.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)))].focus();
  }
}

/**
 * A small menu beside a button.
 * @param {HTMLElement} at @param {(false | {icon: string, label: string, act: () => void, danger?: boolean})[]} entries
 */
export function openMenu(at, entries) {
  document.querySelector(".menu")?.remove();
  const close = () => {
    menu.remove();
    removeEventListener("pointerdown", outside, true);
    at.setAttribute("aria-expanded", "false");
  };
  const outside = (/** @type {Event} */ event) => !menu.contains(/** @type {Node} */ (event.target)) && close();
  const shown = entries.filter((entry) => entry);
  const menu = h(
    "div.menu",
    { role: "menu" },
    ...shown.map((/** @type {any} */ entry) =>
      h(
        `button${entry.danger ? ".danger-text" : ""}`,
        { type: "button", role: "menuitem", onclick: () => (close(), at.focus(), entry.act()) },
        icon(entry.icon),
        entry.label,
      ),
    ),
  );
  menu.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const buttons = /** @type {HTMLElement[]} */ ([...menu.children]);
    const here = buttons.indexOf(/** @type {any} */ (document.activeElement));
    if (event.key === "Escape" || event.key === "Tab") (close(), at.focus());
    else if (event.key === "ArrowDown") buttons[(here + 1) % buttons.length].focus();
    else if (event.key === "ArrowUp") buttons[(here + buttons.length - 1) % buttons.length].focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  document.body.append(menu);
  place(menu, at);
  at.setAttribute("aria-expanded", "true");
  addEventListener("pointerdown", outside, true);
  menu.querySelector("button")?.focus();
}

/** Below the button, or above where there is no room. @param {HTMLElement} menu @param {HTMLElement} at */
function place(menu, at) {
  const box = at.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = menu;
  const left = Math.max(8, Math.min(box.right - width, innerWidth - width - 8));
  const top = box.bottom + height + 8 > innerHeight ? box.top - height - 4 : box.bottom + 4;
  menu.style.setProperty("left", `${Math.max(8, left < 8 ? box.left : left)}px`);
  menu.style.setProperty("top", `${Math.max(8, top)}px`);
}
