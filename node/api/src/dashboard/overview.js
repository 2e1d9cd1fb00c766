// The node as a whole: drives, tenants, volumes, pools and exports, now and in the last hour.

import { ask } from "./api.js";
import { largest, spark } from "./charts.js";
import { Table, link, word } from "./table.js";
import { bytesOf, count, el, lasting, percent, promiseText, rate, setText, size, time } from "./text.js";

const MINUTES = 60;
// A line of an hour is drawn anew after so many pictures, in each picture some of them: a second is not seen in them.
const DRAW_HOUR = 10;

function wrongOf(device) {
  if (device.fault) return [`fault: ${device.fault}`, "bad"];
  if (device.link && device.link !== "serving") return [`link: ${device.link}`, "bad"];
  if (device.health && device.health.verdict) return [`${device.health.verdict}: ${device.health.advice ?? ""}`, "warn"];
  if (device.timing === "overloaded") return ["overloaded", "warn"];
  if (device.timing === "starved") return ["its core is taken by others", "warn"];
  return ["well", "good"];
}

function keptOf(tenant) {
  if (tenant.kept === "met") return ["kept", "good"];
  if (tenant.kept === "missed") return ["MISSED", "bad"];
  return [tenant.kept === "unjudged" ? "asked for nothing yet" : "no promise", null];
}

// How a namespace of the store is, and what leaves it.
function namespaceOf(n) {
  const left = n.movement;
  if (n.state === "lost") return [left ? `LOST: ${size(left.bytes_left)} without a second copy yet` : "LOST", "bad"];
  if (n.state === "unreachable") return ["not reached", "bad"];
  if (n.state === "draining" && left && !left.blocks_left) return ["drains: nothing is left on it", "warn"];
  if (n.state === "draining") return [left ? `drains: ${size(left.bytes_left)} left` : "drains", "warn"];
  return ["up", "good"];
}

function usedShare(c) {
  return c.bytes ? (100 * (c.bytes - c.free_bytes)) / c.bytes : 0;
}

function useOf(d) {
  return d.counts.bytes ? (100 * d.counts.used_bytes) / d.counts.bytes : 0;
}

// Why blocks of a class stay in it, the most first.
const stays = [
  ["hot", "not left alone for long enough"],
  ["kept", "no policy demotes them"],
  ["no_next", "their files have no further class"],
  ["has_writer", "open for writing"],
  ["unsettled", "recovered first"],
  ["no_copy", "no copy can be read"],
  ["no_room", "no room in the next class"],
  ["no_node", "no further node has the next class"],
  ["failed", "the move failed"],
];

function staysOf(counts) {
  const some = stays.filter(([key]) => counts[key]).sort((a, b) => counts[b[0]] - counts[a[0]]);
  return some.map(([key, why]) => `${count(counts[key])} ${key === "failed" && counts.why_failed ? `${why} (${counts.why_failed})` : why}`).join(", ");
}

// How a process that serves the store, or stands by, is.
const services = { serving: "good", standby: null, silent: "warn" };

// As the node names an export's history.
function exportKey(e) {
  return `${e.of}@${e.door === "nvme-tcp" || !e.addresses.length ? e.door : e.addresses[0]}`;
}

const rates = [
  { title: "IOPS", number: true, value: (r) => r.rates.iops, text: (r) => count(r.rates.iops) },
  { title: "Read", number: true, value: (r) => r.rates.read_bytes_per_s, text: (r) => rate(r.rates.read_bytes_per_s) },
  { title: "Write", number: true, value: (r) => r.rates.written_bytes_per_s, text: (r) => rate(r.rates.written_bytes_per_s) },
  { title: "Errors/s", number: true, value: (r) => r.rates.errors_per_s, text: (r) => count(r.rates.errors_per_s) },
];

