/** The help sheet: what can be pressed and typed. */

import { h, openDialog } from "./dom.js";
import { _ } from "./i18n.js";

const mac = /Mac|iPhone|iPad/.test(navigator.platform);
const command = mac ? "⌘" : "Ctrl";
const option = mac ? "⌥" : "Alt";

export function openHelpSheet() {
  const keys = [
    [["Enter"], _("Send")],
    [["Shift", "Enter"], _("New line")],
    [["↑"], _("Edit your last message, in an empty field")],
    [["Esc"], _("Stop the answer, or close what is open")],
    [[command, "K"], _("Search conversations")],
    [[command, "Shift", "O"], _("New conversation")],
    [[option, "1"], _("View: compacted")],
    [[option, "2"], _("View: full history")],
    [[option, "3"], _("View: what the model sees")],
    [[option, "C"], _("Context panel")],
    [["/"], _("To the message field")],
    [["?"], _("This sheet")],
  ];
  const typed = [
    ["/compact", _("Compact the older part; write behind it what to keep")],
    ["/context", _("Show what fills the context")],
    ["/help", _("Show the commands")],
  ];
  openDialog(
    "sheet",
    _("Help and shortcuts"),
    h("h3", null, _("Keys")),
    h(
      "dl.keys",
      null,
      ...keys.flatMap(([names, words]) => [
        h("dt", null, .../** @type {string[]} */ (names).map((name) => h("kbd", null, name))),
        h("dd", null, String(words)),
      ]),
    ),
    h("h3", null, _("Commands")),
    h(
      "dl.keys",
      null,
      ...typed.flatMap(([name, words]) => [h("dt", null, h("code", null, name)), h("dd", null, words)]),
    ),
    h("h3", null, _("How compaction works")),
    h(
      "p",
      null,
      _(
        "A model can read only so much at once: its window. When a conversation outgrows it, older messages are replaced by a summary in what the model reads – and only there. Every message stays here as it was written, and a compaction can be undone. The meter beside the message field shows how full the window is.",
      ),
    ),
  );
}
