//! The dashboard in a real browser: what it shows is what the API says, and what it changes is changed.

use std::time::Duration;

use serde_json::{Value, json};

use super::{long, test};
use crate::browser::{Browser, is_there};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, Setup, with_node};
use crate::process::{Process, cpu_time};

const READ: &str = "read-0123456789abcdef";
const OPERATE: &str = "operate-0123456789abcdef";

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "dashboard";
    vec![
        test(S, "it_shows_what_the_api_says", it_shows_what_the_api_says),
        test(S, "it_fits_every_width_and_says_what_it_shows", it_fits_every_width),
        test(S, "failures_are_injected_and_plans_applied_with_a_token", what_is_changed),
        test(S, "the_api_is_a_page_that_is_searched_and_tried", api_viewer),
        Test { keeper: true, ..test(S, "a_crash_is_on_the_time_line", a_crash_is_on_the_time_line) },
        long(S, "large_nodes_are_shown_at_a_bounded_cost", large_nodes),
    ]
}

/// A flash drive and a plain one, two tenants, the API at a port, and tokens for who reads and who operates.
fn setup(env: &Env, api: u16) -> Result<Setup, String> {
    let dir = env.folder()?;
    let token = |name: &str, text: &str| {
        let file = dir.join(name);
        std::fs::write(&file, text).map_err(|e| e.to_string())?;
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .map_err(|e| e.to_string())?;
        Ok::<_, String>(file.display().to_string())
    };
    let (read, operate) = (token("read", READ)?, token("operate", OPERATE)?);
    let whole = format!(
        r#"[node]
name = "e2e"
api = ["unix:weir.sock", "127.0.0.1:{api}"]
cores = [0]
faults = true
[api]
tokens = [{{ role = "read", file = "{read}" }}, {{ role = "operate", file = "{operate}" }}]
[[device]]
name = "ssd0"
nqn = "{}"
kind = "flash"
profile = "femu-bbssd"
capacity = "256MiB"
[[device]]
name = "plain"
latency = "80us"
capacity = "64MiB"
[[tenant]]
name = "gold"
class = "high"
hosts = ["*"]
sla = {{ p99 = "1s" }}
[[tenant]]
name = "tin"
class = "low"
hosts = ["nqn.2026-01.test.weir:host-tin"]
[door.nvme-tcp]
listen = "127.0.0.1:PORT"
"#,
        crate::node::NQN
    );
    Ok(Setup { whole, ..Setup::default() })
}

/// A browser at a view of a node, with a token.
pub(super) fn open(browser: &mut Browser, api: u16, token: &str, view: &str) -> Outcome {
    browser.open(&format!("http://127.0.0.1:{api}/{view}"))?;
    // The page before may still be there for a moment.
    browser.await_true("the page is there", "location.port !== '' && document.readyState === 'complete'")?;
    let live = "document.getElementById('connection').dataset.state === 'live'";
    let asks = "!document.getElementById('token-form').hidden";
    browser.await_true("the page is live or asks for a token", &format!("{live} || {asks}"))?;
    if browser.eval(asks)? == true {
        browser.type_text(token)?;
        browser.press("Enter", 13)?;
    }
    browser.await_true("the page is live", live)
}

/// The cells of a table by its name, row by row.
pub(super) fn table(browser: &mut Browser, name: &str) -> Result<Vec<Vec<String>>, String> {
    let cells = "[...row.cells].map((cell) => cell.textContent)";
    let rows = format!("[...document.querySelectorAll('table[aria-label=\"{name}\"] tbody tr')].map((row) => {cells})");
    serde_json::from_value(browser.eval(&rows)?).map_err(|e| format!("{name}: {e}"))
}

fn load(node: &Node, env: &Env) -> Result<Process, String> {
    let target = node.tcp_target();
    let args = ["bench", &target, "--rw", "randwrite", "--bs", "16KiB", "--qd", "8", "--time", "60s"];
    Process::start(&env.folder()?, "bench", &env.weir, args)
}

