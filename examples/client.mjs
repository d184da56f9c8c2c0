// Speaks to a server in JavaScript: words go out, the translation comes back.
//
//     node --experimental-websocket examples/client.mjs ws://127.0.0.1:8000/ws lag=4 < talk.de.txt
//
// Needs nothing but WebSocket, which browsers, Deno, Bun and Node 22 have by themselves. It does not
// resume a lost connection; docs/protocol.md says how, tests/server/client.mjs does it.

export class Translation {
  // onWrite(text, delay) is called with each piece of the translation.
  constructor(url, { decoding = "default", token = "", onWrite = () => {} } = {}) {
    this.sent = 0; // number of our last message
    this.seen = 0; // number of the server's last message
    this.socket = new WebSocket(url);
    this.finished = new Promise((resolve, reject) => {
      this.socket.onmessage = ({ data }) => {
        const message = JSON.parse(data);
        if (message.seq) this.seen = message.seq;
        if (message.type === "write") onWrite(message.text, message.delay);
        if (message.type === "error") reject(new Error(message.message));
        if (message.type === "finished") resolve(message.stats);
        else if (message.seq && message.seq % 16 === 0) this.#post({ type: "ack", seq: 0 });
      };
      this.socket.onerror = () => reject(new Error(`no connection to ${url}`));
      this.socket.onclose = () => reject(new Error("the connection was closed"));
    });
    this.ready = new Promise((resolve) => {
      this.socket.onopen = () => {
        this.#post({ type: "start", seq: 0, decoding, ...(token && { token }) });
        resolve();
      };
    });
  }

  #post(message) {
    this.socket.send(JSON.stringify({ ...message, ack: this.seen }));
  }

  async say(text) {
    await this.ready;
    this.#post({ type: "words", seq: ++this.sent, text });
  }

  async finish() {
    await this.ready;
    this.#post({ type: "finish", seq: ++this.sent });
    return this.finished;
  }
}

if (globalThis.process?.argv[1]?.endsWith("client.mjs")) {
  const [url = "ws://127.0.0.1:8000/ws", decoding = "default"] = process.argv.slice(2);
  const { readFileSync } = await import("node:fs");
  const onWrite = (text) => process.stdout.write(`${text} `);
  const stream = new Translation(url, { decoding, token: process.env.SIMULTAN_TOKEN, onWrite });
  try {
    for (const line of readFileSync(0, "utf8").split("\n")) if (line.trim()) await stream.say(line);
    await stream.finish();
    console.log();
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
