/** The compaction card, where it happened: running, done, failed, cancelled, skipped, undone. */

import { h, icon } from "./dom.js";
import { _, duration, ngettext, number, tokens } from "./i18n.js";
import { renderMarkdown } from "./markdown.js";

const STAGES = /** @type {Record<string, () => string>} */ ({
  "": () => _("Getting ready"),
  queued: () => _("Waiting for a free worker"),
  prune: () => _("Setting aside old tool output"),
  boundary: () => _("Finding where to cut"),
  summarize: () => _("Writing the summary"),
  summarise: () => _("Writing the summary"),
  quality: () => _("Checking the summary"),
  repair: () => _("Repairing the summary"),
  assemble: () => _("Putting the context together"),
  restore: () => _("Bringing back files and images"),
  commit: () => _("Storing it"),
  ready: () => _("Ready, waiting for the answer to end"),
});

const REASONS = /** @type {Record<string, () => string>} */ ({
  manual: () => _("asked for"),
  auto: () => _("automatic"),
  hard: () => _("window nearly full"),
  overflow: () => _("the model refused the request as too long"),
});

/**
 * @typedef {object} CardActs
 * @property {(compaction: any) => void} cancel
 * @property {(compaction: any) => void} undo
 * @property {(compaction: any) => void} retry
 * @property {(compaction: any) => void} summary open the drawer
 * @property {(compaction: any, root: HTMLElement) => void} originals fill `root` with the originals
 */

/**
 * @param {any} compaction @param {CardActs} acts @param {{mayWrite: boolean, open?: string}} how
 * @returns {HTMLElement}
 */
export function renderCard(compaction, acts, how) {
  const kind = kindOf(compaction);
  const parts = { running, done, failed, quiet }[kind](compaction, acts, how);
  return h(
    `section.card.${kind}`,
    { tabindex: "-1", "aria-label": _("Compaction"), data: { compaction: compaction.id, state: compaction.state } },
    ...parts,
  );
}

/** @param {any} compaction @returns {"running" | "done" | "failed" | "quiet"} */
function kindOf(compaction) {
  if (["queued", "running", "ready"].includes(compaction.state)) return "running";
  if (compaction.state === "applied") return "done";
  return compaction.state === "failed" ? "failed" : "quiet";
}

/** @param {string} symbol @param {...any} words */
const head = (symbol, ...words) => h("header.card-head", null, icon(symbol), h("div.card-title", null, ...words));

/** @param {any} compaction @param {CardActs} acts @param {any} how */
function running(compaction, acts, how) {
  const waits = compaction.blocking ? _("New messages wait until it is done.") : _("The chat goes on meanwhile.");
  const bar = h(
    "div.progress",
    { role: "progressbar", "aria-label": _("Compaction"), "aria-valuemin": 0, "aria-valuemax": 100 },
    h("span"),
  );
  const card = [
    head(
      "layers",
      h("strong", null, _("Compacting the conversation")),
      h("span.card-detail", null, `${because(compaction)} · ${waits}`),
    ),
    bar,
    h(
      "div.card-foot",
      null,
      h("span.stage"),
      h("span.elapsed"),
      how.mayWrite &&
        compaction.state !== "ready" &&
        h("button", { type: "button", onclick: () => acts.cancel(compaction) }, _("Cancel")),
    ),
  ];
  queueMicrotask(() => updateProgress(bar.closest(".card"), compaction));
  return card;
}

/**
 * Progress changes often: only the numbers of the card that is there are changed.
 * @param {HTMLElement | null} card @param {any} compaction
 */
export function updateProgress(card, compaction) {
  if (!card) return;
  const percent = Math.round(100 * Math.min(1, Math.max(0, compaction.fraction || 0)));
  const bar = card.querySelector(".progress");
  bar?.setAttribute("aria-valuenow", String(percent));
  /** @type {HTMLElement | null} */ (card.querySelector(".progress > span"))?.style.setProperty(
    "inline-size",
    `${Math.max(3, percent)}%`,
  );
  const stage =
    compaction.state === "ready" ? "ready" : compaction.state === "queued" ? "queued" : compaction.stage || "";
  const words = (STAGES[stage] || (() => stage))();
  const shown = card.querySelector(".stage");
  if (shown && shown.textContent !== words) shown.textContent = words;
  const elapsed = card.querySelector(".elapsed");
  const since = Date.parse(compaction.started_at || compaction.created_at);
  if (elapsed && since) elapsed.textContent = duration(Math.max(0, Math.floor((Date.now() - since) / 1000) * 1000));
}

