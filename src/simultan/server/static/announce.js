// The translation for screen readers: they hear phrases, not single words.

import { joinWords } from "./words.js";

const PAUSE = 1_000; // ms
const MOST = 20; // phrases that are kept

let unspoken = [];
let timer = null;

export function announce(said, language) {
  unspoken.push(said);
  timer ??= setTimeout(() => {
    const box = document.getElementById("spoken");
    const line = document.createElement("p");
    line.textContent = joinWords(unspoken, language);
    box.append(line);
    if (box.childElementCount > MOST) box.firstElementChild.remove();
    unspoken = [];
    timer = null;
  }, PAUSE);
}
