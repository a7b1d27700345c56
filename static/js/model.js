/** What the model sees: the next request, message by message, with what each costs. */

import { conversationPath, get } from "./api.js";
import { copy, h, icon, iconButton } from "./dom.js";
import { _, ngettext, number, tokens } from "./i18n.js";

/** @param {any} page @param {HTMLElement} root @param {(error: any) => void} fail */
export async function drawModelView(page, root, fail) {
  const id = page.id;
  if (!root.childElementCount) root.replaceChildren(h("p.quiet.center", null, _("Putting the next request together…")));
  let request;
  try {
    request = await get(conversationPath(id, "/messages"), { view: "model" });
  } catch (error) {
    root.replaceChildren();
    return fail(error);
  }
  if (page.id !== id || page.view !== "model") return;
  const json = root.dataset.json === "yes";
  const toggle = h(
    "button",
    {
      type: "button",
      "aria-pressed": String(json),
      onclick: () => ((root.dataset.json = json ? "no" : "yes"), draw()),
    },
    json ? _("Readable") : "JSON",
  );
  const draw = () => drawModelView(page, root, fail);
  root.replaceChildren(head(request, toggle, draw), ...(json ? [asJson(request)] : readable(request)));
}

/** @param {any} request @param {HTMLElement} toggle @param {() => void} again */
function head(request, toggle, again) {
  const used = request.tokens?.used_tokens;
  return h(
    "header.model-head",
    null,
    h(
      "div",
      null,
      h("h2", null, _("The next request")),
      h(
        "p.quiet",
        null,
        [
          ngettext("{n} message", "{n} messages", request.messages.length),
          ngettext("{n} tool", "{n} tools", request.tools.length),
          used != null && `${request.tokens.estimated ? "≈ " : ""}${_("{n} tokens", { n: number(used) })}`,
        ]
          .filter(Boolean)
          .join(" · "),
      ),
      h("p.quiet", null, _("Exactly this is sent, with your next message at its end.")),
    ),
    h("div.buttons", null, toggle, iconButton("retry", _("Read again"), again)),
  );
}

/** @param {any} request @returns {Node[]} */
function readable(request) {
  const sizes = request.tokens?.each || [];
  const rows = request.messages.map((/** @type {any} */ message, /** @type {number} */ index) =>
    row(message, request.kinds?.[index] || message.role, sizes[index]),
  );
  return request.tools.length ? [tools(request.tools), ...rows] : rows;
}

/** @param {any[]} list */
function tools(list) {
  return h(
    "details.seen.tools",
    null,
    h(
      "summary",
      null,
      icon("tool"),
      h("b", null, _("Tools")),
      h("span.gist", null, list.map((tool) => tool.function?.name || tool.name).join(", ")),
    ),
    h("pre", { tabindex: "0" }, JSON.stringify(list, null, 2)),
  );
}

/** @param {any} message @param {string} kind @param {number | undefined} size */
function row(message, kind, size) {
  const text = textOf(message);
  const calls = (message.tool_calls || []).map(
    (/** @type {any} */ call) =>
      `${call.function?.name || call.name}(${call.function?.arguments ?? call.arguments ?? ""})`,
  );
  const whole = [text, ...calls].filter(Boolean).join("\n");
  const long = whole.length > 700;
  const names = /** @type {Record<string, () => string>} */ ({
    system: () => _("Instructions"),
    developer: () => _("Instructions"),
    user: () => _("Person"),
    assistant: () => _("Agent"),
    tool: () => _("Tool result"),
    summary: () => _("Summary"),
    acknowledgement: () => _("Acknowledgement of the summary"),
    carried: () => _("Carried over by the compaction"),
    images: () => _("Images of tool results"),
  });
  const body = h(
    "pre.seen-text",
    { tabindex: long ? "0" : null, dir: "auto" },
    long ? `${whole.slice(0, 700)}…` : whole || " ",
  );
  const more =
    long &&
    h("button.link", { type: "button", onclick: () => ((body.textContent = whole), more.remove()) }, _("Show all"));
  return h(
    "article.seen",
    { data: { role: message.role, kind } },
    h(
      "header",
      null,
      h("b", null, (names[kind] || (() => kind))()),
      message.name && h("span.quiet", null, message.name),
      size != null
        ? h("span.quiet.count", null, _("{n} tokens", { n: tokens(size) }))
        : h("span.quiet.count", null, ngettext("{n} character", "{n} characters", whole.length)),
    ),
    body,
    more,
    picturesOf(message),
  );
}

/** @param {any} message */
function picturesOf(message) {
  const pictures = Array.isArray(message.content)
    ? message.content.filter((/** @type {any} */ part) => part.type === "image_url" && part.image_url?.url)
    : [];
  return (
    pictures.length > 0 &&
    h(
      "div.seen-pictures",
      null,
      ...pictures.map((/** @type {any} */ part) => h("img", { src: part.image_url.url, alt: _("image"), loading: "lazy" })),
    )
  );
}

/** @param {any} message */
function textOf(message) {
  if (typeof message.content === "string") return message.content;
  if (!Array.isArray(message.content)) return "";
  return message.content
    .map((/** @type {any} */ part) => part.text ?? (part.type === "image_url" ? _("[image]") : `[${part.type}]`))
    .join("\n");
}

/** Pictures are long and say nothing as text. @param {any} request */
function asJson(request) {
  const text = JSON.stringify(
    { messages: request.messages, tools: request.tools },
    (_key, value) => (typeof value === "string" && value.startsWith("data:") ? `${value.slice(0, 40)}…` : value),
    2,
  );
  const button = iconButton("copy", _("Copy"), () => copy(text, button));
  return h(
    "figure.code",
    null,
    h("figcaption", null, "JSON", button),
    h("pre", { tabindex: "0" }, h("code", null, text)),
  );
}
