/** The reader's language: texts, plurals, numbers, times. The catalogue is fetched only where the page is not English. */

/** @type {{catalog: Record<string, string | string[]>}} */
let catalogue = { catalog: {} };

export const language = document.documentElement.lang || "en";

const address = document.documentElement.dataset.catalogue;
if (address) {
  try {
    const answer = await fetch(address, { credentials: "same-origin" });
    if (answer.ok) catalogue = await answer.json();
  } catch {
    // English is better than no page.
  }
}

/**
 * The text in the reader's language. Named `_` so that makemessages finds every call.
 * @param {string} text
 * @param {Record<string, unknown>} [values] fills `{name}` places
 */
export function _(text, values) {
  const found = catalogue.catalog[text];
  return fill(typeof found === "string" ? found : Array.isArray(found) ? found[0] : text, values);
}

/**
 * @param {string} one @param {string} many @param {number} count
 * @param {Record<string, unknown>} [values] `{n}` is filled with the count
 */
export function ngettext(one, many, count, values) {
  const found = catalogue.catalog[one];
  const english = count === 1 ? one : many;
  const text = Array.isArray(found) ? found[found.length === 1 || count === 1 ? 0 : 1] : found || english;
  return fill(text, { n: number(count), ...values });
}

/** @param {string} text @param {Record<string, unknown>} [values] */
function fill(text, values) {
  return values ? text.replace(/\{(\w+)\}/g, (place, name) => (name in values ? String(values[name]) : place)) : text;
}

const plain = new Intl.NumberFormat(language);
const short = new Intl.NumberFormat(language, { notation: "compact", maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" });

/** @param {number | null | undefined} value */
export const number = (value) => (value == null ? "–" : plain.format(value));

/** 96,412 as "96.4k" (or "9.6万"). @param {number | null | undefined} value */
export const tokens = (value) => (value == null ? "–" : short.format(value).replace("K", "k"));

/** @param {string} time ISO 8601 */
export function when(time) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return "";
  return date.toDateString() === new Date().toDateString() ? clock.format(date) : day.format(date);
}

/** @param {number} milliseconds */
export function duration(milliseconds) {
  const seconds = milliseconds / 1000;
  if (milliseconds > 0 && seconds < 0.1) return _("{n} ms", { n: Math.ceil(milliseconds) });
  if (seconds < 10) return _("{n} s", { n: seconds.toFixed(1).replace(/\.0$/, "") });
  if (seconds < 90) return _("{n} s", { n: Math.round(seconds) });
  return _("{m} min {s} s", { m: Math.floor(seconds / 60), s: Math.round(seconds % 60) });
}

/** @param {number} bytes */
export function size(bytes) {
  const steps = ["B", "kB", "MB", "GB"];
  let step = 0;
  while (bytes >= 1000 && step < steps.length - 1) {
    bytes /= 1000;
    step += 1;
  }
  return `${bytes < 10 && step ? bytes.toFixed(1) : Math.round(bytes)} ${steps[step]}`;
}
