// The page: what is typed, pasted, played or spoken goes to the stream; what comes back is shown.

import { announce } from "./announce.js";
import { Captions } from "./broadcast.js";
import { Delay } from "./delay.js";
import { showPlayer, takeFiles } from "./files.js";
import { lagging } from "./latency.js";
import { takeLooks } from "./look.js";
import { showLanguages, showLayers, showOverlay } from "./model.js";
import { hideNotice, showNotice, showState } from "./notice.js";
import { PathFigure } from "./path.js";
import { Sheet } from "./sheet.js";
import { canListen, Speech } from "./speech.js";
import { Stream } from "./stream.js";
import { number, showTexts, text } from "./strings.js";
import { offer } from "./takeaway.js";
import { tieOfSource, tieOfWrite } from "./tie.js";
import { Transcript } from "./transcript.js";
import { Typing } from "./typing.js";
import { splitWords } from "./words.js";

const STORE = "simultan.session";
const CORRECTION = 600; // ms without a key until a corrected sentence is said again
const $ = (id) => document.getElementById(id);

const transcript = new Transcript();
const captions = new Captions(transcript);
let channel = crypto.getRandomValues(new Uint32Array(3)).reduce((all, part) => all + part.toString(36), "");
let shift = 0; // seconds from the clock of this page to that of the file that was played
let model = { pair: "", layers: 0, heads: 0, channel: "", learned: false };

// --- what is shown ---

const parts = { sheet: $("sheet"), closed: $("closed"), source: $("open-source"), target: $("open-target") };
const sheet = new Sheet(parts, transcript, { onTie: showTie, onFrame: showCounts });
const figure = new PathFigure($("path"), transcript, (index) => showTie("target", index, true));
const delay = new Delay(
  { box: $("slider"), slider: $("delay"), value: $("delay-value"), measured: $("measured") },
  (value) => {
    stream.setDecoding(value);
    keep();
  },
);

function showTie(kind, index, reveal = false) {
  const find = kind === "source" ? tieOfSource : tieOfWrite;
  const tie = index === null || kind === null ? null : find(transcript, index);
  sheet.mark(tie ?? {}, reveal);
  figure.highlight(tie);
  $("tie").textContent = tie?.says ?? hint();
}

function hint() {
  if (!transcript.words.length) return "";
  const open = transcript.words.length > transcript.open.from;
  return text(open || !transcript.writes.length ? "finalHint" : "pointHint");
}

function showCounts({ waiting, behind }) {
  const { words, writes } = transcript;
  const count = (n) => (n === 1 ? text("oneWord") : text("words", { n: number(n) }));
  const values = { done: number(sheet.heard), n: number(words.length) };
  $("heard").textContent = waiting ? text("wordsOf", values) : words.length ? count(words.length) : "";
  $("written").textContent = writes.length ? count(writes.length) : "";
  $("more").textContent = waiting && !behind ? text("more", { n: number(waiting) }) : "";
  $("hint").hidden = words.length > 0;
  typing.input.placeholder = words.length ? "" : text("typeHere");
  typing.fit();
  for (const id of ["copy", "save-text", "save-vtt"]) $(id).disabled = !writes.length;
  if (!sheet.marked.length) $("tie").textContent = hint();
  figure.draw();
}

function showModel() {
  sheet.languages = showLanguages(model.pair);
  [parts.source.lang, parts.target.lang] = sheet.languages;
  captions.lang = transcript.language = sheet.languages[1];
  showLayers(model);
  showOverlay(model);
}

// --- the stream ---

const stream = new Stream(new URL("ws", location.href).href.replace(/^http/, "ws"), {
  onStarted(started) {
    model = started;
    showModel();
    delay.scale(started, stream.decoding);
    if (document.activeElement === document.body) $("typing").focus();
    keep();
  },
  onWrite({ text: said, delay: needed, heads, time }) {
    const seconds = (time - (transcript.began ?? time)) / 1000;
    if (player.playing) shift = player.position - seconds;
    const at = Math.max(transcript.writes.at(-1)?.at ?? 0, seconds + shift);
    transcript.write(said, needed, heads, at, time);
    announce(said, transcript.language);
    captions.publish();
    sheet.draw();
    keep();
  },
  onRead: (words) => sheet.hear(words),
  onEnd(words) {
    if (transcript.end(words)) {
      const { delays, length, said, written } = transcript.lastEnded();
      delay.measure(lagging(delays, length, said, written));
    }
    sheet.hear(words);
    keep();
  },
  /** The server has lost the open sentence: it is said again from its beginning. */
  onLost() {
    transcript.unwrite();
    sheet.heard = transcript.open.from;
    sheet.draw();
    captions.publish();
    showNotice("lost", text("lostNotice"));
  },
  onState(kind, detail) {
    const actions = { retry: () => stream.connect(), anew: clear };
    showState(kind, { ...detail, token: stream.token }, actions);
    if (detail.code !== "unauthorized") return;
    const typed = typing.text || transcript.words.length;
    if (!typed || document.activeElement !== typing.input) $("token").focus(); // never amid a word
  },
});

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  stream.token = $("token").value.trim();
  $("token").value = "";
  hideNotice("unauthorized");
  stream.connect();
});

