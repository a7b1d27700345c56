/** Where one writes: text, files, slash commands, send and stop. Drafts survive a reload. */

import { byId, fill, h, icon, iconButton } from "./dom.js";
import { keepDraft, readDraft } from "./drafts.js";
import { _, size, tokens } from "./i18n.js";

/** @returns {{name: string, hint: string, takes?: boolean}[]} */
const commands = () => [
  { name: "/compact", hint: _("compact now; add what to keep, if you like"), takes: true },
  { name: "/context", hint: _("show how the context is used") },
  { name: "/help", hint: _("show what can be typed and pressed") },
];

/** Whether a file is so long that the message carries its beginning. @param {any} attached */
const isBeginning = (attached) => attached.whole > attached.tokens;

/**
 * @typedef {object} ComposerActs
 * @property {(content: string, attachments: any[]) => void} send
 * @property {() => void} stop
 * @property {(now: boolean) => void} typing
 * @property {(files: File[]) => Promise<void>} attach
 * @property {(attached: any) => void} detach
 */

export class Composer {
  /** @param {ComposerActs} acts @param {{message: number, file_bytes?: number}} limits */
  constructor(acts, limits) {
    this.acts = acts;
    this.limits = limits;
    /** @type {string | null} */
    this.conversation = null;
    /** @type {any[]} */
    this.attached = [];
    this.choice = 0;
    /** @type {HTMLTextAreaElement} */
    this.field = byId("write");
    this.menu = byId("commands");
    this.sendButton = byId("send");
    this.stopButton = byId("stop");
    this.listen();
  }

