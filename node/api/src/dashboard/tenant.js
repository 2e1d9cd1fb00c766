// One tenant: what it was promised and how that is kept, its latencies by percentile, and its last hour.

import { ask } from "./api.js";
import { HeatMap, Lines } from "./charts.js";
import { bytesOf, count, el, percent, promiseText, rate, setText, time } from "./text.js";

export class Tenant {
  constructor(name) {
    this.name = name;
    this.pictures = 0;
    this.facts = el("dl", { class: "facts" });
    this.error = el("p", { class: "error", role: "alert" });
    this.heat = new HeatMap("Latency of the last hour", ["p50", "p99", "p99.9", "longest"], time);
    this.lines = { bytes: new Lines("Bytes", ["read", "written"], rate), iops: new Lines("Commands", ["a second", "errors a second"], count) };
    this.node = el(
      "div",
      { class: "grid" },
      el("div", { class: "wide" }, el("h2", {}, `Tenant ${name}`), this.error),
      el("section", { class: "panel" }, el("h2", {}, "Promise"), this.facts),
      this.heat.node,
      el("section", { class: "panel wide" }, el("h2", {}, "Last hour"), el("div", { class: "charts" }, ...Object.values(this.lines).map((l) => l.node))),
    );
  }

  stream() {
    return "/v1/live";
  }

  async open(marks) {
    try {
      const found = await ask(`/v1/history/tenants/${encodeURIComponent(this.name)}`);
      const of = (name) => found.series.find((series) => series.quantity === name).values;
      const at = marks(3600);
      this.lines.bytes.set([of("read_bytes_per_s"), of("written_bytes_per_s")], found.step_s, at);
      this.lines.iops.set([of("iops"), of("errors_per_s")], found.step_s, at);
      this.heat.set(["p50_ns", "p99_ns", "p999_ns", "max_ns"].map(of), found.step_s);
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }

  update(board, marks) {
    const found = board.tenants.find((tenant) => tenant.name === this.name);
    setText(this.error, found ? "" : `The node has no tenant ${this.name}.`);
    if (!found) return;
    const l = found.latency;
    const rows = [
      ["Kept", { met: "yes, in the newest second", missed: "MISSED in the newest second", unjudged: "it has asked for nothing" }[found.kept] ?? "nothing was promised"],
      ["Promised of each drive", promiseText(found) || "nothing"],
      ["Class and weight", `${found.class}, ${found.weight}`],
      ["Now", `${count(found.rates.iops)} IOPS, ${rate(bytesOf(found.rates))}, ${percent(found.share_pct)} of all tenants' bytes`],
      ["Latency", l ? `p50 ${time(l.p50_ns)}, p99 ${time(l.p99_ns)}, p99.9 ${time(l.p999_ns)}, longest ${time(l.max_ns)}` : "measured for tenants with a floor or a service level"],
      ["Queues, controllers", `${found.queues}, ${found.controllers}`],
      ...(found.admission ?? []).map((text) => ["Admission", text]),
    ];
    const text = JSON.stringify(rows);
    if (text !== this.text) {
      this.text = text;
      this.facts.replaceChildren(...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
    }
    this.pictures += 1;
    if (this.pictures % 10 === 0) this.open(marks).catch(() => {});
  }

  close() {}
}
