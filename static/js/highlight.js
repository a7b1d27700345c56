/** Colours for code. Loaded with the first code block; each language only when it is met. */

import hljs from "../vendor/highlight/core-11.12.0.js";

/** Literal imports, so that the static files' hashed names reach them. @type {Record<string, () => Promise<any>>} */
const LANGUAGES = {
  bash: () => import("../vendor/highlight/bash.js"),
  c: () => import("../vendor/highlight/c.js"),
  cpp: () => import("../vendor/highlight/cpp.js"),
  csharp: () => import("../vendor/highlight/csharp.js"),
  css: () => import("../vendor/highlight/css.js"),
  diff: () => import("../vendor/highlight/diff.js"),
  dockerfile: () => import("../vendor/highlight/dockerfile.js"),
  go: () => import("../vendor/highlight/go.js"),
  graphql: () => import("../vendor/highlight/graphql.js"),
  ini: () => import("../vendor/highlight/ini.js"),
  java: () => import("../vendor/highlight/java.js"),
  javascript: () => import("../vendor/highlight/javascript.js"),
  json: () => import("../vendor/highlight/json.js"),
  kotlin: () => import("../vendor/highlight/kotlin.js"),
  lua: () => import("../vendor/highlight/lua.js"),
  makefile: () => import("../vendor/highlight/makefile.js"),
  markdown: () => import("../vendor/highlight/markdown.js"),
  nginx: () => import("../vendor/highlight/nginx.js"),
  perl: () => import("../vendor/highlight/perl.js"),
  php: () => import("../vendor/highlight/php.js"),
  powershell: () => import("../vendor/highlight/powershell.js"),
  python: () => import("../vendor/highlight/python.js"),
  r: () => import("../vendor/highlight/r.js"),
  ruby: () => import("../vendor/highlight/ruby.js"),
  rust: () => import("../vendor/highlight/rust.js"),
  scala: () => import("../vendor/highlight/scala.js"),
  sql: () => import("../vendor/highlight/sql.js"),
  swift: () => import("../vendor/highlight/swift.js"),
  typescript: () => import("../vendor/highlight/typescript.js"),
  xml: () => import("../vendor/highlight/xml.js"),
  yaml: () => import("../vendor/highlight/yaml.js"),
};

const ALIASES = /** @type {Record<string, string>} */ ({
  sh: "bash",
  shell: "bash",
  zsh: "bash",
  console: "bash",
  "c++": "cpp",
  cc: "cpp",
  h: "c",
  hpp: "cpp",
  cs: "csharp",
  "c#": "csharp",
  docker: "dockerfile",
  golang: "go",
  toml: "ini",
  conf: "ini",
  js: "javascript",
  jsx: "javascript",
  mjs: "javascript",
  node: "javascript",
  kt: "kotlin",
  make: "makefile",
  md: "markdown",
  pl: "perl",
  ps1: "powershell",
  pwsh: "powershell",
  py: "python",
  python3: "python",
  rb: "ruby",
  rs: "rust",
  patch: "diff",
  postgres: "sql",
  postgresql: "sql",
  mysql: "sql",
  sqlite: "sql",
  ts: "typescript",
  tsx: "typescript",
  html: "xml",
  svg: "xml",
  django: "xml",
  jinja: "xml",
  yml: "yaml",
  jsonl: "json",
  json5: "json",
});

/** @param {string} name */
const known = (name) => ALIASES[name.toLowerCase()] || name.toLowerCase();

/** Whether its language can be coloured at once. @param {string} language */
export const ready = (language) => Boolean(hljs.getLanguage(known(language)));

/** @param {HTMLElement} code @param {string} language */
export async function colour(code, language) {
  const name = known(language);
  if (!LANGUAGES[name]) return;
  if (!hljs.getLanguage(name)) hljs.registerLanguage(name, (await LANGUAGES[name]()).default);
  // The library escapes the text and adds only spans with its own classes.
  code.innerHTML = hljs.highlight(code.textContent || "", { language: name, ignoreIllegals: true }).value;
  code.dataset.coloured = "yes";
}
