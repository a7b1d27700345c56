/** The context panel: the numbers behind the meter, what each part takes, what compacting would free, and the button. */

import { h, icon, openDialog } from "./dom.js";
import { _, ngettext, number, tokens } from "./i18n.js";
import { levelOf, partName, PARTS, renderBar, wordsOf } from "./meter.js";

/**
 * @param {() => any} state the page's state, read again at every change
 * @param {{compact: (instructions: string) => void, mayWrite: boolean}} how
 * @returns {{refresh: () => void, dialog: HTMLDialogElement}}
 */
export function openContextPanel(state, how) {
  const numbers = h("div.context-numbers");
  const dialog = openDialog("panel", _("Context"), numbers, how.mayWrite && compactForm());
  const refresh = () => numbers.replaceChildren(...describe(state()));
  refresh();
  return { refresh, dialog };

  function compactForm() {
    const field = h("input", {
      type: "text",
      id: "keep",
      maxlength: 2000,
      placeholder: _("for example: keep the SQL"),
    });
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      dialog.close();
      how.compact(field.value.trim());
    };
    return h(
      "form.compact-form",
      { onsubmit: submit },
      h("label", { for: "keep" }, _("What to keep (optional)")),
      h("div.field-row", null, field, h("button.primary", { type: "submit" }, icon("layers"), _("Compact"))),
    );
  }
}

/** @param {any} state @returns {Node[]} */
function describe(state) {
  const context = state.context;
  if (!context) return [h("p.quiet", null, _("Not known yet."))];
  return /** @type {Node[]} */ (
    [
      summaryLine(context),
      renderBar(context),
      partsTable(context),
      forecast(context),
      ladder(context),
      ...warnings(context),
      usage(state.current),
    ].filter(Boolean)
  );
}

/** @param {any} context */
function summaryLine(context) {
  const percent = Math.min(100, Math.round(context.percent ?? (100 * context.used_tokens) / context.max_tokens));
  return h(
    "p.context-total",
    { data: { level: levelOf(context) } },
    h("b", null, number(context.used_tokens)),
    ` ${_("of {max} tokens", { max: number(context.max_tokens) })} · ${percent} % · ${wordsOf(context)}`,
    context.estimated &&
      h("span.tag", { title: _("Counted here; the model's own count follows with its next answer.") }, _("estimate")),
  );
}

/** @param {any} context */
function partsTable(context) {
  return h(
    "table.parts",
    null,
    h("caption.offscreen", null, _("What takes the context")),
    h(
      "tbody",
      null,
      ...PARTS.map((part) =>
        h(
          "tr",
          null,
          h("th", { scope: "row" }, h("span.swatch", { data: { part, level: levelOf(context) } }), partName(part)),
          h("td", null, number(context.parts[part] || 0)),
          h("td.quiet", null, `${Math.round((100 * (context.parts[part] || 0)) / Math.max(1, context.used_tokens))} %`),
        ),
      ),
    ),
  );
}

/** @param {any} context */
function forecast(context) {
  const advice = context.advice || {};
  const words = [];
  if (advice.turns_left)
    words.push(
      advice.turns_left > 99
        ? _("More than 99 turns left before a compaction.")
        : ngettext(
            "About {n} turn left before a compaction.",
            "About {n} turns left before a compaction.",
            advice.turns_left,
          ),
    );
  if (advice.would_free != null)
    words.push(_("Compacting now would free about {n} tokens.", { n: tokens(advice.would_free) }));
  else if (advice.would_free === null) words.push(_("Compacting now would free little."));
  if (advice.floor)
    words.push(
      _("{n} tokens can never be compacted (instructions, tools, pins, the newest message).", {
        n: tokens(advice.floor),
      }),
    );
  return words.length ? h("p.forecast", null, words.join(" ")) : null;
}

/** @param {any} context */
function ladder(context) {
  const { thresholds } = context;
  const steps = [
    ["warn", _("hint"), thresholds.warn],
    ["auto", _("compacts by itself"), thresholds.auto],
    ["hard", _("compacts in any case"), thresholds.auto == null ? null : thresholds.hard],
    ["block", _("sending waits"), thresholds.block],
  ];
  const reached = steps.filter(([, , at]) => at != null && context.used_tokens >= Number(at)).at(-1)?.[0];
  return h(
    "ol.ladder",
    { "aria-label": _("Thresholds") },
    ...steps.map(([name, words, at]) =>
      h(
        "li",
        { class: name === reached ? "reached" : null, "aria-current": name === reached ? "step" : null },
        h("b", null, at == null ? _("off") : tokens(Number(at))),
        h("span", null, words),
      ),
    ),
  );
}

/** Why compaction would not come by itself, and what to do. @param {any} context */
function warnings(context) {
  const found = [];
  if (context.advice?.refusal) found.push(context.advice.refusal.message);
  if (context.paused && !context.advice?.refusal)
    found.push(_("Automatic compaction is paused after an undo. Compacting by hand ends the pause."));
  if (breakerOpen(context) && !context.advice?.refusal)
    found.push(
      _(
        "Automatic compaction stopped after several failures. Compact by hand to try again, or ask an administrator to check the model that writes summaries.",
      ),
    );
  if (context.thresholds.clamp_reason) found.push(context.thresholds.clamp_reason);
  return found.map((words) => h("p.notice", null, icon("warning"), h("span", null, words)));
}

/** @param {any} context */
function breakerOpen(context) {
  return (
    context.breaker === true || context.breaker === "open" || Boolean(context.breaker?.open ?? context.breaker?.is_open)
  );
}

/** @param {any} current */
function usage(current) {
  if (!current?.total_tokens) return null;
  return h(
    "p.quiet",
    null,
    _("Last turn: {input} tokens read, {output} written, {calls} model calls.", {
      input: number(current.input_tokens),
      output: number(current.output_tokens),
      calls: number(current.api_calls),
    }),
  );
}
