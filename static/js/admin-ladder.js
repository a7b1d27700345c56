/** Redraws the ladder on an agent's admin page as its window, threshold or longest answer is typed. */

const table = document.getElementById("ladder");
const note = document.getElementById("ladder-note");
const fields = {
  window: document.getElementById("id_context_window"),
  percent: document.getElementById("id_compaction_threshold"),
  reply: document.getElementById("id_max_output_tokens"),
};
const PAUSE_MS = 150;

let waiting = 0;
let newest = 0;

/** @param {Record<string, number|null>} ladder */
function draw(ladder) {
  for (const cell of table.querySelectorAll("[data-rung]")) {
    const tokens = ladder[cell.dataset.rung];
    cell.textContent = tokens === null ? table.dataset.off : tokens.toLocaleString("en");
  }
  for (const meter of table.querySelectorAll("[data-meter]")) {
    meter.max = ladder.window;
    meter.value = ladder[meter.dataset.meter] ?? 0;
  }
}

async function redraw() {
  const asked = ++newest;
  const query = new URLSearchParams();
  for (const [name, field] of Object.entries(fields)) query.set(name, field?.value ?? "");
  try {
    const response = await fetch(`${table.dataset.url}?${query}`, { headers: { Accept: "application/json" } });
    const answer = await response.json();
    if (asked !== newest) return; // a later one is on its way
    if (response.ok) draw(answer);
    note.textContent = response.ok ? answer.clamp_reason : answer.message;
  } catch {
    if (asked === newest) note.textContent = "";
  }
}

if (table) {
  for (const field of Object.values(fields)) {
    field?.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(redraw, PAUSE_MS);
    });
  }
}
