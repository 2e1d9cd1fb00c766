// Lines, heat maps, bars and die maps. Each has a text of its own for who cannot see it.

import { el, setText } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

// Points from the left to the right; gaps where nothing is known.
function path(values, top, width, height) {
  let text = "";
  let pen = false;
  const step = width / Math.max(1, values.length - 1);
  values.forEach((value, at) => {
    if (value === null || value === undefined || Number.isNaN(value)) {
      pen = false;
      return;
    }
    const y = height - (Math.min(value, top) / top) * (height - 2) - 1;
    text += `${pen ? "L" : "M"}${(at * step).toFixed(1)} ${y.toFixed(1)}`;
    // A single point is a short line.
    if (!pen && (values[at + 1] === null || values[at + 1] === undefined)) text += "h1";
    pen = true;
  });
  return text;
}

// Points of an hour, a point each `step` seconds: a node that is younger knows nothing of what was before.
function ofHour(values, step) {
  const all = Math.round(3600 / step);
  return values.length < all ? [...new Array(all - values.length).fill(null), ...values] : values;
}

export function largest(values) {
  return values.reduce((most, value) => (value !== null && value > most ? value : most), 0);
}

export function spark(cell, values, label) {
  let node = cell.firstElementChild;
  if (!node) {
    node = svg("svg", { class: "spark", viewBox: "0 0 120 24", preserveAspectRatio: "none", role: "img" });
    node.append(svg("path", {}));
    cell.append(node);
  }
  const line = path(values, largest(values) || 1, 120, 24);
  if (node.firstElementChild.getAttribute("d") !== line) node.firstElementChild.setAttribute("d", line);
  if (node.getAttribute("aria-label") !== label) node.setAttribute("aria-label", label);
}

// One or two lines over the last hour; marks are parts of the width, 0 to 1.
export class Lines {
  constructor(title, names, show) {
    this.show = show;
    this.names = names;
    this.title = title;
    this.svg = svg("svg", { class: "chart", viewBox: "0 0 720 128", preserveAspectRatio: "none", role: "img" });
    this.svg.append(svg("path", { class: "base", d: "M0 127H720" }));
    this.paths = names.map((_, at) => svg("path", { class: at ? "two" : "one" }));
    this.marks = svg("path", { class: "mark" });
    this.svg.append(...this.paths, this.marks);
    this.now = names.map((name, at) => el("span", {}, el("span", { class: at ? "key two" : "key", "aria-hidden": "true" }), name));
    this.values = names.map(() => el("span"));
    this.now.forEach((node, at) => node.append(" ", this.values[at]));
    this.top = el("span");
    this.node = el("figure", { class: "panel" }, el("h3", {}, title), this.svg, el("div", { class: "legend" }, ...this.now, this.top));
    this.node.style.margin = "0";
  }

  set(given, step, marks = []) {
    const series = given.map((values) => ofHour(values, step));
    const top = Math.max(...series.map(largest), 1e-9);
    series.forEach((values, at) => {
      this.paths[at].setAttribute("d", path(values, top, 720, 128));
      const last = [...values].reverse().find((value) => value !== null && value !== undefined);
      setText(this.values[at], last === undefined ? "nothing yet" : this.show(last));
    });
    this.marks.setAttribute("d", marks.map((at) => `M${(at * 720).toFixed(1)} 0V128`).join(""));
    setText(this.top, top > 1e-9 ? `largest ${this.show(top)}` : "");
    const told = this.names.map((name, at) => `${name} ${this.values[at].textContent}`).join(", ");
    this.svg.setAttribute("aria-label", `${this.title}, the last hour: now ${told}; largest ${this.show(top)}`);
  }
}

// From dark blue to yellow, told apart in grey as well (an approximation of cividis).
const SCALE = [[0, 34, 78], [52, 70, 107], [107, 109, 118], [165, 150, 110], [225, 200, 70], [254, 232, 56]];

export function shade(part) {
  const at = Math.max(0, Math.min(1, part)) * (SCALE.length - 1);
  const [low, high] = [SCALE[Math.floor(at)], SCALE[Math.min(SCALE.length - 1, Math.floor(at) + 1)]];
  const mixed = low.map((value, i) => Math.round(value + (high[i] - value) * (at - Math.floor(at))));
  return `rgb(${mixed.join(" ")})`;
}

// Rows of percentiles, columns of time; the colour is the logarithm of the latency.
export class HeatMap {
  constructor(title, rows, show) {
    this.rows = rows;
    this.show = show;
    this.title = title;
    this.canvas = el("canvas", { class: "heat", role: "img" });
    this.legend = el("div", { class: "legend" });
    this.facts = el("dl", { class: "facts" });
    this.node = el("section", { class: "panel" }, el("h3", {}, title), this.canvas, this.legend, this.facts);
  }

