// A client written from docs/protocol.md, with Node's standard library alone.
//
//     node client.mjs ws://127.0.0.1:8000/ws [--cut N] [--token T] < words
//
// Sends the words of standard input one by one and prints each message as a line of JSON. --cut
// pulls the cable after every N words and resumes: nothing may be lost, nothing may come twice.

import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { request } from "node:http";

// --- RFC 6455: text frames, ping and close ---

class Socket {
  static open(url) {
    return new Promise((resolve, reject) => {
      const key = randomBytes(16).toString("base64");
      const { hostname, port, pathname } = new URL(url);
      const headers = {
        Connection: "Upgrade",
        Upgrade: "websocket",
        "Sec-WebSocket-Key": key,
        "Sec-WebSocket-Version": "13",
      };
      const asked = request({ hostname, port, path: pathname, headers });
      asked.on("error", reject);
      asked.on("response", (answer) => reject(new Error(`status ${answer.statusCode}`)));
      asked.on("upgrade", (answer, stream, head) => {
        const magic = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
        const wanted = createHash("sha1").update(key + magic).digest("base64");
        if (answer.headers["sec-websocket-accept"] !== wanted) reject(new Error("no websocket"));
        else resolve(new Socket(stream, head));
      });
      asked.end();
    });
  }

  constructor(stream, head) {
    this.stream = stream;
    this.bytes = head;
    this.code = 1006; // closed without a word
    this.onMessage = this.onClose = () => {};
    stream.on("data", (data) => {
      this.bytes = Buffer.concat([this.bytes, data]);
      this.read();
    });
    stream.on("close", () => this.onClose(this.code));
    stream.on("error", () => {});
    setImmediate(() => this.read());
  }

  read() {
    while (this.bytes.length >= 2) {
      let length = this.bytes[1] & 0x7f;
      let at = 2;
      if (length === 126) {
        if (this.bytes.length < 4) return;
        length = this.bytes.readUInt16BE(2);
        at = 4;
      } else if (length === 127) {
        if (this.bytes.length < 10) return;
        length = Number(this.bytes.readBigUInt64BE(2));
        at = 10;
      }
      if (this.bytes.length < at + length) return;
      const opcode = this.bytes[0] & 0x0f;
      const payload = this.bytes.subarray(at, at + length);
      this.bytes = this.bytes.subarray(at + length);
      if (opcode === 1) this.onMessage(JSON.parse(payload.toString("utf8")));
      else if (opcode === 9) this.frame(10, payload);
      else if (opcode === 8) {
        this.code = length >= 2 ? payload.readUInt16BE(0) : 1005;
        this.frame(8, payload);
        this.stream.end();
      }
    }
  }

  frame(opcode, payload) {
    const mask = randomBytes(4);
    const length = payload.length;
    let head = Buffer.from([0x80 | opcode, 0x80 | length]);
    if (length > 65_535) throw new Error("longer than this client needs");
    if (length > 125) head = Buffer.from([0x80 | opcode, 0x80 | 126, length >> 8, length & 0xff]);
    this.stream.write(Buffer.concat([head, mask, payload.map((byte, i) => byte ^ mask[i % 4])]));
  }

  send(message) {
    this.frame(1, Buffer.from(JSON.stringify(message)));
  }
}

// --- the protocol ---

const url = process.argv[2];
const option = (name) => process.argv[process.argv.indexOf(name) + 1 || process.argv.length];
const cut = Number(option("--cut") ?? 0);
const words = readFileSync(0, "utf8").split(/\s+/).filter(Boolean);
let session = null;
let limits = { queue: 1 };
let last = 0; // the highest number seen
let told = 0; // the last one acknowledged
let number = 0; // of our own messages
let heard = 0;
let sent = 0; // words
let kept = []; // our messages that the server has not acknowledged

const print = (message) => process.stdout.write(JSON.stringify(message) + "\n");

async function connect() {
  const socket = await Socket.open(url);
  let open = false;
  let spoken = 0; // words since this connection began

  const post = (message) => {
    told = last;
    socket.send({ ...message, ack: last });
  };
  const say = (message) => {
    number += 1;
    kept.push({ seq: number, ...message });
    post(kept.at(-1));
  };
  const pump = () => {
    if (!open) return;
    while (sent < words.length && sent - heard < limits.queue) {
      say({ type: "words", text: words[sent] });
      sent += 1;
      spoken += 1;
      if (cut && spoken === cut) {
        open = false;
        setTimeout(() => socket.stream.destroy(), 3); // some of it arrives, some does not
        return;
      }
    }
    if (sent === words.length && !kept.some(({ type }) => type === "finish") && !connect.finished) {
      connect.finished = true;
      say({ type: "finish" });
    }
    if (last - told >= 100) post({ type: "ack", seq: 0 });
  };

  socket.onMessage = (message) => {
    kept = kept.filter(({ seq }) => seq > message.ack);
    if (message.seq > 0) {
      if (message.seq <= last) return;
      last = message.seq;
    }
    print(message);
    if (message.type === "started") {
      ({ session, limits } = message);
      for (const again of kept) post(again);
      open = true;
    }
    heard = Math.max(heard, message.words ?? 0, message.delay ?? 0);
    if (message.type === "finished") connect.over = true;
    if (message.type === "error" && message.fatal) process.exitCode = 1;
    if (message.type === "going-away") process.exitCode = 1;
    pump();
  };
  socket.onClose = (code) => {
    print({ closed: code });
    if (!connect.over && !process.exitCode) connect();
  };

  const start = { type: "start", seq: 0 };
  if (session) start.resume = { session, last };
  if (option("--token")) start.token = option("--token");
  socket.send(start);
}

await connect();
