// The read/write path and every head's position, drawn live: source words across, written words down.

import { text } from "./strings.js";

const SVG = "http://www.w3.org/2000/svg";
const ROW = 25;
const PAUSE = 120; // ms between two pictures
const AHEAD = 4; // columns shown of words heard but not yet used

function make(name, attributes, parent) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent?.append(element);
  return element;
}

const shorten = (text, size) => (text.length > size ? `${text.slice(0, size - 1)}…` : text);

/** Layers are ordered, and so are their colours: from blue to orange. */
export function layerColour(layer, layers) {
  const hue = 255 + (layers > 1 ? (layer / (layers - 1)) * 165 : 0);
  return `oklch(var(--layer-light) var(--layer-chroma) ${hue.toFixed(0)})`;
}

export class PathFigure {
  constructor(element, transcript, onTie) {
    Object.assign(this, { element, transcript, onTie });
    this.svg = make("svg", { role: "img", "aria-label": this.describe() }); // before it is drawn, too
    element.append(this.svg);
    this.tie = null;
    new ResizeObserver(() => this.draw()).observe(element);
    this.svg.addEventListener("pointermove", (event) => {
      const row = event.target.dataset?.row;
      this.onTie(row === undefined ? null : +row);
    });
    this.svg.addEventListener("pointerleave", () => this.onTie(null));
  }

  /** Draw soon; a picture that changes ten times a second is enough. */
  draw() {
    this.pending ??= setTimeout(() => {
      this.pending = null;
      this.render();
    }, PAUSE);
  }

  highlight(tie) {
    this.tie = tie;
    this.draw();
  }

  render() {
    const width = this.element.clientWidth;
    if (!width) return;
    const { words } = this.transcript;
    const narrow = width < 520;
    const [left, top, rows] = narrow ? [84, 66, 8] : [124, 78, 9];
    const columns = Math.max(5, Math.min(24, Math.floor((width - left) / (narrow ? 30 : 44))));
    const cell = (width - left - 28) / columns; // the slanted labels need a little room
    const height = top + rows * ROW + 8;
    let writes = this.transcript.writes;
    const lit = this.tie?.row ?? writes.length;
    if (lit < writes.length - rows) writes = writes.slice(0, Math.max(rows, lit + 3)); // in view
    let firstRow = Math.max(0, writes.length - rows);
    const needed = writes.at(-1)?.delay ?? 0;
    const lastColumn = Math.min(words.length, Math.max(needed + AHEAD, columns));
    const firstColumn = Math.max(0, lastColumn - columns);
    while (writes[firstRow]?.delay <= firstColumn) firstRow++; // nothing of it would be seen
    const x = (column) => left + (Math.max(firstColumn, column) - firstColumn) * cell;
    const y = (row) => top + (row - firstRow) * ROW;
    Object.assign(this, { x, y, cell, left, top, firstRow, firstColumn, lastColumn });

    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", height);
    this.grid(rows, columns);
    this.labels(words, writes, narrow);
    if (writes.length) {
      this.heard(writes);
      this.strands(writes);
      this.staircase(writes, words.length);
      this.targets(writes, width);
    }
    this.svg.setAttribute("aria-label", this.describe());
  }

  grid(rows, columns) {
    const { left, top, cell } = this;
    let d = "";
    for (let row = 0; row <= rows; row++) d += `M${left} ${top + row * ROW}h${columns * cell}`;
    for (let column = 0; column <= columns; column++) d += `M${left + column * cell} ${top}v${rows * ROW}`;
    make("path", { d, class: "grid" }, this.svg);
  }

  labels(words, writes, narrow) {
    const group = make("g", { class: "labels" }, this.svg);
    for (let column = this.firstColumn; column < this.lastColumn; column++) {
      const at = [this.x(column) + this.cell / 2 - 2, this.top - 9];
      const used = writes.length && column < writes[writes.length - 1].delay;
      const lit = this.tie?.awaited.includes(column);
      const label = make("text", {
        transform: `translate(${at[0]} ${at[1]}) rotate(-38)`,
        class: `source${used ? "" : " unused"}${lit ? " lit" : ""}`,
      }, group);
      label.textContent = shorten(words[column], narrow ? 11 : 13);
    }
    for (let row = this.firstRow; row < writes.length; row++) {
      const lit = this.tie?.writes.includes(row);
      const label = make("text", {
        x: this.left - 12, y: this.y(row) + ROW / 2 + 4.5, "text-anchor": "end",
        class: `target${lit ? " lit" : ""}`,
      }, group);
      label.textContent = shorten(writes[row].text, narrow ? 10 : 15);
    }
  }

