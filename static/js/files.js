/** Files: sent up with their progress, and looked at. */

import { conversationPath, get } from "./api.js";
import { h, icon, openDialog } from "./dom.js";
import { _, number, size, tokens } from "./i18n.js";

/**
 * Send a file up; the composer shows how far it is, what it costs, or why it was refused.
 * @param {string} conversation @param {File} file @param {import("./composer.js").Composer} composer
 */
export function upload(conversation, file, composer) {
  const request = new XMLHttpRequest();
  const attached = /** @type {any} */ ({
    name: file.name || _("pasted file"),
    size: file.size,
    progress: 0,
    id: null,
    problem: null,
    cancel: () => request.abort(),
  });
  if (file.type.startsWith("image/") && file.size < 20_000_000) attached.preview = URL.createObjectURL(file);
  const show = () =>
    composer.conversation === conversation &&
    (composer.attached.includes(attached) || attached.progress === 0) &&
    composer.showAttached(attached);
  const largest = composer.limits.file_bytes || Infinity;
  if (file.size > largest) {
    attached.progress = null;
    attached.problem = _("The file is too large; {n} MB are allowed.", { n: Math.floor(largest / 1048576) });
    return void (composer.conversation === conversation && composer.showAttached(attached));
  }
  show();
  const form = new FormData();
  form.append("file", file, attached.name);
  request.upload.onprogress = (event) => {
    attached.progress = event.lengthComputable ? Math.min(0.99, event.loaded / event.total) : 0.5;
    show();
  };
  request.onload = () => {
    attached.progress = null;
    const answer = parsed(request.responseText);
    if (request.status < 300 && answer)
      Object.assign(attached, {
        id: answer.id,
        tokens: answer.sent_tokens,
        whole: answer.tokens,
        kind: answer.kind,
        name: answer.name || attached.name,
      });
    else attached.problem = answer?.message || _("The file could not be taken ({status}).", { status: request.status });
    if (composer.attached.includes(attached)) composer.showAttached(attached);
  };
  request.onerror = () => {
    attached.progress = null;
    attached.problem = _("The server cannot be reached.");
    if (composer.attached.includes(attached)) composer.showAttached(attached);
  };
  request.open("POST", `/api/v1${conversationPath(conversation, "/attachments")}`);
  request.setRequestHeader("X-CSRFToken", csrf());
  request.setRequestHeader("Accept", "application/json");
  request.send(form);
}

function csrf() {
  return (
    document.cookie
      .split("; ")
      .find((part) => part.startsWith("csrftoken="))
      ?.slice("csrftoken=".length) || ""
  );
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * A file in a drawer: a picture as such, anything else by the text that was found in it.
 * @param {string} conversation @param {any} part
 */
export async function openFile(conversation, part) {
  const id = part.attachment || part.id;
  const path = conversationPath(conversation, `/attachments/${id}`);
  const body = h("div.viewer", null, h("p.quiet", null, _("Loading…")));
  const facts = [
    part.mime,
    part.width && `${part.width} × ${part.height}`,
    part.tokens && _("{n} tokens", { n: tokens(part.tokens) }),
  ]
    .filter(Boolean)
    .join(" · ");
  openDialog(
    "drawer",
    part.name || _("File"),
    h("p.quiet", null, facts),
    body,
    h("p", null, h("a.button", { href: `/api/v1${path}`, download: part.name || "" }, icon("download"), _("Download"))),
  );
  if (part.kind === "image")
    return void body.replaceChildren(h("img", { src: `/api/v1${path}`, alt: part.name || _("image") }));
  try {
    const [about, found] = await Promise.all([get(`${path}/details`).catch(() => null), get(`${path}/text`)]);
    const text = found.text || "";
    body.replaceChildren(
      about
        ? h(
            "p.quiet",
            null,
            [size(about.size), about.pages ? _("{n} pages", { n: about.pages }) : ""].filter(Boolean).join(" · "),
          )
        : "",
      h("pre", { tabindex: "0", dir: "auto" }, text.slice(0, 300_000) || _("No text was found in this file.")),
      text.length > 300_000
        ? h("p.quiet", null, _("The first 300,000 of {n} characters.", { n: number(text.length) }))
        : "",
    );
  } catch (error) {
    body.replaceChildren(h("p.problem", null, /** @type {Error} */ (error).message));
  }
}
