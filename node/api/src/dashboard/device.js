// One drive: its dies, its queues, who gets what, its last hour, failures by rule, and a plan before it is applied.

import { ask } from "./api.js";
import { DieMap, Lines, Shares } from "./charts.js";
import { Table } from "./table.js";
import { count, el, percent, rate, setText } from "./text.js";

const EFFECTS = [
  "status", "media-error", "correctable-error", "corrupt", "torn-write", "misdirected", "lost-write", "disk-full", "latency", "hang", "read-only", "stuck-queue",
  "controller-fatal", "reset-fails", "slow-reset", "link-loss", "removal", "namespace-resized", "namespace-identity", "namespace-gone", "smart", "slow-die",
];
// Keys of a rule that the page offers, and whether they are numbers.
const KEYS = [
  ["op", "Commands (read, write, …)", false], ["lba", "Blocks (8, or 8-15)", false], ["tenant", "Tenant", false], ["probability", "Probability (0 to 1)", true],
  ["count", "How often at the most", true], ["lasts", "Lasts (15s)", false], ["time", "Time (2ms; latency, slow-reset)", false],
  ["code", "Status (2/81h; status)", false], ["die", "Die (number)", true], ["times", "Factor (slow-die)", true],
];
// The model is asked again after so many pictures.
const ASK_AGAIN = 15;

export class Device {
  constructor(name, access) {
    this.name = name;
    this.path = `/v1/devices/${encodeURIComponent(name)}`;
    this.may = access.role !== "read";
    this.access = access;
    this.before = null;
    this.predicted = new Map();
    this.pictures = 0;
    this.facts = el("dl", { class: "facts" });
    this.evidence = el("ol", { class: "moments" });
    this.health = el("section", { class: "panel" }, el("h2", {}, "Health"), this.facts, this.evidence);
    this.shares = new Shares("Parts of the drive, tenant by tenant", ["promised", "predicted", "measured"]);
    this.sharesNote = el("p", { class: "note" });
    this.dies = new DieMap();
    this.queues = new Table(
      "Queues",
      [
        { title: "Tenant", value: (q) => q.tenant, text: (q) => q.tenant },
        { title: "Class", value: (q) => q.class, text: (q) => q.class },
        { title: "Controller", number: true, value: (q) => q.controller, text: (q) => q.controller },
        { title: "Queue", number: true, value: (q) => q.qid, text: (q) => q.qid },
        { title: "Waiting", number: true, value: (q) => q.waiting, text: (q) => q.waiting },
        { title: "In the drive", number: true, value: (q) => q.in_flight, text: (q) => q.in_flight },
        { title: "Host", value: (q) => q.host, text: (q) => q.host },
      ],
      (q) => `${q.controller}/${q.qid}/${q.tenant}`,
    );
    this.arbitration = new Table(
      "Who waits, who is served",
      [
        { title: "Tenant", value: (t) => t.name, text: (t) => t.name },
        { title: "Waiting", number: true, value: (t) => t.waiting, text: (t) => t.waiting },
        { title: "In the drive", number: true, value: (t) => t.in_flight, text: (t) => t.in_flight },
        { title: "IOPS", number: true, value: (t) => t.iops, text: (t) => count(t.iops) },
        { title: "Bytes", number: true, value: (t) => t.bytes, text: (t) => rate(t.bytes) },
        { title: "Class", value: (t) => t.class, text: (t) => t.class },
        { title: "Weight", number: true, value: (t) => t.weight, text: (t) => t.weight },
        { title: "Ceiling", text: (t) => (t.held ? "reached: waits" : "") },
      ],
      (t) => t.name,
    );
    this.lines = {
      bytes: new Lines("Bytes", ["read", "written"], rate),
      iops: new Lines("Commands", ["a second", "errors a second"], count),
      busy: new Lines("Slots busy", ["percent"], percent),
      wa: new Lines("Write amplification", ["since counting began"], (v) => v.toFixed(2)),
      gc: new Lines("Garbage collection", ["moved"], rate),
    };
    this.error = el("p", { class: "error", role: "alert" });
    this.node = el(
      "div",
      { class: "grid" },
      el("div", { class: "wide" }, el("h2", {}, `Drive ${name}`), this.error),
      el("section", { class: "panel" }, el("h2", {}, "Promised, predicted, measured"), this.sharesNote, this.shares.node),
      this.arbitration.node,
      this.dies.node,
      this.queues.node,
      el("section", { class: "panel wide" }, el("h2", {}, "Last hour"), el("div", { class: "charts" }, ...Object.values(this.lines).map((l) => l.node))),
      this.health,
      this.planPanel(),
      this.faultPanel(),
    );
  }