export class Overview {
  constructor() {
    this.history = new Map();
    this.pictures = 0;
    this.lines = 0;
    const hour = (kind, name = (row) => row.name, show = rate) => ({
      title: "Last hour",
      draw: (row, cell) => {
        cell.turn ??= this.lines++;
        if (cell.firstElementChild && (cell.turn + this.pictures) % DRAW_HOUR) return;
        const values = this.history.get(`${kind}/${name(row)}`) ?? [];
        spark(cell, values, values.length ? `largest of the last hour: ${show(largest(values))}` : "no history yet");
      },
    });
    this.devices = new Table(
      "Drives",
      [
        { title: "Drive", value: (d) => d.name, draw: (d, cell) => link(cell, d.name, `#/device/${encodeURIComponent(d.name)}`) },
        { title: "State", wrap: true, value: (d) => wrongOf(d)[0], draw: (d, cell) => word(cell, ...wrongOf(d)) },
        ...rates,
        { title: "Slots busy", number: true, value: (d) => d.slots_busy_pct, text: (d) => percent(d.slots_busy_pct) },
        { title: "Queues", number: true, value: (d) => d.queues, text: (d) => d.queues },
        { title: "WA", number: true, value: (d) => (d.flash ? d.flash.write_amplification : 0), text: (d) => (d.flash ? d.flash.write_amplification.toFixed(2) : "") },
        { title: "GC", number: true, value: (d) => (d.flash ? d.flash.gc_bytes_per_s : 0), text: (d) => (d.flash ? rate(d.flash.gc_bytes_per_s) : "") },
        hour("device"),
        { title: "Size", number: true, value: (d) => d.capacity_bytes, text: (d) => size(d.capacity_bytes) },
      ],
      (d) => d.name,
    );
    this.tenants = new Table(
      "Tenants",
      [
        { title: "Tenant", value: (t) => t.name, draw: (t, cell) => link(cell, t.name, `#/tenant/${encodeURIComponent(t.name)}`) },
        { title: "Promise", value: (t) => keptOf(t)[0], draw: (t, cell) => word(cell, ...keptOf(t)) },
        ...rates,
        { title: "Share", number: true, value: (t) => t.share_pct, text: (t) => percent(t.share_pct) },
        { title: "p99", number: true, value: (t) => (t.latency ? t.latency.p99_ns : 0), text: (t) => (t.latency ? time(t.latency.p99_ns) : "") },
        { title: "Class", value: (t) => t.class, text: (t) => t.class },
        { title: "Weight", number: true, value: (t) => t.weight, text: (t) => t.weight },
        { title: "Queues", number: true, value: (t) => t.queues, text: (t) => t.queues },
        hour("tenant"),
        { title: "Promised", text: promiseText },
      ],
      (t) => t.name,
    );
    this.volumes = new Table(
      "Volumes",
      [
        { title: "Volume", value: (v) => v.name, text: (v) => v.name },
        { title: "State", value: (v) => v.failing_bytes, draw: (v, cell) => word(cell, v.failing_bytes ? `${size(v.failing_bytes)} lost` : "whole", v.failing_bytes ? "bad" : "good") },
        { title: "Tenant", value: (v) => v.tenant, text: (v) => v.tenant },
        { title: "Pool", value: (v) => v.pool, text: (v) => v.pool },
        { title: "Size", number: true, value: (v) => v.size_bytes, text: (v) => size(v.size_bytes) },
        { title: "Drives", text: (v) => v.drives.join(", ") },
        { title: "Exports", number: true, value: (v) => v.exports, text: (v) => v.exports },
      ],
      (v) => v.name,
    );
    this.pools = new Table(
      "Pools",
      [
        { title: "Pool", value: (p) => p.name, text: (p) => p.name },
        { title: "State", value: (p) => p.lost, draw: (p, cell) => word(cell, p.fault ?? (p.lost ? `degraded: ${p.lost} drives lost` : "whole"), p.fault || p.lost ? "bad" : "good") },
        { title: "Free", number: true, value: (p) => p.free_bytes, text: (p) => size(p.free_bytes) },
        { title: "Size", number: true, value: (p) => p.size_bytes, text: (p) => size(p.size_bytes) },
        { title: "Drives", number: true, value: (p) => p.drives, text: (p) => p.drives },
      ],
      (p) => p.name,
    );
    this.exports = new Table(
      "Exports",
      [
        { title: "Of", value: (e) => e.of, text: (e) => e.of },
        { title: "Door", value: (e) => e.door, text: (e) => e.door },
        { title: "Clients", number: true, value: (e) => e.clients, text: (e) => e.clients },
        hour("export", exportKey, count),
        { title: "Tenant", value: (e) => e.tenant ?? "", text: (e) => e.tenant ?? "by host" },
        { title: "Addresses", text: (e) => e.addresses.join(", ") },
      ],
      exportKey,
    );
    this.classes = new Table(
      "Store: classes",
      [
        { title: "Class", value: (c) => c.class, text: (c) => c.class },
        { title: "Used", number: true, value: (c) => c.bytes - c.free_bytes, text: (c) => size(c.bytes - c.free_bytes) },
        { title: "Free", number: true, value: (c) => c.free_bytes, text: (c) => size(c.free_bytes) },
        { title: "Size", number: true, value: (c) => c.bytes, text: (c) => size(c.bytes) },
        { title: "Use", number: true, value: usedShare, text: (c) => percent(usedShare(c)) },
      ],
      (c) => c.class,
    );
    this.demotion = new Table(
      "Store: to the next class",
      [
        { title: "From", value: (d) => d.counts.class, text: (d) => d.counts.class },
        { title: "State", value: (d) => d.counts.over, draw: (d, cell) => word(cell, ...(d.counts.over ? ["over its watermark", "warn"] : ["has room", "good"])) },
        { title: "Bytes", number: true, value: (d) => d.bytes_per_s, text: (d) => rate(d.bytes_per_s) },
        { title: "Blocks/s", number: true, value: (d) => d.blocks_per_s, text: (d) => count(d.blocks_per_s) },
        { title: "Moved", number: true, value: (d) => d.counts.moved_bytes, text: (d) => size(d.counts.moved_bytes) },
        { title: "Blocks", number: true, value: (d) => d.counts.moved_blocks, text: (d) => d.counts.moved_blocks },
        { title: "Use", number: true, value: useOf, text: (d) => percent(useOf(d)) },
        { title: "Blocks that stay", wrap: true, text: (d) => staysOf(d.counts) },
      ],
      (d) => d.counts.class,
    );
    this.namespaces = new Table(
      "Store: namespaces",
      [
        { title: "Namespace", number: true, value: (n) => n.namespace, text: (n) => n.namespace },
        { title: "State", wrap: true, value: (n) => namespaceOf(n)[0], draw: (n, cell) => word(cell, ...namespaceOf(n)) },
        { title: "Class", value: (n) => n.class, text: (n) => n.class },
        { title: "Files", number: true, value: (n) => n.file_bytes, text: (n) => size(n.file_bytes) },
        { title: "Free", number: true, value: (n) => n.free_bytes, text: (n) => size(n.free_bytes) },
        { title: "Granted", number: true, value: (n) => n.granted_bytes, text: (n) => size(n.granted_bytes) },
        { title: "Given up", number: true, value: (n) => n.quarantined_bytes, text: (n) => size(n.quarantined_bytes) },
        { title: "Size", number: true, value: (n) => n.bytes, text: (n) => size(n.bytes) },
        hour("store_namespace", (n) => n.namespace, size),
        { title: "Location", value: (n) => n.location, text: (n) => n.location },
        { title: "Target", text: (n) => n.target },
      ],
      (n) => n.namespace,
    );
    this.storeServices = new Table(
      "Store: services",
      [
        { title: "Addresses", value: (s) => s.addresses.join(", "), text: (s) => s.addresses.join(", ") },
        { title: "State", value: (s) => s.state, draw: (s, cell) => word(cell, s.state, services[s.state]) },
        { title: "Term", number: true, value: (s) => s.term, text: (s) => (s.term ? s.term : "") },
      ],
      (s) => s.addresses.join(","),
    );
    this.left = el("p", { class: "warn" });
    this.facts = el("dl", { class: "facts" });
    this.cores = el("dd");
    this.upgrade = el("dd");
    this.serves = el("dd");
    this.facts.append(el("dt", {}, "Cores busy"), this.cores, el("dt", {}, "Last upgrade"), this.upgrade, el("dt", {}, "Serving"), this.serves);
    this.storeName = el("dt", { hidden: true }, "Store");
    this.store = el("dd", { hidden: true });
    this.facts.append(this.storeName, this.store);
    this.wrong = el("ul");
    this.wrongPanel = el("section", { class: "panel", hidden: true }, el("h2", {}, "What is wrong"), this.wrong);
    this.node = el(
      "div",
      { class: "grid" },
      el("section", { class: "panel wide" }, el("h2", {}, "Node"), this.facts, this.left),
      this.wrongPanel,
      this.devices.node,
      this.tenants.node,
      this.volumes.node,
      this.pools.node,
      this.exports.node,
      this.classes.node,
      this.demotion.node,
      this.namespaces.node,
      this.storeServices.node,
    );
    for (const panel of [this.wrongPanel, this.namespaces.node]) panel.classList.add("wide");
  }

