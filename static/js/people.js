/** Who takes part: roles, who is there, inviting by name or by link. */

import { conversationPath, get, patch, post, remove } from "./api.js";
import { copy, h, icon, iconButton, openDialog, toast } from "./dom.js";
import { _, when } from "./i18n.js";

/** @param {any} page @param {(error: any) => void} fail */
export function openPeoplePanel(page, fail) {
  const path = (rest = "") => conversationPath(page.id, rest);
  const mine = () => page.state.conversation?.role;
  const list = h("ul.people");
  const links = h("div.invitations");
  const dialog = openDialog(
    "drawer",
    _("People"),
    list,
    mine() === "owner" && inviteForm(),
    mine() === "owner" && linkForm(),
    links,
  );
  /** @type {any} */
  let shown = null;
  const refresh = () => {
    if (shown === page.state.people) return;
    shown = page.state.people;
    list.replaceChildren(...shown.map(person));
  };
  refresh();
  if (mine() === "owner") loadLinks();
  return { refresh, dialog };

  /** @param {() => Promise<any>} work */
  async function attempt(work) {
    try {
      return await work();
    } catch (error) {
      fail(error);
      return null;
    }
  }

  async function reread() {
    const read = await attempt(() => get(path("/participants")));
    if (!read) return;
    const online = new Map(page.state.people.map((/** @type {any} */ one) => [one.id, one]));
    page.state = {
      ...page.state,
      people: read.items.map((/** @type {any} */ one) => ({
        ...one,
        online: online.get(one.id)?.online ?? one.online,
      })),
    };
    refresh();
  }

  /** @param {any} one */
  function person(one) {
    const roles = /** @type {Record<string, string>} */ ({
      owner: _("owner"),
      member: _("member"),
      viewer: _("viewer"),
    });
    const editable = mine() === "owner" && one.role !== "owner";
    const role = editable
      ? h(
          "select",
          {
            "aria-label": _("Role of {name}", { name: one.name }),
            onchange: (/** @type {any} */ event) =>
              attempt(() => patch(path(`/participants/${one.id}`), { role: event.target.value })).then(reread),
          },
          ...["member", "viewer"].map((name) => h("option", { value: name, selected: one.role === name }, roles[name])),
        )
      : h("span.quiet", null, roles[one.role] || one.role);
    return h(
      "li",
      null,
      h(
        "span.face",
        { data: { online: one.online ? "yes" : "no" }, "aria-hidden": "true" },
        one.name.slice(0, 2).toUpperCase(),
      ),
      h(
        "span.person-name",
        null,
        one.name,
        h("span.quiet", null, one.typing ? ` ${_("is writing…")}` : one.online ? ` ${_("here now")}` : ""),
      ),
      role,
      editable &&
        iconButton("close", _("Remove {name}", { name: one.name }), () => takeOut(one)),
    );
  }

  /** @param {any} one */
  async function takeOut(one) {
    const had = links.querySelector("li") !== null;
    if ((await attempt(() => remove(path(`/participants/${one.id}`)).then(() => true))) === null) return;
    toast(
      had
        ? _("{name} is out. The links that still worked are withdrawn.", { name: one.name })
        : _("{name} is out.", { name: one.name }),
    );
    reread();
    loadLinks();
  }

  function inviteForm() {
    const field = h("input", { type: "text", id: "invite-name", autocomplete: "off", required: true });
    const role = h(
      "select",
      { "aria-label": _("Role") },
      h("option", { value: "member" }, _("member")),
      h("option", { value: "viewer" }, _("viewer")),
    );
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      const added = await attempt(() =>
        post(path("/participants"), { username: field.value.trim(), role: role.value }),
      );
      if (!added) return;
      field.value = "";
      toast(_("{name} takes part now.", { name: added.name }));
      reread();
    };
    return h(
      "form.invite",
      { onsubmit: submit },
      h("label", { for: "invite-name" }, _("Invite by user name")),
      h("div.field-row", null, field, role, h("button.primary", { type: "submit" }, _("Invite"))),
    );
  }

  function linkForm() {
    const role = h(
      "select",
      { "aria-label": _("Role") },
      h("option", { value: "member" }, _("member")),
      h("option", { value: "viewer" }, _("viewer")),
    );
    const shown = h("div");
    const make = async () => {
      const made = await attempt(() => post(path("/invitations"), { role: role.value }));
      if (!made) return;
      const field = h("input", { type: "text", readonly: true, "aria-label": _("Invitation link") });
      field.value = made.link;
      const button = iconButton("copy", _("Copy the link"), () => copy(made.link, button));
      shown.replaceChildren(
        h("div.field-row", null, field, button),
        h("p.quiet", null, _("The link is shown only now.")),
      );
      field.select();
      loadLinks();
    };
    return h(
      "div.invite",
      null,
      h("label", null, _("Invite by link")),
      h("div.field-row", null, role, h("button", { type: "button", onclick: make }, icon("link"), _("Make a link"))),
      shown,
    );
  }

  async function loadLinks() {
    const read = await get(path("/invitations")).catch(() => null);
    if (!read) return;
    links.replaceChildren(
      ...(read.items.length ? [h("h3", null, _("Links that still work"))] : []),
      h(
        "ul.people",
        null,
        ...read.items.map((/** @type {any} */ link) =>
          h(
            "li",
            null,
            icon("link"),
            h(
              "span.person-name",
              null,
              link.role === "viewer" ? _("viewer") : _("member"),
              h("span.quiet", null, ` ${_("until {time}", { time: when(link.expires_at) })}`),
            ),
            iconButton("close", _("Withdraw the link"), () =>
              attempt(() => remove(path(`/invitations/${link.id}`))).then(loadLinks),
            ),
          ),
        ),
      ),
    );
  }
}
