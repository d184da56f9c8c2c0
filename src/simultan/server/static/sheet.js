// The text and its translation, a sentence to a row. What the transcript has is put on the page
// once a frame and a few hundred words at a time, so that a long text never holds the page up.

import { gap, joinWords } from "./words.js";

const PER_FRAME = 250; // words put on the page in one frame
const AHEAD = 24; // words shown of those that wait to be translated
const LIVELY = 150; // sentences whose words answer to the pointer; older ones become plain text
const PAUSE = 100; // ms between two frames while a long text runs
const FADE = 12; // words at most that fade in together
const PLAIN = 10; // what a sentence of plain text costs, in words

export class Sheet {
  /** `parts`: sheet, closed, source, target, more; `onTie(kind, index)`; `onFrame()` after drawing. */
  constructor(parts, transcript, { onTie, onFrame }) {
    Object.assign(this, { parts, transcript, onTie, onFrame });
    this.languages = ["", ""];
    this.marked = [];
    this.reset();
    const { sheet } = parts;
    const find = (event) => {
      const word = event.target.closest?.("[data-index]");
      return word ? [word.dataset.kind, +word.dataset.index] : [null, null];
    };
    sheet.addEventListener("pointerover", (event) => onTie(...find(event)));
    sheet.addEventListener("pointerleave", () => onTie(...this.focused()));
    sheet.addEventListener("focusin", (event) => onTie(...find(event), true));
    sheet.addEventListener("focusout", () => onTie(null, null));
    sheet.addEventListener("keydown", (event) => this.move(event));
    sheet.addEventListener("scroll", () => this.scrolled(), { passive: true });
    new ResizeObserver(() => this.pinned && this.draw()).observe(sheet);
  }

  reset() {
    const { closed, source, target } = this.parts;
    for (const part of [closed, source, target]) part.replaceChildren();
    this.spans = { source: new Map(), target: new Map() };
    this.words = this.writes = this.row = 0; // how far the page has come
    this.heard = 0; // words that the server has heard
    this.roving = null;
    this.pinned = true; // the newest words are in view
    this.draw();
  }

  /** Show what has changed, with the next frame; while a long text runs ten times a second. */
  draw() {
    if (this.pending) return;
    this.pending = true;
    const frame = () => requestAnimationFrame(() => {
      this.pending = false;
      this.render();
    });
    if (this.hurry) setTimeout(frame, PAUSE);
    else frame();
  }

  hear(words) {
    this.heard = Math.max(this.heard, words);
    this.draw();
  }

  render() {
    const { transcript } = this;
    const { sentences, words, writes } = transcript;
    this.takeBack();
    this.hurry = words.length - Math.min(this.heard, this.words) > AHEAD; // more than a person says
    let room = PER_FRAME;
    for (;;) {
      const next = sentences[this.row + 1];
      if (next && this.words <= sentences[this.row].from && this.row < sentences.length - LIVELY) {
        if (room <= 0) break;
        room -= PLAIN;
        this.addPlain(next);
        continue;
      }
      const shown = Math.max(this.heard, sentences[this.row].from) + AHEAD;
      room -= this.add("source", next?.from ?? Math.min(words.length, shown), room);
      room -= this.add("target", next?.first ?? writes.length, room);
      if (!next) break;
      if (room <= 0 && (this.words < next.from || this.writes < next.first)) break;
      this.close(next);
    }
    this.showHeard();
    const waiting = words.length - this.words;
    this.onFrame({ waiting, behind: room <= 0 });
    if (this.pinned) this.follow();
    if (room <= 0) this.draw(); // there is more
  }

  /** Words of the open sentence that the transcript has no more. */
  takeBack() {
    const { words, writes } = this.transcript;
    for (const [kind, count, made] of [["source", words.length, this.words], ["target", writes.length, this.writes]]) {
      for (let index = made - 1; index >= count; index--) {
        const span = this.spans[kind].get(index);
        span?.nextSibling?.remove();
        span?.remove();
        this.spans[kind].delete(index);
      }
    }
    this.words = Math.min(this.words, words.length);
    this.writes = Math.min(this.writes, writes.length);
    this.heard = Math.min(this.heard, words.length);
  }

  /** Words up to `end`, at most `room` of them; how many there were. */
  add(kind, end, room) {
    const source = kind === "source";
    const start = source ? this.words : this.writes;
    const count = Math.max(0, Math.min(end - start, room));
    const parts = [];
    for (let index = start; index < start + count; index++) {
      const span = document.createElement("span");
      span.textContent = source ? this.transcript.words[index] : this.transcript.writes[index].text;
      span.dataset.index = index;
      span.dataset.kind = kind;
      span.className = this.hurry || count > FADE ? "word" : "word fresh";
      if (source && index >= this.heard) span.classList.add("unheard");
      this.spans[kind].set(index, span);
      parts.push(span, this.space(span));
    }
    this.parts[kind].append(...parts);
    if (source) this.words += count;
    else this.writes += count;
    if (!source && count) this.rove(this.spans.target.get(start + count - 1), false);
    return count;
  }

