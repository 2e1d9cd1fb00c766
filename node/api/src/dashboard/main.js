// The page: which view is open, the stream behind it, the token, the theme, and the time line.

import { Refused, ask, listen, setToken } from "./api.js";
import { svg } from "./charts.js";
import { Device } from "./device.js";
import { Overview } from "./overview.js";
import { Tenant } from "./tenant.js";
import { el, lasting, setText } from "./text.js";

const byId = (id) => document.getElementById(id);
const HOUR = 3600e3;
// What the time line has a lane for: its name, and the kinds of events in it.
const LANES = [
  ["Starts and crashes", ["worker"]],
  ["Upgrades", ["upgrade"]],
  ["Drives and pools", ["drive", "pool", "on-failure"]],
  ["Failures by rule", ["fault-rule"]],
  ["Promises", ["promise"]],
  ["Changes", ["change"]],
];

let access = null;
let view = null;
let stop = null;
let newest = null;
// What has happened, also before the process that serves: { at (ms of this machine), kind, what, level, subject, text }.
const moments = new Map();

function remember(key, found, ahead) {
  if (moments.has(key)) return;
  const moment = { ...found, at: found.unix_ms + ahead };
  moments.set(key, moment);
  if (newest && moment.level === "error") setText(byId("announce"), `${moment.what} ${moment.subject}: ${moment.text}`);
}

function collect(board) {
  // The node's clock and this machine's may differ.
  const ahead = Date.now() - board.unix_ms;
  for (const e of board.events) {
    const subject = e.tenant ?? e.device ?? e.pool ?? board.node;
    remember(`${e.unix_ms}/${e.number}`, { unix_ms: e.unix_ms, kind: e.kind, what: e.what, level: e.level, subject, text: e.text }, ahead);
  }
  for (const c of board.changes) {
    remember(`change ${c.unix_ms}/${c.number}`, { unix_ms: c.unix_ms, kind: "change", what: "change", level: "info", subject: c.subject, text: c.text }, ahead);
  }
  for (const [key, moment] of moments) {
    if (moment.at < Date.now() - HOUR || moments.size > 512) moments.delete(key);
    else break;
  }
}

// Where in the last `seconds` processes ended and upgrades went on, as parts of the width.
function marks(seconds) {
  const span = Math.max(1, seconds) * 1000;
  const from = Date.now() - span;
  const isMark = (m) => m.kind === "upgrade" || (m.kind === "worker" && m.level === "error");
  return [...moments.values()].filter((m) => isMark(m) && m.at > from).map((m) => (m.at - from) / span);
}

class TimeLine {
  constructor() {
    this.lanes = LANES.map(([name, kinds]) => {
      const strip = svg("svg", { class: "lane", viewBox: "0 0 720 20", preserveAspectRatio: "none", role: "img" });
      return { name, kinds, strip };
    });
    this.list = el("ol", { class: "moments" });
    const strips = this.lanes.flatMap((lane) => [el("span", {}, lane.name), lane.strip]);
    this.node = el(
      "section",
      { class: "panel" },
      el("h2", {}, "The last hour"),
      el("div", { class: "lanes" }, ...strips),
      el("p", { class: "note" }, "The right edge is now. A full, red mark is an error, a high one a warning."),
      this.list,
    );
  }

  stream() {
    return "/v1/live";
  }

  async open() {}

  update() {
    const all = [...moments.values()].sort((a, b) => b.at - a.at);
    const now = Date.now();
    for (const lane of this.lanes) {
      const found = all.filter((m) => lane.kinds.includes(m.kind));
      const mark = (m) => {
        const height = { error: 20, warning: 15 }[m.level] ?? 9;
        return svg("path", { class: m.level, d: `M${(720 - ((now - m.at) / HOUR) * 720).toFixed(1)} 20v-${height}` });
      };
      lane.strip.replaceChildren(svg("path", { class: "base", d: "M0 19.5H720" }), ...found.map(mark));
      lane.strip.setAttribute("aria-label", `${lane.name}: ${found.length} in the last hour; they are listed below`);
    }
    const text = all.map((m) => `${m.unix_ms} ${m.text}`).join();
    if (text === this.text) return;
    this.text = text;
    const line = (m) =>
      el(
        "li",
        {},
        el("time", { dateTime: new Date(m.at).toISOString() }, new Date(m.at).toLocaleTimeString()),
        el("span", { class: `kind ${{ error: "bad", warning: "warn" }[m.level] ?? ""}` }, m.kind === m.what ? m.kind : `${m.kind}: ${m.what}`),
        el("span", { class: "what" }, `${m.subject}: ${m.text}`),
      );
    this.list.replaceChildren(...all.slice(0, 200).map(line));
  }
}

function told(name, data, begin) {
  if (name === "board") {
    collect(data);
    newest = data;
    setText(byId("node"), `Weir ${data.node}`);
    document.title = `Weir ${data.node}`;
    setText(byId("summary"), `version ${data.version}, ${data.state}, up ${lasting(data.uptime_s)}, ${data.devices.length} drives, ${data.tenants.length} tenants`);
    connected("live", "Live");
    view.update(data, marks);
  } else if (name === "device" && view.detail) {
    view.detail(data);
  }
  // With the layout that it causes: that is what a frame waits for.
  void document.documentElement.offsetHeight;
  performance.measure(`weir-${name}`, { start: begin, end: performance.now() });
  if (performance.getEntriesByType("measure").length > 2000) performance.clearMeasures();
}

function connected(state, text) {
  const node = byId("connection");
  node.dataset.state = state;
  setText(node, text);
}

function failed(error) {
  if (error instanceof Refused && error.status === 401) {
    byId("token-form").hidden = false;
    setText(byId("token-why"), error.message);
    connected("lost", "Not allowed");
    byId("token").focus();
    return;
  }
  connected("lost", error ? `Lost: ${error.message}` : "Lost: connecting again");
}

function make() {
  const [, kind, name] = location.hash.split("/");
  const decoded = decodeURIComponent(name ?? "");
  if (kind === "device") return ["device", new Device(decoded || newest?.devices[0]?.name || "", access)];
  if (kind === "tenant") return ["tenant", new Tenant(decoded || newest?.tenants[0]?.name || "")];
  if (kind === "timeline") return ["timeline", new TimeLine()];
  return ["overview", new Overview()];
}

async function open() {
  if (stop) stop();
  stop = null;
  try {
    access = await ask("/v1/access");
    if (!newest) newest = await ask("/v1/board");
  } catch (error) {
    failed(error);
    if (!(error instanceof Refused)) setTimeout(open, 2000);
    return;
  }
  byId("token-form").hidden = true;
  const [kind, made] = make();
  view = made;
  collect(newest);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === kind) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  byId("view").replaceChildren(made.node);
  try {
    await made.open(marks);
  } catch (error) {
    failed(error);
  }
  if (view !== made) return;
  stop = listen(made.stream ? made.stream() : "/v1/live", told, (state, error) => (state === "refused" && error.status !== 401 ? connected("lost", error.message) : failed(error)));
}

function theme() {
  const all = ["system", "light", "dark"];
  const button = byId("theme");
  const use = (name) => {
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    setText(button, `Theme: ${name}`);
  };
  let now = localStorage.getItem("weir-theme") ?? "system";
  use(now);
  button.addEventListener("click", () => {
    now = all[(all.indexOf(now) + 1) % all.length];
    localStorage.setItem("weir-theme", now);
    use(now);
  });
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  byId("token").value = "";
  open();
});
addEventListener("hashchange", () => {
  open().then(() => byId("main").focus());
});
theme();
open();
