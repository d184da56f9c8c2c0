// The stream to the server: sends words, takes what is written, and survives a lost connection.
// docs/protocol.md says what the messages mean; nothing is lost and nothing comes twice.

const RETRY = [300, 1_000, 2_000, 4_000, 8_000]; // ms between attempts
const SILENCE = 45_000; // ms without a sign of life: the connection is dead
const PING = 20_000;
const ACK_EVERY = 50;
const CHUNK = 200; // words in a message
const GIVE_UP = new Set(["unauthorized", "forbidden-origin", "unknown-pair"]);
const LOST = new Set(["unknown-session", "cannot-resume", "out-of-order", "malformed", "internal", "too-large"]);

export class Stream {
  /**
   * Called back: onStarted(started), onWrite(write, base), onRead(heard), onEnd(words),
   * onLost() -> words to say again, onState(kind, detail). Source words are counted over all
   * sessions of the page: `base` is what earlier ones have heard.
   */
  constructor(url, callbacks) {
    Object.assign(this, callbacks);
    this.url = url;
    this.threshold = 0.5;
    this.token = null;
    this.channel = null; // where overlays elsewhere can follow
    this.base = 0;
    this.queue = []; // words and ends of sentences that are not sent yet
    this.attempt = 0;
    this.forget();
    addEventListener("online", () => this.state === "waiting" && this.connect());
    setInterval(() => this.watch(), 5_000);
  }

  /** There is no session any more. */
  forget() {
    this.session = null;
    this.last = 0; // the highest number seen
    this.number = 0; // of our own messages
    this.outbox = []; // numbered messages the server has not acknowledged
    this.sent = 0; // words of this session
    this.heard = 0;
    this.finishing = false;
    this.limits = { queue: 100, message: 16_000 };
    this.startedAt = 0;
  }

  // --- what the page does ---

  say(words) {
    this.queue.push(...words);
    this.wake();
  }

  endSentence() {
    if (!this.queue.length && !this.sent) return;
    if (this.queue.at(-1) === null || (!this.queue.length && this.finishing)) return;
    this.queue.push(null);
    this.wake();
  }

  setThreshold(value) {
    this.threshold = value;
    if (this.session && !this.finishing) this.post({ type: "threshold", value });
  }

  /** A new session with nothing said. */
  restart() {
    this.drop(1000);
    this.forget();
    this.queue = [];
    this.base = 0;
    this.attempt = 0;
    this.connect();
  }

  /** The page goes: a session in which nothing was said need not wait for its return. */
  leave() {
    if (this.sent || this.queue.length || !this.socket) return;
    this.drop(1000);
    this.forget();
  }

  wake() {
    if (this.state === "idle") this.connect();
    else this.flush();
  }

  // --- the connection ---

  connect() {
    this.drop();
    clearTimeout(this.timer);
    this.set(this.session || this.attempt ? "reconnecting" : "connecting");
    const socket = new WebSocket(this.url);
    this.socket = socket;
    this.open = false;
    this.unacknowledged = 0;
    this.seen = performance.now();
    socket.onopen = () => {
      const start = { type: "start", seq: 0 };
      if (this.session) start.resume = { session: this.session, last: this.last };
      else Object.assign(start, { threshold: this.threshold, channel: this.channel });
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

  closed() {
    this.socket = null;
    this.open = false;
    const wait = RETRY[Math.min(this.attempt++, RETRY.length - 1)] * (0.8 + 0.4 * Math.random());
    this.set("waiting", { seconds: Math.round(wait / 1000), attempt: this.attempt });
    this.timer = setTimeout(() => this.connect(), wait);
  }

  /** Pings an idle connection and gives up a dead one. */
  watch() {
    if (!this.open) return;
    const silent = performance.now() - this.seen;
    if (silent > SILENCE) {
      this.drop();
      this.closed();
    } else if (silent > PING) this.send({ type: "ping", seq: 0 });
  }

  set(state, detail = {}) {
    this.state = state;
    this.onState(state, detail);
  }

  // --- messages in ---

  take(message) {
    this.seen = performance.now();
    this.outbox = this.outbox.filter(({ seq }) => seq > (message.ack ?? 0));
    if (message.seq > 0) {
      if (message.seq <= this.last) return;
      this.last = message.seq;
      this.unacknowledged++;
    }
    const handler = this[`on_${message.type.replace("-", "_")}`];
    handler?.call(this, message);
    if (this.unacknowledged >= ACK_EVERY) this.send({ type: "ack", seq: 0 });
  }

  on_started(message) {
    this.open = true;
    this.attempt = 0;
    this.limits = message.limits;
    if (!message.resumed) {
      this.session = message.session;
      this.startedAt = Date.now();
      if (message.threshold !== this.threshold) this.setThreshold(this.threshold);
    }
    for (const held of this.outbox) this.send(held);
    this.onStarted(message);
    this.set("live");
    this.flush();
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
    this.onEnd(this.base + message.words);
  }

  on_finished(message) {
    this.hear(message.stats.words);
    this.onEnd(this.base + this.sent);
    this.base += this.sent;
    this.drop(1000);
    this.forget();
    this.connect();
  }

  on_going_away() {
    this.set("leaving");
  }

  on_error({ code, message, fatal }) {
    this.drop();
    if (code === "replaced" || GIVE_UP.has(code)) {
      if (fatal) this.forget();
      this.set(code === "replaced" ? "replaced" : "refused", { code, message });
    } else if (code === "idle") {
      this.base += this.sent;
      this.onEnd(this.base);
      this.forget();
      this.set("idle");
    } else {
      if (fatal && this.session && LOST.has(code)) this.begin_again();
      else if (fatal) this.forget();
      this.onState("error", { code, message });
      this.closed();
    }
  }

  /** The session is gone: what was said and not translated yet is said again in a new one. */
  begin_again() {
    const { cut, words } = this.onLost();
    const ends = this.finishing ? [null] : [];
    this.queue = [...words.slice(0, this.base + this.sent - cut), ...ends, ...this.queue];
    this.base = cut;
    this.forget();
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
    while (this.open && !this.finishing && this.queue.length) {
      if (this.queue[0] === null) {
        this.queue.shift();
        if (!this.sent) continue;
        this.finishing = true;
        this.post({ type: "finish" });
        return;
      }
      const room = Math.min(CHUNK, this.limits.queue - (this.sent - this.heard));
      if (room <= 0) return;
      const words = [];
      let bytes = 200;
      while (words.length < room && typeof this.queue[0] === "string") {
        bytes += 4 * this.queue[0].length + 1;
        if (words.length && bytes > this.limits.message) break;
        words.push(this.queue.shift().slice(0, 200));
      }
      this.sent += words.length;
      this.post({ type: "words", text: words.join(" ") });
    }
  }

  post(message) {
    const numbered = { ...message, seq: ++this.number };
    this.outbox.push(numbered);
    if (this.open) this.send(numbered);
  }

  send(message) {
    this.unacknowledged = 0;
    if (this.socket?.readyState !== WebSocket.OPEN) return; // it closes: what has a number is kept
    this.socket.send(JSON.stringify({ ...message, ack: this.last }));
  }

  // --- across a reload ---

  save() {
    const { session, last, number, outbox, sent, heard, finishing, limits, startedAt } = this;
    const { queue, base, threshold, token } = this;
    return {
      session, last, number, outbox, sent, heard, finishing, limits, startedAt, queue, base,
      threshold, token,
    };
  }

  restore(saved) {
    Object.assign(this, saved);
  }
}
