// The slider: how far behind the translation stays, and how far behind it was.

import { Measured } from "./latency.js";
import { number, text } from "./strings.js";

const PAUSE = 120; // ms that the slider rests before the server is told
const logOdds = (p) => Math.log(p / (1 - p));

export class Delay {
  /** `parts`: box, slider, value, measured; `onChange(threshold)` when another was chosen. */
  constructor(parts, onChange) {
    Object.assign(this, { parts, onChange });
    this.lags = []; // [threshold, words behind], rising; empty: the slider shows thresholds
    this.found = new Measured();
    Object.assign(parts.slider, { min: 0.05, max: 0.95, step: 0.05, value: 0.5 });
    parts.slider.addEventListener("input", () => {
      this.found.clear();
      this.show();
      this.timer ??= setTimeout(() => {
        this.timer = null;
        onChange(this.threshold);
      }, PAUSE);
    });
  }

  /** Where it was measured how far behind the model stays, the slider counts words. */
  scale({ learned, lags = [], threshold }) {
    const { box, slider } = this.parts;
    box.hidden = !learned;
    this.lags = lags;
    if (lags.length) Object.assign(slider, { min: lags[0][1], max: lags.at(-1)[1], step: "any" });
    slider.value = lags.length ? this.between(logOdds(threshold), odds, lag) : threshold;
    this.show();
  }

  get threshold() {
    const value = +this.parts.slider.value;
    return this.lags.length ? 1 / (1 + Math.exp(-this.between(value, lag, odds))) : value;
  }

  /** From one column of lags to the other, on the line between the two points around a value. */
  between(value, from, to) {
    const after = this.lags.findIndex((point) => from(point) >= value);
    if (after < 0) return to(this.lags.at(-1));
    if (after === 0) return to(this.lags[0]);
    const [low, high] = [this.lags[after - 1], this.lags[after]];
    const share = (value - from(low)) / (from(high) - from(low));
    return to(low) + share * (to(high) - to(low));
  }

  measure(sentence) {
    this.found.add(sentence);
    this.show();
  }

  show() {
    const { slider, value, measured } = this.parts;
    const chosen = +slider.value;
    const says = this.lags.length
      ? text("delayWords", { n: number(chosen, 1) })
      : text("delayThreshold", { n: number(100 * chosen) + "%" });
    value.textContent = says;
    slider.setAttribute("aria-valuetext", says);
    const { words, seconds } = this.found.mean;
    const values = { words: words === null ? "" : number(words, 1), seconds: number(seconds ?? 0, 1) };
    const key = words === null ? "notMeasured" : seconds === null ? "measured" : "measuredSeconds";
    measured.textContent = text(key, values);
  }
}

const odds = ([threshold]) => logOdds(threshold);
const lag = ([, words]) => words;
