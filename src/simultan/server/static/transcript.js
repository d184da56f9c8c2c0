// What was heard and what was written: the page's one state, kept across a reload.

import { joinWords } from "./words.js";

const HEADS = 200; // written words whose heads are kept across a reload

export class Transcript {
  constructor() {
    this.language = ""; // of what is written
    this.clear();
  }

  clear() {
    this.words = []; // the source
    this.said = []; // the moment of each; null: it was pasted
    this.writes = []; // {text, delay, heads, at, time}: one written word each
    this.sentences = [{ from: 0, first: 0 }]; // offsets into words and writes
    this.began = null; // the moment of the first word
  }

  get open() {
    return this.sentences[this.sentences.length - 1];
  }

  hear(word, { live = true, now = Date.now() } = {}) {
    this.began ??= now;
    this.words.push(word);
    this.said.push(live ? now : null);
  }

  /** The last word of the open sentence is taken back. */
  unhear() {
    if (this.words.length <= this.open.from) return null;
    this.said.pop();
    return this.words.pop();
  }

  /** Written words; `at` is the second of the stream (of the file, if one is played). */
  write(text, delay, heads, at, now = Date.now()) {
    for (const word of text.split(/\s+/).filter(Boolean)) {
      this.writes.push({ text: word, delay, heads, at: at ?? (now - this.began) / 1000, time: now });
    }
  }

  /** What was written of the open sentence goes: it is translated anew. */
  unwrite() {
    this.writes.length = this.open.first;
  }

  /** The sentence is over: its words are `words` of the source so far. */
  end(words) {
    if (words <= this.open.from && this.writes.length === this.open.first) return null;
    const sentence = this.open;
    this.sentences.push({ from: Math.max(words, sentence.from), first: this.writes.length });
    return sentence;
  }

  /** For the latency: delays within the sentence before the open one. */
  lastEnded() {
    const { from, first } = this.sentences[this.sentences.length - 2];
    const writes = this.writes.slice(first);
    return {
      delays: writes.map(({ delay }) => Math.max(1, delay - from)),
      length: this.open.from - from,
      said: this.said.slice(from, this.open.from),
      written: writes.map(({ time }) => time),
    };
  }

  /** The translation, a sentence to a line. */
  text() {
    return this.sentences
      .map(({ first }, index) => this.writes.slice(first, this.sentences[index + 1]?.first))
      .filter((writes) => writes.length)
      .map((writes) => joinWords(writes.map(({ text }) => text), this.language))
      .join("\n");
  }

  /** Written words for captions, the last of each sentence marked. */
  timed() {
    const lasts = new Set(this.sentences.slice(1).map(({ first }) => first - 1));
    return this.writes.map(({ text, at }, index) => ({ text, at, last: lasts.has(index) }));
  }

  save() {
    const { words, said, sentences, began } = this;
    const old = this.writes.length - HEADS;
    const writes = this.writes.map((write, i) => (i < old ? { ...write, heads: null } : write));
    return { words, said, writes, sentences, began };
  }

  restore(saved) {
    Object.assign(this, saved);
  }
}
