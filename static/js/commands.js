/** What /help and /context answer, for the person who typed them. */

import { h } from "./dom.js";
import { _, number } from "./i18n.js";
import { partName, PARTS, renderBar, wordsOf } from "./meter.js";

/** @param {{command: string, result: any}} answer @returns {{title: string, content: Node}} */
export function describeCommand(answer) {
  return answer.command === "context"
    ? { title: "/context", content: context(answer.result) }
    : { title: "/help", content: help(answer.result) };
}

/** @param {any} result */
function help(result) {
  const lines = result.commands || [];
  return h(
    "dl.keys",
    null,
    ...lines.flatMap((/** @type {any} */ line) => [
      h("dt", null, h("code", null, [line.command, line.arguments].filter(Boolean).join(" "))),
      h("dd", null, line.text),
    ]),
  );
}

/** The window, the thresholds with a marker at the tier, the five parts. @param {any} result */
function context(result) {
  const { thresholds } = result;
  const rows = [
    [_("Window"), result.max_tokens, ""],
    [_("Effective window"), result.effective_window, ""],
    ["warn", thresholds.warn, result.tier === "warn" ? "◀" : ""],
    ["auto", thresholds.auto, result.tier === "auto" ? "◀" : ""],
    ["hard", thresholds.hard, result.tier === "hard" ? "◀" : ""],
    ["block", thresholds.block, result.used_tokens >= thresholds.block ? "◀" : ""],
  ].filter(([, value]) => value !== undefined);
  const line = ([name, value, mark]) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, name),
      h("td", null, value == null ? _("off") : number(value)),
      h("td", null, mark),
    );
  return h(
    "div.context-answer",
    null,
    h(
      "p",
      null,
      h("b", null, number(result.used_tokens)),
      ` ${_("of {max} tokens", { max: number(result.max_tokens) })} · ${wordsOf(result)}${result.estimated ? ` · ${_("estimate")}` : ""}`,
    ),
    renderBar(result),
    h(
      "div.two-tables",
      null,
      h("table.parts", null, h("tbody", null, ...rows.map(/** @type {any} */ (line)))),
      h(
        "table.parts",
        null,
        h("tbody", null, ...PARTS.map((part) => line([partName(part), result.parts[part] || 0, ""]))),
      ),
    ),
  );
}
