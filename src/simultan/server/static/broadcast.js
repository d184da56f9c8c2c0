// Captions from the page to overlays: in the same browser directly, elsewhere through the server.

const NAME = "simultan.captions";
const RECENT = 60; // words; a late overlay shows the last lines at once

/** Page side: publish() after every write; a new overlay is answered at once. */
export class Captions {
  constructor(transcript) {
    this.transcript = transcript;
    this.lang = "";
    this.wire = new BroadcastChannel(NAME);
    this.wire.onmessage = ({ data }) => data.hello && this.publish();
  }

  publish() {
    const { writes, sentences } = this.transcript;
    const start = Math.max(0, writes.length - RECENT);
    const breaks = new Set(sentences.slice(-RECENT).map(({ first }) => first));
    const words = writes.slice(start).map(({ text }, i) => ({ text, opens: breaks.has(start + i) }));
    this.wire.postMessage({ start, words, lang: this.lang });
  }
}

/** Overlay side: onCaptions({start, words, lang}), from any page of this browser. */
export function listen(onCaptions) {
  const wire = new BroadcastChannel(NAME);
  wire.onmessage = ({ data }) => data.words && onCaptions(data);
  wire.postMessage({ hello: true });
}

/**
 * Overlay side: the same, of a channel of the server; docs/protocol.md says what its events are.
 * `onStatus(key, values)` names a text about the connection.
 */
export function follow(channel, token, { onCaptions, onStatus }) {
  const query = token ? `?token=${encodeURIComponent(token)}` : "";
  const address = `v1/follow/${encodeURIComponent(channel)}${query}`;
  let lang = "";
  const connect = () => {
    let start = 0; // from the beginning: what an earlier connection has shown goes
    let segment = "";
    const source = new EventSource(address);
    source.addEventListener("following", ({ data }) => {
      lang = JSON.parse(data).pair.split("-")[1] ?? "";
      onStatus("overlayWaiting");
    });
    source.addEventListener("write", ({ data }) => {
      const write = JSON.parse(data);
      const place = `${write.session} ${write.segment}`;
      onCaptions({ start: start++, words: [{ text: write.text, opens: place !== segment }], lang });
      segment = place;
    });
    source.onerror = () => {
      onStatus("overlayLost");
      if (source.readyState !== EventSource.CLOSED) return; // it goes on by itself
      sayWhy(address, onStatus);
      setTimeout(connect, 5_000); // refused: there may be room later
    };
  };
  connect();
}

/** An event stream does not tell why it was refused; the same request by other means does. */
async function sayWhy(address, onStatus) {
  try {
    const answer = await fetch(address, { headers: { accept: "text/event-stream" } });
    if (answer.ok) return void answer.body.cancel();
    onStatus("overlayRefused", { message: (await answer.json()).message });
  } catch {
    // no connection: that has been said
  }
}
