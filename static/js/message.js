/** One message as the page shows it. The same function draws stored and streaming messages. */

import { copy, h, icon, iconButton } from "./dom.js";
import { _, duration, ngettext, size, tokens, when } from "./i18n.js";
import { renderMarkdown, renderPlain } from "./markdown.js";

/**
 * @typedef {object} MessageActs
 * @property {(message: any) => void} edit
 * @property {(message: any) => void} regenerate
 * @property {(message: any) => void} fork
 * @property {(message: any) => void} pin
 * @property {(message: any) => void} answers show the earlier answers
 * @property {(part: any) => string} fileAddress
 * @property {(part: any) => void} openFile
 */

/**
 * @typedef {object} Item
 * @property {string} key
 * @property {any} message
 * @property {any} [stream]
 * @property {{call: any, result: any}[]} [calls]
 * @property {boolean} [follows] belongs to the turn shown just above
 * @property {boolean} [newest] of the newest turn, so it can be regenerated
 */

/**
 * @param {Item} item @param {MessageActs} acts @param {{mayWrite: boolean, me: number, many: boolean, agent: string}} how
 * @returns {HTMLElement}
 */
export function renderMessage(item, acts, how) {
  const { message } = item;
  const mine = message.role === "user";
  const element = h(
    `article.message.${mine ? "from-person" : "from-agent"}`,
    {
      data: { message: message.id },
      tabindex: "-1",
      "aria-label": mine
        ? _("Message from {name}", { name: who(message, how) })
        : _("Answer from {name}", { name: how.agent }),
    },
    h("div.body"),
  );
  refreshMessage(element, item, acts, how);
  return element;
}

/**
 * Bring an element up to date with its item; what is drawn of its text already stays.
 * @param {HTMLElement} element @param {Item} item @param {MessageActs} acts @param {any} how
 */
export function refreshMessage(element, item, acts, how) {
  const { message } = item;
  element.dataset.status = message.status || "";
  element.classList.toggle("follows", Boolean(item.follows));
  element.classList.toggle("compacted", message.compacted_into != null);
  element.classList.toggle("retired", Boolean(message.retired_at));
  element.querySelector(":scope > .message-head")?.remove();
  element.querySelector(":scope > .message-foot")?.remove();
  const head = item.follows ? null : headOf(message, message.role === "user", how);
  if (head) element.prepend(head);
  updateMessage(element, item, acts);
  const silent = !message.content && item.calls?.length && !item.newest;
  if (message.status !== "streaming" && !silent) element.append(footOf(item, acts, how));
}

/** @param {any} message @param {any} how */
const who = (message, how) =>
  message.author?.id === how.me && how.me != null ? _("you") : message.author?.name || _("you");

/** @param {any} message @param {boolean} mine @param {any} how */
function headOf(message, mine, how) {
  const name = mine ? (how.many ? message.author?.name || "" : "") : how.agent;
  if (!name && !message.pinned && message.compacted_into == null && !message.retired_at) return null;
  return h(
    "header.message-head",
    null,
    name && h("span.name", null, name),
    message.pinned &&
      h("span.tag", { title: _("Pinned: compactions keep it word for word") }, icon("pin"), _("pinned")),
    message.compacted_into != null &&
      h("span.tag", { title: _("The model reads the summary instead") }, icon("layers"), _("compacted")),
    message.retired_at && h("span.tag", null, _("replaced")),
    !mine && timeOf(message),
  );
}

/** @param {any} message */
const timeOf = (message) =>
  message.created_at && h("time.quiet", { datetime: message.created_at }, when(message.created_at));

/**
 * Draw text, thinking, tool calls and files into an element that is already there.
 * @param {HTMLElement} element @param {Item} item @param {MessageActs} acts
 */
export function updateMessage(element, item, acts) {
  const { message, stream } = item;
  const body = /** @type {HTMLElement} */ (element.querySelector(":scope > .body"));
  const text = stream ? stream.text.text : message.content || "";
  const thinking = stream ? stream.thinking.text : message.thinking || "";
  if (message.role === "user") drawPerson(body, message, acts, text);
  else drawAgent(body, { text, thinking, message, streaming: Boolean(stream), calls: item.calls || [] }, acts);
}

/** @param {HTMLElement} body @param {any} message @param {MessageActs} acts @param {string} text */
function drawPerson(body, message, acts, text) {
  const content = h("div.prose.said");
  renderPlain(content, text);
  body.replaceChildren(content);
  if (message.parts?.some((/** @type {any} */ part) => part.kind !== "text")) body.append(filesOf(message.parts, acts));
  if (text.length > 1800 || text.split("\n").length > 24) fold(content);
}

