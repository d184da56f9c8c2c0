// The page: what is typed, pasted, played or spoken goes to the stream; what comes back is shown.

import { Captions } from "./broadcast.js";
import { schedule, toVtt } from "./captions.js";
import { runningLagging, writingRate } from "./latency.js";
import { hideNotice, showNotice, showState, tell } from "./notice.js";
import { Pane, tieOfSource, tieOfWrite } from "./panes.js";
import { layerColour, PathFigure } from "./path.js";
import { Player } from "./player.js";
import { canListen, Speech } from "./speech.js";
import { Stream } from "./stream.js";
import { Transcript } from "./transcript.js";
import { splitWords } from "./words.js";

const STORE = "simultan.session";
const HINT = "Point at a written word, or move through them with the arrow keys, to see what it waited for.";
const $ = (id) => document.getElementById(id);
const typing = $("typing");

const transcript = new Transcript();
let channel = crypto.getRandomValues(new Uint32Array(3)).reduce((text, part) => text + part.toString(36), "");
let shift = 0; // seconds from the clock of this page to that of the file that was played
let heard = 0;
let sourceLanguage = "";

// --- what is shown ---

const source = new Pane($("source"), { onTie: (index) => showTie(index, tieOfSource) });
const target = new Pane($("target"), { focusable: true, onTie: (index) => showTie(index, tieOfWrite) });
const figure = new PathFigure($("path"), transcript, (index) => showTie(index, tieOfWrite));

function showTie(index, find) {
  const tie = index === null ? null : find(transcript, index);
  target.mark(tie?.writes ?? [], "tied");
  source.mark(tie?.stops ?? [], "stop");
  source.mark(tie?.awaited ?? [], "awaited");
  figure.highlight(tie);
  $("tie").textContent = tie?.says ?? (transcript.writes.length ? HINT : "");
}

function addSource(word, fresh) {
  const span = source.add(word, { fresh });
  span.classList.toggle("unheard", source.count > heard);
  source.follow(true);
}

function showFigures() {
  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  $("heard").textContent = transcript.words.length ? count(transcript.words.length, "word") : "";
  $("written").textContent = transcript.writes.length ? count(transcript.writes.length, "word") : "";
  const lagging = runningLagging(transcript.delays());
  $("lagging").textContent = lagging === null ? "–" : lagging.toFixed(1);
  showRate();
  for (const id of ["copy", "save-text", "save-vtt"]) $(id).disabled = !transcript.writes.length;
  if (!$("tie").textContent) showTie(null);
  figure.draw();
}

function showRate() {
  const times = transcript.writes.slice(-200).map(({ time }) => time);
  $("rate").textContent = writingRate(times, Date.now()).toFixed(1);
}
setInterval(showRate, 1_000);

function showLanguages(pair) {
  const [from, to] = pair.split("-");
  const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
  const name = (code) => {
    try {
      return names.of(code);
    } catch {
      return code; // no language tag
    }
  };
  sourceLanguage = from ?? "";
  $("source").lang = from ?? "";
  $("target").lang = to ?? "";
  $("pair").textContent = from && to ? `${name(from)} to ${name(to)}` : pair;
}

function showLayers(layers) {
  const items = Array.from({ length: layers }, (_, layer) => {
    const item = document.createElement("li");
    const dot = document.createElement("i");
    dot.style.background = layerColour(layer, layers);
    item.append(dot, `Layer ${layer + 1}`);
    return item;
  });
  $("legend").replaceChildren(...items);
}

/** Where captions only are to be had; without a channel, in this browser alone. */
function showOverlay(channel) {
  const address = new URL(channel ? `overlay?channel=${channel}` : "overlay", location.href);
  if (channel && stream.token) address.hash = new URLSearchParams({ token: stream.token });
  $("overlay").href = address.href;
  $("copy-overlay").hidden = !channel;
}

// A screen reader hears phrases, not single words.
let unspoken = [];
let speaking = null;
function announce(text) {
  unspoken.push(text);
  speaking ??= setTimeout(() => {
    const line = document.createElement("p");
    line.textContent = unspoken.join(" ");
    $("spoken").append(line);
    if ($("spoken").childElementCount > 20) $("spoken").firstElementChild.remove();
    unspoken = [];
    speaking = null;
  }, 1_000);
}

// --- the stream ---

