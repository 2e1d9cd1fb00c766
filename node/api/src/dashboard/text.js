// Elements without markup from text, and numbers as people read them.

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key in node && key !== "list" && !key.includes("-")) node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// What the node was told last is kept beside it: to read a text from the page costs more than to compare it.
export function setText(node, text) {
  if (node.told === text) return;
  node.told = text;
  const only = node.firstChild;
  // A text that is changed in place keeps its style.
  if (only && only === node.lastChild && only.nodeType === Node.TEXT_NODE) only.data = text;
  else node.textContent = text;
}

const SCALE = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

function scaled(value) {
  for (const [size, letter] of SCALE) {
    if (Math.abs(value) >= size) {
      const part = value / size;
      return [part >= 100 ? part.toFixed(0) : part >= 10 ? part.toFixed(1) : part.toFixed(2), letter];
    }
  }
  return [value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1), ""];
}

export function count(value) {
  const [number, letter] = scaled(value);
  return letter ? `${number} ${letter}` : number;
}

export function rate(bytes) {
  const [number, letter] = scaled(bytes);
  return `${number} ${letter}B/s`;
}

export function size(bytes) {
  for (const [unit, letter] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (bytes >= unit) return `${Number((bytes / unit).toFixed(2))} ${letter}`;
  }
  return `${bytes} B`;
}

export function time(ns) {
  if (ns >= 1e9) return `${(ns / 1e9).toFixed(2)} s`;
  if (ns >= 1e6) return `${(ns / 1e6).toFixed(2)} ms`;
  if (ns >= 1e3) return `${(ns / 1e3).toFixed(1)} us`;
  return `${ns.toFixed(0)} ns`;
}

export function percent(part) {
  return `${part >= 10 || part === 0 ? part.toFixed(0) : part.toFixed(1)} %`;
}

export function lasting(seconds) {
  const s = Math.floor(seconds);
  if (s >= 86400) return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  if (s >= 60) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${s} s`;
}

export function bytesOf(rates) {
  return rates.read_bytes_per_s + rates.written_bytes_per_s;
}

export function promiseText(tenant) {
  const parts = [];
  const add = (what, p) => {
    if (!p) return;
    if (p.iops !== undefined) parts.push(`${what} ${count(p.iops)} IOPS`);
    if (p.bandwidth_bytes_per_s !== undefined) parts.push(`${what} ${rate(p.bandwidth_bytes_per_s)}`);
  };
  add("floor", tenant.floor);
  add("SLA", tenant.sla);
  for (const [key, name] of [["p50_ns", "p50"], ["p99_ns", "p99"], ["p999_ns", "p99.9"]]) {
    if (tenant.sla && tenant.sla[key] !== undefined) parts.push(`${name} ${time(tenant.sla[key])}`);
  }
  add("ceiling", tenant.ceiling);
  return parts.join(", ");
}