fn it_shows_what_the_api_says(env: &Env) -> Outcome {
    if !is_there(env)? {
        return Ok(());
    }
    let api = env.free_port()?;
    with_node(env, &setup(env, api)?, |node| {
        let bench = load(node, env)?;
        let mut browser = Browser::start(env)?;
        open(&mut browser, api, READ, "#/")?;
        let written = "document.querySelector('table[aria-label=\"Drives\"] tbody tr')?.cells[4].textContent ?? ''";
        browser.await_true("the page shows the writes", &format!("/^[1-9]/.test({written})"))?;
        let drives = table(&mut browser, "Drives")?;
        let names: Vec<&str> = drives.iter().map(|row| row[0].as_str()).collect();
        ensure(names == ["ssd0", "plain"], || format!("{drives:?}"))?;
        ensure(drives[0].last().is_some_and(|size| size == "256 MiB"), || format!("{drives:?}"))?;
        let tenants = table(&mut browser, "Tenants")?;
        for found in http::get(&node.api(), "/v1/tenants")?.as_array().into_iter().flatten() {
            let row = tenants.iter().find(|row| found["name"] == row[0].as_str());
            let row = row.ok_or_else(|| format!("{found} is not in {tenants:?}"))?;
            let shown = [&row[8], &row[9], &row[10]].map(String::as_str);
            let [class, weight, queues] =
                ["class", "weight", "queues"].map(|key| found[key].to_string().replace('"', ""));
            ensure(shown == [&class, &weight, &queues], || format!("{row:?} is not {found}"))?;
        }
        // Everybody's bytes are gold's.
        ensure(tenants[0][6] == "100 %" && tenants[0][1] == "kept", || format!("{tenants:?}"))?;
        ensure(tenants[0][7].ends_with('s'), || format!("no p99: {tenants:?}"))?;
        open(&mut browser, api, READ, "#/device/ssd0")?;
        browser
            .await_true("dies are busy", "/[1-9]\\d* % busy/.test(document.querySelector('canvas.dies').ariaLabel)")?;
        let dies = http::get(&node.api(), "/v1/devices/ssd0/board")?["dies"].as_array().map_or(0, Vec::len);
        let label = browser.eval("document.querySelector('canvas.dies').ariaLabel")?;
        ensure(label.as_str().is_some_and(|l| l.starts_with(&format!("{dies} dies at "))), || {
            format!("{label}: {dies}")
        })?;
        let queues = table(&mut browser, "Queues")?;
        ensure(queues.iter().any(|row| row[0] == "gold" && row[1] == "high"), || format!("{queues:?}"))?;
        let shares = "document.querySelector('.shares').textContent";
        browser.await_true(
            "gold's share is there",
            &format!("/gold.*predicted.*100 %.*measured.*100 %/.test({shares})"),
        )?;
        drop(bench);
        ensure(browser.complaints.is_empty(), || format!("{:?}", browser.complaints))
    })
}

fn it_fits_every_width(env: &Env) -> Outcome {
    if !is_there(env)? {
        return Ok(());
    }
    let api = env.free_port()?;
    with_node(env, &setup(env, api)?, |_| {
        let mut browser = Browser::start(env)?;
        for view in ["#/", "#/timeline", "#/device/ssd0", "#/tenant/gold"] {
            browser.look(1280, false)?;
            open(&mut browser, api, READ, view)?;
            for (width, is_dark) in [(320, false), (1280, false), (1280, true), (4000, true)] {
                browser.look(width, is_dark)?;
                let over = browser.eval("document.documentElement.scrollWidth - innerWidth")?;
                ensure(over.as_i64().is_some_and(|over| over <= 0), || format!("{view} at {width}: {over} too wide"))?;
                let paper = browser.eval("getComputedStyle(document.documentElement).backgroundColor")?;
                let expected = if is_dark { "rgb(16, 19, 23)" } else { "rgb(246, 247, 249)" };
                ensure(paper == expected, || format!("{view} dark {is_dark}: {paper}"))?;
            }
            let nameless = browser.nameless()?;
            ensure(nameless.is_empty(), || format!("{view}: nothing to say of {nameless:?}"))?;
        }
        // A heading sorts, by keyboard.
        browser.look(1280, false)?;
        open(&mut browser, api, READ, "#/")?;
        browser.eval("document.querySelector('table[aria-label=\"Drives\"] th button').focus()")?;
        browser.press("Enter", 13)?;
        browser.await_true(
            "the drives are sorted",
            "document.querySelector('table[aria-label=\"Drives\"] th').ariaSort === 'ascending'",
        )?;
        let names: Vec<String> = table(&mut browser, "Drives")?.into_iter().map(|mut row| row.remove(0)).collect();
        ensure(names == ["plain", "ssd0"], || format!("{names:?}"))?;
        ensure(browser.complaints.is_empty(), || format!("{:?}", browser.complaints))
    })
}

