// What the server has said about itself: its languages, its layers, where it can be followed.

import { layerColour } from "./path.js";
import { currentLanguage, text } from "./strings.js";

const $ = (id) => document.getElementById(id);

function languageName(code) {
  try {
    return new Intl.DisplayNames([currentLanguage()], { type: "language" }).of(code);
  } catch {
    return code; // no language tag
  }
}

/** The two tags of a pair such as "de-en"; one that the model does not know is empty. */
export function showLanguages(pair) {
  const [from = "", to = ""] = pair.split("-");
  const known = Boolean(from && to);
  const names = known ? [languageName(from), languageName(to)] : [text("source"), text("target")];
  $("pair").textContent = known ? text("pair", { from: names[0], to: names[1] }) : "";
  [$("source-title").textContent, $("target-title").textContent] = names;
  return [from, to];
}

export function showLayers({ layers, heads }) {
  const items = Array.from({ length: layers }, (_, layer) => {
    const item = document.createElement("li");
    const dot = document.createElement("i");
    dot.style.background = layerColour(layer, layers);
    item.append(dot, text("layer", { n: layer + 1 }));
    return item;
  });
  $("legend").replaceChildren(...items);
  $("figure-hint").textContent = text("figureHint", { layers, heads });
}

/** Where captions only are to be had; without a channel, in this browser alone. */
export function showOverlay({ channel, follow }) {
  const address = new URL(channel ? `overlay?channel=${channel}` : "overlay", location.href);
  if (channel && follow) address.hash = new URLSearchParams({ token: follow });
  $("overlay").href = address.href;
  $("copy-overlay").hidden = !channel;
}
