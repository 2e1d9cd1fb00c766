//! A store by the API of its node, in its metrics and on its dashboard: the same as `weir store` says.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::store::{address, fs, write};
use super::{dashboard, test};
use crate::browser::{Browser, is_there};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, Setup, with_node};
use crate::process::{run, until};

const READ: &str = "read-0123456789abcdef";
const OPERATE: &str = "operate-0123456789abcdef";

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "store_api";
    vec![
        test(S, "a_store_is_told_and_changed_by_the_api", told_and_changed),
        test(S, "a_store_is_in_the_metrics_also_after_a_crash", metrics),
        test(S, "a_store_is_on_the_dashboard", shown),
        test(S, "a_node_without_a_store_says_so", without),
    ]
}

/// Two drives that are donated, and a third one that is not yet; the API at a port as well.
fn setup(env: &Env, api: u16) -> Result<Setup, String> {
    let dir = env.folder()?;
    let token = |role: &str, text: &str| {
        let file = dir.join(role);
        std::fs::write(&file, text).context(|| role.into())?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).context(|| role.into())?;
        Ok::<_, String>(format!("{{ role = \"{role}\", file = \"{}\" }}", file.display()))
    };
    let tokens = [token("read", READ)?, token("operate", OPERATE)?].join(", ");
    let drive = |name: &str| {
        format!(
            "[[device]]\nname = \"{name}\"\nnqn = \"{}\"\nmedia = \"file:{name}.img\"\ncapacity = \"256MiB\"\n\
             [[export]]\ndevice = \"{name}\"\ndoor = \"nvme-tcp\"\n",
            nqn(name)
        )
    };
    let donate = |name: &str, class: &str| format!("[[store.donate]]\ndevice = \"{name}\"\nclass = \"{class}\"\n");
    let whole = format!(
        "[node]\nname = \"e2e\"\napi = [\"unix:weir.sock\", \"127.0.0.1:{api}\"]\ncores = [0]\nkeeper = true\n\
         [api]\ntokens = [{tokens}]\n[[tenant]]\nname = \"store\"\nclass = \"medium\"\nhosts = [\"*\"]\n\
         [door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\n"
    ) + &["a", "b", "c"].map(drive).concat()
        + "[store]\nmeta = \"redb:store.redb\"\nlisten = \"unix:meta.sock\"\n"
        + &donate("a", "dram")
        + &donate("b", "flash")
        + "[[store.policy]]\npath = \"/tmp/**\"\nclasses = [\"dram\", \"flash\"]\ndemote_after = \"10min\"\n";
    Ok(Setup { whole, ..Setup::default() })
}

fn nqn(name: &str) -> String {
    format!("nqn.2026-01.test.weir:{name}")
}

fn put(node: &Node, bytes: usize) -> Outcome {
    let from = node.socket("put");
    write(&from, bytes)?;
    fs(node, &["put", &from.display().to_string(), "/put"]).map(drop)
}

/// What the command line says, without what changes with each look.
fn by_cli(node: &Node, args: &[&str]) -> Result<Value, String> {
    let told = node.cli(&[&["store", "--store", &address(node)], args, &["--json"]].concat())?.success("weir store")?;
    serde_json::from_str(&told).context(|| told.clone()).map(lasting)
}

fn lasting(mut value: Value) -> Value {
    for key in ["running_ns", "requests", "connections"] {
        value.as_object_mut().map(|object| object.remove(key));
    }
    value
}

/// The status of a request and its answer.
fn request(node: &Node, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value), String> {
    let (status, text) = http::request(&node.api(), method, path, body)?;
    Ok((status, serde_json::from_str(&text).context(|| format!("{method} {path}: {text}"))?))
}

fn ask(node: &Node, method: &str, path: &str, body: Option<&Value>, wanted: u16) -> Result<Value, String> {
    let (status, answer) = request(node, method, path, body)?;
    ensure(status == wanted, || format!("{method} {path}: {status}, not {wanted}: {answer}"))?;
    Ok(answer)
}

