/**
 * A text that arrives in pieces. Each piece names its offset in Unicode code points: what is known already is dropped,
 * what lies ahead is held back until the gap is filled. So nothing is shown twice or with a hole. Pure: no DOM here.
 */

/** @typedef {{offset: number, text: string}} Piece */
/** @typedef {{text: string, length: number, held: Piece[]}} Run */

/** @param {string} text */
export function codePoints(text) {
  let count = 0;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit >= 0xd800 && unit < 0xdc00 && at + 1 < text.length) {
      const next = text.charCodeAt(at + 1);
      if (next >= 0xdc00 && next < 0xe000) at += 1;
    }
    count += 1;
  }
  return count;
}

/** The text without its first `count` code points. @param {string} text @param {number} count */
export function afterCodePoints(text, count) {
  let at = 0;
  for (; count > 0 && at < text.length; count -= 1) at += /** @type {number} */ (text.codePointAt(at)) > 0xffff ? 2 : 1;
  return text.slice(at);
}

/** The first `count` code points. @param {string} text @param {number} count */
export function cutToCodePoints(text, count) {
  return text.slice(0, text.length - afterCodePoints(text, count).length);
}

/** @param {string} [text] @returns {Run} */
export function startRun(text = "") {
  return { text, length: codePoints(text), held: [] };
}

/**
 * Take a piece in. Changes `run`.
 * @param {Run} run @param {Piece} piece
 * @returns {"grown" | "known" | "gap"}
 */
export function receive(run, piece) {
  if (piece.offset > run.length) {
    hold(run, piece);
    return "gap";
  }
  const known = run.length - piece.offset;
  const fresh = known === 0 ? piece.text : afterCodePoints(piece.text, known);
  if (!fresh) return "known";
  run.text += fresh;
  run.length += codePoints(fresh);
  release(run);
  return "grown";
}

/** @param {Run} run @param {Piece} piece */
function hold(run, piece) {
  if (run.held.length < 5000) run.held.push(piece);
  run.held.sort((one, other) => one.offset - other.offset);
}

/** What was held back and now joins on. @param {Run} run */
function release(run) {
  while (run.held.length && run.held[0].offset <= run.length) {
    const piece = /** @type {Piece} */ (run.held.shift());
    const fresh = afterCodePoints(piece.text, run.length - piece.offset);
    run.text += fresh;
    run.length += codePoints(fresh);
  }
}

/**
 * One answer being written: keyed by its message, owned by an attempt of a turn.
 * @typedef {{turn: number, attempt: number, message: number, text: Run, thinking: Run, calls: any[]}} Stream
 */

/** @param {number} turn @param {number} attempt @param {number} message @param {string} [text] @param {string} [thinking] @returns {Stream} */
export function startStream(turn, attempt, message, text = "", thinking = "") {
  return { turn, attempt, message, text: startRun(text), thinking: startRun(thinking), calls: [] };
}

/**
 * The stored text and what was shown of the same attempt are one text: the longer is further on.
 * @param {Stream | undefined} shown @param {Stream} stored @returns {Stream}
 */
export function furtherOn(shown, stored) {
  if (!shown || shown.attempt !== stored.attempt || shown.turn !== stored.turn) return stored;
  for (const part of /** @type {const} */ (["text", "thinking"])) {
    if (stored[part].length <= shown[part].length) continue;
    const held = shown[part].held;
    shown[part] = stored[part];
    shown[part].held = held;
    release(shown[part]);
  }
  return shown;
}