const stream = new Stream(new URL("ws", location.href).href.replace(/^http/, "ws"), {
  onStarted({ pair, layers, learned, channel, lags }) {
    showLanguages(pair);
    showLayers(layers);
    $("slider").hidden = !learned;
    scaleSlider(lags ?? []);
    showOverlay(channel);
    keep();
  },
  onWrite({ text, delay, heads, time }) {
    const seconds = (time - (transcript.began ?? time)) / 1000;
    if (player.playing) shift = player.position - seconds;
    const at = Math.max(transcript.writes.at(-1)?.at ?? 0, seconds + shift);
    const before = transcript.writes.length;
    transcript.write(text, delay, heads, at, time);
    for (const write of transcript.writes.slice(before)) target.add(write.text);
    target.follow();
    announce(text);
    captions.publish();
    showFigures();
    keep();
  },
  onRead(words) {
    for (; heard < words; heard++) source.spans.get(heard)?.classList.remove("unheard");
    keep();
  },
  onEnd(words) {
    transcript.end(words);
    target.endSentence();
    if (transcript.words.length <= words) source.endSentence();
    showFigures();
    keep();
  },
  /** Everything after the last word that was needed is said again. */
  onLost() {
    const cut = Math.max(transcript.open.from, transcript.writes.at(-1)?.delay ?? 0);
    transcript.end(cut);
    target.endSentence();
    return { cut, words: transcript.words.slice(cut) };
  },
  onState(kind, detail) {
    showState(kind, detail, { retry: () => stream.connect(), anew: clear });
    if (kind === "refused" && detail.code === "unauthorized") $("token").focus();
  },
});

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  stream.token = $("token").value.trim();
  hideNotice("unauthorized");
  stream.connect();
});

function say(words) {
  if (!words.length) return;
  for (const word of words) {
    transcript.hear(word);
    addSource(word);
  }
  stream.say(words);
  showFigures();
  keep();
}

function endSentence() {
  stream.endSentence();
  source.endSentence();
  keep();
}

// --- typing and pasting ---

function fitTyping() {
  const text = typing.value || (transcript.words.length ? "" : typing.placeholder);
  typing.style.width = `${Math.max(4, text.length + 3)}ch`;
}

function takeTyped(all = false) {
  const text = typing.value;
  const cut = all ? text.length : text.search(/\S*$/);
  if (cut > 0 || all) {
    say(splitWords(text.slice(0, cut)));
    typing.value = text.slice(cut);
  }
  if (transcript.words.length) typing.placeholder = "";
  fitTyping();
}

typing.addEventListener("input", (event) => {
  if (!event.isComposing) takeTyped();
  fitTyping();
});
typing.addEventListener("compositionend", () => takeTyped());
typing.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.isComposing) return;
  event.preventDefault();
  takeTyped(true);
  endSentence();
});
typing.addEventListener("paste", (event) => {
  event.preventDefault();
  const [start, end] = [typing.selectionStart, typing.selectionEnd];
  const text = typing.value.slice(0, start) + event.clipboardData.getData("text") + typing.value.slice(end);
  const paragraphs = text.split(/\n\s*\n/);
  paragraphs.forEach((paragraph, index) => {
    say(splitWords(paragraph));
    if (index < paragraphs.length - 1) endSentence();
  });
  typing.value = "";
  fitTyping();
});
$("source").addEventListener("click", () => {
  if (getSelection().isCollapsed) typing.focus();
});
$("end-sentence").addEventListener("click", () => {
  takeTyped(true);
  endSentence();
  typing.focus();
});

function clear() {
  player.stop();
  if (speech?.listening) speech.stop();
  transcript.clear();
  source.clear();
  target.clear();
  heard = shift = 0;
  typing.value = "";
  typing.placeholder = "Type here";
  $("spoken").replaceChildren();
  hideNotice();
  showTie(null);
  fitTyping();
  stream.restart();
  captions.publish();
  showFigures();
  keep();
  typing.focus();
}
$("clear").addEventListener("click", clear);

// --- files ---

const player = new Player(
  (item) => (item.end ? endSentence() : say(splitWords(item.word))),
  () => {
    $("player").hidden = !player.loaded;
    if (!player.loaded) return;
    $("file-name").textContent = player.name;
    $("play").textContent = player.playing ? "Pause" : "Play";
    $("progress").value = player.duration ? player.position / player.duration : 0;
  },
);
$("play").addEventListener("click", () => (player.playing ? player.pause() : player.play()));
$("stop").addEventListener("click", () => {
  player.stop();
  endSentence();
});
$("speed").addEventListener("change", () => player.setSpeed(+$("speed").value));

async function openFile(file) {
  const text = /\.(txt|srt|vtt)$/i.test(file.name) || file.type.startsWith("text/") ? await file.text() : "";
  const items = text.includes("\0") ? [] : schedule(text, file.name);
  if (!items.length) {
    const found = text ? "has no words to play" : "is no text file";
    return showNotice("file", `“${file.name}” ${found}. Choose a .txt, .srt or .vtt file.`);
  }
  hideNotice("file");
  player.load(items, file.name);
  player.setSpeed(+$("speed").value);
  player.play();
}

$("open-file").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => {
  if ($("file").files.length) openFile($("file").files[0]);
  $("file").value = "";
});
let inside = 0; // drag events come from every element
addEventListener("dragenter", () => ($("drop").hidden = ++inside < 1));
addEventListener("dragleave", () => ($("drop").hidden = --inside < 1));
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  inside = 0;
  $("drop").hidden = true;
  const { files } = event.dataTransfer;
  const text = event.dataTransfer.getData("text");
  if (files.length) openFile(files[0]);
  else say(splitWords(text));
});

// --- speech ---

