/**
 * The line to one conversation: connects, says what state it is in, comes back by itself, and asks every 15 seconds
 * whether something was missed.
 */

const PING_EVERY = 15_000;
const SILENT_FOR = 25_000; // after a ping; not after the last word: a page in the background may ask once a minute only
const AWAKE_WITHIN = 4_000; // what a line that slept is given for its first word
const SNAPSHOT_WITHIN = 10_000;
const SLOWEST_RETRY = 20_000;
const CROSSING = 5_000; // so much later than a snapshot an event may arrive that is part of it
const ON_ITS_WAY = 1_500; // so much later than a pong the event may arrive that it knows of

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
 * @property {() => void} doubt an event was older than what is shown, and that was not the snapshot's doing
 * @property {() => void} retryNow
 * @property {() => void} close
 */

/**
 * @param {string} conversation
 * @param {{event: (envelope: any) => void, state: (state: string, retryAt?: number) => void, version: () => number | null}} heard
 * @returns {Line}
 */
export function openLine(conversation, heard) {
  /** @type {WebSocket | null} */
  let socket = null;
  let failures = 0;
  let closed = false;
  let refreshing = false;
  let heardAt = 0;
  let pingedAt = 0; // the first ping since the line was last heard
  let beatAt = Date.now();
  let snapshotAt = 0;
  /** @type {number | null} the version that was shown at the last ping */
  let asked = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let retry;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let overdue;

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
        snapshotAt = heardAt;
        heard.event(envelope);
        heard.state("open");
      } else if (envelope.type === "pong") compare(envelope.data.version);
      else heard.event(envelope);
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

  function ping() {
    if (!send("ping")) return false;
    if (pingedAt <= heardAt) pingedAt = Date.now();
    asked = heard.version();
    return true;
  }

  /**
   * An event may still be on its way when the pong arrives; only what stays behind is a loss. A version below the one
   * that was shown when the server was asked: the database went back, and what comes next would be taken for old.
   * @param {number} version
   */
  function compare(version) {
    const behind = () => version > (heard.version() ?? version);
    if (asked != null && version < asked) refresh();
    else if (behind()) setTimeout(() => behind() && refresh(), ON_ITS_WAY);
  }

  const beat = setInterval(() => {
    const slept = Date.now() - beatAt > 2 * PING_EVERY;
    beatAt = Date.now();
    if (slept) probe();
    else if (socket && pingedAt > heardAt && Date.now() - pingedAt > SILENT_FOR) drop();
    else ping();
  }, PING_EVERY);

  /** The machine slept, or the network is another one: a line that looks open may long be dead. */
  function probe() {
    const mine = socket;
    const since = Date.now();
    if (ping()) setTimeout(() => socket === mine && heardAt < since && drop(), AWAKE_WITHIN);
  }

  /** The other end is silent: a half-open connection does not close by itself. */
  function drop() {
    const silent = socket;
    lost(0);
    silent?.close();
  }

  function refresh() {
    if (!socket || refreshing) return;
    refreshing = true;
    const mine = socket;
    send("sync");
    clearTimeout(overdue);
    // A server that did not answer the question answers a new connection.
    overdue = setTimeout(() => refreshing && socket === mine && mine.close(), SNAPSHOT_WITHIN);
  }

  function retryNow() {
    if (!closed && !socket) connect();
  }

  function awake() {
    if (document.visibilityState !== "visible") return;
    if (socket) probe();
    else retryNow();
  }
  window.addEventListener("online", awake);
  document.addEventListener("visibilitychange", awake);
  heard.state("connecting");
  connect();

  return {
    send,
    retryNow,
    refresh,
    doubt: () => (Date.now() - snapshotAt > CROSSING ? refresh() : undefined),
    close() {
      closed = true;
      clearInterval(beat);
      clearTimeout(retry);
      window.removeEventListener("online", awake);
      document.removeEventListener("visibilitychange", awake);
      socket?.close();
    },
  };
}
