// The stream to the server: sends words, takes what is written, and survives a lost connection.
// docs/protocol.md says what the messages mean; nothing is lost and nothing comes twice.

const RETRY = [300, 1_000, 2_000, 4_000, 8_000]; // ms between attempts
const DEAD = 10_000; // ms without an answer to what was sent: the connection is dead
const STALLED = 3_000; // ms without an acknowledgement: the person is told
const PING = 20_000; // ms of silence
const QUIET = 60_000; // ms in which nothing is said: the session ends, the next word begins another
const ACK_EVERY = 50; // messages, or a quarter of the server's window
const CHUNK = 200; // words in a message
const UNHEARD = 400; // words that are sent ahead of those the server has heard
const GIVE_UP = new Set(["unauthorized", "forbidden-origin", "unknown-pair"]);

export class Stream {
  /**
   * Called back: onStarted(started), onWrite(write), onRead(words), onEnd(words), onLost(),
   * onState(kind, detail). Source words are counted over all sessions of the page.
   */
  constructor(url, callbacks) {
    Object.assign(this, callbacks);
    this.url = url;
    this.decoding = null; // null: as the operator has it
    this.token = null;
    this.channel = null; // where overlays elsewhere can follow
    this.state = "ready";
    this.reset();
    addEventListener("online", () => this.timer && this.connect());
    setInterval(() => this.watch(), 1_000);
  }

  reset() {
    this.items = []; // words and ends of sentences (null), from the open sentence on
    this.base = 0; // source words of the page before this session
    this.ended = 0; // source words of this session in sentences that are over
    this.attempt = 0;
    this.reason = null; // why there is no connection, if the server has said so
    this.stopped = false; // until the person does something about it
    this.spoke = performance.now();
    this.forget();
  }

  /** There is no session any more: the open sentence, and what follows it, is still to be sent. */
  forget() {
    this.base += this.ended;
    this.ended = 0;
    this.next = 0; // the first item that is not sent
    this.sent = 0; // words of this session
    this.heard = 0;
    this.session = null;
    this.last = 0; // the highest number seen
    this.number = 0; // of our own messages
    this.outbox = []; // numbered messages the server has not acknowledged
    this.since = null; // the moment since when it has acknowledged nothing
    this.limits = { queue: 100, message: 16_000, window: 200 };
    this.startedAt = 0;
  }

  // --- what the page does ---

  say(words) {
    for (const word of words) this.items.push(word);
    this.wake();
  }

  endSentence() {
    if (!this.items.length || this.items.at(-1) === null) return;
    this.items.push(null);
    this.wake();
  }

  /** Take the last word back, if it is not sent yet. */
  unsay() {
    if (this.next >= this.items.length) return false;
    while (this.items.pop() === null);
    return true;
  }

  /** Forget the open sentence, and what follows it: the page will say it again. */
  rewind() {
    this.items = [];
    this.rest();
  }

  /** "lag=4" and the like, from the next word on. */
  setDecoding(decoding) {
    this.decoding = decoding;
    if (this.session) this.post({ type: "decoding", value: decoding });
  }

  /** Nothing is said; `base` words of the page are not this stream's any more. */
  restart(base = 0) {
    this.drop(1000);
    clearTimeout(this.timer);
    this.timer = null;
    this.reset();
    this.base = base;
    this.set("ready");
  }

  wake() {
    this.spoke = performance.now();
    if (this.socket) this.flush();
    else if (!this.timer && !this.stopped) this.connect();
  }

  // --- the connection ---

  connect() {
    this.drop();
    clearTimeout(this.timer);
    this.timer = null;
    this.stopped = false;
    if (!this.reason) this.set(this.session || this.attempt ? "reconnecting" : "connecting");
    const socket = new WebSocket(this.url);
    this.socket = socket;
    this.open = false;
    this.unacknowledged = 0;
    this.seen = performance.now();
    socket.onopen = () => {
      const start = { type: "start", seq: 0 };
      if (this.session) start.resume = { session: this.session, last: this.last };
      else {
        start.channel = this.channel;
        if (this.decoding !== null) start.decoding = this.decoding;
      }
      if (this.token) start.token = this.token;
      socket.send(JSON.stringify(start));
    };
    socket.onmessage = ({ data }) => this.take(JSON.parse(data));
    socket.onclose = () => this.closed();
  }

  drop(code) {
    const socket = this.socket;
    this.socket = null;
    this.open = false;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close(...(code ? [code] : []));
  }

  /** Try again after a while; a server that has said why it went is believed. */
  closed() {
    this.socket = null;
    this.open = false;
    const wait = RETRY[Math.min(this.attempt++, RETRY.length - 1)] * (0.8 + 0.4 * Math.random());
    const kind = this.reason ?? (this.attempt > 2 ? "away" : "cut");
    this.set(kind, { seconds: Math.max(1, Math.round(wait / 1000)) });
    this.timer = setTimeout(() => this.connect(), wait);
  }

  /** Pings an idle connection, tells of one that does not answer and gives up a dead one. */
  watch() {
    if (!this.open) return;
    const now = performance.now();
    if (!this.items.length && !this.outbox.length && now - this.spoke > QUIET) return this.rest();
    const waited = this.since === null ? 0 : now - this.since;
    if (now - this.seen > PING + DEAD || waited > DEAD) {
      this.drop();
      this.closed();
    } else if (waited > STALLED) {
      this.set("stalled");
      this.send({ type: "ping", seq: 0 });
    } else if (now - this.seen > PING) this.send({ type: "ping", seq: 0 });
    return undefined;
  }

