// Captions from the page to overlays in the same browser.

const NAME = "simultan.captions";
const RECENT = 60; // words; a late overlay shows the last lines at once

/** Page side: publish() after every write; a new overlay is answered at once. */
export class Captions {
  constructor(channel, transcript) {
    Object.assign(this, { channel, transcript });
    this.wire = new BroadcastChannel(NAME);
    this.wire.onmessage = ({ data }) => {
      if (data.hello && (!data.channel || data.channel === channel)) this.publish();
    };
  }

  publish() {
    const { writes, sentences } = this.transcript;
    const start = Math.max(0, writes.length - RECENT);
    const breaks = new Set(sentences.map(({ first }) => first));
    const words = writes.slice(start).map(({ text }, i) => ({ text, opens: breaks.has(start + i) }));
    this.wire.postMessage({ channel: this.channel, start, words, lang: document.getElementById("target").lang });
  }
}

/** Overlay side: onCaptions({start, words, lang}), from one page or from any. */
export function listen(channel, onCaptions) {
  const wire = new BroadcastChannel(NAME);
  wire.onmessage = ({ data }) => {
    if (data.words && (!channel || data.channel === channel)) onCaptions(data);
  };
  wire.postMessage({ hello: true, channel });
}