  stream() {
    return `/v1/live/devices/${encodeURIComponent(this.name)}`;
  }

  async open(marks) {
    await Promise.all([this.loadHistory(marks), this.predict(), this.loadPlan()]);
  }

  async loadHistory(marks) {
    try {
      const found = await ask(`/v1/history/devices/${encodeURIComponent(this.name)}`);
      const of = (name) => found.series.find((series) => series.quantity === name).values;
      const at = marks(3600);
      this.lines.bytes.set([of("read_bytes_per_s"), of("written_bytes_per_s")], found.step_s, at);
      this.lines.iops.set([of("iops"), of("errors_per_s")], found.step_s, at);
      this.lines.busy.set([of("slots_busy_pct")], found.step_s, at);
      this.lines.wa.set([of("write_amplification")], found.step_s, at);
      this.lines.gc.set([of("gc_bytes_per_s")], found.step_s, at);
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }

  async predict() {
    const plan = await ask(`${this.path}/plan`, "POST", {});
    this.predicted = new Map(plan.tenants.map((t) => [t.name, t.before]));
    const known = plan.predicts_rates ? "The model knows the drive's rates." : "The model knows shares alone: the drive is not calibrated, and has no fixed latency.";
    setText(this.sharesNote, plan.tenants.length ? `Predicted: what each tenant with queues gets while all ask for as much as there is. ${known}` : "Nothing is predicted: no tenant has queues, or more than 64 have.");
  }

  update(board, marks) {
    const found = board.devices.find((device) => device.name === this.name);
    setText(this.error, found ? "" : `The node has no drive ${this.name}.`);
    if (!found) return;
    this.drawHealth(found);
    this.lines.wa.node.hidden = this.lines.gc.node.hidden = !found.flash;
    this.dies.node.hidden = !found.flash;
    this.pictures += 1;
    if (this.pictures % 10 === 0) this.loadHistory(marks).catch(() => {});
    if (this.pictures % ASK_AGAIN === 0) this.predict().catch(() => {});
  }

  drawHealth(device) {
    const health = device.health;
    const rows = [
      ["State", device.fault ?? (device.link && device.link !== "serving" ? `link ${device.link}` : "serving")],
      ["Modelled times", device.timing ?? "none"],
      ["Arbitration", device.mechanism],
    ];
    if (device.flash) {
      const f = device.flash;
      rows.push(["Write amplification", f.write_amplification.toFixed(3)]);
      rows.push(["Garbage collection", `${rate(f.gc_bytes_per_s)} moved, ${count(f.erases_per_s)} blocks erased a second`]);
      rows.push(["Wear (erases)", `least ${f.wear_min}, mean ${f.wear_mean.toFixed(1)}, most ${f.wear_max}`]);
    }
    if (health) {
      rows.push(["Diagnosis", health.verdict ? `${health.verdict}: ${health.meaning ?? ""}` : "nothing is wrong"]);
      if (health.advice) rows.push(["What to do", health.advice]);
      if (health.media_errors !== undefined) {
        const warning = `0x${health.critical_warning.toString(16).padStart(2, "0")}`;
        rows.push(["SMART", `critical warning ${warning}, ${health.media_errors} media errors, available spare ${health.available_spare_pct} %`]);
      }
      const dies = (health.failing_dies ?? []).map((die) => `die ${die.die}`);
      const blocks = (health.failing_blocks ?? []).map((block) => `block ${block.lba}`);
      if (dies.length || blocks.length) rows.push(["Failing now", [...dies, ...blocks].join(", ")]);
      rows.push(["Disturbances that are over", String(health.disturbances)]);
    }
    const text = JSON.stringify(rows) + JSON.stringify(health?.reports?.length ?? 0) + (health?.reports?.at(-1)?.steps.length ?? 0);
    if (text === this.healthText) return;
    this.healthText = text;
    this.facts.replaceChildren(...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
    const steps = (health?.reports ?? []).slice(-3).flatMap((report) =>
      report.steps.slice(-20).map((step) =>
        el("li", {}, el("span", {}, `+${step.after_s.toFixed(3)} s`), el("span", { class: "kind" }, step.seen ? "seen" : "done"), el("span", { class: "what" }, `${report.verdict}: ${step.seen ?? step.done}`)),
      ),
    );
    this.evidence.replaceChildren(...steps);
  }

  detail(now) {
    const before = this.before && now.at_s > this.before.at_s ? this.before : null;
    this.before = now;
    const span = before ? now.at_s - before.at_s : 0;
    const old = new Map(before ? before.tenants.map((t) => [t.name, t.io]) : []);
    const per = (t, of) => (span && old.has(t.name) ? Math.max(0, of(t.io) - of(old.get(t.name))) / span : 0);
    const tenants = now.tenants
      .filter((t) => t.queues > 0 || t.promised_iops !== undefined || t.promised_bytes_per_s !== undefined || old.has(t.name))
      .map((t) => ({ ...t, iops: per(t, (io) => io.reads + io.writes + io.others), bytes: per(t, (io) => io.read_bytes + io.written_bytes) }));
    this.arbitration.set(tenants);
    this.queues.set(now.queues);
    this.drawShares(tenants);
    this.drawDies(now, before, span);
    this.drawRules(now.faults);
  }

  drawShares(tenants) {
    const bytes = tenants.reduce((sum, t) => sum + t.bytes, 0);
    const all = [...this.predicted.values()];
    const known = all.length > 0 && all.every((p) => p.bytes_per_s !== undefined);
    const total = { bytes: known ? all.reduce((sum, p) => sum + p.bytes_per_s, 0) : bytes, iops: known ? all.reduce((sum, p) => sum + p.iops, 0) : tenants.reduce((sum, t) => sum + t.iops, 0) };
    const rows = tenants
      .filter((t) => t.queues > 0 || t.bytes > 0)
      .slice(0, 40)
      .map((t) => {
        const p = this.predicted.get(t.name);
        const promised = t.promised_bytes_per_s !== undefined ? [t.promised_bytes_per_s / (total.bytes || 1), rate(t.promised_bytes_per_s)] : t.promised_iops !== undefined ? [t.promised_iops / (total.iops || 1), `${count(t.promised_iops)} IOPS`] : [null, "nothing"];
        const told = p ? `${percent(p.share * 100)}${p.bytes_per_s === undefined ? "" : `, ${rate(p.bytes_per_s)}, ${count(p.iops)} IOPS`}` : "unknown";
        return { name: t.name, parts: [promised[0], p ? p.share : null, bytes ? t.bytes / bytes : 0], texts: [promised[1], told, `${percent(bytes ? (100 * t.bytes) / bytes : 0)}, ${rate(t.bytes)}, ${count(t.iops)} IOPS`] };
      });
    this.shares.set(rows);
  }

  drawDies(now, before, span) {
    if (!now.dies.length) return;
    const most = Math.max(1, ...now.dies.map((die) => die.most_erases));
    const dies = now.dies.map((die, at) => {
      const old = before?.dies[at];
      return {
        busy: old && span ? Math.max(0, Math.min(1, (die.busy_ns - old.busy_ns) / (span * 1e9))) : 0,
        erasing: Boolean(old && die.erases > old.erases),
        wear: die.blocks > die.bad ? die.erases / (die.blocks - die.bad) / most : 1,
        bad: die.bad,
        blocks: die.blocks,
      };
    });
    this.dies.set(dies, now.channels);
  }

  // What changes anything is offered to who may.
  why() {
    return this.access.tokens ? "This token may only read; one with the role operate may change things." : "Over TCP without tokens nothing is changed; give the node tokens below [api].";
  }

  planPanel() {
    this.planNote = el("p", { class: "note" }, this.may ? "What tenants would get is drawn first; nothing is changed before it is applied." : `A plan can be drawn. ${this.why()}`);
    this.planFields = el("div", { class: "fields" });
    this.planShares = new Shares("Predicted parts, before and after", ["before", "after"]);
    this.planError = el("p", { class: "error", role: "alert" });
    this.apply = el("button", { type: "button", disabled: true, onclick: () => this.applyPlan() }, "Apply it");
    const form = el("form", {}, this.planFields, el("p", { class: "bar" }, el("button", { type: "submit" }, "Draw the plan"), this.apply));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.drawPlan();
    });
    form.addEventListener("input", () => {
      this.apply.disabled = true;
    });
    return el("section", { class: "panel" }, el("h2", {}, "Plan"), this.planNote, form, this.planError, this.planShares.node);
  }

