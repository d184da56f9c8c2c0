// Files: opened or dropped, then played as if they were spoken, or translated at once.

import { damaged, decode, isTimed, schedule } from "./captions.js";
import { hideNotice, showNotice } from "./notice.js";
import { Player } from "./player.js";
import { text } from "./strings.js";
import { splitWords } from "./words.js";

const $ = (id) => document.getElementById(id);

/** `say(words, live)`, `endSentence()`; returns the player. */
export function takeFiles(say, endSentence) {
  const player = new Player(
    (item) => (item.end ? endSentence() : say(splitWords(item.word))),
    () => showPlayer(player),
  );
  $("play").addEventListener("click", () => (player.playing ? player.pause() : player.play()));
  $("stop").addEventListener("click", () => {
    player.stop();
    endSentence();
  });
  $("translate-now").addEventListener("click", () => {
    let words = [];
    for (const item of player.rush()) {
      if (!item.end) words.push(...splitWords(item.word));
      else {
        say(words, false);
        endSentence();
        words = [];
      }
    }
    $("typing").focus();
  });
  $("speed").addEventListener("change", () => player.setSpeed(+$("speed").value));
  $("open-file").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", () => {
    if ($("file").files.length) open($("file").files[0], player);
    $("file").value = "";
  });
  takeDrops((file) => open(file, player), (dropped) => say(splitWords(dropped), false));
  return player;
}

export function showPlayer(player) {
  $("player").hidden = !player.loaded;
  if (!player.loaded) return;
  $("file-name").textContent = player.name;
  $("play").textContent = text(player.playing ? "pause" : "play");
  $("progress").value = player.duration ? player.position / player.duration : 0;
}

/** Captions play at once, in their own time; a text waits for whether it is to be played at all. */
async function open(file, player) {
  const readable = /\.(txt|srt|vtt)$/i.test(file.name) || file.type.startsWith("text/");
  const found = readable ? decode(await file.arrayBuffer()) : "";
  const items = found.includes("\0") ? [] : schedule(found, file.name);
  if (!items.length) {
    return showNotice("file", text(found ? "fileEmpty" : "fileWrong", { name: file.name }));
  }
  const line = isTimed(file.name) ? damaged(found) : 0;
  if (line) showNotice("file", text("fileDamaged", { name: file.name, line }));
  else hideNotice("file");
  player.load(items, file.name);
  player.setSpeed(+$("speed").value);
  if (isTimed(file.name)) player.play();
  else $("translate-now").focus();
  return undefined;
}

function takeDrops(onFile, onText) {
  let inside = 0; // drag events come from every element
  addEventListener("dragenter", () => ($("drop").hidden = ++inside < 1));
  addEventListener("dragleave", () => ($("drop").hidden = --inside < 1));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    inside = 0;
    $("drop").hidden = true;
    const { files } = event.dataTransfer;
    if (files.length) onFile(files[0]);
    else onText(event.dataTransfer.getData("text"));
  });
}
