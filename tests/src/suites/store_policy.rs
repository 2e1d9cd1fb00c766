//! Policies by path: files get their classes and copies by their paths, and cold ones go to the next class when theirs is full, while they are read
//! and the worker is killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::store::{address, bytes, fs, has, write};
use super::{dashboard, test};
use crate::browser::{Browser, is_there};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, with_node};
use crate::process::until;
use serde_json::{Value, json};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "store_policy";
    vec![
        test(S, "new_files_get_what_their_paths_say", by_path),
        test(S, "cold_files_go_to_the_next_class_although_the_worker_is_killed", demoted),
        test(S, "the_dashboard_shows_what_goes_to_the_next_class", shown),
        test(S, "a_policy_that_cannot_be_says_why", refused),
    ]
}

const POLICIES: &str = "[[store.policy]]\npath = \"/f/*\"\nclasses = \"flash\"\ncopies = 2\n\
     [[store.policy]]\npath = \"/c/**\"\nclasses = [\"dram\", \"flash\"]\ndemote_after = \"3s\"\n";

/// The hot file alone is over the low watermark. What is left when the worker is killed has to be over the high one: the next one begins only then.
fn setup() -> Setup {
    let store = "[store]\nhigh_watermark = \"20%\"\nlow_watermark = \"5%\"\n";
    let whole = super::store::setup().whole.replace("[store]\n", store) + POLICIES;
    Setup { whole, ..Setup::default() }
}

fn by_path(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let from = node.socket("put");
        let small = node.socket("small");
        let expected = write(&from, 3_000_000)?;
        std::fs::write(&small, bytes(100)).context(|| "small".into())?;
        let (large, small) = (from.display().to_string(), small.display().to_string());
        fs(node, &["mkdir", "-p", "/c/deep", "/f", "/g"])?;
        for (args, path, classes, copies) in [
            (&["put", &large, "/c/deep/1"][..], "/c/deep/1", json!(["dram", "flash"]), 1),
            (&["put", &small, "/f/1"], "/f/1", json!(["flash"]), 2),
            (&["put", "--class", "dram", "--copies", "1", &large, "/f/2"], "/f/2", json!(["dram"]), 1),
            (&["put", &large, "/g/1"], "/g/1", json!([]), 1),
        ] {
            fs(node, args)?;
            let told: Value = serde_json::from_str(&fs(node, &["stat", "--json", path])?).context(|| path.into())?;
            let found = told.get(0).unwrap_or(&told);
            ensure(found["classes"] == classes && found["copies"] == copies, || format!("{path}: {told}"))?;
        }
        // A name that it gets later changes nothing.
        fs(node, &["mv", "/g/1", "/f/3"])?;
        has(node, "/f/3", &expected)?;
        let told = fs(node, &["stat", "/f/3"])?;
        ensure(told.contains("default"), || told)?;
        let listed: Value =
            serde_json::from_str(&fs(node, &["policy", "ls", "--json"])?).context(|| "policies".into())?;
        ensure(listed[1]["path"] == "/c/**" && listed[1]["demote_after_ns"] == 3_000_000_000_u64, || {
            listed.to_string()
        })?;
        let told = fs(node, &["policy", "/c/any/where"])?;
        ensure(told == "/c/any/where: policy /c/**; classes dram flash, 1 copy, demoted after 3s\n", || told)
    })
}

/// What is told of the class `dram`.
fn dram(node: &Node) -> Result<Value, String> {
    let told = node.cli(&["store", "--store", &address(node), "status", "--json"])?.success("weir store status")?;
    let status: Value = serde_json::from_str(&told).context(|| told.clone())?;
    Ok(status["demotion"]["classes"][0].clone())
}

/// Gets a file again and again until it is told to stop, but for the worker being away; how often.
fn reads(node: &Node, name: &str, expected: &[u8], stops: &AtomicBool) -> Result<u64, String> {
    let store = address(node);
    let mut rounds = 0;
    while !stops.load(Ordering::Acquire) {
        let output = node.command(&["fs", "--store", &store, "cat", name]).output().context(|| name.into())?;
        if output.status.success() {
            ensure(output.stdout == expected, || format!("{name}: {} other bytes", output.stdout.len()))?;
            rounds += 1;
        }
    }
    Ok(rounds)
}

const FILES: usize = 5;
const FILE_BYTES: usize = 32 << 20;