  async loadPlan() {
    const [device, tenants] = await Promise.all([ask(this.path), ask("/v1/tenants")]);
    const { mechanism, weights, quanta } = device.arbitration;
    this.key = mechanism === "wrr" ? "weights" : mechanism === "drr" ? "quanta" : null;
    this.planned = [];
    const field = (label, input) => el("label", {}, label, input);
    const nodes = [];
    if (this.key) {
      for (const level of ["high", "medium", "low"]) {
        const value = (this.key === "weights" ? weights : quanta)[level];
        const input = el("input", { type: "number", min: this.key === "weights" ? 1 : 4096, step: this.key === "weights" ? 1 : 4096, value: String(value) });
        this.planned.push({ level, input, value });
        nodes.push(field(`${this.key === "weights" ? "Weight" : "Bytes a round"} of ${level}`, input));
      }
    }
    this.plannedTenants = tenants.slice(0, 24).map((t) => {
      const weight = el("input", { type: "number", min: 1, max: 256, value: String(t.weight) });
      const level = el("select", {}, ...["high", "medium", "low"].concat(t.urgent ? ["urgent"] : []).map((c) => el("option", { value: c, selected: c === t.class }, c)));
      nodes.push(field(`Class of ${t.name}`, level), field(`Weight of ${t.name}`, weight));
      return { name: t.name, class: t.class, was: t.weight, level, weight };
    });
    this.planFields.replaceChildren(...nodes);
  }