const speech = canListen
  ? new Speech({
      onWords: (words) => say(words.flatMap(splitWords)),
      onEnd: endSentence,
      onState(listening) {
        $("speak").textContent = listening ? "Listening" : "Speak";
        $("speak").setAttribute("aria-pressed", String(listening));
      },
      onError: (text) => showNotice("speech", text),
    })
  : null;
$("speak").hidden = !canListen;
$("speak").title = "The browser recognises the speech; some send the sound to their maker for it.";
$("speak").addEventListener("click", () => {
  hideNotice("speech");
  if (speech.listening) speech.stop();
  else speech.start(sourceLanguage || "en");
});

// --- latency ---

let lags = []; // [threshold, words behind], rising; empty: the slider shows thresholds
const logOdds = (p) => Math.log(p / (1 - p));

/** From one column of lags to the other, on the line between the two points around a value. */
function between(value, from, to) {
  const after = lags.findIndex((point) => from(point) >= value);
  if (after < 0) return to(lags.at(-1));
  if (after === 0) return to(lags[0]);
  const [low, high] = [lags[after - 1], lags[after]];
  const share = (value - from(low)) / (from(high) - from(low));
  return to(low) + share * (to(high) - to(low));
}
const odds = ([threshold]) => logOdds(threshold);
const lag = ([, words]) => words;

function chosenThreshold() {
  const value = +$("threshold").value;
  return lags.length ? 1 / (1 + Math.exp(-between(value, lag, odds))) : value;
}

/** Where it was measured how far behind the model stays, the slider counts words. */
function scaleSlider(points) {
  const slider = $("threshold");
  lags = points;
  if (lags.length) {
    Object.assign(slider, { min: lags[0][1], max: lags.at(-1)[1], step: "any" });
    slider.value = between(logOdds(stream.threshold), odds, lag);
    $("threshold-hint").textContent =
      "About how many words the translation stays behind. It acts on the next word.";
  }
  showThreshold();
}

function showThreshold() {
  const value = +$("threshold").value;
  $("threshold-value").textContent = lags.length ? `${value.toFixed(1)} words` : value.toFixed(2);
}
let sliding = null;
$("threshold").addEventListener("input", () => {
  showThreshold();
  sliding ??= setTimeout(() => {
    sliding = null;
    stream.setThreshold(chosenThreshold());
    keep();
  }, 120);
});

// --- what one takes away ---

function save(text, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
$("save-text").addEventListener("click", () => save(`${transcript.text()}\n`, "translation.txt", "text/plain"));
$("save-vtt").addEventListener("click", () => save(toVtt(transcript.timed()), "translation.vtt", "text/vtt"));
$("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(transcript.text());
    tell("Copied", $("copy"));
  } catch {
    const range = document.createRange(); // no permission, or no secure address: select it instead
    range.selectNodeContents($("target"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    showNotice("copy", "The browser does not let the page copy. The translation is selected: press Ctrl+C.");
  }
});
$("copy-overlay").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText($("overlay").href);
    tell("Copied", $("copy-overlay"));
  } catch {
    showNotice("copy", `The overlay's address: ${$("overlay").href}`);
  }
});

// --- across a reload ---

let keeping = null;
function keep() {
  keeping ??= setTimeout(keepNow, 250);
}
function keepNow() {
  clearTimeout(keeping);
  keeping = null;
  const state = {
    transcript: transcript.save(), stream: stream.save(), player: player.save(), channel, shift, heard,
    typing: typing.value, speed: $("speed").value,
  };
  try {
    sessionStorage.setItem(STORE, JSON.stringify(state));
  } catch {
    sessionStorage.removeItem(STORE); // too long to keep: a reload begins anew
  }
}
addEventListener("pagehide", () => {
  stream.leave();
  keepNow();
});
addEventListener("pageshow", ({ persisted }) => persisted && stream.connect());

function restore() {
  let state = null;
  try {
    state = JSON.parse(sessionStorage.getItem(STORE));
  } catch {
    // nothing to go on from
  }
  if (!state) return;
  ({ channel, shift, heard } = state);
  transcript.restore(state.transcript);
  stream.restore(state.stream);
  $("threshold").value = stream.threshold;
  $("speed").value = state.speed;
  player.restore(state.player);
  typing.value = state.typing;
  showAll();
}

/** Everything from the transcript, after a reload. */
function showAll() {
  transcript.sentences.forEach(({ from, first }, index) => {
    const next = transcript.sentences[index + 1];
    transcript.words.slice(from, next?.from).forEach((word) => addSource(word, false));
    transcript.writes.slice(first, next?.first).forEach(({ text }) => target.add(text, { fresh: false }));
    if (next) [source, target].forEach((pane) => pane.endSentence());
  });
  if (transcript.words.length) typing.placeholder = "";
  target.follow(true);
}

restore();
const captions = new Captions(transcript);
stream.channel = channel;
showThreshold();
fitTyping();
showFigures();
stream.connect();
if (matchMedia("(hover: hover)").matches) typing.focus();
