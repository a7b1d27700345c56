/**
 * Markdown to sanitised elements, block by block. While an answer streams only its tail is lexed and only the blocks
 * that changed are replaced; at the end the whole text is lexed once and again only what differs is replaced.
 */

import { Lexer, Parser, Renderer } from "../vendor/marked-18.2.1.js";
import DOMPurify from "../vendor/dompurify-3.4.18.js";
import { copy, h, iconButton } from "./dom.js";
import { _ } from "./i18n.js";

/** Tags without attributes that models write into Markdown; any other HTML is shown as text. */
const HARMLESS = /^<\/?(?:br|b|i|em|strong|sub|sup|kbd|u|s|mark|details|summary)\s*\/?>$/i;

/** @param {string} text */
const escaped = (text) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);

class ChatRenderer extends Renderer {
  html(/** @type {any} */ token) {
    const text = token.text;
    return HARMLESS.test(text.trim()) ? text : token.block ? `<p>${escaped(text)}</p>` : escaped(text);
  }

  /** Never loaded: the address of a picture can carry text out of the conversation. */
  image(/** @type {any} */ token) {
    return `<a href="${escaped(token.href)}">${escaped(token.text || token.href)}</a>`;
  }

  code(/** @type {any} */ token) {
    const language = (token.lang || "").match(/^[\w+#.-]*/)?.[0] || "";
    return `<pre><code data-language="${escaped(language)}">${escaped(token.text)}\n</code></pre>`;
  }
}

const OPTIONS = { gfm: true, breaks: false, renderer: new ChatRenderer() };

const ALLOWED = {
  ALLOWED_TAGS:
    "p br hr h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong b i u s del sub sup kbd mark a table thead tbody tr th td details summary input".split(
      " ",
    ),
  ALLOWED_ATTR: ["href", "title", "align", "start", "type", "checked", "disabled", "data-language"],
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

/** @typedef {{key: string, element: HTMLElement}} Block a block and what it was drawn from */
/** @typedef {{root: HTMLElement, blocks: Block[], settled: number, at: number, text: string}} Page */

/** Pages by their root: how far each was rendered. @type {WeakMap<HTMLElement, Page>} */
const pages = new WeakMap();

/**
 * Show `text` in `root`. Called again with a longer text it changes only the end.
 * @param {HTMLElement} root @param {string} text @param {{streaming?: boolean}} [how]
 */
export function renderMarkdown(root, text, how = {}) {
  if (text.includes("\r")) text = text.replace(/\r\n?/g, "\n");
  let page = pages.get(root);
  if (!page || !text.startsWith(page.text.slice(0, page.at))) {
    page = { root, blocks: [], settled: 0, at: 0, text: "" };
    root.replaceChildren();
    pages.set(root, page);
  }
  page.text = text;
  if (!how.streaming) {
    page.settled = 0;
    page.at = 0;
  }
  replaceTail(page, lex(text.slice(page.at)), Boolean(how.streaming));
}

/** @param {string} text @returns {any[] & {links: Record<string, any>}} */
function lex(text) {
  return new Lexer(OPTIONS).lex(text);
}

/**
 * The blocks from `settled` on become those of `tokens`; while streaming, all but the last two are then settled.
 * @param {Page} page @param {any[] & {links: Record<string, any>}} tokens @param {boolean} streaming
 */
function replaceTail(page, tokens, streaming) {
  const shown = tokens.filter((token) => token.type !== "space" && token.type !== "def");
  const links = Object.keys(tokens.links).length ? JSON.stringify(tokens.links) : "";
  shown.forEach((token, index) => putBlock(page, page.settled + index, token, links, streaming));
  for (const gone of page.blocks.splice(page.settled + shown.length)) gone.element.remove();
  if (!streaming || shown.length <= 2) return;
  const keep = tokens.indexOf(shown[shown.length - 2]);
  page.at += tokens.slice(0, keep).reduce((length, token) => length + token.raw.length, 0);
  page.settled += shown.length - 2;
}

/**
 * A block with a bracket depends on the definitions of links too, which often come last.
 * @param {Page} page @param {number} index @param {any} token @param {string} links @param {boolean} streaming
 */
function putBlock(page, index, token, links, streaming) {
  const known = page.blocks[index];
  const key = token.raw.includes("[") ? token.raw + links : token.raw;
  if (known && known.key === key) {
    if (!streaming) decorate(known.element, false);
    return;
  }
  const element = h("div.block");
  element.append(sanitised(new Parser(/** @type {any} */ (OPTIONS)).parse([token])));
  page.blocks[index] = { key, element };
  if (known) known.element.replaceWith(element);
  else page.root.append(element);
  decorate(element, streaming);
}

/** @param {string} html @returns {DocumentFragment} */
function sanitised(html) {
  return /** @type {any} */ (/** @type {any} */ (DOMPurify).sanitize(html, ALLOWED));
}

/** Links that open elsewhere, tables that scroll, code with its name, a copy button and colours. @param {HTMLElement} element @param {boolean} streaming */
function decorate(element, streaming) {
  for (const link of element.querySelectorAll("a[href]")) {
    link.setAttribute("target", "_blank");
    link.setAttribute("rel", "noopener noreferrer nofollow");
  }
  for (const table of element.querySelectorAll("table")) {
    if (table.parentElement?.classList.contains("scroll")) continue;
    const frame = h("div.scroll", { tabindex: "0", role: "group", "aria-label": _("Table") });
    table.replaceWith(frame);
    frame.append(table);
  }
  for (const code of element.querySelectorAll("pre > code")) decorateCode(/** @type {HTMLElement} */ (code), streaming);
}

/** @param {HTMLElement} code @param {boolean} streaming */
function decorateCode(code, streaming) {
  const pre = /** @type {HTMLElement} */ (code.parentElement);
  if (!pre.parentElement?.classList.contains("code")) {
    const button = iconButton("copy", _("Copy code"), () => copy(code.textContent || "", button));
    const frame = h("figure.code", null, h("figcaption", null, code.dataset.language || _("text"), button));
    pre.replaceWith(frame);
    pre.tabIndex = 0;
    frame.append(pre);
  }
  colour(code, streaming);
}

/** @type {{colour: (code: HTMLElement, language: string) => void, ready: (language: string) => boolean} | null} */
let highlighter = null;

/** Colours come later, when the library is here; long code stays plain. @param {HTMLElement} code @param {boolean} streaming */
async function colour(code, streaming) {
  const language = code.dataset.language;
  if (!language || code.dataset.coloured === "yes" || (code.textContent || "").length > 60_000) return;
  if (streaming && !highlighter?.ready(language)) return;
  highlighter ??= await import("./highlight.js");
  highlighter.colour(code, language);
}

/**
 * What a person wrote, as they wrote it: plain text in which only fenced code is set as code.
 * @param {HTMLElement} root @param {string} text
 */
export function renderPlain(root, text) {
  root.replaceChildren();
  let rest = text;
  for (;;) {
    const fence = /(^|\n)(```+|~~~+)([^\n`]*)\n([\s\S]*?)\n\2[ \t]*(?=\n|$)/.exec(rest);
    if (!fence) break;
    plainBlock(root, rest.slice(0, fence.index));
    const code = h("code", { "data-language": fence[3].trim().split(/\s/)[0] }, fence[4] + "\n");
    const block = h("div.block", null, h("pre", null, code));
    root.append(block);
    decorate(block, false);
    rest = rest.slice(fence.index + fence[0].length);
  }
  plainBlock(root, rest);
}

/** @param {HTMLElement} root @param {string} text */
function plainBlock(root, text) {
  const shown = text.replace(/^\n+|\n+$/g, "");
  if (shown) root.append(h("p.plain", { dir: "auto" }, shown));
}