  wanted() {
    const body = {};
    const changed = this.planned.filter((p) => Number(p.input.value) !== p.value);
    if (changed.length) body[this.key] = Object.fromEntries(changed.map((p) => [p.level, Number(p.input.value)]));
    const tenants = this.plannedTenants
      .filter((t) => t.level.value !== t.class || Number(t.weight.value) !== t.was)
      .map((t) => ({ name: t.name, ...(t.level.value !== t.class && { class: t.level.value }), ...(Number(t.weight.value) !== t.was && { weight: Number(t.weight.value) }) }));
    if (tenants.length) body.tenants = tenants;
    return body;
  }

  async drawPlan() {
    try {
      const body = this.wanted();
      const plan = await ask(`${this.path}/plan`, "POST", body);
      const told = (p) => `${percent(p.share * 100)}${p.bytes_per_s === undefined ? "" : `, ${rate(p.bytes_per_s)}, ${count(p.iops)} IOPS`}`;
      this.planShares.set(plan.tenants.map((t) => ({ name: t.name, parts: [t.before.share, t.after.share], texts: [told(t.before), told(t.after)] })));
      setText(this.planError, plan.tenants.length ? "" : "No tenant has queues at this drive, or more than 64 have: there is nothing to draw.");
      this.apply.disabled = !this.may || Object.keys(body).length === 0;
    } catch (error) {
      setText(this.planError, error.message);
    }
  }