// --- what is said ---

let correcting = null; // the sentence was changed and is not said again yet

function say(words, live = true) {
  if (!words.length) return;
  hideNotice("cleared");
  delay.settle();
  for (const word of words) transcript.hear(word, { live });
  if (!correcting) stream.say(words);
  else sayAgain();
  sheet.pinned = true;
  sheet.draw();
  keep();
}

function sayAgain() {
  clearTimeout(correcting);
  correcting = null;
  stream.say(transcript.words.slice(transcript.open.from));
}

function endSentence() {
  if (correcting) sayAgain();
  stream.endSentence();
  keep();
}

/** The last word of the open sentence, to be typed anew; the sentence is translated again. */
function takeBack() {
  const word = transcript.unhear();
  if (word === null) return null;
  if (correcting || !stream.unsay()) {
    transcript.unwrite();
    stream.rewind();
    sheet.heard = transcript.open.from;
    captions.publish();
    clearTimeout(correcting);
    correcting = setTimeout(sayAgain, CORRECTION);
  }
  sheet.draw();
  keep();
  return word;
}

const typing = new Typing($("typing"), { say, endSentence, takeBack });
const player = takeFiles(say, endSentence);
$("sheet").addEventListener("click", (event) => {
  if (getSelection().isCollapsed && !event.target.closest(".target")) typing.input.focus();
});
$("end-sentence").addEventListener("click", () => {
  typing.finishSentence();
  typing.input.focus();
});

function clear() {
  const before = transcript.save();
  player.stop();
  if (speech?.listening) speech.stop();
  clearTimeout(correcting);
  correcting = null;
  startOver();
  if (before.words.length) showNotice("cleared", text("cleared"), { [text("undo")]: () => bringBack(before) });
  else hideNotice();
}

function startOver(saved = null) {
  transcript.clear();
  if (saved) transcript.restore(saved);
  if (saved) transcript.end(saved.words.length); // its session is gone
  shift = 0;
  typing.text = "";
  $("spoken").replaceChildren();
  stream.restart(transcript.words.length);
  sheet.reset();
  sheet.hear(transcript.words.length);
  delay.found.clear();
  delay.show();
  showTie(null, null);
  captions.publish();
  keep();
  typing.input.focus();
}

const bringBack = (before) => startOver(before);
$("clear").addEventListener("click", clear);

// --- speech ---

const speech = canListen
  ? new Speech({
      onWords: (words) => say(words.flatMap(splitWords)),
      onEnd: endSentence,
      onState: showSpeech,
      onError: (said) => showNotice("speech", said),
    })
  : null;

function showSpeech() {
  $("speak").hidden = !speech;
  $("speak").textContent = text(speech?.listening ? "listening" : "speak");
  $("speak").setAttribute("aria-pressed", String(Boolean(speech?.listening)));
}
$("speak").addEventListener("click", () => {
  hideNotice("speech");
  if (speech.listening) speech.stop();
  else speech.start(sheet.languages[0] || "en");
});

// --- across a reload ---

let keeping = null;
function keep() {
  keeping ??= setTimeout(keepNow, 1_000);
}

function keepNow() {
  clearTimeout(keeping);
  keeping = null;
  const state = {
    transcript: transcript.save(), stream: stream.save(), player: player.save(), channel, shift, model,
    heard: sheet.heard, typing: typing.text, speed: $("speed").value,
  };
  try {
    sessionStorage.setItem(STORE, JSON.stringify(state));
  } catch {
    sessionStorage.removeItem(STORE); // too long to keep: a reload begins anew
  }
}
addEventListener("pagehide", () => {
  if (correcting) sayAgain();
  keepNow();
});
addEventListener("pageshow", ({ persisted }) => persisted && stream.session && stream.connect());

function restore() {
  let state = null;
  try {
    state = JSON.parse(sessionStorage.getItem(STORE));
  } catch {
    // nothing to go on from
  }
  if (!state) return;
  ({ channel, shift, model } = state);
  transcript.restore(state.transcript);
  sheet.hear(state.heard);
  $("speed").value = state.speed;
  player.restore(state.player);
  typing.text = state.typing;
  stream.restore(state.stream);
}

/** Everything that depends on the language of the page. */
function showAll() {
  showModel();
  showSpeech();
  showPlayer(player);
  showState(stream.state, {}, {});
  delay.show();
  sheet.draw();
}

showTexts();
restore();
stream.channel = channel;
takeLooks(showAll);
offer(transcript);
showAll();
if (stream.state === "ready") stream.connect();
if (matchMedia("(hover: hover)").matches) typing.input.focus();