  set(state, detail = {}) {
    this.state = state;
    this.onState(state, detail);
  }

  // --- messages in ---

  take(message) {
    this.seen = performance.now();
    this.acknowledge(message.ack ?? 0);
    if (message.seq > 0) {
      if (message.seq <= this.last) return;
      this.last = message.seq;
      this.unacknowledged++;
    }
    const handler = this[`on_${message.type.replace("-", "_")}`];
    handler?.call(this, message);
    if (this.unacknowledged >= Math.min(ACK_EVERY, this.limits.window / 4)) this.send({ type: "ack", seq: 0 });
  }

  acknowledge(number) {
    const kept = this.outbox.filter(({ seq }) => seq > number);
    if (kept.length === this.outbox.length) return;
    this.outbox = kept;
    this.since = kept.length ? performance.now() : null;
    if (this.state === "stalled") this.set("live");
  }

  on_started(message) {
    this.open = true;
    this.attempt = 0;
    this.reason = null;
    this.limits = message.limits;
    if (!message.resumed) {
      this.session = message.session;
      this.startedAt = Date.now();
    }
    this.since = this.outbox.length ? performance.now() : null;
    for (const held of this.outbox) this.send(held);
    this.onStarted(message);
    if (this.session && !this.items.length && !message.resumed) this.rest();
    else {
      this.set("live");
      this.flush();
    }
  }

  /** Nothing is open: the page holds no place until something is said. */
  rest() {
    this.drop(1000);
    this.forget();
    this.set("ready");
  }

  on_write(message) {
    this.hear(message.delay);
    const base = this.base;
    this.onWrite({
      text: message.text,
      delay: base + message.delay,
      heads: message.heads.map((layer) => layer.map((at) => base + at)),
      time: this.startedAt + message.at,
    });
  }

  on_read(message) {
    this.hear(message.words);
  }

  on_end(message) {
    this.hear(message.words);
    let words = message.words - this.ended;
    let cut = 0;
    while (words > 0 && cut < this.next) if (this.items[cut++] !== null) words--;
    if (cut < this.next && this.items[cut] === null) cut++;
    this.items.splice(0, cut);
    this.next -= cut;
    this.ended = message.words;
    this.onEnd(this.base + message.words);
  }

  on_going_away() {
    this.reason = "leaving";
    this.set("leaving");
  }

  on_error({ code, message, fatal }) {
    this.drop();
    if (code === "replaced" || GIVE_UP.has(code)) {
      if (fatal) this.forget();
      this.stopped = true;
      this.set(code === "replaced" ? "replaced" : "refused", { code, message });
      return;
    }
    if (code === "idle") {
      this.items = this.items.slice(this.next); // what was sent is translated as far as it can be
      this.ended = this.sent;
      this.onEnd(this.base + this.ended);
      this.forget();
      if (!this.items.length) return this.set("idle");
    } else if (code !== "busy") this.onState("error", { code, message });
    this.reason = code === "busy" ? "busy" : null;
    if (fatal || code === "cannot-resume") {
      if (this.session) this.attempt = 0; // it answers: the next session can begin at once
      if (this.next) this.onLost();
      this.forget();
    }
    this.closed();
  }

  hear(words) {
    if (words <= this.heard) return;
    this.heard = words;
    this.onRead(this.base + words);
    this.flush();
  }

  // --- messages out ---

  /** As many words as the server has room for. */
  flush() {
    const most = Math.min(this.limits.queue, UNHEARD);
    while (this.open && this.next < this.items.length) {
      if (this.items[this.next] === null) {
        this.next++;
        this.post({ type: "end-sentence" });
        continue;
      }
      const room = Math.min(CHUNK, most - (this.sent - this.heard));
      if (room <= 0) return;
      const words = [];
      let bytes = 200;
      while (words.length < room && typeof this.items[this.next] === "string") {
        bytes += 4 * this.items[this.next].length + 1;
        if (words.length && bytes > this.limits.message) break;
        words.push(this.items[this.next++].slice(0, 200));
      }
      this.sent += words.length;
      this.post({ type: "words", text: words.join(" ") });
    }
  }

  post(message) {
    const numbered = { ...message, seq: ++this.number };
    this.outbox.push(numbered);
    this.since ??= performance.now();
    if (this.open) this.send(numbered);
  }

  send(message) {
    this.unacknowledged = 0;
    if (this.socket?.readyState !== WebSocket.OPEN) return; // it closes: what has a number is kept
    this.socket.send(JSON.stringify({ ...message, ack: this.last }));
  }

  // --- across a reload ---

  save() {
    const { session, last, number, outbox, sent, heard, limits, startedAt } = this;
    const { items, next, base, ended, decoding, token } = this;
    return {
      session, last, number, outbox, sent, heard, limits, startedAt, items, next, base, ended,
      decoding, token,
    };
  }

  restore(saved) {
    Object.assign(this, saved);
    if (this.session || this.items.length) this.connect();
  }
}
