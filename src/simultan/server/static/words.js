// Words as the server counts them: white space between, nothing invisible.

const DROPPED = /[\u0000-\u0008\u000e-\u001b\u007f-\u0084\u0086-\u009f\u00ad\u200b\u2060\ufeff]/g;
const SPACE = /[\s\u001c-\u001f\u0085]+/;

export function splitWords(text) {
  return text.replace(DROPPED, "").normalize("NFC").split(SPACE).filter(Boolean);
}