/** A long message shows its beginning. @param {HTMLElement} content */
function fold(content) {
  content.classList.add("folded");
  const button = h(
    "button.link.unfold",
    {
      type: "button",
      "aria-expanded": "false",
      onclick: () => {
        const open = content.classList.toggle("folded");
        button.textContent = open ? _("Show all") : _("Show less");
        button.setAttribute("aria-expanded", String(!open));
      },
    },
    _("Show all"),
  );
  content.after(button);
}

/** @param {HTMLElement} body @param {{text: string, thinking: string, message: any, streaming: boolean, calls: any[]}} what @param {MessageActs} acts */
function drawAgent(body, what, acts) {
  drawThinking(body, what);
  const content = /** @type {HTMLElement} */ (
    body.querySelector(":scope > .prose") || body.appendChild(h("div.prose", { dir: "auto" }))
  );
  renderMarkdown(content, what.text, { streaming: what.streaming });
  content.hidden = !what.text;
  body.classList.toggle("writing", what.streaming);
  drawCalls(body, what.calls, acts);
  const parts = what.message.parts || [];
  if (parts.some((/** @type {any} */ part) => part.kind !== "text") && !body.querySelector(":scope > .files"))
    body.append(filesOf(parts, acts));
  if (what.streaming && !what.text && !what.thinking && !what.calls.length) {
    if (!body.querySelector(".waiting"))
      body.append(
        h(
          "p.waiting",
          { role: "status" },
          h("span.dots", { "aria-hidden": "true" }, h("i"), h("i"), h("i")),
          h("span.offscreen", null, _("Waiting for the answer")),
        ),
      );
  } else body.querySelector(".waiting")?.remove();
}

/** @param {HTMLElement} body @param {{text: string, thinking: string, message: any, streaming: boolean}} what */
function drawThinking(body, what) {
  const known = body.querySelector(":scope > .thinking");
  if (!what.thinking) return known?.remove();
  const fold =
    known ||
    h(
      "details.thinking",
      null,
      h("summary", null, icon("thought"), h("span")),
      h("div.thought", { dir: "auto", tabindex: "0" }),
    );
  if (!known) body.prepend(fold);
  const label = /** @type {HTMLElement} */ (fold.querySelector("summary span"));
  const words =
    what.streaming && !what.text
      ? _("Thinking…")
      : what.message.cleared_at
        ? _("Thinking (no longer sent to the model)")
        : _("Thinking");
  if (label.textContent !== words) label.textContent = words;
  const thought = /** @type {HTMLElement} */ (fold.querySelector(".thought"));
  if (thought.textContent !== what.thinking) thought.textContent = what.thinking;
}

/** @param {HTMLElement} body @param {{call: any, result: any}[]} calls @param {MessageActs} acts */
function drawCalls(body, calls, acts) {
  const known = body.querySelector(":scope > .calls");
  if (!calls.length) return known?.remove();
  const list = known || body.appendChild(h("div.calls"));
  calls.forEach((pair, index) => {
    const state = callState(pair);
    const shown = /** @type {HTMLDetailsElement | undefined} */ (list.children[index]);
    if (shown?.dataset.state === state && shown.dataset.result === String(pair.result?.id ?? "")) return;
    const fresh = renderCall(pair, state, acts);
    if (shown) {
      fresh.open = shown.open;
      shown.replaceWith(fresh);
    } else list.append(fresh);
  });
}

/** @param {{call: any, result: any}} pair */
const callState = (pair) =>
  !pair.result ? "running" : pair.result.is_error ? "failed" : pair.result.cleared_at ? "cleared" : "done";

/** @param {{call: any, result: any}} pair @param {string} state @param {MessageActs} acts */
function renderCall({ call, result }, state, acts) {
  const words = /** @type {Record<string, string>} */ ({
    running: _("running"),
    failed: _("failed"),
    cleared: _("cleared from the model's view"),
    done: "",
  });
  const milliseconds = result?.metadata?.duration_ms;
  const fold = h(
    "details.call",
    { data: { state, result: result?.id ?? "" } },
    h(
      "summary",
      null,
      icon(state === "failed" ? "warning" : "tool"),
      h("code", null, call.name || call.function?.name || "?"),
      h("span.gist", null, gist(call.arguments ?? call.function?.arguments)),
      state === "running" && h("span.spinner", { "aria-hidden": "true" }),
      h(
        "span.call-note",
        null,
        [words[state], milliseconds != null && duration(milliseconds)].filter(Boolean).join(" · "),
      ),
    ),
  );
  fold.addEventListener(
    "toggle",
    () => fold.open && fold.childElementCount === 1 && fold.append(callDetails(call, result, acts)),
  );
  return fold;
}