fn told_and_changed(env: &Env) -> Outcome {
    let api = env.free_port()?;
    with_node(env, &setup(env, api)?, |node| {
        put(node, 3_000_000)?;
        let told = lasting(http::get(&node.api(), "/v1/store")?);
        ensure(told == by_cli(node, &["status"])?, || format!("{told}"))?;
        ensure(told["sessions"] == 0 && told["namespaces"][0]["file_bytes"] != 0, || format!("{told}"))?;
        let clients = ask(node, "GET", "/v1/store/clients", None, 200)?;
        ensure(clients == by_cli(node, &["client", "ls"])?, || format!("{clients}"))?;
        let policies = ask(node, "GET", "/v1/store/policies", None, 200)?;
        ensure(policies[0]["path"] == "/tmp/**" && policies[0]["demote_after_ns"] == 600_000_000_000_u64, || {
            policies.to_string()
        })?;
        let target = format!("nvme-tcp://127.0.0.1:{}/{}?ns=1", node.port, nqn("c"));
        let class = |class: &str| json!({ "target": target, "class": class, "location": "hall1/rack2" });
        for (body, status) in [(class("tape"), 400), (class("a b"), 400), (json!({ "class": "dram" }), 400)] {
            ask(node, "POST", "/v1/store/namespaces", Some(&body), status)?;
        }
        let gone = json!({ "target": "nvme-tcp://127.0.0.1:1/nqn.x?ns=1", "class": "dram" });
        ask(node, "POST", "/v1/store/namespaces", Some(&gone), 409)?;
        let added = ask(node, "POST", "/v1/store/namespaces", Some(&class("dram")), 201)?;
        ensure(added["target"] == target.as_str() && added["location"] == "hall1/rack2", || format!("{added}"))?;
        // Nothing is done twice.
        let again = ask(node, "POST", "/v1/store/namespaces", Some(&class("dram")), 201)?;
        ensure(again["namespace"] == added["namespace"], || format!("{again}"))?;
        drain(node)?;
        let events = http::get(&node.api(), "/v1/board")?["changes"].to_string();
        ensure(events.contains("DELETE /v1/store/namespaces/1"), || events.clone())?;
        for path in ["/v1/store/namespaces/99", "/v1/store/namespaces/x"] {
            ask(node, "DELETE", path, None, 404)?;
            ask(node, "PATCH", path, Some(&json!({ "draining": true })), 404)?;
        }
        ask(node, "PATCH", "/v1/store/namespaces/2", Some(&json!({ "drain": true })), 400)?;
        roles(env, api)
    })
}

/// The first drive leaves the store, by the API alone.
fn drain(node: &Node) -> Outcome {
    let path = "/v1/store/namespaces/1";
    let refused = ask(node, "DELETE", path, None, 409)?;
    ensure(refused["detail"].as_str().is_some_and(|text| text.contains("in use")), || format!("{refused}"))?;
    ask(node, "PATCH", path, Some(&json!({ "draining": true })), 200)?;
    until(Duration::from_secs(60), "the drive is empty", || {
        let all = http::get(&node.api(), "/v1/store/namespaces")?;
        let one = all.as_array().and_then(|all| all.iter().find(|n| n["namespace"] == 1)).cloned();
        let one = one.ok_or_else(|| format!("{all}"))?;
        let left = ["file_bytes", "granted_bytes", "quarantined_bytes"].map(|key| one[key].as_u64());
        Ok((left == [Some(0); 3] && one["state"] == "draining").then_some(()))
    })?;
    let was = ask(node, "DELETE", path, None, 200)?;
    ensure(was["namespace"] == 1 && was["state"] == "draining", || format!("{was}"))?;
    let all = ask(node, "GET", "/v1/store/namespaces", None, 200)?;
    ensure(all == by_cli(node, &["node", "ls"])? && all.as_array().is_some_and(|all| all.len() == 2), || {
        all.to_string()
    })
}

/// Over a port a token of the role `operate` reads of the store, and changes nothing.
fn roles(env: &Env, api: u16) -> Outcome {
    let dir = env.folder()?;
    let asked = |token: &str, extra: &[&str]| {
        let bearer = format!("Authorization: Bearer {token}");
        let url = format!("http://127.0.0.1:{api}/v1/store/namespaces/2");
        let url = if extra.is_empty() { format!("http://127.0.0.1:{api}/v1/store") } else { url };
        let args = [&["-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", &bearer], extra, &[&url]].concat();
        run(&dir, std::path::Path::new("curl"), args, Duration::from_secs(10))?.success("curl")
    };
    let change = ["-X", "PATCH", "-H", "Content-Type: application/json", "-d", "{\"draining\":true}"];
    let told = [asked(READ, &[])?, asked(OPERATE, &change)?, asked("wrong-0123456789abcdef", &[])?];
    ensure(told == ["200", "403", "401"], || format!("{told:?}"))
}

/// A sample's value, by its name and labels.
fn sample(node: &Node, name: &str) -> Result<Option<f64>, String> {
    let (status, page) = http::request(&node.api(), "GET", "/metrics", None)?;
    ensure(status == 200, || page.clone())?;
    Ok(page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()))
}