  async applyPlan() {
    const { tenants = [], ...device } = this.wanted();
    this.apply.disabled = true;
    try {
      if (Object.keys(device).length) await ask(this.path, "PATCH", device);
      for (const { name, ...change } of tenants) await ask(`/v1/tenants/${encodeURIComponent(name)}`, "PATCH", change);
      setText(this.planError, "");
      setText(this.planNote, "Applied.");
    } catch (error) {
      setText(this.planError, `${error.message}\nWhat came before it was applied.`);
    }
    await Promise.all([this.loadPlan(), this.predict()]);
  }

  faultPanel() {
    this.rules = el("tbody");
    this.faultError = el("p", { class: "error", role: "alert" });
    const table = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rules of failures, scrolls sideways" },
      el("table", { "aria-label": "Rules of failures" }, el("thead", {}, el("tr", {}, ...["Rule", "Active", "Matched", "Applied", ""].map((t) => el("th", { scope: "col" }, t)))), this.rules));
    const panel = el("section", { class: "panel" }, el("h2", {}, "Failures by rule"), table, this.faultError);
    if (!this.access.faults) {
      panel.append(el("p", { class: "note" }, "Failures can be injected only where [node] says faults = true."));
      return panel;
    }
    if (!this.may) {
      panel.append(el("p", { class: "note" }, this.why()));
      return panel;
    }
    const effect = el("select", { id: "fault-effect" }, ...EFFECTS.map((name) => el("option", { value: name }, name)));
    const inputs = KEYS.map(([key, label, isNumber]) => [key, isNumber, el("input", { id: `fault-${key}`, autocomplete: "off" }), label]);
    const form = el(
      "form",
      {},
      el("div", { class: "fields" }, el("label", {}, "Effect", effect), ...inputs.map(([, , input, label]) => el("label", {}, label, input))),
      el("p", {}, el("button", { type: "submit" }, "Inject")),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const rule = { effect: effect.value };
      for (const [key, isNumber, input] of inputs) {
        const value = input.value.trim();
        if (value) rule[key] = isNumber ? Number(value) : value;
      }
      try {
        await ask(`${this.path}/faults`, "POST", rule);
        setText(this.faultError, "");
      } catch (error) {
        setText(this.faultError, error.message);
      }
      await this.loadRules();
    });
    panel.append(form);
    return panel;
  }

  async loadRules() {
    this.drawRules(await ask(`${this.path}/faults`));
  }

  drawRules(rules) {
    const text = JSON.stringify(rules);
    if (text === this.rulesText) return;
    this.rulesText = text;
    // A button that has the focus keeps it.
    const focused = document.activeElement?.dataset?.rule;
    this.rules.replaceChildren(
      ...rules.map((rule) => {
        const remove = el("button", { type: "button", disabled: !this.may, "aria-label": `Remove rule ${rule.id}: ${rule.rule}`, onclick: () => this.removeRule(rule.id) }, "Remove");
        remove.dataset.rule = String(rule.id);
        return el("tr", {}, el("td", { class: "wrap" }, rule.rule), el("td", {}, rule.active ? "yes" : "no"), el("td", { class: "number" }, String(rule.matched)), el("td", { class: "number" }, String(rule.applied)), el("td", {}, remove));
      }),
    );
    if (focused) this.rules.querySelector(`[data-rule="${focused}"]`)?.focus();
  }

  async removeRule(id) {
    try {
      await ask(`${this.path}/faults/${id}`, "DELETE");
      setText(this.faultError, "");
    } catch (error) {
      setText(this.faultError, error.message);
    }
    await this.loadRules();
  }

  close() {}
}