/** The first argument's value, on one line. @param {any} given */
function gist(given) {
  const values = Object.values(readArguments(given));
  const first = values.find((value) => typeof value === "string" || typeof value === "number");
  return first == null ? "" : String(first).replace(/\s+/g, " ").slice(0, 80);
}

/** @param {any} given @returns {Record<string, any>} */
function readArguments(given) {
  if (given && typeof given === "object") return given;
  try {
    const read = JSON.parse(given || "{}");
    return read && typeof read === "object" ? read : { value: read };
  } catch {
    return { "": given };
  }
}

/** @param {any} call @param {any} result @param {MessageActs} acts */
function callDetails(call, result, acts) {
  const given = readArguments(call.arguments ?? call.function?.arguments);
  const details = h(
    "div.call-details",
    null,
    h("h4", null, _("Arguments")),
    h("pre", { tabindex: "0" }, JSON.stringify(given, null, 2)),
  );
  if (!result) return details;
  details.append(
    h(
      "h4",
      null,
      result.is_error ? _("Error") : _("Result"),
      h("span.quiet", null, ` ${ngettext("{n} token", "{n} tokens", result.token_count || 0)}`),
    ),
    h("pre", { tabindex: "0" }, (result.content || "").slice(0, 200_000) || _("(nothing)")),
  );
  if (result.cleared_at) details.append(h("p.quiet", null, _("The model no longer sees this result; you still can.")));
  const files = [...(result.parts || []), result.metadata?.kept].filter(Boolean);
  if (files.length) details.append(filesOf(files, acts));
  return details;
}

/** @param {any[]} parts @param {MessageActs} acts */
export function filesOf(parts, acts) {
  return h(
    "ul.files",
    null,
    ...parts
      .filter((part) => part.kind !== "text")
      .map((part) => {
        const name = part.name || _("file");
        const label = part.tokens ? `${name} · ${_("{n} tokens", { n: tokens(part.tokens) })}` : name;
        const picture = part.kind === "image" && part.attachment;
        return h(
          "li",
          null,
          h(
            `button.file${picture ? ".picture" : ""}`,
            { type: "button", title: label, onclick: () => acts.openFile(part) },
            picture
              ? h("img", {
                  src: acts.fileAddress(part),
                  alt: name,
                  loading: "lazy",
                  width: part.width || null,
                  height: part.height || null,
                })
              : icon("file"),
            !picture && h("span", null, name),
            !picture &&
              h(
                "span.quiet",
                null,
                part.tokens ? _("{n} tokens", { n: tokens(part.tokens) }) : part.size ? size(part.size) : "",
              ),
          ),
        );
      }),
  );
}

/** @param {Item} item @param {MessageActs} acts @param {any} how */
function footOf(item, acts, how) {
  const { message } = item;
  const stored = message.position != null && !message.retired_at;
  const mine = message.role === "user";
  const copyButton = iconButton("copy", _("Copy"), () => copy(message.content || "", copyButton));
  const write = how.mayWrite && stored;
  const note = noteOf(message);
  return h(
    "footer.message-foot",
    null,
    note,
    mine && timeOf(message),
    message.content && copyButton,
    write && mine && iconButton("edit", _("Edit and resend"), () => acts.edit(message)),
    write && !mine && item.newest && iconButton("retry", _("Answer again"), () => acts.regenerate(message)),
    write &&
      !mine &&
      item.newest &&
      message.metadata?.earlier_answers &&
      h("button.link", { type: "button", onclick: () => acts.answers(message) }, _("Earlier answers")),
    how.mayWrite && wasSaid(message) && iconButton("fork", _("New conversation from here"), () => acts.fork(message)),
    write &&
      iconButton(
        "pin",
        message.pinned ? _("Unpin") : _("Pin: compactions keep it word for word"),
        () => acts.pin(message),
        { "aria-pressed": String(Boolean(message.pinned)) },
      ),
    message.token_count > 0 && h("span.quiet.count", null, ngettext("{n} token", "{n} tokens", message.token_count)),
  );
}

/** A replaced message was part of the conversation too, unless it is an answer that never came. @param {any} message */
const wasSaid = (message) =>
  message.position != null &&
  (!message.retired_at ||
    message.role === "user" ||
    Boolean(message.content || message.thinking || message.tool_calls?.length));

/** @param {any} message */
function noteOf(message) {
  if (message.metadata?.stopped) return h("span.state", null, _("stopped"));
  if (message.status === "interrupted") return h("span.state", null, icon("warning"), _("interrupted"));
  if (message.status === "failed") return h("span.state", null, icon("warning"), _("ended with an error"));
  return null;
}