fn demoted(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let from = node.socket("put");
        let path = from.display().to_string();
        let expected = write(&from, FILE_BYTES)?;
        fs(node, &["mkdir", "/c"])?;
        let hot = write(&node.socket("hot"), FILE_BYTES / 2)?;
        fs(node, &["put", &node.socket("hot").display().to_string(), "/c/hot"])?;
        for number in 0..FILES {
            fs(node, &["put", &path, &format!("/c/{number}")])?;
        }
        let stops = AtomicBool::new(false);
        let node = &*node;
        let ended = std::thread::scope(|scope| {
            let reader = scope.spawn(|| reads(node, "/c/hot", &hot, &stops));
            let ended = cold_ones_go(node, &expected);
            stops.store(true, Ordering::Release);
            let rounds = reader.join().map_err(|_| "it has panicked".to_owned())??;
            ended.and_then(|()| ensure(rounds > 3, || format!("the hot file was read {rounds} times")))
        });
        ended.map_err(|e| format!("{e}: {:?}\n{}", dram(node), node.log()))?;
        until(Duration::from_secs(15), "the last file is cold as well", || {
            Ok((dram(node)?["over"] == false).then_some(()))
        })?;
        has(node, "/c/hot", &hot)
    })
}

/// All but the hot file go, while one of them is read and the worker is killed.
fn cold_ones_go(node: &Node, expected: &[u8]) -> Outcome {
    until(Duration::from_secs(15), "some blocks were demoted", || {
        Ok((dram(node)?["moved_blocks"].as_u64() > Some(0)).then_some(()))
    })?;
    let before = node.worker()?;
    let left = dram(node)?["used_bytes"].as_u64().unwrap_or(0);
    ensure(left > 2 * (FILE_BYTES as u64), || {
        format!("the worker is to be killed in the middle, {left} bytes are left")
    })?;
    node.kill_worker()?;
    until(Duration::from_secs(20), "the next worker serves, and its store", || {
        Ok((node.worker().is_ok_and(|worker| worker != before) && dram(node).is_ok()).then_some(()))
    })?;
    has(node, "/c/0", expected)?;
    until(Duration::from_secs(20), "all but the hot file have gone", || {
        let told = dram(node)?;
        let is_hot_alone = told["used_bytes"] == FILE_BYTES / 2 && told["over"] == true;
        Ok((is_hot_alone && told["hot"] == FILE_BYTES / 2 / (1 << 20)).then_some(()))
    })?;
    for number in 0..FILES {
        has(node, &format!("/c/{number}"), expected)?;
    }
    Ok(())
}

fn shown(env: &Env) -> Outcome {
    if !is_there(env)? {
        return Ok(());
    }
    let api = env.free_port()?;
    let setup = setup();
    let whole =
        setup.whole.replace("api = \"unix:weir.sock\"", &format!("api = [\"unix:weir.sock\", \"127.0.0.1:{api}\"]"));
    with_node(env, &Setup { whole, ..setup }, |node| {
        let path = node.socket("put");
        write(&path, FILE_BYTES)?;
        fs(node, &["mkdir", "/c"])?;
        let mut browser = Browser::start(env)?;
        dashboard::open(&mut browser, api, "", "#/")?;
        let name = "Store: to the next class";
        let cell = |of: usize| {
            let rows = format!("[...document.querySelectorAll('table[aria-label=\"{name}\"] tbody tr')]");
            format!("({rows}.find((row) => row.cells[0].textContent === 'dram')?.cells[{of}].textContent ?? '')")
        };
        browser.await_true("nothing has gone yet", &format!("{} === '0'", cell(5)))?;
        for number in 0..FILES {
            fs(node, &["put", &path.display().to_string(), &format!("/c/{number}")])?;
        }
        browser.await_true("the class is over its watermark", &format!("{} === 'over its watermark'", cell(1)))?;
        browser.await_true("blocks go", &format!("/^[1-9]/.test({}) && /^[1-9]/.test({})", cell(2), cell(3)))?;
        until(
            Duration::from_secs(30),
            "all cold files have gone",
            || Ok((dram(node)?["over"] == false).then_some(())),
        )?;
        browser.await_true("the class has room again", &format!("{} === 'has room'", cell(1)))?;
        let moved = dram(node)?["moved_blocks"].to_string();
        browser.await_true("the page has the count of the API", &format!("{} === '{moved}'", cell(5)))?;
        ensure(browser.complaints.is_empty(), || format!("{:?}", browser.complaints))
    })
}

fn refused(env: &Env) -> Outcome {
    let dir = env.folder()?;
    let whole = setup().whole;
    for (from, to, of, what) in [
        ("path = \"/f/*\"", "path = \"f/*\"", "\"f/*\"", "store.policy#1.path: \"f/*\": a pattern is over whole paths"),
        ("classes = \"flash\"", "classes = \"tape\"", "\"tape\"", "store.policy#1.classes: there is no class \"tape\""),
        ("\"20%\"", "\"4%\"", "\"5%\"", "store.low_watermark: low_watermark is 5% and high_watermark 4%"),
    ] {
        let text = whole.replace(from, to);
        let line = text.lines().position(|line| line.contains(of)).map_or(0, |line| line + 1);
        let said = super::pool::fails(env, &dir, &text)?;
        let expected = format!(":{line}: {what}");
        ensure(said.contains(&expected), || format!("expected {expected:?}: {said}"))?;
    }
    Ok(())
}
