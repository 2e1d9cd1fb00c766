//! A drive of a store drains while files are read and written, the node is killed in the middle of it, and the drive is taken out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::store::{address, bytes, fs, has, write};
use super::test;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup};
use crate::process::until;
use serde_json::Value;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "store_drain";
    vec![
        test(S, "a_drive_is_emptied_and_taken_out_although_the_node_is_killed", drained),
        test(S, "what_cannot_leave_a_drive_is_told", stays),
    ]
}

/// Two file drives of one class.
fn setup() -> Setup {
    let drive = |name: &str| {
        format!(
            "[[device]]\nname = \"{name}\"\nmedia = \"file:{name}.img\"\ncapacity = \"1GiB\"\n\
             [[export]]\ndevice = \"{name}\"\ndoor = \"nvme-tcp\"\n"
        )
    };
    let donate = |name: &str| format!("[[store.donate]]\ndevice = \"{name}\"\nclass = \"flash\"\n");
    let whole = "[node]\nname = \"e2e\"\napi = \"unix:weir.sock\"\ncores = [0]\nkeeper = true\n\
         [[tenant]]\nname = \"store\"\nclass = \"medium\"\nhosts = [\"*\"]\n\
         [door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\n"
        .to_owned()
        + &drive("file0")
        + &drive("file1")
        + "[store]\nmeta = \"redb:store.redb\"\nlisten = \"unix:meta.sock\"\n"
        + &donate("file0")
        + &donate("file1");
    Setup { whole, ..Setup::default() }
}

fn store(node: &Node, args: &[&str]) -> Result<String, String> {
    let finished = node.cli(&[&["store", "--store", &address(node)], args].concat())?;
    finished.success(&format!("weir store {}", args.join(" ")))
}

/// The namespaces as the service tells them.
fn namespaces(node: &Node) -> Result<Vec<Value>, String> {
    let told = store(node, &["node", "ls", "--json"])?;
    serde_json::from_str(&told).context(|| told.clone())
}

/// The namespace that has more of the files, by its number, and the bytes of files on it.
fn fullest(node: &Node) -> Result<(u64, u64), String> {
    let of = |n: &Value| Some((n["file_bytes"].as_u64()?, n["namespace"].as_u64()?));
    let most = namespaces(node)?.iter().filter_map(of).max();
    most.map(|(bytes, number)| (number, bytes)).ok_or_else(|| "no namespace".into())
}

fn of(node: &Node, number: u64) -> Result<Value, String> {
    let all = namespaces(node)?;
    all.into_iter().find(|n| n["namespace"] == number).ok_or_else(|| format!("namespace {number} is gone"))
}

/// Runs a command beside others, whose output has files of its own.
fn is_done(node: &Node, args: &[&str]) -> Result<bool, String> {
    let store = address(node);
    let output = node.command(&[&["fs", "--store", &store], args].concat()).output();
    Ok(output.context(|| args.join(" "))?.status.success())
}

/// Puts a file again and again and gets it back, until it is told to stop; what went wrong, but for the node being away.
fn works(node: &Node, name: &str, stops: &AtomicBool) -> Result<u64, String> {
    let from = node.socket("worked");
    let expected = write(&from, 3_000_000)?;
    let mut rounds = 0;
    while !stops.load(Ordering::Acquire) {
        let path = from.display().to_string();
        let name = format!("{name}-{}", rounds % 3);
        if !is_done(node, &["put", "-f", &path, &name])? {
            continue;
        }
        let to = node.socket("worked-got");
        if is_done(node, &["get", "-f", &name, &to.display().to_string()])? {
            let found = std::fs::read(&to).context(|| to.display().to_string())?;
            ensure(found == expected, || format!("{name}: other bytes"))?;
            rounds += 1;
        }
    }
    Ok(rounds)
}

const FILES: usize = 6;
const FILE_BYTES: usize = 40 << 20;

