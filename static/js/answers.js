/** The earlier answers to a question, and choosing one of them. */

import { conversationPath, get, post } from "./api.js";
import { h, openDialog } from "./dom.js";
import { _, when } from "./i18n.js";
import { renderMarkdown } from "./markdown.js";

/** @param {any} page @param {any} message @param {(error: any) => void} fail */
export async function openAnswers(page, message, fail) {
  const path = (rest = "") => conversationPath(page.id, rest);
  let answers;
  try {
    answers = (await get(path(`/messages/${message.id}/answers`))).items;
  } catch (error) {
    return fail(error);
  }
  const choose = async (/** @type {any} */ answer) => {
    try {
      await post(path(`/turns/${answer.turn}/choose`));
      dialog.close();
    } catch (error) {
      fail(error);
    }
  };
  const dialog = openDialog(
    "drawer",
    _("Answers to the same question"),
    ...answers.map((/** @type {any} */ answer, /** @type {number} */ index) =>
      one(answer, index, page.state.conversation?.role === "viewer" ? null : choose),
    ),
  );
}

/** @param {any} answer @param {number} index @param {((answer: any) => void) | null} choose */
function one(answer, index, choose) {
  const text = h("div.prose.summary-text");
  renderMarkdown(
    text,
    answer.messages
      .map((/** @type {any} */ message) => message.content)
      .filter(Boolean)
      .join("\n\n") || "…",
  );
  return h(
    "section.answer",
    null,
    h(
      "div.drawer-title",
      null,
      h(
        "h3",
        null,
        _("Answer {n}", { n: index + 1 }),
        h("span.quiet", null, ` ${when(answer.messages[0]?.created_at || "")}`),
      ),
      answer.chosen
        ? h("span.tag", null, _("shown now"))
        : choose && h("button", { type: "button", onclick: () => choose(answer) }, _("Go on from this one")),
    ),
    text,
  );
}
