/**
 * The line to one conversation: connects, says what state it is in, comes back by itself, and asks every 15 seconds
 * whether something was missed.
 */

const PING_EVERY = 15_000;
const SILENT_FOR = 40_000;
const SLOWEST_RETRY = 20_000;

/** Close codes after which coming back is useless. */
const FINAL = new Map([
  [4401, "signed_out"],
  [4403, "forbidden"],
  [4404, "missing"],
]);

/**
 * @typedef {object} Line
 * @property {(type: string, data?: any) => boolean} send false while the line is down
 * @property {() => void} refresh ask for a new snapshot
 * @property {() => void} retryNow
 * @property {() => void} close
 */

/**
 * @param {string} conversation
 * @param {{event: (envelope: any) => void, state: (state: string, retryAt?: number) => void}} heard
 * @returns {Line}
 */
export function openLine(conversation, heard) {
  /** @type {WebSocket | null} */
  let socket = null;
  let failures = 0;
  let closed = false;
  let refreshing = false;
  let heardAt = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let retry;

  const address = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/conversations/${conversation}/`;

  function connect() {
    clearTimeout(retry);
    if (closed) return;
    const mine = new WebSocket(address);
    socket = mine;
    heardAt = Date.now();
    mine.onmessage = (message) => {
      if (socket !== mine) return;
      heardAt = Date.now();
      const envelope = JSON.parse(message.data);
      if (envelope.type === "snapshot") {
        failures = 0;
        refreshing = false;
        heard.event(envelope);
        heard.state("open");
      } else heard.event(envelope);
    };
    mine.onclose = (event) => socket === mine && lost(event.code);
  }

  /** @param {number} code */
  function lost(code) {
    socket = null;
    if (closed) return;
    const final = FINAL.get(code);
    if (final) {
      closed = true;
      heard.state(final);
      return;
    }
    if (refreshing) {
      refreshing = false;
      connect();
      return;
    }
    failures += 1;
    const wait = Math.min(SLOWEST_RETRY, 400 * 2 ** (failures - 1)) * (0.7 + Math.random() * 0.6);
    heard.state("waiting", Date.now() + wait);
    retry = setTimeout(connect, wait);
  }

  function send(/** @type {string} */ type, /** @type {any} */ data = {}) {
    if (socket?.readyState !== WebSocket.OPEN) return false;
    socket.send(JSON.stringify({ type, conversation, seq: null, data }));
    return true;
  }

  const beat = setInterval(() => {
    if (!socket || socket.readyState !== WebSocket.OPEN) return;
    if (Date.now() - heardAt > SILENT_FOR) drop();
    else send("ping");
  }, PING_EVERY);

  /** The other end is silent: a half-open connection does not close by itself. */
  function drop() {
    const silent = socket;
    lost(0);
    silent?.close();
  }

  function retryNow() {
    if (!closed && !socket) connect();
  }

  const awake = () => (document.visibilityState === "visible" ? (retryNow(), send("ping")) : undefined);
  window.addEventListener("online", retryNow);
  document.addEventListener("visibilitychange", awake);
  heard.state("connecting");
  connect();

  return {
    send,
    retryNow,
    refresh() {
      if (!socket || refreshing) return;
      refreshing = true;
      send("sync");
      setTimeout(() => {
        // A server that did not answer the question answers a new connection.
        if (refreshing && socket) socket.close();
      }, 3000);
    },
    close() {
      closed = true;
      clearInterval(beat);
      clearTimeout(retry);
      window.removeEventListener("online", retryNow);
      document.removeEventListener("visibilitychange", awake);
      socket?.close();
    },
  };
}
