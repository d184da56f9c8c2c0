// What a written word waited for, and what waited for a source word.

import { text } from "./strings.js";
import { joinWords } from "./words.js";

/** Whom to light up for a written word, and the sentence that says so. */
export function tieOfWrite(transcript, index) {
  const write = transcript.writes[index];
  if (!write) return null;
  const awaited = write.delay - 1;
  const stops = [...new Set((write.heads ?? []).flat())].sort((a, b) => a - b).map((at) => at - 1);
  const word = transcript.words[awaited] ?? "";
  const others = stops.filter((at) => at !== awaited).map((at) => `“${transcript.words[at] ?? ""}”`);
  const says =
    text("waited", { text: write.text, word, n: write.delay }) +
    (others.length ? text("alsoAt", { words: others.slice(-4).join(", ") }) : "");
  return { writes: [index], awaited: [awaited], stops, row: index, says };
}

/** The same from the other side: everything that waited for a source word. */
export function tieOfSource(transcript, index) {
  const word = transcript.words[index];
  if (word === undefined) return null;
  const writes = [];
  for (let i = transcript.writes.length - 1; i >= 0; i--) {
    const { delay } = transcript.writes[i];
    if (delay - 1 === index) writes.unshift(i);
    else if (delay - 1 < index) break; // delays only rise
  }
  const found = joinWords(writes.map((i) => transcript.writes[i].text), transcript.language);
  const says = found ? text("waitedFor", { text: found, word }) : text("noneWaited", { word });
  return { writes, awaited: [index], stops: [], row: writes[0] ?? null, says };
}