/// `/api` shows every operation and schema of `/openapi.json`, finds them, and asks what only reads.
fn api_viewer(env: &Env) -> Outcome {
    if !is_there(env)? {
        return Ok(());
    }
    let api = env.free_port()?;
    with_node(env, &setup(env, api)?, |node| {
        let description = http::get(&node.api(), "/openapi.json")?;
        let size = |value: &serde_json::Value| value.as_object().map_or(0, serde_json::Map::len);
        let is_method = |name: &&String| ["get", "post", "put", "patch", "delete"].contains(&name.as_str());
        let items = description["paths"].as_object().into_iter().flat_map(|paths| paths.values());
        let operations: usize =
            items.map(|item| item.as_object().map_or(0, |item| item.keys().filter(is_method).count())).sum();
        let schemas = size(&description["components"]["schemas"]);
        let mut browser = Browser::start(env)?;
        browser.look(1280, false)?;
        browser.open(&format!("http://127.0.0.1:{api}/api"))?;
        browser.await_true("a token is asked for", "document.activeElement?.id === 'token'")?;
        browser.type_text(READ)?;
        browser.press("Enter", 13)?;
        let count = |of: &str| format!("document.querySelectorAll('#{of} > details:not([hidden])').length");
        browser.await_true("every operation is there", &format!("{} === {operations}", count("operations")))?;
        ensure(browser.eval(&count("schemas"))? == schemas, || "not every schema is there".into())?;
        let search = |words: &str| {
            format!(
                "(() => {{ const s = document.getElementById('search'); s.value = '{words}'; s.dispatchEvent(new Event('input')); }})()"
            )
        };
        browser.eval(&search("get /v1/tenants/{name}"))?;
        ensure(browser.eval(&count("operations"))? == 1, || "the search finds something else".into())?;
        // Opened, filled in and sent by keyboard.
        browser.eval("(() => { const one = document.querySelector('#operations > details:not([hidden])'); one.open = true; one.querySelector('form input').focus(); })()")?;
        browser.type_text("tin")?;
        browser.press("Enter", 13)?;
        let answer = "document.querySelector('#operations > details:not([hidden]) pre').textContent";
        browser.await_true("the node answers", &format!("{answer} !== ''"))?;
        let told: serde_json::Value = serde_json::from_value(browser.eval(&format!("JSON.parse({answer})"))?)
            .map_err(|e| format!("no answer: {e}"))?;
        ensure(told["name"] == "tin" && told["class"] == "low", || told.to_string())?;
        browser.eval(&search(""))?;
        for (width, is_dark) in [(320, false), (1280, true)] {
            browser.look(width, is_dark)?;
            let over = browser.eval("document.documentElement.scrollWidth - innerWidth")?;
            ensure(over.as_i64().is_some_and(|over| over <= 0), || format!("at {width}: {over} too wide"))?;
        }
        let nameless = browser.nameless()?;
        ensure(nameless.is_empty(), || format!("nothing to say of {nameless:?}"))?;
        ensure(browser.complaints.is_empty(), || format!("{:?}", browser.complaints))
    })
}

