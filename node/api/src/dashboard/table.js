// A table that is sorted by its headings, filtered and turned page by page; only what is shown is drawn.

import { el, setText } from "./text.js";

const PAGE = 25;

export class Table {
  // columns: { title, number, value(row) -> to sort by, text(row) -> what is shown, or draw(row, cell) }
  constructor(caption, columns, key) {
    this.columns = columns;
    this.key = key;
    this.rows = [];
    this.shown = new Map();
    this.page = 0;
    this.sort = null;
    this.descending = false;
    this.filter = "";
    this.body = el("tbody");
    this.headings = columns.map((column, at) => this.heading(column, at));
    this.count = el("span", { class: "note" });
    this.search = el("input", { type: "search", "aria-label": `Filter ${caption}`, placeholder: "Filter" });
    this.search.addEventListener("input", () => {
      this.filter = this.search.value.toLowerCase();
      this.page = 0;
      this.draw();
    });
    this.back = el("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.forth = el("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    this.turner = el("span", { class: "bar" }, this.back, this.forth);
    this.table = el("table", { "aria-label": caption }, el("thead", {}, el("tr", {}, ...this.headings)), this.body);
    this.node = el(
      "section",
      { class: "panel" },
      el("div", { class: "bar" }, el("h2", {}, caption), this.count, this.search, this.turner),
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${caption}, scrolls sideways` }, this.table),
    );
  }

  heading(column, at) {
    const cell = el("th", { scope: "col", class: column.number ? "number" : null });
    if (!column.value) {
      cell.append(column.title);
      return cell;
    }
    cell.append(el("button", { type: "button", onclick: () => this.sortBy(at) }, column.title));
    return cell;
  }

  sortBy(at) {
    this.descending = this.sort === at ? !this.descending : Boolean(this.columns[at].number);
    this.sort = at;
    this.headings.forEach((cell, i) => {
      if (i === at) cell.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    this.draw();
  }

  turn(by) {
    this.page += by;
    this.draw();
  }

  set(rows) {
    this.rows = rows;
    this.draw();
  }

  chosen() {
    let rows = this.rows;
    if (this.filter) rows = rows.filter((row) => this.key(row).toLowerCase().includes(this.filter));
    if (this.sort !== null) {
      const value = this.columns[this.sort].value;
      const sign = this.descending ? -1 : 1;
      rows = rows
        .map((row) => [value(row), row])
        .sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0))
        .map(([, row]) => row);
    }
    return rows;
  }

  draw() {
    const all = this.chosen();
    const pages = Math.max(1, Math.ceil(all.length / PAGE));
    this.page = Math.max(0, Math.min(this.page, pages - 1));
    const rows = all.slice(this.page * PAGE, (this.page + 1) * PAGE);
    const range = pages > 1 ? `${this.page * PAGE + 1} to ${this.page * PAGE + rows.length} of ${all.length}` : `${all.length}`;
    setText(this.count, range);
    this.turner.hidden = pages === 1;
    this.search.hidden = this.rows.length <= 10 && !this.filter;
    this.back.disabled = this.page === 0;
    this.forth.disabled = this.page === pages - 1;
    this.table.setAttribute("aria-rowcount", String(all.length + 1));
    const keys = new Set();
    rows.forEach((row, at) => {
      const key = this.key(row);
      keys.add(key);
      let line = this.shown.get(key);
      if (!line) {
        line = el("tr", {}, ...this.columns.map((c) => el("td", { class: c.number ? "number" : c.wrap ? "wrap" : null })));
        this.shown.set(key, line);
      }
      line.setAttribute("aria-rowindex", String(this.page * PAGE + at + 2));
      this.columns.forEach((column, i) => {
        const cell = line.cells[i];
        if (column.draw) column.draw(row, cell);
        else setText(cell, String(column.text(row)));
      });
      if (this.body.children[at] !== line) this.body.insertBefore(line, this.body.children[at] ?? null);
    });
    for (const [key, line] of this.shown) {
      if (!keys.has(key)) {
        line.remove();
        this.shown.delete(key);
      }
    }
  }
}

// Draws a link once, and leaves it alone after that.
export function link(cell, text, to) {
  const there = cell.firstElementChild;
  if (there && there.tagName === "A") {
    setText(there, text);
    if (there.getAttribute("href") !== to) there.href = to;
    return;
  }
  cell.replaceChildren(el("a", { href: to }, text));
}

// A word with a state that is not told by colour alone.
export function word(cell, text, kind) {
  setText(cell, text);
  cell.className = kind ? `${kind}${cell.classList.contains("wrap") ? " wrap" : ""}` : cell.classList.contains("wrap") ? "wrap" : "";
}