  /** The ground: what had been read when each word was written. */
  heard(writes) {
    const group = make("g", { class: "heard" }, this.svg);
    const { sentences } = this.transcript;
    let sentence = 0;
    for (let row = this.firstRow; row < writes.length; row++) {
      while (sentences[sentence + 1]?.first <= row) sentence++;
      const lit = this.tie?.writes.includes(row) ? "lit" : "";
      const begin = this.x(sentences[sentence].from);
      const width = Math.max(0, this.x(writes[row].delay) - begin);
      make("rect", { x: begin, y: this.y(row), width, height: ROW, class: lit }, group);
    }
  }

  /** One strand a head, in its layer's colour, each in its own lane of the column. */
  strands(writes) {
    const shown = writes.slice(this.firstRow);
    const heads = shown[shown.length - 1].heads ?? [];
    const total = heads.flat().length;
    if (!total) return;
    const group = make("g", { class: "heads" }, this.svg);
    const lane = Math.min(9, (this.cell * 0.72) / total);
    const radius = Math.max(1, Math.min(2.9, lane * 0.45));
    const thickness = Math.max(0.8, Math.min(1.6, lane));
    let number = 0;
    heads.forEach((layer, l) => layer.forEach((_, h) => {
      const offset = this.cell / 2 + (number++ - (total - 1) / 2) * lane;
      const points = [];
      shown.forEach((write, i) => {
        const at = write.heads?.[l]?.[h];
        if (at && at > this.firstColumn) points.push([this.x(at - 1) + offset, this.y(this.firstRow + i)]);
      });
      if (!points.length) return;
      const colour = layerColour(l, heads.length);
      make("path", { d: strand(points), style: `stroke:${colour};stroke-width:${thickness}` }, group);
      const dots = points.map(([cx, cy]) => `M${cx} ${cy + ROW / 2}h0`).join(""); // round line ends
      make("path", { d: dots, class: "dots", style: `stroke:${colour};stroke-width:${2 * radius}` }, group);
    }));
  }

  staircase(writes, heard) {
    let d = `M${this.x(this.firstRow ? writes[this.firstRow - 1].delay : 0)} ${this.top}`;
    for (let row = this.firstRow; row < writes.length; row++) {
      d += `H${this.x(writes[row].delay)}V${this.y(row + 1)}`;
    }
    make("path", { d, class: "stairs" }, this.svg);
    const end = [this.x(writes[writes.length - 1].delay), this.y(writes.length)];
    const now = this.x(Math.min(heard, this.lastColumn));
    if (now > end[0]) make("path", { d: `M${end[0]} ${end[1]}H${now}`, class: "stairs ahead" }, this.svg);
    make("circle", { cx: end[0], cy: end[1], r: 4, class: "tip" }, this.svg);
  }

  /** Rows answer to the pointer. */
  targets(writes, width) {
    const group = make("g", { class: "targets" }, this.svg);
    for (let row = this.firstRow; row < writes.length; row++) {
      make("rect", { x: 0, y: this.y(row), width, height: ROW, "data-row": row }, group);
    }
  }

  describe() {
    const { words, writes } = this.transcript;
    const last = writes.at(-1);
    if (!last) return text("nothingWritten");
    const word = words[last.delay - 1] ?? "";
    const values = { heard: words.length, written: writes.length, text: last.text, delay: last.delay, word };
    return text("pathLabel", values);
  }
}

/** Down through the rows, with soft bends from column to column. */
function strand(points) {
  const bend = ROW * 0.32;
  let d = `M${points[0][0]} ${points[0][1] + ROW / 2}`;
  for (let i = 1; i < points.length; i++) {
    const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
    const middle = (y0 + y1 + ROW) / 2;
    if (x0 === x1) d += `V${y1 + ROW / 2}`;
    else d += `V${middle - bend}C${x0} ${middle + bend * 0.6} ${x1} ${middle - bend * 0.6} ${x1} ${middle + bend}V${y1 + ROW / 2}`;
  }
  return d;
}