  listen() {
    const form = /** @type {HTMLFormElement} */ (byId("composer"));
    form.addEventListener("submit", (event) => (event.preventDefault(), this.submit()));
    this.stopButton.addEventListener("click", () => this.acts.stop());
    this.field.addEventListener("input", () => this.changed(true));
    this.field.addEventListener("keydown", (event) => this.key(event));
    this.field.addEventListener("blur", () => setTimeout(() => (this.menu.hidden = true), 150));
    this.field.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files || [])];
      if (files.length) (event.preventDefault(), this.acts.attach(files));
    });
    byId("attach").addEventListener("click", () => byId("files").click());
    byId("files").addEventListener("change", (/** @type {any} */ event) => {
      this.acts.attach([...event.target.files]);
      event.target.value = "";
    });
    this.listenToDrops();
  }

  listenToDrops() {
    const carries = (/** @type {DragEvent} */ event) => [...(event.dataTransfer?.types || [])].includes("Files");
    let depth = 0;
    const mark = (/** @type {boolean} */ on) => document.body.classList.toggle("dropping", on);
    addEventListener("dragenter", (event) => carries(event) && ((depth += 1), mark(true)));
    addEventListener("dragleave", (event) => carries(event) && ((depth -= 1), depth <= 0 && mark(false)));
    addEventListener("dragover", (event) => carries(event) && event.preventDefault());
    addEventListener("drop", (event) => {
      if (!carries(event)) return;
      event.preventDefault();
      depth = 0;
      mark(false);
      this.acts.attach([...(event.dataTransfer?.files || [])]);
    });
  }

  /** Another conversation: its own draft. @param {string | null} conversation */
  turnTo(conversation) {
    this.conversation = conversation;
    this.attached = [];
    this.field.value = readDraft(conversation);
    this.drawAttached();
    this.changed(false);
  }

  /** @param {string} text */
  put(text) {
    this.field.value = text;
    this.changed(false);
    this.field.focus();
    this.field.setSelectionRange(text.length, text.length);
  }

  /** @param {boolean} typed */
  changed(typed) {
    if (typed) {
      keepDraft(this.conversation, this.field.value);
      this.acts.typing(Boolean(this.field.value));
    }
    this.fit();
    this.suggest();
    this.allow();
  }

  /** As high as its text, up to a limit. */
  fit() {
    if (CSS.supports("field-sizing", "content")) return;
    this.field.style.setProperty("block-size", "auto");
    this.field.style.setProperty("block-size", `${Math.min(this.field.scrollHeight, 260)}px`);
  }

  allow() {
    const busy = this.attached.some((attached) => attached.progress != null);
    const ready = this.attached.some((attached) => attached.id);
    this.sendButton.disabled = busy || (!this.field.value.trim() && !ready);
  }

  submit() {
    this.allow();
    if (this.sendButton.disabled) return;
    const content = this.field.value;
    if (this.limits.message && content.length > this.limits.message) {
      this.field.setCustomValidity(_("This message is too long. Attach it as a file instead."));
      this.field.reportValidity();
      this.field.setCustomValidity("");
      return;
    }
    const attachments = this.attached.filter((attached) => attached.id);
    this.field.value = "";
    this.attached = [];
    keepDraft(this.conversation, "");
    this.drawAttached();
    this.changed(false);
    this.acts.typing(false);
    this.acts.send(content, attachments);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.isComposing) return;
    if (!this.menu.hidden && this.menuKey(event)) return;
    const touch = matchMedia("(pointer: coarse)").matches;
    if (event.key === "Enter" && !event.shiftKey && !event.altKey && (!touch || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.submit();
    }
  }

  /** @param {KeyboardEvent} event */
  menuKey(event) {
    const count = this.menu.children.length;
    if (event.key === "ArrowDown" || event.key === "ArrowUp")
      this.choice = (this.choice + (event.key === "ArrowDown" ? 1 : count - 1)) % count;
    else if (event.key === "Tab" || (event.key === "Enter" && this.field.value !== this.matches()[this.choice]?.name))
      this.choose(this.matches()[this.choice]);
    else if (event.key === "Escape") this.menu.hidden = true;
    else return false;
    event.preventDefault();
    event.stopPropagation();
    this.drawMenu();
    return true;
  }

  matches() {
    const text = this.field.value;
    return /^\/\w*$/.test(text) ? commands().filter((command) => command.name.startsWith(text)) : [];
  }

  suggest() {
    this.menu.hidden = !this.matches().length || document.activeElement !== this.field;
    this.choice = 0;
    this.drawMenu();
  }

  drawMenu() {
    const shown = this.menu.hidden ? [] : this.matches();
    this.field.setAttribute("aria-expanded", String(shown.length > 0));
    fill(
      this.menu,
      ...shown.map((command, index) =>
        h(
          "li",
          {
            role: "option",
            id: `command-${index}`,
            "aria-selected": String(index === this.choice),
            onmousedown: (/** @type {Event} */ event) => (event.preventDefault(), this.choose(command)),
          },
          h("code", null, command.name),
          h("span", null, command.hint),
        ),
      ),
    );
    if (shown.length) this.field.setAttribute("aria-activedescendant", `command-${this.choice}`);
    else this.field.removeAttribute("aria-activedescendant");
  }

  /** @param {{name: string, takes?: boolean} | undefined} command */
  choose(command) {
    if (!command) return;
    this.put(command.name + (command.takes ? " " : ""));
    this.menu.hidden = true;
  }

  /** @param {any} attached {name, size, tokens, id, progress, problem, cancel} */
  showAttached(attached) {
    if (!this.attached.includes(attached)) this.attached.push(attached);
    this.drawAttached();
    this.allow();
  }

  /** What a file costs, or how far it is, or what is wrong with it. @param {any} attached */
  noteOf(attached) {
    if (attached.problem) return attached.problem;
    if (attached.progress != null) return `${Math.round(attached.progress * 100)} %`;
    if (!attached.tokens) return size(attached.size);
    const cost = _("{n} tokens", { n: tokens(attached.tokens) });
    if (!isBeginning(attached)) return cost;
    return _("{n} of {all} tokens", { n: tokens(attached.tokens), all: tokens(attached.whole) });
  }

  drawAttached() {
    fill(
      byId("attached"),
      ...this.attached.map((attached) =>
        h(
          `li.attached${attached.problem ? ".problem" : ""}`,
          null,
          attached.preview ? h("img", { src: attached.preview, alt: "" }) : icon("file"),
          h("span.attached-name", null, attached.name),
          h(
            "span.quiet",
            { title: isBeginning(attached) ? _("Its beginning is sent; the agent reads on as it needs.") : null },
            this.noteOf(attached),
          ),
          iconButton("close", _("Remove {name}", { name: attached.name }), () => this.drop(attached)),
        ),
      ),
    );
    byId("attached").hidden = !this.attached.length;
  }

  /** @param {any} attached */
  drop(attached) {
    this.attached = this.attached.filter((other) => other !== attached);
    this.acts.detach(attached);
    this.drawAttached();
    this.allow();
    this.field.focus();
  }

  /** @param {{answering: boolean, mayWrite: boolean, offline: boolean, placeholder: string}} how */
  show(how) {
    this.stopButton.hidden = !how.answering || !how.mayWrite;
    byId("composer").classList.toggle("read-only", !how.mayWrite);
    this.field.disabled = !how.mayWrite;
    byId("attach").disabled = !how.mayWrite;
    if (this.field.placeholder !== how.placeholder) this.field.placeholder = how.placeholder;
    this.sendButton.title = how.answering ? _("Send; it is answered after the current answer") : _("Send");
  }
}
