// The slider: how far behind the translation stays, and how far behind it was.

import { Measured } from "./latency.js";
import { number, text } from "./strings.js";

const PAUSE = 120; // ms that the slider rests before the server is told
const USEFUL = 2; // beyond twice its shortest delay a model waits and gains nothing

export class Delay {
  /** `parts`: box, slider, value, measured; `onChange(decoding)` when another was chosen. */
  constructor(parts, onChange) {
    Object.assign(this, { parts, onChange });
    this.unit = "threshold"; // or "mass"; or "lag", in words, where that was measured
    this.found = new Measured();
    parts.slider.addEventListener("input", () => {
      this.found.clear();
      this.show();
      this.timer ??= setTimeout(() => this.settle(), PAUSE);
    });
  }

  /** What was chosen and not told yet is told: it counts for the next word. */
  settle() {
    if (!this.timer) return;
    clearTimeout(this.timer);
    this.timer = null;
    this.onChange(`${this.unit}=${+this.parts.slider.value}`);
  }

  /** The range, and where it stands: as this page has chosen ("lag=4"), or as the operator has. */
  scale({ learned, lags = [], lag, threshold, decoding = "" }, chosen) {
    const { box, slider } = this.parts;
    box.hidden = !learned;
    const mass = decoding.startsWith("mass=") ? +decoding.split("=")[1] : null;
    this.unit = mass !== null ? "mass" : lags.length ? "lag" : "threshold";
    if (this.unit === "lag") {
      const [first, last] = [lags[0][1], lags.at(-1)[1]];
      const most = Math.max(Math.min(last, USEFUL * first), lag ?? 0);
      const [min, max] = [Math.ceil(10 * first) / 10, Math.floor(10 * most) / 10];
      Object.assign(slider, { min, max, step: 0.1, value: lag ?? min });
    } else Object.assign(slider, { min: 0.05, max: 0.95, step: 0.05, value: mass ?? threshold ?? 0.5 });
    if (chosen) slider.value = chosen.split("=")[1];
    this.show();
  }

  measure(sentence) {
    this.found.add(sentence);
    this.show();
  }

  show() {
    const { slider, value, measured } = this.parts;
    const chosen = +slider.value;
    const says =
      this.unit === "lag"
        ? text("delayWords", { n: number(chosen, 1) })
        : text("delayThreshold", { n: number(100 * chosen) + "%" });
    value.textContent = says;
    slider.setAttribute("aria-valuetext", says);
    const { words, seconds } = this.found.mean;
    const values = { words: number(words ?? 0, 1), seconds: number(seconds ?? 0, 1) };
    const key = seconds === null ? "measured" : "measuredSeconds";
    measured.textContent = words === null ? "" : text(key, values);
  }
}