  async open() {
    this.minute = 0;
    const found = await ask("/v1/history");
    for (const kind of ["device", "tenant", "export", "store_namespace"]) {
      for (const series of found[`${kind}s`] ?? []) this.history.set(`${kind}/${series.name}`, series.values.slice(-MINUTES));
    }
  }

  update(board) {
    // The minute that is under way is drawn by the page itself.
    const minute = Math.floor(board.uptime_s / 60);
    const isNew = this.minute !== minute;
    this.minute = minute;
    this.pictures += 1;
    const byName = (row) => row.name;
    for (const [kind, rows, name, now] of [
      ["device", board.devices, byName, (row) => bytesOf(row.rates)],
      ["tenant", board.tenants, byName, (row) => bytesOf(row.rates)],
      ["export", board.exports, exportKey, (row) => row.clients],
      ["store_namespace", board.store?.namespaces ?? [], (row) => row.namespace, (row) => row.file_bytes],
    ]) {
      for (const row of rows) {
        const key = `${kind}/${name(row)}`;
        let values = this.history.get(key);
        if (!values) this.history.set(key, (values = []));
        if (isNew || !values.length) values.push(now(row));
        else values[values.length - 1] = Math.max(values[values.length - 1] ?? 0, now(row));
        if (values.length > MINUTES) values.shift();
      }
    }
    setText(this.cores, board.core_busy_pct.map(percent).join(", "));
    const upgrade = board.upgrade;
    setText(this.upgrade, upgrade.number ? `number ${upgrade.number}: ${upgrade.state}${upgrade.reason ? ` (${upgrade.reason})` : ""}` : "none");
    setText(this.serves, `for ${lasting(board.uptime_s)}, worker ${board.generation + 1}`);
    setText(this.left, board.left_out ? `${board.left_out} more rows are not shown; the API has them.` : "");
    this.devices.set(board.devices);
    this.tenants.set(board.tenants);
    for (const [table, rows] of [[this.volumes, board.volumes], [this.pools, board.pools], [this.exports, board.exports]]) {
      table.node.hidden = rows.length === 0;
      table.set(rows);
    }
    this.updateStore(board.store);
    const wrong = board.devices.filter((d) => wrongOf(d)[1] !== "good").map((d) => `${d.name}: ${wrongOf(d)[0]}`);
    const missed = board.tenants.filter((t) => t.kept === "missed");
    if (missed.length) wrong.push(`${missed.length} of ${board.tenants.length} tenants miss their promise: ${missed.slice(0, 8).map((t) => t.name).join(", ")}`);
    wrong.push(...board.tenants.flatMap((t) => t.admission ?? []).slice(0, 8));
    if (board.store?.fault) wrong.push(`store: ${board.store.fault}`);
    const away = (board.store?.namespaces ?? []).filter((n) => namespaceOf(n)[1] === "bad");
    wrong.push(...away.slice(0, 8).map((n) => `namespace ${n.namespace} of the store: ${namespaceOf(n)[0]}`));
    const text = wrong.join("\n");
    if (this.wrongText !== text) {
      this.wrongText = text;
      this.wrong.replaceChildren(...wrong.map((line) => el("li", {}, line)));
      this.wrongPanel.hidden = wrong.length === 0;
    }
  }

  updateStore(store) {
    for (const part of [this.storeName, this.store]) part.hidden = !store;
    for (const [table, rows] of [[this.classes, store?.classes ?? []], [this.demotion, store?.demotion ?? []], [this.namespaces, store?.namespaces ?? []]]) {
      table.node.hidden = rows.length === 0;
      table.set(rows);
    }
    // One service alone is no news.
    const several = (store?.services ?? []).length > 1 ? store.services : [];
    this.storeServices.node.hidden = several.length === 0;
    this.storeServices.set(several);
    if (store) setText(this.store, store.classes.length ? `${count(store.requests_per_s)} requests/s, ${store.sessions} clients, ${store.handles} open files` : "does not answer");
  }

  close() {}
}
