// What one takes away: the translation copied or saved, and the overlay's address.

import { toVtt } from "./captions.js";
import { showNotice, tell } from "./notice.js";
import { text } from "./strings.js";

const $ = (id) => document.getElementById(id);

export function offer(transcript) {
  $("save-text").addEventListener("click", () => save(`${transcript.text()}\n`, "translation.txt", "text/plain"));
  $("save-vtt").addEventListener("click", () => save(toVtt(transcript.timed(), transcript.language), "translation.vtt", "text/vtt"));
  $("copy").addEventListener("click", () => copy(transcript.text(), "copy", () => {
    const range = document.createRange();
    range.selectNodeContents($("sheet"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    showNotice("copy", text("cannotCopy"));
  }));
  $("copy-overlay").addEventListener("click", () => copy($("overlay").href, "copy-overlay", () => {
    showNotice("copy", text("overlayAddress", { address: $("overlay").href }));
  }));
}

/** `refused`: there is no permission, or no secure address. */
async function copy(said, id, refused) {
  try {
    await navigator.clipboard.writeText(said);
    tell(text("copied"), $(id));
  } catch {
    refused();
  }
}

function save(said, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([said], { type: `${type};charset=utf-8` }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
