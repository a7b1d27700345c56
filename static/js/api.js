/** The HTTP API: every request of the page goes through `call`, every refusal comes out as a Refusal. */

import { _ } from "./i18n.js";

const ROOT = "/api/v1";

/** A refusal the person can be shown: what the server said, or that it could not be reached. */
export class Refusal extends Error {
  /** @param {string} code @param {string} message @param {number} status */
  constructor(code, message, status) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

let csrf = "";

/** @param {string} token */
export function useCsrfToken(token) {
  csrf = token;
}

/** The cookie is newer than the page after a sign-in elsewhere. */
function csrfToken() {
  const cookie = document.cookie.split("; ").find((part) => part.startsWith("csrftoken="));
  return cookie ? cookie.slice("csrftoken=".length) : csrf;
}

/**
 * @param {string} method @param {string} path below /api/v1 @param {any} [body] @param {Record<string, string>} [headers]
 * @returns {Promise<any>}
 */
export async function call(method, path, body, headers = {}) {
  const form = body instanceof FormData;
  let answer;
  try {
    answer = await fetch(ROOT + path, {
      method,
      credentials: "same-origin",
      headers: {
        Accept: "application/json",
        ...(method === "GET" ? {} : { "X-CSRFToken": csrfToken() }),
        ...(body !== undefined && !form ? { "Content-Type": "application/json" } : {}),
        ...headers,
      },
      body: body === undefined ? undefined : form ? body : JSON.stringify(body),
    });
  } catch {
    throw new Refusal("unreachable", _("The server cannot be reached. Check your connection and try again."), 0);
  }
  if (answer.status === 204) return null;
  const content = await answer.json().catch(() => null);
  if (answer.ok) return content;
  throw new Refusal(
    content?.code || `http_${answer.status}`,
    content?.message ||
      _("The server answered with an error ({status}). Try again in a moment.", { status: answer.status }),
    answer.status,
  );
}

/** @param {string} path @param {Record<string, string | number | null | undefined>} [query] */
export function get(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const search = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
  return call("GET", search ? `${path}?${search}` : path);
}

/** @param {string} path @param {any} [body] */
export const post = (path, body = {}) => call("POST", path, body);
/** @param {string} path @param {any} body */
export const patch = (path, body) => call("PATCH", path, body);
/** @param {string} path */
export const remove = (path) => call("DELETE", path);

/** @param {string} conversation @param {string} [rest] */
export const conversationPath = (conversation, rest = "") => `/conversations/${conversation}${rest}`;

/** An id for one message of this person: a resend with it is the same message. */
export function clientId() {
  return crypto.randomUUID
    ? crypto.randomUUID()
    : Array.from(crypto.getRandomValues(new Uint8Array(16)), (n) => n.toString(16).padStart(2, "0")).join("");
}
