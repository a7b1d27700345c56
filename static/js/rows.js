/** The rows of the transcript that are neither stored messages nor cards: what waits, what failed, what was asked. */

import { h, icon } from "./dom.js";
import { _ } from "./i18n.js";
import { filesOf } from "./message.js";
import { renderPlain } from "./markdown.js";
import { line, renderWaiting } from "./transcript.js";

/**
 * @typedef {object} RowActs
 * @property {(turn: any) => void} retryTurn
 * @property {(turn: any) => void} continueTurn
 * @property {(queued: any) => void} editQueued
 * @property {(queued: any) => void} cancelQueued
 * @property {(sent: any) => void} sendAgain
 * @property {(sent: any) => void} takeBack
 * @property {(notice: any) => void} dismiss
 * @property {import("./message.js").MessageActs} message
 */

/** @param {any} item @param {RowActs} acts @param {any} how @returns {HTMLElement} */
export function renderRow(item, acts, how) {
  if (item.kind === "waiting") return renderWaiting();
  if (item.kind === "turn") return renderTurn(item.turn, acts, how);
  if (item.kind === "queued") return renderQueued(item.queued, acts, how);
  if (item.kind === "outbox") return renderSent(item.sent, acts);
  return renderNotice(item.notice, acts);
}

/** @param {string} words @param {() => void} act @param {string} [kind] */
const button = (words, act, kind = "") => h(`button${kind && "." + kind}`, { type: "button", onclick: act }, words);

/** @param {any} turn @param {RowActs} acts @param {any} how */
function renderTurn(turn, acts, how) {
  const retry = how.mayWrite && button(_("Retry"), () => acts.retryTurn(turn));
  const goOn = how.mayWrite && turn.text && button(_("Continue"), () => acts.continueTurn(turn));
  if (turn.state === "stopped") return h("div.line", null, h("span", null, _("Stopped.")), goOn);
  if (turn.state === "interrupted")
    return h(
      "div.line.problem",
      { role: "note" },
      icon("warning"),
      h("span", null, _("The answer was interrupted. What had been written is kept.")),
      retry,
      goOn,
    );
  const error = turn.error || { message: _("The answer failed."), retryable: true };
  return h(
    "div.line.problem",
    { role: "note", data: { code: error.code || "" } },
    icon("warning"),
    h("span", null, error.message),
    error.retryable !== false && retry,
    goOn,
  );
}

/** @param {any} queued */
function waitsFor(queued) {
  if (queued.reason === "compaction") return _("Waits for the compaction, then it is answered");
  if (queued.reason === "block") return _("Waits: the context is full and is being compacted first");
  if (queued.reason === "turn") return _("Waits for the answer before it");
  return _("Is answered next");
}

/** @param {any} queued @param {RowActs} acts @param {any} how */
function renderQueued(queued, acts, how) {
  const message = queued.message;
  if (!message) return line("clock", h("span", null, waitsFor(queued)));
  const text = h("div.prose.said");
  renderPlain(text, message.content || "");
  const files =
    message.parts?.some((/** @type {any} */ part) => part.kind !== "text") && filesOf(message.parts, acts.message);
  const draft = message.position == null;
  return h(
    "article.message.from-person.queued",
    { data: { turn: queued.turn, reason: queued.reason }, "aria-label": _("Queued message") },
    how.many && message.author?.name && h("header.message-head", null, h("span.name", null, message.author.name)),
    draft && h("div.body", null, text, files),
    h(
      "footer.message-foot.always",
      null,
      h("span.state", null, icon("clock"), waitsFor(queued)),
      how.mayWrite && draft && button(_("Edit"), () => acts.editQueued(queued), "link"),
      how.mayWrite && button(_("Cancel"), () => acts.cancelQueued(queued), "link"),
    ),
  );
}

/** @param {any} sent @param {RowActs} acts */
function renderSent(sent, acts) {
  const text = h("div.prose.said");
  renderPlain(text, sent.content);
  const files =
    sent.attachments?.length > 0 &&
    filesOf(
      sent.attachments.map((/** @type {any} */ file) => ({
        kind: file.kind,
        name: file.name,
        attachment: file.id,
        tokens: file.tokens,
      })),
      acts.message,
    );
  const state = sent.problem
    ? [icon("warning"), sent.problem.message]
    : sent.offline
      ? [icon("clock"), _("Waiting for the connection; it is sent by itself")]
      : [icon("clock"), _("Sending…")];
  return h(
    `article.message.from-person.sending${sent.problem ? ".problem" : ""}`,
    { data: { client: sent.client_id }, "aria-label": _("Message being sent") },
    h("div.body", null, text, files),
    h(
      "footer.message-foot.always",
      null,
      h("span.state", null, ...state),
      sent.problem && button(_("Send again"), () => acts.sendAgain(sent), "link"),
      (sent.problem || sent.offline) && button(_("Take back"), () => acts.takeBack(sent), "link"),
    ),
  );
}

/** Answers to /help and /context, and what was not done. @param {any} notice @param {RowActs} acts */
function renderNotice(notice, acts) {
  return h(
    "aside.notice-row",
    { "aria-label": notice.title },
    h(
      "header",
      null,
      h("b", null, notice.title),
      button(_("Dismiss"), () => acts.dismiss(notice), "link"),
    ),
    notice.content,
  );
}