fn drained(env: &Env) -> Outcome {
    let mut node = Node::start(env, &setup())?;
    let from = node.socket("put");
    let path = from.display().to_string();
    let expected = write(&from, FILE_BYTES)?;
    for number in 0..FILES {
        fs(&node, &["put", &path, &format!("/{number}")])?;
    }
    let small = node.socket("small");
    std::fs::write(&small, bytes(5000)).context(|| "small".into())?;
    for number in 0..20 {
        fs(&node, &["put", &small.display().to_string(), &format!("/s{number}")])?;
    }
    let (number, before) = fullest(&node)?;
    let text = number.to_string();
    let refused = node.cli(&["store", "--store", &address(&node), "node", "rm", &text])?;
    ensure(refused.status.code() == Some(1), || format!("files are on it: {}", refused.stdout))?;
    store(&node, &["node", "drain", &text])?;
    let stops = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let worker = scope.spawn(|| works(&node, "/w", &stops));
        let partly = until(Duration::from_secs(60), "some blocks have left the drive", || {
            let left = of(&node, number)?["movement"]["bytes_left"].as_u64().unwrap_or(before);
            Ok((left < before / 4 * 3).then_some(left))
        });
        stops.store(true, Ordering::Release);
        partly.and_then(|left| Ok((left, worker.join().map_err(|_| "it has panicked".to_owned())??)))
    })
    .map_err(|e| format!("{e}\n{}", node.log()))?;
    ensure(rounds.0 > 0, || format!("the node is to be killed in the middle: {rounds:?}"))?;
    node.kill()?;
    node.start_again()?;
    let stops = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let worker = scope.spawn(|| works(&node, "/w", &stops));
        let empty = until(Duration::from_secs(120), "the drive is empty", || {
            let found = of(&node, number)?;
            let left = ["file_bytes", "granted_bytes", "quarantined_bytes"].map(|key| found[key].as_u64());
            Ok((left == [Some(0); 3] && found["state"] == "draining").then_some(()))
        });
        stops.store(true, Ordering::Release);
        empty.and_then(|()| worker.join().map_err(|_| "it has panicked".to_owned())?)
    })
    .map_err(|e| format!("{e}: {:?}\n{}", namespaces(&node), node.log()))?;
    ensure(rounds > 0, || "nothing was put and got meanwhile".into())?;
    let told = store(&node, &["status"])?;
    ensure(told.contains(&format!("namespace {number} is empty: weir store node rm {number}")), || told)?;
    store(&node, &["node", "rm", &text])?;
    ensure(of(&node, number).is_err(), || "it is still listed".into())?;
    for number in 0..FILES {
        has(&node, &format!("/{number}"), &expected)?;
    }
    for number in 0..20 {
        has(&node, &format!("/s{number}"), &bytes(5000))?;
    }
    let file = node.socket("store.redb").display().to_string();
    node.kill()?;
    // A worker outlives its keeper for a moment.
    until(Duration::from_secs(20), "nobody has the metadata open", || {
        let fsck = node.cli(&["store", "fsck", &file])?;
        let is_open = fsck.stderr.contains("somebody has the store open");
        if is_open { Ok(None) } else { fsck.success("weir store fsck").map(Some) }
    })?;
    Ok(())
}

/// Without another drive nothing leaves; `--undo` leaves it at that.
fn stays(env: &Env) -> Outcome {
    let node = Node::start(env, &setup())?;
    let from = node.socket("put");
    let expected = write(&from, 5 << 20)?;
    fs(&node, &["put", &from.display().to_string(), "/a"])?;
    let (number, _) = fullest(&node)?;
    let all: Vec<u64> = namespaces(&node)?.iter().filter_map(|n| n["namespace"].as_u64()).collect();
    for number in &all {
        store(&node, &["node", "drain", &number.to_string()])?;
    }
    until(Duration::from_secs(20), "it is told why", || {
        let movement = of(&node, number)?["movement"].clone();
        Ok((movement["no_node"].as_u64() > Some(0) && movement["no_node"] == movement["blocks_left"]).then_some(()))
    })?;
    let told = store(&node, &["node", "ls"])?;
    ensure(told.contains("cannot go: no other node has a drive"), || told)?;
    for number in &all {
        store(&node, &["node", "drain", "--undo", &number.to_string()])?;
    }
    ensure(of(&node, number)?["movement"].is_null(), || "it was undone".into())?;
    has(&node, "/a", &expected)?;
    node.stop()
}
