/** Choosing who answers: cards on the start page, a sheet in a conversation. */

import { h, icon, openDialog } from "./dom.js";
import { _, tokens } from "./i18n.js";

/**
 * @param {HTMLElement} root @param {any[]} agents @param {number | null} chosen @param {(id: number) => void} choose
 */
export function renderAgents(root, agents, chosen, choose) {
  if (!agents.length) {
    root.replaceChildren(
      h(
        "p.notice",
        null,
        icon("warning"),
        h("span", null, _("There is no agent to talk to yet. An administrator can add one.")),
      ),
    );
    return;
  }
  const focused = root.contains(document.activeElement);
  const cards = agents.map((agent) => card(agent, agent.id === chosen, choose));
  root.setAttribute("role", "radiogroup");
  root.setAttribute("aria-label", _("Agent"));
  root.replaceChildren(...cards);
  root.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = agents.findIndex((agent) => agent.id === chosen);
    choose(agents[(at + step + agents.length) % agents.length].id);
  };
  if (focused) /** @type {HTMLElement | null} */ (root.querySelector('[aria-checked="true"]'))?.focus();
}

/** @param {any} agent @param {boolean} chosen @param {(id: number) => void} choose */
function card(agent, chosen, choose) {
  return h(
    "button.agent",
    {
      type: "button",
      role: "radio",
      "aria-checked": String(chosen),
      tabindex: chosen ? "0" : "-1",
      onclick: () => choose(agent.id),
    },
    h("span.agent-name", null, agent.name),
    agent.description && h("span.agent-about", null, agent.description),
    h(
      "span.quiet",
      null,
      [agent.model, _("{n} window", { n: tokens(agent.context_window) })].filter(Boolean).join(" · "),
    ),
  );
}

/** @param {any[]} agents @param {number} current @returns {Promise<number | null>} */
export function chooseAgent(agents, current) {
  return new Promise((resolve) => {
    /** @type {number | null} */
    let answer = null;
    const root = h("div.agents");
    const dialog = openDialog(
      "sheet",
      _("Who answers"),
      h("p.quiet", null, _("The conversation goes on with another agent; its history stays.")),
      root,
    );
    renderAgents(root, agents, current, (id) => {
      answer = id === current ? null : id;
      dialog.close();
    });
    dialog.addEventListener("close", () => resolve(answer));
  });
}
