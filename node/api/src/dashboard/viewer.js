// The API's description as a page: what /openapi.json says, and a form for every request that only reads.

import { Refused, ask, setToken, text as textOf } from "./api.js";
import { el } from "./text.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
const REF = "#/components/schemas/";
const byId = (id) => document.getElementById(id);

// A schema in a line: names are links to what they stand for.
function kind(schema) {
  if (!schema || schema === true) return ["any"];
  if (schema.$ref) {
    const name = schema.$ref.slice(REF.length);
    return [el("a", { href: `#schema-${name}` }, name)];
  }
  const ways = schema.oneOf ?? schema.anyOf ?? schema.allOf;
  if (ways) return ways.flatMap((way, i) => (i === 0 ? kind(way) : [" or ", ...kind(way)]));
  if (schema.const !== undefined) return [JSON.stringify(schema.const)];
  if (schema.enum) return [schema.enum.map((value) => JSON.stringify(value)).join(" or ")];
  if (schema.type === "array") return ["list of ", ...kind(schema.items)];
  if (schema.type === "object" && schema.additionalProperties) return ["map to ", ...kind(schema.additionalProperties)];
  const types = [schema.type ?? "any"].flat().join(" or ");
  return [schema.format ? `${types} (${schema.format})` : types];
}

function table(name, heads, rows) {
  const head = el("tr", {}, ...heads.map((text) => el("th", { scope: "col" }, text)));
  const body = rows.map((cells) => el("tr", {}, ...cells.map((cell) => el("td", {}, ...[cell].flat()))));
  const found = el("table", {}, el("thead", {}, head), el("tbody", {}, ...body));
  found.setAttribute("aria-label", name);
  return el("div", { class: "scroll" }, found);
}

function entry(id, summary, parts, words) {
  const found = el("details", { class: "entry", id }, el("summary", {}, ...summary), el("div", {}, ...parts.filter(Boolean)));
  found.words = words.toLowerCase();
  return found;
}

function contents(of) {
  return Object.entries(of ?? {}).flatMap(([type, { schema }], i) => [i === 0 ? "" : "; ", `${type}: `, ...kind(schema)]);
}

// The form of a request that changes nothing.
function tryIt(path, parameters, isStream) {
  if (isStream) return el("p", { class: "note" }, "A stream without an end: follow it with curl -N.");
  const inputs = parameters.map((parameter) => {
    const id = `try-${path}-${parameter.name}`.replace(/[^a-z0-9]+/gi, "-");
    const input = el("input", { id, required: parameter.required === true, autocomplete: "off", spellcheck: false });
    return { parameter, input, label: el("label", { for: id }, parameter.name) };
  });
  const answer = el("pre", { role: "status", hidden: true });
  const send = async (event) => {
    event.preventDefault();
    let url = path;
    const query = new URLSearchParams();
    for (const { parameter, input } of inputs) {
      if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (input.value !== "") query.set(parameter.name, input.value);
    }
    const asked = query.size > 0 ? `${url}?${query}` : url;
    answer.hidden = false;
    try {
      answer.textContent = pretty(await textOf(asked));
    } catch (error) {
      answer.textContent = error instanceof Refused ? `${error.status}: ${error.message}` : String(error);
    }
  };
  const fields = inputs.flatMap(({ label, input }) => [label, input]);
  const form = el("form", { class: "bar", onsubmit: send }, ...fields, el("button", { type: "submit" }, "Send"));
  form.setAttribute("aria-label", `GET ${path}`);
  return el("div", {}, form, answer);
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function operation(path, item, method) {
  const of = item[method];
  const parameters = [...(item.parameters ?? []), ...(of.parameters ?? [])];
  const rows = parameters.map((p) => [p.name, p.in, kind(p.schema), p.description ?? (p.required ? "required" : "")]);
  const answers = Object.entries(of.responses).map(([code, r]) => [code, r.description, contents(r.content)]);
  const types = Object.keys(of.responses["200"]?.content ?? {});
  const isStream = types.includes("text/event-stream") && types.length === 1;
  const parts = [
    rows.length > 0 && el("h3", {}, "Parameters"),
    rows.length > 0 && table(`Parameters of ${of.operationId}`, ["name", "in", "type", "meaning"], rows),
    of.requestBody && el("h3", {}, "Body"),
    of.requestBody && el("p", {}, ...contents(of.requestBody.content)),
    el("h3", {}, "Answers"),
    table(`Answers of ${of.operationId}`, ["status", "when", "content"], answers),
    method === "get" && el("h3", {}, "Try it"),
    method === "get" && tryIt(path, parameters, isStream),
  ];
  const summary = [el("span", { class: `method ${method}` }, method.toUpperCase()), el("code", {}, path), ` ${of.summary}`];
  const words = `${method} ${path} ${of.operationId} ${of.summary} ${JSON.stringify(of.requestBody ?? {})}`;
  return entry(`op-${of.operationId}`, summary, parts, words);
}

function schema(name, of) {
  const required = of.required ?? [];
  const rows = Object.entries(of.properties ?? {}).map(([key, value]) => {
    const meaning = `${value.description ?? ""}${required.includes(key) ? "" : " May be absent."}`;
    return [el("code", {}, key), kind(value), meaning.trim()];
  });
  const ways = (of.oneOf ?? []).map((way) => [el("code", {}, ...kind(way)), way.description ?? ""]);
  const parts = [
    of.description && el("p", {}, of.description),
    rows.length > 0 && table(`Keys of ${name}`, ["key", "type", "meaning"], rows),
    ways.length > 0 && table(`Values of ${name}`, ["value", "meaning"], ways),
    rows.length === 0 && ways.length === 0 && el("p", {}, ...kind(of)),
  ];
  return entry(`schema-${name}`, [el("code", {}, name)], parts, `${name} ${JSON.stringify(of)}`);
}

// What a link names is opened, also where the search has hidden it.
function open() {
  const named = byId(decodeURIComponent(location.hash.slice(1)));
  if (!named || named.tagName !== "DETAILS") return;
  named.hidden = false;
  named.open = true;
  named.scrollIntoView();
}

function search() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const one of document.querySelectorAll("details.entry")) {
    one.hidden = !words.every((word) => one.words.includes(word));
    shown += one.hidden ? 0 : 1;
  }
  byId("found").textContent = words.length === 0 ? "" : shown === 0 ? "Nothing has these words." : `${shown} found`;
}

async function start() {
  try {
    const api = await ask("/openapi.json");
    byId("token-form").hidden = true;
    byId("version").textContent = api.info.version;
    byId("about").textContent = api.info.description;
    const operations = Object.entries(api.paths).flatMap(([path, item]) =>
      METHODS.filter((method) => item[method]).map((method) => operation(path, item, method)));
    byId("operations").replaceChildren(...operations);
    const schemas = Object.entries(api.components.schemas).sort(([a], [b]) => (a < b ? -1 : 1));
    byId("schemas").replaceChildren(...schemas.map(([name, of]) => schema(name, of)));
    search();
    open();
  } catch (error) {
    if (!(error instanceof Refused) || (error.status !== 401 && error.status !== 403)) {
      byId("found").textContent = `The description did not come: ${error.message}`;
      return;
    }
    byId("token-why").textContent = error.message;
    byId("token-form").hidden = false;
    byId("token").focus();
  }
}

byId("search").addEventListener("input", search);
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  start();
});
window.addEventListener("hashchange", open);
start();
