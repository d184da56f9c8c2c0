// Text and caption files: words with the second each is said, and written words as WebVTT.

import { gap } from "./words.js";

const PACE = 2.5; // words a second of a text without times
const LONGEST = 80; // characters of a caption
const SHORTEST = 0.5; // seconds of a caption
const LINGER = 2; // seconds that a caption stays when none follows
const STAMP = String.raw`(?:(\d+):)?(\d{1,2}):(\d{2})[.,](\d{1,3})`;
const TIMING = new RegExp(String.raw`${STAMP}\s*-->\s*${STAMP}`);
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: " ", lrm: "", rlm: "" };

/** The text of a file's bytes: UTF-8, UTF-16 that says so, or else what old programs of Windows write. */
export function decode(data) {
  const bytes = new Uint8Array(data);
  const [first, second] = bytes;
  if (first === 0xff && second === 0xfe) return new TextDecoder("utf-16le").decode(bytes);
  if (first === 0xfe && second === 0xff) return new TextDecoder("utf-16be").decode(bytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

/** The words of a file: [{word, at}], `at` in seconds; {end: true} where a paragraph ends. */
export function schedule(text, name = "") {
  const clean = text.replace(/^\uFEFF/, "").replace(/\r\n?/g, "\n");
  if (isTimed(name) || /^WEBVTT\b/.test(clean)) return parseCues(clean).flatMap(wordsOfCue);
  let count = 0;
  return clean.split(/\n[ \t]*\n/).flatMap((paragraph) => {
    const words = paragraph.split(/\s+/).filter(Boolean).map((word) => ({ word, at: count++ / PACE }));
    return words.length ? [...words, { end: true, at: count / PACE }] : [];
  });
}

export const isTimed = (name) => /\.(srt|vtt)$/i.test(name);

/** [{start, end, text}] of an SRT or WebVTT file; what is no cue is passed over. */
export function parseCues(text) {
  const cues = [];
  for (const line of text.split("\n")) {
    const match = TIMING.exec(line);
    if (match) {
      const [start, end] = [match.slice(1, 5), match.slice(5, 9)].map(seconds);
      cues.push({ start, end: Math.max(start, end), lines: [], open: true });
    } else if (!line.trim() && cues.length) cues.at(-1).open = false;
    else if (cues.at(-1)?.open) cues.at(-1).lines.push(line);
  }
  return cues
    .map(({ start, end, lines }) => ({ start, end, text: plain(lines.join(" ")) }))
    .filter((cue) => cue.text)
    .sort((a, b) => a.start - b.start);
}

/** The number of the first line that should be a caption's times and is not; 0: there is none. */
export function damaged(text) {
  const lines = text.split(/\r\n?|\n/);
  return lines.findIndex((line) => line.includes("-->") && !TIMING.test(line)) + 1;
}

function seconds([hours, minutes, whole, fraction]) {
  return +(hours ?? 0) * 3600 + +minutes * 60 + +whole + +fraction.padEnd(3, "0") / 1000;
}

function plain(text) {
  return text
    .replace(/<[^>]*>|\{\\[^}]*\}/g, "")
    .replace(/&(\w+);/g, (all, name) => ENTITIES[name] ?? all)
    .trim();
}

/** Words share the time of their caption. */
function wordsOfCue({ start, end, text }) {
  const words = text.split(/\s+/);
  return words.map((word, i) => ({ word, at: start + ((end - start) * (i + 1)) / words.length }));
}

/** Written words [{text, at, last}] as WebVTT: a sentence to a caption, or several if it is long. */
export function toVtt(words, language = "") {
  const cues = [];
  let open = null;
  for (const { text, at, last } of words) {
    const full = open && (open.text.length + text.length >= LONGEST || at > open.end);
    if (!open || full) cues.push((open = { start: at, text }));
    else open.text += gap(open.text, text, language) + text;
    open.end = at + LINGER;
    if (last) open = null;
  }
  let until = 0; // what was translated at once came faster than it can be read: one after another
  const blocks = cues.map(({ start, end, text }, i) => {
    const from = Math.max(start, until);
    until = Math.max(from + SHORTEST, Math.min(end, cues[i + 1]?.start ?? end));
    return `${stamp(from)} --> ${stamp(until)}\n${escape(text)}\n`;
  });
  return `WEBVTT\n\n${blocks.join("\n")}`;
}

function stamp(time) {
  return new Date(Math.round(time * 1000)).toISOString().slice(11, 23);
}

function escape(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
