// The line one types in: a word goes as soon as a space follows it, Backspace takes the last one back.

import { splitWords } from "./words.js";

export class Typing {
  /** `say(words, live)`, `endSentence()`, `takeBack()` -> the last word or null. */
  constructor(input, { say, endSentence, takeBack }) {
    Object.assign(this, { input, say, endSentence, takeBack });
    input.addEventListener("input", (event) => {
      if (!event.isComposing) this.take();
      this.fit();
    });
    input.addEventListener("compositionend", () => this.take());
    input.addEventListener("keydown", (event) => this.press(event));
    input.addEventListener("paste", (event) => {
      const pasted = event.clipboardData.getData("text");
      if (!/\s/.test(pasted)) return; // a part of a word, perhaps
      event.preventDefault();
      this.paste(pasted);
    });
  }

  get text() {
    return this.input.value;
  }

  set text(value) {
    this.input.value = value;
    this.fit();
  }

  fit() {
    const shown = this.input.value || this.input.placeholder;
    this.input.style.width = `${Math.max(4, shown.length + 3)}ch`;
  }

  /** Whole words go; with `all` also the one at the end. */
  take(all = false) {
    const value = this.input.value;
    const cut = all ? value.length : value.search(/\S*$/);
    if (cut > 0) {
      this.say(splitWords(value.slice(0, cut)));
      this.input.value = value.slice(cut);
    }
    this.fit();
  }

  finishSentence() {
    this.take(true);
    this.endSentence();
  }

  press(event) {
    const { input } = this;
    if (event.isComposing) return;
    if (event.key === "Enter") {
      event.preventDefault();
      this.finishSentence();
    } else if (event.key === "Backspace" && !input.selectionStart && !input.selectionEnd) {
      const word = this.takeBack();
      if (word === null) return;
      event.preventDefault();
      this.text = word + input.value;
      input.setSelectionRange(word.length, word.length);
    }
  }

  paste(pasted) {
    const { value, selectionStart, selectionEnd } = this.input;
    const all = value.slice(0, selectionStart) + pasted + value.slice(selectionEnd);
    const paragraphs = all.split(/\n\s*\n/);
    paragraphs.forEach((paragraph, index) => {
      this.say(splitWords(paragraph), false);
      if (index < paragraphs.length - 1) this.endSentence();
    });
    this.text = "";
  }
}
