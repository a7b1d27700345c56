/** The summary drawer, and the originals behind a summary. */

import { conversationPath, get } from "./api.js";
import { copy, h, icon, iconButton, openDialog } from "./dom.js";
import { _, duration, ngettext, number, tokens, when } from "./i18n.js";
import { renderMarkdown } from "./markdown.js";
import { renderMessage } from "./message.js";

/**
 * @param {string} conversation @param {any} compaction @param {(message: number) => void} reveal
 */
export function openSummary(conversation, compaction, reveal) {
  const text = h("div.prose.summary-text");
  renderMarkdown(text, compaction.summary_content || "");
  const copyButton = iconButton("copy", _("Copy the summary"), () =>
    copy(compaction.summary_content || "", copyButton),
  );
  const links = h("div.original-links", null, h("p.quiet", null, _("Loading the originals…")));
  openDialog(
    "drawer",
    _("Summary"),
    h(
      "p.drawer-lead",
      null,
      _("This text stands for the messages below in what the model reads. The messages themselves are unchanged."),
    ),
    facts(compaction),
    h("div.drawer-title", null, h("h3", null, _("What the model reads")), copyButton),
    text,
    h("h3", null, _("Originals")),
    links,
  );
  fillLinks(conversation, compaction, links, reveal);
}