fn what_is_changed(env: &Env) -> Outcome {
    if !is_there(env)? {
        return Ok(());
    }
    let api = env.free_port()?;
    with_node(env, &setup(env, api)?, |node| {
        let bench = load(node, env)?;
        let mut browser = Browser::start(env)?;
        open(&mut browser, api, READ, "#/device/ssd0")?;
        let form = "document.getElementById('fault-effect') !== null";
        ensure(browser.eval(form)? == false, || "who may only read is offered a form".into())?;
        browser.eval("sessionStorage.clear()")?;
        open(&mut browser, api, OPERATE, "#/device/ssd0")?;
        browser.await_true("the form is there", form)?;
        browser.eval("document.getElementById('fault-effect').value = 'media-error'")?;
        for (key, text) in [("lba", "8-15"), ("op", "read")] {
            browser.eval(&format!("document.getElementById('fault-{key}').focus()"))?;
            browser.type_text(text)?;
        }
        browser.press("Enter", 13)?;
        let has_rule = "document.querySelector('[data-rule]') !== null";
        browser.await_true("the rule is shown", has_rule)?;
        let rules = http::get(&node.api(), "/v1/devices/ssd0/faults")?;
        ensure(rules[0]["rule"] == "media-error lba=8-15 op=read", || rules.to_string())?;
        browser.eval("document.querySelector('[data-rule]').focus()")?;
        browser.press("Enter", 13)?;
        browser.await_true("the rule is gone", &format!("!({has_rule})"))?;
        let rules = http::get(&node.api(), "/v1/devices/ssd0/faults")?;
        ensure(rules == json!([]), || rules.to_string())?;
        // A plan is drawn, and nothing is changed before it is applied.
        let weight =
            "[...document.querySelectorAll('label')].find((l) => l.textContent === 'Weight of gold').firstElementChild";
        browser.await_true("the plan has its fields", "document.body.innerText.includes('Weight of gold')")?;
        browser.eval(&format!("(() => {{ const w = {weight}; w.value = '7'; w.dispatchEvent(new Event('input', {{ bubbles: true }})); w.form.requestSubmit(); }})()"))?;
        let apply = "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Apply it')";
        browser.await_true("the plan is drawn", &format!("!{apply}.disabled"))?;
        let weight_of = || Ok::<Value, String>(http::get(&node.api(), "/v1/tenants/gold")?["weight"].clone());
        ensure(weight_of()? == 1, || "a plan that was drawn has changed something".into())?;
        browser.eval(&format!("{apply}.click()"))?;
        browser.await_true("the plan is applied", "document.body.innerText.includes('Applied.')")?;
        ensure(weight_of()? == 7, || "a plan that was applied has changed nothing".into())?;
        let board = http::get(&node.api(), "/v1/board")?.to_string();
        ensure(board.contains("PATCH /v1/tenants/gold"), || "the change is not on the time line".into())?;
        drop(bench);
        ensure(browser.complaints.is_empty(), || format!("{:?}", browser.complaints))
    })
}

fn a_crash_is_on_the_time_line(env: &Env) -> Outcome {
    if !is_there(env)? {
        return Ok(());
    }
    let api = env.free_port()?;
    with_node(env, &setup(env, api)?, |node| {
        let mut browser = Browser::start(env)?;
        open(&mut browser, api, READ, "#/timeline")?;
        browser.await_true(
            "the start is there",
            "/worker: serving.*process \\d+ serves/.test(document.querySelector('.moments').textContent)",
        )?;
        node.kill_worker()?;
        browser.await_true(
            "the crash is there",
            "/worker: restarting/.test(document.querySelector('.moments').textContent)",
        )?;
        browser.await_true("the page is live", "document.getElementById('connection').dataset.state === 'live'")?;
        browser.await_true(
            "its successor is there",
            "/after 1 before it/.test(document.querySelector('.moments').textContent)",
        )?;
        // What it shows is what the API says.
        let text = browser.eval("document.querySelector('.moments').textContent")?.to_string();
        for event in http::get(&node.api(), "/v1/events")?.as_array().into_iter().flatten() {
            let said = event["text"].as_str().unwrap_or_default();
            ensure(text.contains(said), || format!("{said} is not in {text}"))?;
        }
        Ok(())
    })
}

