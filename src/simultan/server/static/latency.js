// How far behind the translation was, sentence by sentence.

/**
 * Average lagging of one sentence, in words and seconds: the mean distance to an ideal writer who is
 * never ahead of what was said, up to the first word that needed the whole sentence.
 *
 * `delays` count words of this sentence; `said` and `written` are moments in ms. There are no
 * seconds where a word has no moment (it was pasted).
 */
export function lagging(delays, length, said = [], written = []) {
  if (!delays.length || !length) return null;
  const step = length / delays.length;
  let words = 0;
  let time = 0;
  let count = 0;
  for (const [i, delay] of delays.entries()) {
    words += delay - i * step;
    time += (written[i] - (said[Math.floor(i * step)] ?? NaN)) / 1000;
    count++;
    if (delay >= length) break;
  }
  return { words: words / count, seconds: Number.isFinite(time) ? time / count : null };
}

/** The mean of the last sentences; null before the first. */
export class Measured {
  constructor(most = 5) {
    this.most = most;
    this.clear();
  }

  /** Only what was written with the present delay counts. */
  clear() {
    this.found = [];
  }

  add(value) {
    if (value) this.found = [...this.found, value].slice(-this.most);
  }

  get mean() {
    const mean = (values) => (values.length ? values.reduce((a, b) => a + b) / values.length : null);
    const seconds = this.found.map((value) => value.seconds).filter((value) => value !== null);
    return { words: mean(this.found.map((value) => value.words)), seconds: mean(seconds) };
  }
}
