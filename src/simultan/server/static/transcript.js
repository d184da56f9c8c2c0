// What was heard and what was written: the page's one state, kept across a reload.

export class Transcript {
  constructor() {
    this.clear();
  }

  clear() {
    this.words = []; // the source
    this.writes = []; // {text, delay, heads, at, time}: one written word each
    this.sentences = [{ from: 0, first: 0, length: null }]; // offsets into words and writes
    this.began = null; // the moment of the first word
  }

  get open() {
    return this.sentences[this.sentences.length - 1];
  }

  hear(word, now = Date.now()) {
    this.began ??= now;
    this.words.push(word);
  }

  /** Written words; `at` is the second of the stream (of the file, if one is played). */
  write(text, delay, heads, at, now = Date.now()) {
    const added = text.split(/\s+/).filter(Boolean);
    for (const word of added) {
      this.writes.push({ text: word, delay, heads, at: at ?? (now - this.began) / 1000, time: now });
    }
    return added.length;
  }

  /** The sentence is over: its words are `words` of the source so far. */
  end(words) {
    if (words <= this.open.from && this.writes.length === this.open.first) return;
    this.open.length = Math.max(0, words - this.open.from);
    this.sentences.push({ from: words, first: this.writes.length, length: null });
  }

  /** For the latency figures: delays within each sentence. */
  delays() {
    return this.sentences.map(({ from, first, length }, index) => ({
      delays: this.writes
        .slice(first, this.sentences[index + 1]?.first)
        .map(({ delay }) => Math.max(1, delay - from)),
      length,
    }));
  }

  /** The translation, a sentence to a line. */
  text() {
    return this.sentences
      .map(({ first }, index) => this.writes.slice(first, this.sentences[index + 1]?.first))
      .filter((writes) => writes.length)
      .map((writes) => writes.map(({ text }) => text).join(" "))
      .join("\n");
  }

  /** Written words for captions, the last of each sentence marked. */
  timed() {
    const lasts = new Set(this.sentences.slice(1).map(({ first }) => first - 1));
    return this.writes.map(({ text, at }, index) => ({ text, at, last: lasts.has(index) }));
  }

  save() {
    const { words, writes, sentences, began } = this;
    return { words, writes, sentences, began };
  }

  restore(saved) {
    Object.assign(this, saved);
  }
}
