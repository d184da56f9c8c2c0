// Source and translation side by side; a written word and the word it waited for light up together.

const MOST = 3000; // words a pane shows; the transcript keeps all

/** One pane of words: a paragraph to a sentence. */
export class Pane {
  constructor(element, { focusable = false, onTie }) {
    Object.assign(this, { element, focusable, onTie });
    this.clear();
    const index = (event) => {
      const word = event.target.closest?.("[data-index]");
      return word && this.element.contains(word) ? +word.dataset.index : null;
    };
    element.addEventListener("pointerover", (event) => onTie(index(event)));
    element.addEventListener("pointerleave", () => onTie(this.focused()));
    if (!focusable) return;
    element.addEventListener("focusin", (event) => onTie(index(event)));
    element.addEventListener("focusout", () => onTie(null));
    element.addEventListener("keydown", (event) => this.move(event));
  }

  clear() {
    this.element.querySelectorAll(".sentence").forEach((paragraph) => paragraph.remove());
    this.spans = new Map();
    this.count = 0;
    this.roving = null;
    this.paragraph = null;
  }

  add(text, { fresh = true } = {}) {
    if (!this.paragraph) {
      this.paragraph = document.createElement("p");
      this.paragraph.className = "sentence open";
      this.element.insertBefore(this.paragraph, this.element.querySelector(".tail"));
    }
    const span = document.createElement("span");
    span.textContent = text;
    span.dataset.index = this.count;
    span.className = fresh ? "word fresh" : "word";
    if (this.focusable) {
      span.tabIndex = -1;
      span.setAttribute("aria-describedby", "tie");
    }
    this.paragraph.append(span, " ");
    this.spans.set(this.count++, span);
    if (this.focusable && (!this.roving || document.activeElement !== this.roving)) this.rove(span);
    if (this.spans.size > MOST) this.forget();
    return span;
  }

  /** The next word begins a new paragraph. */
  endSentence() {
    this.paragraph?.classList.remove("open");
    this.paragraph = null;
  }

  forget() {
    const [oldest, span] = this.spans.entries().next().value;
    const paragraph = span.parentElement;
    span.nextSibling?.remove();
    span.remove();
    if (!paragraph.children.length && paragraph !== this.paragraph) paragraph.remove();
    this.spans.delete(oldest);
  }

  rove(span) {
    if (this.roving) this.roving.tabIndex = -1;
    this.roving = span;
    span.tabIndex = 0;
  }

  focused() {
    const active = document.activeElement;
    return this.element.contains(active) && active.dataset.index ? +active.dataset.index : null;
  }

  move(event) {
    const at = this.focused();
    if (at === null) return;
    const first = this.spans.keys().next().value;
    const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: first, End: this.count - 1 };
    const span = this.spans.get(steps[event.key]);
    if (!span) return;
    event.preventDefault();
    this.rove(span);
    span.focus();
  }

  mark(indices, name) {
    this.element.querySelectorAll(`.${name}`).forEach((span) => span.classList.remove(name));
    for (const index of indices) this.spans.get(index)?.classList.add(name);
  }

  /** Keep the newest word in view, unless the reader has scrolled back. */
  follow(force = false) {
    const box = this.element;
    const near = box.scrollHeight - box.scrollTop - box.clientHeight < 120;
    if (near || force) box.scrollTop = box.scrollHeight;
  }
}

/** Whom to light up for a written word, and the sentence that says so. */
export function tieOfWrite(transcript, index) {
  const write = transcript.writes[index];
  if (!write) return null;
  const awaited = write.delay - 1;
  const stops = [...new Set((write.heads ?? []).flat())].sort((a, b) => a - b).map((at) => at - 1);
  const word = transcript.words[awaited] ?? "";
  let says = `“${write.text}” waited for “${word}”, word ${write.delay} of the source.`;
  const others = stops.filter((at) => at !== awaited).map((at) => `“${transcript.words[at] ?? ""}”`);
  if (others.length) says += ` Heads also stand on ${others.slice(-4).join(", ")}.`;
  return { writes: [index], awaited: [awaited], stops, row: index, column: awaited, says };
}

/** The same from the other side: everything that waited for a source word. */
export function tieOfSource(transcript, index) {
  const word = transcript.words[index];
  if (word === undefined) return null;
  const writes = [];
  transcript.writes.forEach((write, i) => write.delay - 1 === index && writes.push(i));
  const texts = writes.map((i) => transcript.writes[i].text).join(" ");
  const says = texts ? `“${texts}” waited for “${word}”.` : `Nothing written waited for “${word}”.`;
  return { writes, awaited: [index], stops: [], row: writes[0] ?? null, column: index, says };
}