/// Measures updates of a page: from the event's arrival to after its layout (`weir-board`, by the page itself), and to after its paint.
const MEASURED: &str = r#"
const measure = performance.measure.bind(performance);
performance.measure = (name, span) => {
  if (name === "weir-board") {
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      // It comes after the frame's paint.
      port1.onmessage = () => measure("painted", { start: span.start, end: performance.now() });
      port2.postMessage(null);
    });
  }
  return measure(name, span);
};
"#;
/// A stream instead of the node's, four pictures a second, in each of which the rates of all drives and tenants are others.
const CHANGING: &str = r#"
const ask = fetch;
fetch = async (path, how) => {
  if (path !== "/v1/live") return ask(path, how);
  const board = await (await ask("/v1/board", how)).json();
  const next = () => {
    for (const { rates } of [...board.devices, ...board.tenants]) for (const key in rates) rates[key] = Math.random() * 1e9;
    board.uptime_s += 1;
    return new TextEncoder().encode(`event: board\ndata: ${JSON.stringify(board)}\n\n`);
  };
  const pull = (to) => new Promise((later) => setTimeout(later, 250)).then(() => to.enqueue(next()));
  return new Response(new ReadableStream({ pull }));
};
"#;
/// Updates that are measured at least.
const UPDATES: usize = 240;

/// Times of a page's measures of that name, sorted.
fn measures(browser: &mut Browser, name: &str) -> Result<Vec<f64>, String> {
    let times =
        format!("JSON.stringify(performance.getEntriesByName('{name}').map((e) => e.duration).sort((a, b) => a - b))");
    let text = browser.eval(&times)?;
    serde_json::from_str(text.as_str().unwrap_or("[]")).map_err(|e| format!("{name}: {e}"))
}

/// 64 drives and 1,000 tenants: what an update of the page takes, when all rates change, and what an open page costs the node are printed; that
/// the page is updated is held.
fn large_nodes(env: &Env) -> Outcome {
    if !is_there(env)? {
        return Ok(());
    }
    let api = env.free_port()?;
    let mut whole = format!("[node]\nname = \"e2e\"\napi = [\"unix:weir.sock\", \"127.0.0.1:{api}\"]\ncores = [0]\n");
    for i in 0..64 {
        whole += &format!("[[device]]\nname = \"d{i}\"\nmedia = \"null\"\ncapacity = \"64MiB\"\nlatency = \"80us\"\n");
    }
    for i in 0..1000 {
        whole += &format!("[[tenant]]\nname = \"t{i}\"\nhosts = [\"nqn.2026-01.test.weir:t{i}\"]\n");
    }
    whole += "[door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\nconnections = 4096\n";
    with_node(env, &Setup { whole, ..Setup::default() }, |node| {
        let window = Duration::from_secs(30);
        let spent = |node: &mut Node| -> Result<f64, String> {
            let before = cpu_time(node.process().pid())?;
            std::thread::sleep(window);
            Ok((cpu_time(node.process().pid())? - before).as_secs_f64() / window.as_secs_f64() * 100.0)
        };
        let without = spent(node)?;
        let mut browser = Browser::start(env)?;
        browser.prepare(MEASURED)?;
        open(&mut browser, api, "", "#/")?;
        let with = spent(node)?;
        let updates = measures(&mut browser, "painted")?.len();
        ensure(updates > 2, || format!("{updates} updates in {window:?}"))?;
        println!("    the node: {without:.2} % of a core without a page, {with:.2} % with one, {updates} updates");
        browser.prepare(CHANGING)?;
        open(&mut browser, api, "", "#/")?;
        let many = format!("performance.getEntriesByName('painted').length >= {UPDATES}");
        browser.await_true_within(Duration::from_secs(300), "the page is updated", &many)?;
        for (name, what) in [("weir-board", "laid out"), ("painted", "painted")] {
            let times = measures(&mut browser, name)?;
            let at = |part: usize| times[(times.len() - 1) * part / 100];
            let (count, p50, p99, most) = (times.len(), at(50), at(99), at(100));
            println!("    {count} updates of the page, {what}: p50 {p50:.1} ms, p99 {p99:.1} ms, at most {most:.1} ms");
        }
        let shown = table(&mut browser, "Tenants")?;
        ensure(shown.len() == 25 && shown[0][0] == "t0", || format!("{} rows", shown.len()))?;
        let count = browser.eval("document.body.innerText.includes('1 to 25 of 1000')")?;
        ensure(count == true, || "the page does not say how many there are".into())
    })
}