  set(given, step) {
    const series = given.map((values) => ofHour(values, step));
    const all = series.flat().filter((value) => value > 0);
    const width = Math.max(1, ...series.map((values) => values.length));
    this.canvas.width = width;
    this.canvas.height = series.length;
    const paper = this.canvas.getContext("2d");
    const [low, high] = all.length ? [Math.log(Math.min(...all)), Math.log(Math.max(...all))] : [0, 1];
    series.forEach((values, row) => {
      values.forEach((value, at) => {
        if (!(value > 0)) return;
        paper.fillStyle = shade(high > low ? (Math.log(value) - low) / (high - low) : 0.5);
        // The highest percentile is on top.
        paper.fillRect(at + width - values.length, series.length - 1 - row, 1, 1);
      });
    });
    const range = all.length ? `dark: ${this.show(Math.exp(low))}, bright: ${this.show(Math.exp(high))}` : "nothing was measured yet";
    this.legend.replaceChildren(el("span", {}, `From an hour ago to now; from bottom to top: ${this.rows.join(", ")}. ${range}`));
    const facts = this.rows.map((name, row) => {
      const last = [...series[row]].reverse().find((value) => value > 0);
      const most = largest(series[row]);
      return [name, last ? `now ${this.show(last)}, longest of the hour ${this.show(most)}` : "nothing yet"];
    });
    this.facts.replaceChildren(...facts.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
    this.canvas.setAttribute("aria-label", `${this.title}: ${facts.map(([name, text]) => `${name} ${text}`).join("; ")}`);
  }
}

// Promised, predicted and measured part of each tenant, side by side.
export class Shares {
  constructor(title, kinds) {
    this.kinds = kinds;
    this.lines = new Map();
    this.node = el("div", { class: "shares", role: "group", "aria-label": title });
  }

  // rows: [{ name, parts: [0..1 or null], texts: [..] }]
  set(rows) {
    const names = new Set(rows.map((row) => row.name));
    for (const [name, line] of this.lines) {
      if (names.has(name)) continue;
      line.nodes.forEach((node) => node.remove());
      this.lines.delete(name);
    }
    for (const row of rows) {
      let line = this.lines.get(row.name);
      if (!line) {
        const fills = this.kinds.map((kind) => el("div", { class: `fill ${kind}` }));
        const texts = this.kinds.map(() => el("span"));
        const nodes = [el("h3", {}, row.name)];
        this.kinds.forEach((kind, at) => {
          nodes.push(el("span", {}, kind), el("div", { class: "track", "aria-hidden": "true" }, fills[at]), texts[at]);
        });
        line = { fills, texts, nodes };
        this.node.append(...nodes);
        this.lines.set(row.name, line);
      }
      row.parts.forEach((part, at) => {
        line.fills[at].style.width = part === null ? "0" : `${Math.max(0, Math.min(1, part)) * 100}%`;
        setText(line.texts[at], row.texts[at]);
      });
    }
  }
}

// Dies by channel and way: how busy, whether blocks are being erased, wear, and bad blocks.
export class DieMap {
  constructor() {
    this.canvas = el("canvas", { class: "dies", role: "img" });
    this.told = el("p", { class: "note" });
    this.node = el(
      "section",
      { class: "panel" },
      el("h2", {}, "Dies"),
      el("p", { class: "legend" }, "A column for each channel. Colour: busy (dark 0 %, bright 100 %). Frame: erasing. Bar below: wear. Corner: bad blocks since the drive was made."),
      this.canvas,
      this.told,
    );
  }

  // dies: [{ busy 0..1, erasing, wear 0..1, bad, blocks }]
  set(dies, channels) {
    const columns = Math.max(1, channels);
    const rows = Math.max(1, Math.ceil(dies.length / columns));
    const side = Math.max(12, Math.min(64, Math.floor(1024 / columns)));
    if (this.canvas.width !== columns * side || this.canvas.height !== rows * side) {
      this.canvas.width = columns * side;
      this.canvas.height = rows * side;
      this.canvas.style.maxWidth = `${columns * side}px`;
    }
    const paper = this.canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const [panel, bad, warn, track, text] = ["--panel", "--bad", "--warn", "--track", "--soft"].map(colour);
    paper.fillStyle = panel;
    paper.fillRect(0, 0, this.canvas.width, this.canvas.height);
    dies.forEach((die, at) => {
      const x = (at % columns) * side;
      const y = Math.floor(at / columns) * side;
      const inner = side - 4;
      paper.fillStyle = shade(die.busy);
      paper.fillRect(x + 2, y + 2, inner, inner - 4);
      paper.fillStyle = track;
      paper.fillRect(x + 2, y + side - 5, inner, 3);
      paper.fillStyle = text;
      paper.fillRect(x + 2, y + side - 5, inner * Math.min(1, die.wear), 3);
      if (die.bad > 0) {
        paper.fillStyle = bad;
        const corner = Math.max(4, Math.ceil((inner / 2) * Math.min(1, (die.bad / die.blocks) * 10)));
        paper.fillRect(x + 2, y + 2, corner, corner);
      }
      if (die.erasing) {
        paper.strokeStyle = warn;
        paper.lineWidth = 2;
        paper.strokeRect(x + 2, y + 2, inner, inner - 4);
      }
    });
    const mean = dies.reduce((sum, die) => sum + die.busy, 0) / Math.max(1, dies.length);
    const erasing = dies.filter((die) => die.erasing).length;
    const worst = dies.reduce((sum, die) => sum + die.bad, 0);
    const busiest = dies.reduce((most, die, at) => (die.busy > most[1] ? [at, die.busy] : most), [0, 0]);
    const told = `${dies.length} dies at ${channels} channels: ${(mean * 100).toFixed(0)} % busy on average, die ${busiest[0]} most with ${(busiest[1] * 100).toFixed(0)} %; ${erasing} erasing; ${worst} bad blocks`;
    setText(this.told, told);
    this.canvas.setAttribute("aria-label", told);
  }
}
