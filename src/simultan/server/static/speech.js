// Speech through the browser's own recognition, where it has one: words as soon as they are stable.

import { text } from "./strings.js";

const Recognition = globalThis.SpeechRecognition ?? globalThis.webkitSpeechRecognition;
const UNSTABLE = 1; // a hypothesis may still change its last word

export const canListen = Boolean(Recognition);

export class Speech {
  /** `onWords(words)`, `onEnd()` at a pause, `onState(listening)`, `onError(text)`. */
  constructor({ onWords, onEnd, onState, onError }) {
    Object.assign(this, { onWords, onEnd, onState, onError });
    this.listening = false;
  }

  start(language) {
    const recognition = new Recognition();
    recognition.lang = language;
    recognition.continuous = true;
    recognition.interimResults = true;
    let before = [];
    let said = new Map(); // result -> words of it that were passed on
    recognition.onresult = (event) => {
      for (let i = event.resultIndex; i < event.results.length; i++) {
        const words = event.results[i][0].transcript.trim().split(/\s+/).filter(Boolean);
        const sent = said.get(i) ?? 0;
        const stable = event.results[i].isFinal
          ? words.length
          : Math.min(agreement(before, words), words.length - UNSTABLE);
        if (stable > sent) {
          this.onWords(words.slice(sent, stable));
          said.set(i, stable);
        }
        before = event.results[i].isFinal ? [] : words;
        if (event.results[i].isFinal) this.onEnd();
      }
    };
    recognition.onerror = ({ error }) => {
      if (error === "no-speech" || error === "aborted") return;
      this.wanted = false;
      this.onError(text(error) ?? text("speechStopped"));
    };
    recognition.onend = () => {
      if (!this.wanted) return this.set(false);
      said = new Map(); // browsers stop by themselves now and then
      recognition.start();
    };
    this.wanted = true;
    this.recognition = recognition;
    recognition.start();
    this.set(true);
  }

  stop() {
    this.wanted = false;
    this.recognition?.stop();
    this.set(false);
  }

  set(listening) {
    this.listening = listening;
    this.onState(listening);
  }
}

/** How many words two hypotheses have in common from the start. */
function agreement(before, now) {
  let count = 0;
  while (count < before.length && before[count] === now[count]) count++;
  return count;
}