fn metrics(env: &Env) -> Outcome {
    let api = env.free_port()?;
    let node = Node::start(env, &setup(env, api)?)?;
    put(&node, 20_000_000)?;
    let same = |node: &Node| {
        let told = http::get(&node.api(), "/v1/store")?;
        for (at, class) in [(0, "dram"), (1, "flash")] {
            for (name, key) in [("bytes", "bytes"), ("free_bytes", "free_bytes")] {
                let found = sample(node, &format!("weir_store_class_{name}{{class=\"{class}\"}}"))?;
                let expected = told["classes"][at][key].as_f64();
                ensure(found.is_some() && found == expected, || format!("{class} {name}: {found:?}, {expected:?}"))?;
            }
        }
        let files = sample(node, "weir_store_namespace_file_bytes{namespace=\"1\",class=\"dram\"}")?;
        ensure(files.is_some_and(|bytes| bytes >= 20_000_000.0), || format!("{files:?}"))?;
        let states = ["up", "lost"].map(|state| {
            sample(node, &format!("weir_store_namespace_state{{namespace=\"1\",class=\"dram\",state=\"{state}\"}}"))
        });
        ensure(states == [Ok(Some(1.0)), Ok(Some(0.0))], || format!("{states:?}"))?;
        ensure(sample(node, "weir_store_up")? == Some(1.0), || "weir_store_up".into())
    };
    same(&node)?;
    let before = sample(&node, "weir_store_requests_total")?;
    put_again(&node)?;
    ensure(sample(&node, "weir_store_requests_total")? > before, || format!("{before:?}"))?;
    // The next worker's service is there some time after its API.
    node.kill_worker()?;
    until(Duration::from_secs(20), "the store is in the metrics again", || {
        // Between two workers nobody answers.
        let has_drives = sample(&node, "weir_store_class_bytes{class=\"flash\"}").unwrap_or_default() > Some(0.0);
        Ok(has_drives.then_some(()))
    })?;
    same(&node)?;
    node.stop()
}

fn put_again(node: &Node) -> Outcome {
    fs(node, &["put", "-f", &node.socket("put").display().to_string(), "/put"]).map(drop)
}

fn shown(env: &Env) -> Outcome {
    if !is_there(env)? {
        return Ok(());
    }
    let api = env.free_port()?;
    with_node(env, &setup(env, api)?, |node| {
        put(node, 20_000_000)?;
        let mut browser = Browser::start(env)?;
        dashboard::open(&mut browser, api, READ, "#/")?;
        let cells = |of: usize| {
            format!(
                "document.querySelector('table[aria-label=\"Store: namespaces\"] tbody tr')?.cells[{of}].textContent"
            )
        };
        browser.await_true("the store's bytes are shown", &format!("({} ?? '').startsWith('19')", cells(3)))?;
        let told = http::get(&node.api(), "/v1/store")?;
        let rows = dashboard::table(&mut browser, "Store: namespaces")?;
        for (row, n) in rows.iter().zip(told["namespaces"].as_array().into_iter().flatten()) {
            let of = |key: &str| n[key].to_string().replace('"', "");
            let expected = [of("namespace"), of("state"), of("class"), of("target")];
            let shown = [&row[0], &row[1], &row[2], &row[10]];
            ensure(shown.iter().zip(&expected).all(|(a, b)| *a == b), || format!("{row:?} is not {n}"))?;
        }
        ensure(rows.len() == 2, || format!("{rows:?}"))?;
        let classes = dashboard::table(&mut browser, "Store: classes")?;
        ensure(classes.iter().map(|row| row[0].as_str()).eq(["dram", "flash"]), || format!("{classes:?}"))?;
        ask(node, "PATCH", "/v1/store/namespaces/2", Some(&json!({ "draining": true })), 200)?;
        let second = "document.querySelectorAll('table[aria-label=\"Store: namespaces\"] tbody tr')[1].cells[1]";
        browser.await_true("the second drive drains", &format!("{second}.textContent.startsWith('drains')"))?;
        let nameless = browser.nameless()?;
        ensure(nameless.is_empty(), || format!("nothing to say of {nameless:?}"))?;
        ensure(browser.complaints.is_empty(), || format!("{:?}", browser.complaints))
    })
}

fn without(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        for path in ["/v1/store", "/v1/store/clients", "/v1/store/namespaces", "/v1/store/policies"] {
            let refused = ask(node, "GET", path, None, 404)?;
            ensure(refused["detail"].as_str().is_some_and(|text| text.contains("[store]")), || format!("{refused}"))?;
        }
        ensure(sample(node, "weir_store_up")?.is_none(), || "there is no store".into())?;
        let board = http::get(&node.api(), "/v1/board")?;
        ensure(board.get("store").is_none(), || format!("{board}"))
    })
}