/** @param {any} compaction */
function facts(compaction) {
  const rows = [
    [_("Messages"), number(compaction.compacted_count)],
    [
      _("Tokens"),
      compaction.tokens_before == null
        ? null
        : `${number(compaction.tokens_before)} → ${number(compaction.tokens_after)}`,
    ],
    [_("Freed"), compaction.gain == null ? null : _("{n} tokens", { n: tokens(compaction.gain) })],
    [
      _("Text went to"),
      [compaction.channel_name, compaction.model].filter(Boolean).join(" · ") ||
        (compaction.strategy === "extractive" ? _("nobody: made without a model") : null),
    ],
    [_("Strategy"), compaction.strategy],
    [_("Why without a model"), compaction.fallback?.message],
    [_("Asked by"), compaction.requested_by],
    [_("Asked to keep"), compaction.instructions],
    [_("Took"), compaction.duration_ms ? duration(compaction.duration_ms) : null],
    [_("Cost"), compaction.cost == null ? null : `$${compaction.cost.toFixed(compaction.cost < 0.01 ? 5 : 3)}`],
    [
      _("Summary model read and wrote"),
      compaction.usage?.prompt_tokens
        ? _("{read} + {wrote} tokens", {
            read: number(compaction.usage.prompt_tokens),
            wrote: number(compaction.usage.completion_tokens),
          })
        : null,
    ],
    [_("When"), compaction.applied_at ? when(compaction.applied_at) : null],
    ...qualityRows(compaction.quality || {}),
  ].filter(([, value]) => value != null && value !== "");
  return h("dl.facts", null, ...rows.flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

/** The check's figures, whatever it measured. @param {Record<string, any>} quality */
function qualityRows(quality) {
  const names = /** @type {Record<string, () => string>} */ ({
    sections: () => _("Sections"),
    ratio_percent: () => _("Size of what stands for the messages"),
    reachable_percent: () => _("Names, numbers, paths and links still reachable"),
    written_percent: () => _("Of these in the summary's own words"),
    repaired: () => _("Repaired once"),
    missing: () => _("Not in the summary"),
  });
  return Object.entries(quality)
    .filter(([name, value]) => names[name] && value != null && !(Array.isArray(value) && !value.length))
    .map(([name, value]) => [names[name](), name.endsWith("_percent") ? `${value} %` : readable(value)]);
}

/** @param {any} value */
function readable(value) {
  if (typeof value === "boolean") return value ? _("yes") : _("no");
  if (Array.isArray(value)) return value.length > 12 ? `${value.slice(0, 12).join(", ")} …` : value.join(", ");
  return typeof value === "object" ? null : String(value);
}

/** The originals from the first on. @param {string} conversation @param {any} compaction @param {string | null} [after] */
function originals(conversation, compaction, after) {
  return get(conversationPath(conversation, `/summaries/${compaction.summary_message_id}/originals`), {
    limit: 50,
    after,
  });
}

/** @param {string} conversation @param {any} compaction @param {HTMLElement} place @param {(message: number) => void} reveal */
async function fillLinks(conversation, compaction, place, reveal) {
  const list = h("ol.links");
  const more = h("button.link", { type: "button" }, _("Show more"));
  /** @type {string | null} */
  let after = null;
  const load = async () => {
    try {
      const page = await originals(conversation, compaction, after);
      list.append(...page.items.map((/** @type {any} */ message) => originalLink(message, reveal)));
      after = page.next;
      place.replaceChildren(list, ...(after ? [more] : []));
    } catch (error) {
      place.replaceChildren(list, h("p.problem", null, /** @type {Error} */ (error).message));
    }
  };
  more.onclick = load;
  await load();
}

/** @param {any} message @param {(message: number) => void} reveal */
function originalLink(message, reveal) {
  const names = /** @type {Record<string, () => string>} */ ({
    user: () => message.author?.name || _("Person"),
    assistant: () => _("Agent"),
    tool: () => message.tool_name || _("Tool"),
  });
  const words = (message.content || (message.tool_calls || []).map((/** @type {any} */ call) => call.function?.name || call.name).join(", "))
    .replace(/\s+/g, " ")
    .slice(0, 110);
  const go = () => {
    /** @type {HTMLDialogElement | null} */ (document.querySelector("dialog[open]"))?.close();
    reveal(message.id);
  };
  return h(
    "li",
    null,
    h(
      "button.original",
      { type: "button", onclick: go },
      h("b", null, (names[message.role] || (() => message.role))()),
      h("span", null, words || "…"),
    ),
  );
}

/**
 * The originals inside a card, from the first on; more of them on demand.
 * @param {string} conversation @param {any} compaction @param {HTMLElement} root @param {any} acts
 */
export async function fillOriginals(conversation, compaction, root, acts) {
  const how = { mayWrite: false, me: -1, many: true, agent: _("Agent") };
  const list = h("div.originals");
  const state = h("p.quiet", null, _("Loading the originals…"));
  const foot = h("p");
  root.replaceChildren(state, list, foot);
  const load = async (/** @type {string | null} */ after) => {
    try {
      const page = await originals(conversation, compaction, after);
      list.append(...page.items.map((/** @type {any} */ message) => original(message, acts, how)));
      state.textContent =
        page.next || after
          ? _("The originals, word for word")
          : ngettext("{n} original, word for word", "{n} originals, word for word", list.childElementCount);
      foot.replaceChildren(
        ...(page.next ? [h("button.link", { type: "button", onclick: () => load(page.next) }, _("Show more"))] : []),
      );
    } catch (error) {
      state.replaceChildren(icon("warning"), /** @type {Error} */ (error).message);
    }
  };
  await load(null);
}

/** @param {any} message @param {any} acts @param {any} how */
function original(message, acts, how) {
  if (message.role === "tool")
    return h(
      "details.call",
      { data: { state: message.is_error ? "failed" : "done" } },
      h(
        "summary",
        null,
        icon("tool"),
        h("code", null, message.tool_name || _("Tool")),
        h("span.call-note", null, ngettext("{n} token", "{n} tokens", message.token_count)),
      ),
      h("div.call-details", null, h("pre", { tabindex: "0" }, message.content)),
    );
  const calls = (message.tool_calls || []).map((/** @type {any} */ call) => ({
    call,
    result: { id: "original", content: "", metadata: {} },
  }));
  return renderMessage({ key: `original-${message.id}`, message, calls, follows: false }, acts, how);
}
