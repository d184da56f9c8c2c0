// Words as the server counts them: white space between, nothing invisible. And words put together.

const DROPPED = /[\u0000-\u0008\u000e-\u001b\u007f-\u0084\u0086-\u009f\u00ad\u200b\u2060\ufeff]/g;
const SPACE = /[\s\u001c-\u001f\u0085]+/;

// written without spaces: as data/languages.py and data/words.py have it
const UNSPACED = /^(ja|th|zh)(-|_|$)/i;
const LETTERS =
  "\\u0e00-\\u0e7f\\u2e80-\\u303f\\u3040-\\u30ff\\u3100-\\u312f\\u31c0-\\u31ff\\u3200-\\u33ff\\u3400-\\u4dbf" +
  "\\u4e00-\\u9fff\\uf900-\\ufaff\\ufe30-\\ufe4f\\uff00-\\uffef\\u{20000}-\\u{3134f}";
const LETTER = new RegExp(`^[${LETTERS}]`, "u"); // not at the end, with $: Chromium 156 misses 𠀀 there

/** What stands between two words of a language. */
export function gap(before, after, language) {
  const last = [...before.slice(-2)].at(-1) ?? "";
  return UNSPACED.test(language) && (LETTER.test(last) || LETTER.test(after)) ? "" : " ";
}

export function joinWords(words, language) {
  return words.reduce((text, word) => (text ? text + gap(text, word, language) + word : word), "");
}

export function splitWords(text) {
  return text.replace(DROPPED, "").normalize("NFC").split(SPACE).filter(Boolean);
}
