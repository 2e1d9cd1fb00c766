// The node's API: requests with the token of this tab, and the stream of events.

const KEY = "weir-token";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setToken(token) {
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
}

function headers(body) {
  const all = {};
  const token = sessionStorage.getItem(KEY);
  if (token) all.Authorization = `Bearer ${token}`;
  if (body !== undefined) all["Content-Type"] = "application/json";
  return all;
}

async function refusal(answer) {
  let text = `HTTP status ${answer.status}`;
  try {
    text = (await answer.json()).error ?? text;
  } catch {
    // Not from a node's API; the status has to do.
  }
  return new Refused(answer.status, text);
}

export async function ask(path, method = "GET", body = undefined) {
  const text = body === undefined ? undefined : JSON.stringify(body);
  const answer = await fetch(path, { method, headers: headers(body), body: text, credentials: "omit" });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

// What a path answers, as it is.
export async function text(path) {
  const answer = await fetch(path, { headers: headers(), credentials: "omit" });
  if (!answer.ok) throw await refusal(answer);
  return answer.text();
}

// Calls told(event, data, when it was there) for each event, until stop() is called; connects again when the stream ends.
export function listen(path, told, state) {
  const control = new AbortController();
  let pause = 250;
  const once = async () => {
    const answer = await fetch(path, { headers: headers(), signal: control.signal, credentials: "omit" });
    if (!answer.ok) throw await refusal(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      pause = 250;
      rest += value;
      let end;
      while ((end = rest.indexOf("\n\n")) >= 0) {
        const begin = performance.now();
        const event = parse(rest.slice(0, end));
        rest = rest.slice(end + 2);
        if (event) told(event.name, event.data, begin);
      }
    }
  };
  const run = async () => {
    while (!control.signal.aborted) {
      try {
        await once();
        state("lost");
      } catch (error) {
        if (control.signal.aborted) return;
        if (error instanceof Refused && (error.status === 401 || error.status === 403 || error.status === 404)) {
          state("refused", error);
          return;
        }
        state("lost", error);
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, 5000);
    }
  };
  run();
  return () => control.abort();
}

function parse(block) {
  let name = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data += line.slice(5).trimStart();
  }
  return data ? { name, data: JSON.parse(data) } : null;
}
