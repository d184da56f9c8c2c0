// The translation for screen readers: they hear phrases, not single words.

const PAUSE = 1_000; // ms
const MOST = 20; // phrases that are kept

let unspoken = [];
let timer = null;

export function announce(said) {
  unspoken.push(said);
  timer ??= setTimeout(() => {
    const box = document.getElementById("spoken");
    const line = document.createElement("p");
    line.textContent = unspoken.join(" ");
    box.append(line);
    if (box.childElementCount > MOST) box.firstElementChild.remove();
    unspoken = [];
    timer = null;
  }, PAUSE);
}
