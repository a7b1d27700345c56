/** Making and changing elements. Text is always text: nothing here takes HTML. */

import { _ } from "./i18n.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element: `h("button.quiet", { type: "button", onclick: act }, "Text", child)`.
 * @param {string} name tag with classes
 * @param {Record<string, any> | null} [properties] `on…` are listeners, `data` a map, false and null are left out
 * @param {...(Node | string | number | null | undefined | false | Node[])} children
 * @returns {any}
 */
export function h(name, properties, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(properties || {})) set(element, key, value);
  element.append(...kept(children));
  return element;
}

/** @param {HTMLElement} element @param {string} key @param {any} value */
function set(element, key, value) {
  if (value == null || value === false) return;
  if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
  else if (key === "data") Object.assign(element.dataset, value);
  else if (value === true) element.setAttribute(key, "");
  else element.setAttribute(key, String(value));
}

/** @param {any[]} children @returns {(Node | string)[]} */
function kept(children) {
  return children
    .flat(2)
    .filter((child) => child != null && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

/** Put exactly these children into `element`. @param {Element} element @param {...any} children */
export function fill(element, ...children) {
  element.replaceChildren(...kept(children));
  return element;
}

/** @param {string} name a symbol of icons.svg */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

/**
 * A button that shows an icon; its name is read out and shown on hover.
 * @param {string} symbol @param {string} label @param {(event: Event) => void} act @param {Record<string, any>} [more]
 * @returns {HTMLButtonElement}
 */
export function iconButton(symbol, label, act, more = {}) {
  return h(
    "button.icon-button",
    { type: "button", "aria-label": label, title: label, onclick: act, ...more },
    icon(symbol),
  );
}

/** @param {string} id @returns {any} */
export const byId = (id) => document.getElementById(id);

/**
 * Text to the clipboard; the button says for a moment that it worked.
 * @param {string} text @param {HTMLElement} button
 */
export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea.offscreen", null);
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const use = button.querySelector("use");
  use?.setAttribute("href", "#i-check");
  announce(_("Copied"));
  setTimeout(() => use?.setAttribute("href", "#i-copy"), 1500);
}

/**
 * Say something to people who listen instead of look.
 * @param {string} text @param {"polite" | "assertive"} [how]
 */
export function announce(text, how = "polite") {
  const region = byId(how === "assertive" ? "alerts" : "announcements");
  if (!region) return;
  region.textContent = "";
  requestAnimationFrame(() => setTimeout(() => (region.textContent = text), 50));
}

const TOAST_ICONS = { note: "check", refusal: "layers", problem: "warning" };

/**
 * A short note in a corner, which goes by itself; a refusal or a problem, which says more, stays longer. Said again, it
 * takes the place of the first.
 * @param {string} text @param {"note" | "refusal" | "problem"} [kind] @param {{label: string, act: () => void}} [action]
 */
export function toast(text, kind = "note", action) {
  const close = () => note.remove();
  const note = h(
    `div.toast.${kind}`,
    null,
    icon(TOAST_ICONS[kind]),
    h("span", null, text),
    action && h("button.link", { type: "button", onclick: () => (close(), action.act()) }, action.label),
    iconButton("close", _("Dismiss"), close),
  );
  const said = [...byId("toasts").children].find((other) => other.querySelector("span")?.textContent === text);
  said?.remove();
  byId("toasts").append(note);
  announce(text, kind === "problem" ? "assertive" : "polite");
  setTimeout(close, kind === "note" ? 5000 : 12000);
}

/**
 * A dialog above the page: focus stays in it, Escape closes it, and focus goes back where it was.
 * @param {string} kind "drawer" or "sheet" @param {string} title @param {...any} content
 * @returns {HTMLDialogElement}
 */
export function openDialog(kind, title, ...content) {
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  const close = () => dialog.close();
  const dialog = h(
    `dialog.${kind}`,
    { "aria-labelledby": "dialog-title", onclick: (event) => event.target === dialog && close() },
    h(
      "div.dialog-frame",
      null,
      h("header.dialog-head", null, h("h2", { id: "dialog-title" }, title), iconButton("close", _("Close"), close)),
      h("div.dialog-body", { tabindex: "-1" }, ...content),
    ),
  );
  document.querySelectorAll("dialog[open]").forEach((open) => /** @type {HTMLDialogElement} */ (open).close());
  dialog.addEventListener("close", () => {
    dialog.remove();
    before?.isConnected && before.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Ask before doing something that cannot be taken back. Resolves to the text where one is asked for, else to true.
 * @param {{title: string, text?: string, action: string, danger?: boolean, input?: string, label?: string}} question
 * @returns {Promise<string | boolean | null>}
 */
export function ask(question) {
  return new Promise((resolve) => {
    const field =
      question.input != null && h("input", { type: "text", value: question.input, id: "asked", maxlength: 200 });
    /** @type {string | boolean | null} */
    let answer = null;
    const form = h(
      "form.ask",
      {
        onsubmit: (event) => {
          event.preventDefault();
          answer = field ? field.value : true;
          dialog.close();
        },
      },
      question.text && h("p", null, question.text),
      field && h("label", { for: "asked" }, question.label || question.title),
      field,
      h(
        "div.buttons",
        null,
        h("button", { type: "button", onclick: () => dialog.close() }, _("Cancel")),
        h(`button.${question.danger ? "danger" : "primary"}`, { type: "submit" }, question.action),
      ),
    );
    const dialog = openDialog("sheet", question.title, form);
    dialog.addEventListener("close", () => resolve(answer));
    if (field) field.select();
  });
}