  /** What follows a word; nothing, where the translation is written without spaces. */
  space(span) {
    return span.dataset.kind === "target" ? gap(span.textContent, "", this.languages[1]) : " ";
  }

  /** A sentence that is old already, after a reload. */
  addPlain(next) {
    const { words, writes } = this.transcript;
    const row = this.makeRow();
    row.firstChild.textContent = words.slice(this.words, next.from).join(" ");
    const written = writes.slice(this.writes, next.first).map(({ text }) => text);
    row.lastChild.textContent = joinWords(written, this.languages[1]);
    [this.words, this.writes] = [next.from, next.first];
    this.row++;
  }

  makeRow() {
    const row = document.createElement("div");
    row.className = "pair";
    for (const [i, kind] of ["source", "target"].entries()) {
      const cell = document.createElement("p");
      cell.className = kind;
      cell.lang = this.languages[i];
      row.append(cell);
    }
    this.parts.closed.append(row);
    return row;
  }

  /** The open sentence is over: its words get a row of their own above. */
  close(next) {
    const { from, first } = this.transcript.sentences[this.row];
    const held = document.activeElement;
    const row = this.makeRow();
    for (const [kind, begin, end] of [["source", from, next.from], ["target", first, next.first]]) {
      const cell = row.querySelector(`.${kind}`);
      for (let index = begin; index < end; index++) {
        const span = this.spans[kind].get(index);
        if (span) cell.append(span, this.space(span));
      }
    }
    // what is left belongs to the next sentence; the spaces of what has gone do not
    for (const kind of ["source", "target"]) {
      const left = [...this.parts[kind].children].flatMap((span) => [span, this.space(span)]);
      this.parts[kind].replaceChildren(...left);
    }
    if (held !== document.activeElement && held?.isConnected) held.focus({ preventScroll: true });
    this.row++;
    this.age();
  }

  /** Old sentences stay readable and cost little. */
  age() {
    const old = this.row - LIVELY;
    if (old <= 0) return;
    const row = this.parts.closed.children[old - 1];
    for (const cell of row?.children ?? []) {
      for (const span of cell.children) this.spans[span.dataset.kind].delete(+span.dataset.index);
      cell.textContent = cell.textContent.trim();
    }
  }

  showHeard() {
    for (const span of this.parts.sheet.querySelectorAll(".unheard")) {
      if (+span.dataset.index < this.heard) span.classList.remove("unheard");
    }
  }

  follow() {
    const { sheet } = this.parts;
    sheet.scrollTop = 1e9; // as far as it goes
    this.followed = sheet.scrollTop;
  }

  /** Whoever scrolls back is left there. */
  scrolled() {
    const { sheet } = this.parts;
    if (sheet.scrollTop === this.followed) this.pinned = true;
    else this.pinned = sheet.scrollHeight - sheet.scrollTop - sheet.clientHeight < 60;
  }

  /** The words of a tie light up; `reveal` brings them into view. */
  mark({ writes = [], awaited = [], stops = [] } = {}, reveal = false) {
    for (const span of this.marked) span.classList.remove("tied", "awaited", "stop");
    this.marked = [];
    const light = (kind, indices, name) => {
      for (const index of indices) {
        const span = this.spans[kind].get(index);
        span?.classList.add(name);
        if (span) this.marked.push(span);
      }
    };
    light("source", stops, "stop");
    light("source", awaited, "awaited");
    light("target", writes, "tied");
    if (!reveal) return;
    this.spans.source.get(awaited[0])?.scrollIntoView({ block: "nearest" });
    this.spans.target.get(writes[0])?.scrollIntoView({ block: "nearest" });
  }

  // --- by keyboard: one translated word can be reached with Tab, the others with the arrow keys ---

  rove(span, focus) {
    if (!focus && this.roving && this.roving === document.activeElement) return;
    this.roving?.removeAttribute("tabindex");
    this.roving?.removeAttribute("aria-describedby");
    this.roving = span;
    span.tabIndex = 0;
    span.setAttribute("aria-describedby", "tie");
    if (focus) span.focus();
  }

  focused() {
    const active = document.activeElement;
    return active?.dataset.kind ? [active.dataset.kind, +active.dataset.index] : [null, null];
  }

  move(event) {
    const [kind, at] = this.focused();
    if (kind !== "target") return;
    const first = this.spans.target.keys().next().value;
    const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: first, End: this.writes - 1 };
    const span = this.spans.target.get(steps[event.key]);
    if (!span) return;
    event.preventDefault();
    this.rove(span, true);
  }
}
