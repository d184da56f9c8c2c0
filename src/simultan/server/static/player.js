// Plays the words of a file at a chosen speed, as if they were being spoken.

export class Player {
  /** `onItem(item)`: a word is due; `onChange()`: something to show has changed. */
  constructor(onItem, onChange) {
    Object.assign(this, { onItem, onChange });
    this.speed = 1;
    this.reset();
  }

  reset() {
    clearTimeout(this.timer);
    Object.assign(this, { items: [], name: "", next: 0, position: 0, playing: false });
  }

  get loaded() {
    return this.items.length > 0;
  }

  get duration() {
    return this.loaded ? this.items[this.items.length - 1].at : 0;
  }

  load(items, name) {
    this.stop();
    this.items = items;
    this.name = name;
    this.position = Math.max(0, Math.min(items[0]?.at ?? 0, this.duration) - 0.3); // no long silence first
    this.onChange();
  }

  play() {
    if (!this.loaded || this.playing) return;
    this.playing = true;
    this.last = performance.now();
    this.tick();
    this.onChange();
  }

  pause() {
    if (this.playing) this.advance();
    this.playing = false;
    clearTimeout(this.timer);
    this.onChange();
  }

  stop() {
    this.reset();
    this.onChange();
  }

  /** Everything that is left, at once. */
  rush() {
    const rest = this.items.slice(this.next);
    this.stop();
    return [...rest, { end: true }];
  }

  setSpeed(speed) {
    if (this.playing) this.advance();
    this.speed = speed;
    if (this.playing) this.tick();
  }

  advance() {
    const now = performance.now();
    this.position += ((now - this.last) / 1000) * this.speed;
    this.last = now;
  }

  /** Everything that is due; a tab in the background wakes late and catches up. */
  tick() {
    clearTimeout(this.timer);
    this.advance();
    while (this.next < this.items.length && this.items[this.next].at <= this.position) {
      this.onItem(this.items[this.next++]);
    }
    if (this.next >= this.items.length) {
      this.stop();
      this.onItem({ end: true });
      return;
    }
    const wait = ((this.items[this.next].at - this.position) / this.speed) * 1000;
    this.timer = setTimeout(() => this.tick(), Math.min(500, Math.max(0, wait)));
    this.onChange();
  }

  /** What a reload needs to go on, paused where it was. */
  save() {
    const { items, name, next, position, speed } = this;
    return items.length ? { items, name, next, position, speed } : null;
  }

  restore(saved) {
    if (!saved) return;
    Object.assign(this, saved);
    this.onChange();
  }
}
