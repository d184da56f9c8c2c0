// The overlay: the last lines of what is being written. The address says how they look.

import { follow, listen } from "./broadcast.js";
import { showTexts, text } from "./strings.js";
import { gap } from "./words.js";

const query = new URLSearchParams(location.search);
const box = document.getElementById("captions");

function number(name, value, least, most) {
  const given = query.has(name) ? Number(query.get(name)) : value;
  return Number.isFinite(given) ? Math.min(most, Math.max(least, given)) : value;
}

const lines = number("lines", 2, 1, 6);
const quiet = number("hide", 8, 0, 3600); // seconds until old captions go; 0: never
box.style.setProperty("--size", `${number("size", 44, 10, 300)}px`);
box.style.setProperty("--width", `${number("width", 80, 10, 100)}%`);
document.body.dataset.position = query.get("position") ?? "bottom";
document.body.dataset.align = query.get("align") ?? "center";
document.body.dataset.ground = query.get("ground") ?? "none";

let shown = 0; // words so far: a word never moves once it stands in its line
let line = null;
let silence = null;

function newLine() {
  line = document.createElement("div");
  line.className = "line";
  line.append(document.createElement("span"));
  box.append(line);
  while (box.childElementCount > lines) box.firstElementChild.remove();
}

function add(word, opens) {
  if (!line || (opens && line.textContent)) newLine();
  const span = line.firstElementChild;
  const before = span.textContent;
  span.textContent = before ? before + gap(before, word, box.lang) + word : word;
  if (span.offsetWidth <= box.clientWidth) return;
  if (before) {
    span.textContent = before;
    newLine();
    add(word, false);
  } else line.classList.add("wide");
}

function show({ start, words, lang }) {
  if (start + words.length < shown) {
    shown = 0; // a new session
    box.replaceChildren();
    line = null;
  }
  if (lang) box.lang = lang;
  const fresh = words.slice(Math.max(0, shown - start));
  for (const { text: word, opens } of fresh) add(word, opens);
  shown = start + words.length;
  if (!fresh.length) return;
  showStatus(null);
  box.classList.remove("quiet");
  clearTimeout(silence);
  if (quiet) silence = setTimeout(() => box.classList.add("quiet"), quiet * 1_000);
}

/** A small line in a corner, as long as there is something wrong or nothing to see. */
function showStatus(key, values) {
  if (query.get("status") === "off") return;
  document.getElementById("status").textContent = key ? text(key, values) : "";
}

// The token stands after the #: what stands there is not sent with the page's address.
const token = new URLSearchParams(location.hash.slice(1)).get("token");
showTexts();
if (query.has("channel")) follow(query.get("channel"), token, { onCaptions: show, onStatus: showStatus });
else {
  showStatus("overlayLocal");
  listen(show);
}
