// Text and caption files: words with the second each is spoken, and written words as WebVTT.

export const READING_PACE = 2.5; // words a second of a text without times
const TIMING = /(?:(\d+):)?(\d{1,2}):(\d{2})[.,](\d{1,3})\s*-->\s*(?:(\d+):)?(\d{1,2}):(\d{2})[.,](\d{1,3})/;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: " ", lrm: "", rlm: "" };
const SENTENCE_END = /[.!?…。！？؟।]["'”’»)\]]*$/;

/** The words of a file: [{word, at}], `at` in seconds; {end: true} where a paragraph ends. */
export function schedule(text, name = "") {
  const clean = text.replace(/^\uFEFF/, "").replace(/\r\n?/g, "\n");
  const captions = /\.(srt|vtt)$/i.test(name) || /^WEBVTT\b/.test(clean);
  const cues = captions ? parseCues(clean) : [];
  return cues.length ? wordsOfCues(cues) : wordsOfText(captions ? "" : clean);
}

/** [{start, end, text}] of an SRT or WebVTT file; what is no cue is passed over. */
export function parseCues(text) {
  const cues = [];
  for (const block of text.split(/\n[ \t]*\n/)) {
    const lines = block.split("\n");
    const index = lines.findIndex((line) => TIMING.test(line));
    if (index < 0) continue;
    const [, h1, m1, s1, f1, h2, m2, s2, f2] = TIMING.exec(lines[index]);
    const start = seconds(h1, m1, s1, f1);
    const end = Math.max(start, seconds(h2, m2, s2, f2));
    const said = plain(lines.slice(index + 1).join(" "));
    if (said) cues.push({ start, end, text: said });
  }
  return cues.sort((a, b) => a.start - b.start);
}

function seconds(hours, minutes, whole, fraction) {
  return +(hours ?? 0) * 3600 + +minutes * 60 + +whole + +fraction.padEnd(3, "0") / 1000;
}

function plain(text) {
  return text
    .replace(/<[^>]*>|\{\\[^}]*\}/g, "")
    .replace(/&(\w+);/g, (all, name) => ENTITIES[name] ?? all)
    .trim();
}

/** Words share the time of their cue by their letters; each is spoken when it ends. */
function wordsOfCues(cues) {
  const words = [];
  for (const { start, end, text } of cues) {
    const parts = text.split(/\s+/);
    const letters = parts.reduce((sum, word) => sum + word.length + 1, 0);
    let passed = 0;
    for (const word of parts) {
      passed += word.length + 1;
      words.push({ word, at: start + ((end - start) * passed) / letters });
    }
  }
  return words;
}

function wordsOfText(text) {
  const words = [];
  let count = 0;
  for (const paragraph of text.split(/\n[ \t]*\n/)) {
    const parts = paragraph.split(/\s+/).filter(Boolean);
    for (const word of parts) words.push({ word, at: count++ / READING_PACE });
    if (parts.length) words.push({ end: true, at: count / READING_PACE });
  }
  return words;
}

/** Written words [{text, at, last}] as WebVTT: short cues, broken where sentences end. */
export function toVtt(words, { longest = 72, seconds: span = 6, gap = 2.5 } = {}) {
  const cues = [];
  let open = null;
  for (const { text, at, last } of words) {
    const full = open && open.text.length + text.length + 1 > longest;
    if (!open || full || at - open.start > span || at - open.end > gap) {
      open = { start: at, end: at, text };
      cues.push(open);
    } else {
      open.text += ` ${text}`;
      open.end = at;
    }
    if (last || SENTENCE_END.test(text)) open = null;
  }
  let previous = 0;
  const blocks = cues.map((cue, index) => {
    const start = Math.max(previous, cue.start);
    const next = cues[index + 1]?.start ?? Infinity;
    const end = Math.max(start + 0.5, Math.min(next, cue.end + 2));
    previous = end;
    return `${stamp(start)} --> ${stamp(end)}\n${breakLine(escapeText(cue.text))}\n`;
  });
  return `WEBVTT\n\n${blocks.join("\n")}`;
}

function stamp(time) {
  const ms = Math.round(time * 1000);
  const part = (value, size) => String(value).padStart(size, "0");
  const minutes = Math.floor(ms / 60_000);
  const clock = `${part(Math.floor(minutes / 60), 2)}:${part(minutes % 60, 2)}`;
  return `${clock}:${part(Math.floor(ms / 1000) % 60, 2)}.${part(ms % 1000, 3)}`;
}

function escapeText(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

/** Two lines of about equal length where one would be long. */
function breakLine(text, longest = 42) {
  if (text.length <= longest) return text;
  const middle = text.length / 2;
  const breaks = [...text.matchAll(/ /g)].map((match) => match.index);
  breaks.sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle));
  return breaks.length ? `${text.slice(0, breaks[0])}\n${text.slice(breaks[0] + 1)}` : text;
}