/** @param {any} compaction */
function because(compaction) {
  const reason = (REASONS[compaction.reason] || (() => compaction.reason))();
  if (compaction.reason === "manual" && compaction.requested_by)
    return _("asked for by {name}", { name: compaction.requested_by });
  return reason;
}

/** "Compacted 42 messages · 96k → 21k tokens · 9 s". @param {any} compaction */
export function headline(compaction) {
  const words = [ngettext("Compacted {n} message", "Compacted {n} messages", compaction.compacted_count || 0)];
  if (compaction.tokens_before != null)
    words.push(
      _("{before} → {after} tokens", {
        before: tokens(compaction.tokens_before),
        after: tokens(compaction.tokens_after),
      }),
    );
  if (compaction.duration_ms) words.push(duration(compaction.duration_ms));
  return words.join(" · ");
}

/** @param {any} compaction @param {CardActs} acts @param {any} how */
function done(compaction, acts, how) {
  const undoing = compaction.undo_requested_at && !compaction.undone_at;
  return [
    head(
      "layers",
      h("strong", null, headline(compaction)),
      h(
        "span.card-detail",
        null,
        undoing
          ? _("Will be undone as soon as the answer ends")
          : [
              because(compaction),
              compaction.channel_name &&
                _("summary by {model}", { model: compaction.model || compaction.channel_name }),
            ]
              .filter(Boolean)
              .join(" · "),
      ),
    ),
    compaction.fallback && h("p.card-line", null, withoutModel(compaction.fallback)),
    tabs(compaction, acts),
    h(
      "div.card-foot",
      null,
      h("button", { type: "button", onclick: () => acts.summary(compaction) }, icon("scroll"), _("Details")),
      how.mayWrite &&
        compaction.can_undo &&
        !undoing &&
        h("button", { type: "button", onclick: () => acts.undo(compaction) }, icon("undo"), _("Undo")),
    ),
  ];
}

/** Why no model wrote the summary although one was wanted. @param {{message: string}} fallback */
export function withoutModel(fallback) {
  return _("Made without a model, because otherwise the context would not have fitted the window. {why}", {
    why: fallback.message,
  });
}

/** Both tabs start closed, so that the card stays small; a second click closes a tab again. @param {any} compaction @param {CardActs} acts */
function tabs(compaction, acts) {
  const panel = h("div.card-panel", { hidden: true, tabindex: "0" });
  const names = { summary: _("Summary"), originals: _("Originals") };
  const buttons = Object.entries(names).map(([name, label]) =>
    h("button", { type: "button", "aria-expanded": "false", data: { tab: name }, onclick: () => choose(name) }, label),
  );
  /** @param {string} name */
  function choose(name) {
    const open = panel.dataset.shown === name && !panel.hidden;
    panel.hidden = open;
    panel.dataset.shown = name;
    buttons.forEach((button) => button.setAttribute("aria-expanded", String(!open && button.dataset.tab === name)));
    if (open) return;
    panel.replaceChildren();
    if (name === "summary") {
      const text = h("div.prose");
      renderMarkdown(text, compaction.summary_content || "");
      panel.append(text);
    } else acts.originals(compaction, panel);
  }
  return h(
    "div.card-tabs",
    null,
    h("div.tab-row", { role: "group", "aria-label": _("What to show") }, ...buttons),
    panel,
  );
}

/** @param {any} compaction @param {CardActs} acts @param {any} how */
function failed(compaction, acts, how) {
  const error = compaction.error || { message: _("The compaction failed."), retryable: true };
  return [
    head(
      "warning",
      h("strong", null, _("Compaction failed – nothing was changed")),
      h("span.card-detail", null, error.message),
    ),
    h(
      "div.card-foot",
      null,
      h("span.stage", null, because(compaction)),
      how.mayWrite &&
        error.retryable !== false &&
        h("button", { type: "button", onclick: () => acts.retry(compaction) }, icon("retry"), _("Retry")),
    ),
  ];
}

/** What left no trace in the context: one line. @param {any} compaction @param {CardActs} _acts @param {any} _how */
function quiet(compaction, _acts, _how) {
  const words = /** @type {Record<string, () => string>} */ ({
    cancelled: () => _("Compaction cancelled – nothing was changed"),
    skipped: () => _("Not compacted: {why}", { why: compaction.error?.message || _("nothing to compact") }),
    stale: () => _("Compaction set aside, because the conversation changed meanwhile"),
    undone: () =>
      _("Compaction undone – {n} messages are back in the context", { n: number(compaction.compacted_count) }),
  });
  return [
    h(
      "p.card-line",
      null,
      icon(compaction.state === "undone" ? "undo" : "layers"),
      (words[compaction.state] || (() => compaction.state))(),
    ),
  ];
}
