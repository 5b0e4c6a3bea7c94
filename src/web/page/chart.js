"use strict";
// One metric over steps. What is drawn are the extremes of ranges of steps ("bins") that are at most as wide as a column
// of pixels, so that a single high step stays visible however far one looks from.
class Chart {
  constructor(name, onZoom) {
    this.name = name;
    this.onZoom = onZoom;  // (from, to) in steps, or null for all
    this.figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    const title = document.createElement("span");
    title.textContent = name;
    this.value = document.createElement("output");
    caption.append(title, this.value);
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.figure.append(caption, this.canvas);
    this.canvas.addEventListener("pointerdown", event => this.press(event));
    this.canvas.addEventListener("pointermove", event => this.point(event));
    this.canvas.addEventListener("pointerup", event => this.release(event));
    this.canvas.addEventListener("pointerleave", () => this.showLast());
    this.canvas.addEventListener("keydown", event => this.key(event));
  }

  // lowest and highest: one number or null a bin.
  set(first, width, lowest, highest, to) {
    Object.assign(this, {first, width, lowest, highest, to});
    this.draw();
  }

  // A new record; steps beyond the view make it longer.
  add(step, value) {
    const at = Math.floor((step - this.first) / this.width);
    if (at < 0) return;
    while (this.lowest.length <= at) { this.lowest.push(null); this.highest.push(null); }
    this.to = Math.max(this.to, step);
    if (value === null) return;
    this.lowest[at] = this.lowest[at] === null ? value : Math.min(this.lowest[at], value);
    this.highest[at] = this.highest[at] === null ? value : Math.max(this.highest[at], value);
  }

  range() {
    let low = Infinity, high = -Infinity;
    for (let i = 0; i < this.lowest.length; ++i) {
      if (this.lowest[i] === null) continue;
      low = Math.min(low, this.lowest[i]);
      high = Math.max(high, this.highest[i]);
    }
    if (low > high) return null;
    const margin = (high - low) * 0.04 || Math.abs(high) * 0.04 || 1;
    return [low - margin, high + margin];
  }

  place() {
    const scale = devicePixelRatio || 1;
    const width = Math.max(1, Math.round(this.canvas.clientWidth * scale));
    const height = Math.max(1, Math.round(this.canvas.clientHeight * scale));
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, {width, height});
    return {left: 52 * scale, right: width - 4 * scale, top: 6 * scale, bottom: height - 18 * scale, scale};
  }

  draw() {
    if (!this.lowest) return;
    const style = getComputedStyle(document.documentElement);
    const color = name => style.getPropertyValue(name).trim();
    const box = this.place(), context = this.canvas.getContext("2d");
    context.fillStyle = color("--raised");
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    context.font = `${11 * box.scale}px system-ui, sans-serif`;
    const range = this.range();
    this.showLast();
    if (!range) return;
    const y = value => box.bottom - (value - range[0]) / (range[1] - range[0]) * (box.bottom - box.top);
    this.axes(context, box, range, y, color);
    context.strokeStyle = color("--ink");
    context.lineWidth = box.scale;
    context.beginPath();
    let before = false;
    const columns = this.columns(box);
    for (const [x, low, high] of columns) {
      if (before) context.lineTo(x, y(low)); else context.moveTo(x, y(low));
      context.lineTo(x, y(high) - (low === high ? 0.5 : 0));
      before = true;
    }
    context.stroke();
    this.canvas.setAttribute("aria-label", `${this.name}: ${this.value.value}, from ${text(range[0])} to ${text(range[1])}`);
    this.drawn = columns;  // for tests
  }

  // Extremes of each column of pixels that has any.
  columns(box) {
    const columns = [];
    const span = Math.max(1, this.to - this.first);
    for (let i = 0; i < this.lowest.length; ++i) {
      if (this.lowest[i] === null) continue;
      const step = this.first + i * this.width;
      const x = Math.floor(box.left + (step - this.first) / span * (box.right - box.left)) + 0.5;
      const last = columns[columns.length - 1];
      if (last && last[0] === x) {
        last[1] = Math.min(last[1], this.lowest[i]);
        last[2] = Math.max(last[2], this.highest[i]);
      } else {
        columns.push([x, this.lowest[i], this.highest[i]]);
      }
    }
    return columns;
  }

  axes(context, box, range, y, color) {
    context.fillStyle = color("--quiet");
    context.strokeStyle = color("--line");
    context.lineWidth = 1;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const value of ticks(range[0], range[1], 4)) {
      const at = Math.round(y(value)) + 0.5;
      context.beginPath();
      context.moveTo(box.left, at);
      context.lineTo(box.right, at);
      context.stroke();
      context.fillText(text(value), box.left - 5 * box.scale, at);
    }
    context.textBaseline = "bottom";
    context.textAlign = "left";
    context.fillText(count(this.first), box.left, this.canvas.height);
    context.textAlign = "right";
    context.fillText(count(this.to), box.right, this.canvas.height);
  }

  stepAt(event) {
    const box = this.place(), x = event.offsetX * box.scale;
    const share = Math.min(1, Math.max(0, (x - box.left) / (box.right - box.left)));
    return Math.round(this.first + share * (this.to - this.first));
  }

  press(event) { this.pressed = this.stepAt(event); }
  release(event) {
    if (this.pressed === undefined) return;
    const step = this.stepAt(event), from = Math.min(step, this.pressed), to = Math.max(step, this.pressed);
    this.pressed = undefined;
    if (to - from >= 2) this.onZoom(from, to);
  }
  point(event) {
    if (!this.lowest) return;
    const at = Math.floor((this.stepAt(event) - this.first) / this.width);
    this.show(at);
  }
  show(at) {
    if (at < 0 || this.lowest[at] === null || this.lowest[at] === undefined) return;
    const low = text(this.lowest[at]), high = text(this.highest[at]);
    this.value.value = `step ${count(this.first + at * this.width)}: ${low}${low === high ? "" : " to " + high}`;
  }
  showLast() {
    let at = this.lowest ? this.lowest.length - 1 : -1;
    while (at >= 0 && this.lowest[at] === null) --at;
    this.show(at);
  }

  key(event) {
    const span = this.to - this.first, quarter = Math.max(1, Math.floor(span / 4));
    const moves = {"+": [quarter, -quarter], "=": [quarter, -quarter], "-": [-2 * quarter, 2 * quarter],
      ArrowLeft: [-quarter, -quarter], ArrowRight: [quarter, quarter]};
    if (event.key === "0") this.onZoom(null);
    else if (event.key === "p") this.picture();
    else if (moves[event.key]) {
      const [left, right] = moves[event.key];
      this.onZoom(Math.max(0, this.first + left), Math.max(1, this.to + right));
    } else return;
    event.preventDefault();
  }

  picture() {
    const link = document.createElement("a");
    link.href = this.canvas.toDataURL("image/png");
    link.download = this.name.replace(/[^A-Za-z0-9_-]/g, "_") + ".png";
    link.click();
  }
}

function ticks(low, high, wanted) {
  const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const width = [1, 2, 5, 10].map(factor => factor * power).find(it => it >= raw);
  const list = [];
  for (let i = Math.ceil(low / width); i * width <= high; ++i) list.push(i * width);
  return list;
}
function text(value) {
  if (value === null || value === undefined) return "-";
  return Math.abs(value) >= 10000 ? Number(value.toPrecision(5)).toLocaleString("en") : String(Number(value.toPrecision(4)));
}
function count(value) { return value === null || value === undefined ? "-" : Math.round(value).toLocaleString("en"); }
