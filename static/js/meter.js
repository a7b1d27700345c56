/** The context meter at the composer: how full the context is, in five parts, with the marks where something happens. */

import { h } from "./dom.js";
import { _, number, tokens } from "./i18n.js";

export const PARTS = /** @type {const} */ (["system", "tools", "summary", "attachments", "messages"]);

/** @param {string} part */
export function partName(part) {
  const names = /** @type {Record<string, () => string>} */ ({
    system: () => _("Instructions"),
    tools: () => _("Tools"),
    summary: () => _("Summary"),
    attachments: () => _("Files"),
    messages: () => _("Messages"),
  });
  return names[part]();
}

/** What starts a compaction: auto, or block where the threshold is 0. @param {any} context */
export const triggerOf = (context) => context.thresholds.auto ?? context.thresholds.block ?? context.max_tokens;

/** Blue below 75 % of the trigger, amber near it, red beyond. Pure. @param {any} context @returns {"calm" | "near" | "over"} */
export function levelOf(context) {
  const share = context.used_tokens / Math.max(1, triggerOf(context));
  return share >= 1 ? "over" : share >= 0.75 ? "near" : "calm";
}

/** The level in words. @param {any} context */
export function wordsOf(context) {
  const { thresholds, used_tokens: used } = context;
  if (used >= thresholds.block) return _("full – the next message waits");
  if (thresholds.auto != null && used >= thresholds.hard) return _("nearly full");
  if (thresholds.auto != null && used >= thresholds.auto)
    return context.paused ? _("above the threshold, paused") : _("compacts next");
  if (levelOf(context) === "near") return _("filling up");
  return _("plenty of room");
}

/** The bar: five parts and the marks. @param {any} context */
export function renderBar(context) {
  const max = Math.max(1, context.max_tokens, context.used_tokens);
  const bar = h("span.bar", { data: { level: levelOf(context) }, "aria-hidden": "true" });
  for (const part of PARTS) {
    const share = context.parts[part] || 0;
    if (!share) continue;
    const piece = h("span.part", { data: { part } });
    piece.style.setProperty("inline-size", `${(100 * share) / max}%`);
    bar.append(piece);
  }
  for (const mark of /** @type {const} */ (["warn", "auto", "hard"])) {
    const at = context.thresholds[mark];
    if (at == null) continue;
    const tick = h("span.tick", { data: { mark } });
    tick.style.setProperty("inset-inline-start", `${(100 * at) / max}%`);
    bar.append(tick);
  }
  return bar;
}

/**
 * The meter: a button that opens the panel.
 * @param {HTMLElement} place @param {any} context @param {() => void} open
 */
export function renderMeter(place, context, open) {
  if (!context) {
    place.replaceChildren();
    return;
  }
  const about = context.estimated ? "≈ " : "";
  const words = wordsOf(context);
  const label = _("Context: {used} of {max} tokens, {words}", {
    used: number(context.used_tokens),
    max: number(context.max_tokens),
    words,
  });
  const content = [
    renderBar(context),
    h(
      "span.meter-text",
      null,
      h("b", null, `${about}${tokens(context.used_tokens)}`),
      ` / ${tokens(context.max_tokens)}`,
      h("span.meter-words", null, ` · ${words}`),
    ),
  ];
  const button =
    place.querySelector("button") ||
    place.appendChild(h("button.meter", { type: "button", "aria-haspopup": "dialog", onclick: open }));
  button.replaceChildren(...content);
  button.dataset.level = levelOf(context);
  button.setAttribute("aria-label", label);
  button.title = _("Open the context panel");
}
