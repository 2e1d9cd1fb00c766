//! Storage nodes that are lost for good, one after the other, and come back with what they had or empty.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::store::{address, bytes, fs, has, write};
use super::test;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup};
use crate::process::until;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    vec![test("store_loss", "files_with_two_copies_outlive_two_machines_one_after_the_other", lost)]
}

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Storage nodes, with a drive each.
const NODES: usize = 3;

/// A storage node with a drive in a file.
fn storage(number: usize) -> Setup {
    let whole = format!(
        "[node]\nname = \"e2e\"\napi = \"unix:weir.sock\"\ncores = [0]\nkeeper = true\n\
         [[tenant]]\nname = \"store\"\nclass = \"medium\"\nhosts = [\"*\"]\n\
         [door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\n\
         [[device]]\nname = \"flash\"\nnqn = \"{}\"\nmedia = \"file:flash.img\"\ncapacity = \"512MiB\"\n\
         [[export]]\ndevice = \"flash\"\ndoor = \"nvme-tcp\"\n",
        nqn(number)
    );
    Setup { whole, ..Setup::default() }
}

fn nqn(number: usize) -> String {
    format!("nqn.2026-01.io.weir:loss-{number}")
}

/// The node of the metadata service, which has no drives, over those.
fn service(storage: &[Node]) -> Setup {
    let donate = |(number, node): (usize, &Node)| {
        let target = format!("nvme-tcp://127.0.0.1:{}/{}?ns=1", node.port, nqn(number));
        format!("[[store.donate]]\ntarget = \"{target}\"\nclass = \"flash\"\nlocation = \"rack{number}\"\n")
    };
    let donated: String = storage.iter().enumerate().map(donate).collect();
    let whole = format!(
        "[node]\nname = \"e2e\"\napi = \"unix:weir.sock\"\ncores = [0]\nkeeper = false\n\
         [door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\n\
         [store]\nmeta = \"redb:store.redb\"\nlisten = \"unix:meta.sock\"\nclasses = [\"flash\"]\nrepair_after = \"2s\"\n{donated}"
    );
    Setup { whole, ..Setup::default() }
}

/// The namespace on the drive of a storage node, as the service tells it.
fn namespace(node: &Node, storage: &Node) -> Result<Value, String> {
    let store = address(node);
    let told = node.cli(&["store", "--store", &store, "node", "ls", "--json"])?.success("weir store node ls")?;
    let all: Vec<Value> = serde_json::from_str(&told).context(|| told.clone())?;
    let port = format!(":{}/", storage.port);
    let of = |one: &Value| one["target"].as_str().is_some_and(|target| target.contains(&port));
    all.into_iter().find(of).ok_or_else(|| format!("no namespace at {port}: {told}"))
}

/// Waits until a namespace cannot be reached, and its blocks that have another copy have a second one again. Until that begins nothing is told of it.
fn is_repaired(node: &Node, storage: &Node) -> Outcome {
    let mut said = String::new();
    let done = until(LIMIT, "what was on the drive is made again", || {
        let found = namespace(node, storage)?;
        said = found.to_string();
        let movement = &found["movement"];
        let is_over = movement["repair"] == true && movement["blocks_left"] == movement["no_copy"];
        Ok((found["state"] == "unreachable" && is_over).then_some(()))
    });
    done.map_err(|e| format!("{e}\n{said}\n{}", node.log()))
}

/// `weir fs get` of a file with one copy, which waits for a drive that is away until its deadline. Whether it has the file; an error names file and drive.
fn is_readable(node: &Node, storage: &[Node], number: usize) -> Result<bool, String> {
    let (name, to) = (format!("/alone/{number}"), node.socket(&format!("alone{number}")));
    let _ = std::fs::remove_file(&to);
    let (store, at) = (address(node), to.display().to_string());
    // The output of one that runs beside others has no file of its own.
    let got = node.command(&["fs", "--store", &store, "get", &name, &at]).output().context(|| name.clone())?;
    let said = String::from_utf8_lossy(&got.stderr);
    if got.status.success() {
        let read = std::fs::read(&to).context(|| name.clone())?;
        ensure(read == bytes(ALONE_BYTES + number), || format!("{name}: other bytes"))?;
        return Ok(true);
    }
    ensure(got.status.code() == Some(1) && !to.exists(), || format!("{name}: {}: {said}", got.status))?;
    let is_drive = |node: &Node| said.contains(&format!(":{}/", node.port));
    let is_named = said.contains(&name) && storage.iter().any(is_drive);
    ensure(is_named, || format!("the error names neither file nor drive: {said}"))?;
    Ok(false)
}

/// The files with one copy that can be read.
fn readable(node: &Node, storage: &[Node]) -> Result<Vec<usize>, String> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..ALONE).map(|n| scope.spawn(move || is_readable(node, storage, n))).collect();
        let mut found = Vec::new();
        for (number, asked) in asked.into_iter().enumerate() {
            if asked.join().map_err(|_| "it has panicked".to_owned())?? {
                found.push(number);
            }
        }
        Ok(found)
    })
}

const TWICE: usize = 4;
const TWICE_BYTES: usize = 10 << 20;

/// Files with one copy, of a block each.
const ALONE: usize = 9;
const ALONE_BYTES: usize = 600_000;

/// Reads files with two copies until it is told to stop.
fn reads(node: &Node, stops: &AtomicBool) -> Result<u64, String> {
    let mut rounds = 0;
    while !stops.load(Ordering::Acquire) {
        let to = node.socket("read");
        let name = format!("/twice/{}", rounds as usize % TWICE);
        let store = address(node);
        let args = ["fs", "--store", &store, "get", "-f", &name, &to.display().to_string()];
        let got = node.command(&args).output().context(|| name.clone())?;
        ensure(got.status.success(), || format!("{name}: {}", String::from_utf8_lossy(&got.stderr)))?;
        let read = std::fs::read(&to).context(|| name.clone())?;
        ensure(read == bytes(TWICE_BYTES + rounds as usize % TWICE), || format!("{name}: other bytes"))?;
        rounds += 1;
    }
    Ok(rounds)
}

fn lost(env: &Env) -> Outcome {
    let mut storage = (0..NODES).map(|number| Node::start(env, &storage(number))).collect::<Result<Vec<_>, _>>()?;
    let node = Node::start(env, &service(&storage))?;
    let from = node.socket("put");
    let path = from.display().to_string();
    for name in ["/twice", "/alone"] {
        fs(&node, &["mkdir", name])?;
    }
    for number in 0..TWICE {
        write(&from, TWICE_BYTES + number)?;
        fs(&node, &["put", "--copies", "2", &path, &format!("/twice/{number}")])?;
    }
    for number in 0..ALONE {
        write(&from, ALONE_BYTES + number)?;
        fs(&node, &["put", "--copies", "1", &path, &format!("/alone/{number}")])?;
    }
    ensure(readable(&node, &storage)?.len() == ALONE, || "all are there".into())?;
    // The first one is lost, while files are read.
    let stops = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let reader = scope.spawn(|| reads(&node, &stops));
        let done = storage[0].kill().and_then(|()| is_repaired(&node, &storage[0]));
        stops.store(true, Ordering::Release);
        let rounds = reader.join().map_err(|_| "it has panicked".to_owned())?;
        done.and(rounds)
    })
    .map_err(|e| format!("{e}\n{}", node.log()))?;
    ensure(rounds > 0, || "nothing was read meanwhile".into())?;
    // Then the second one: what was on both has a copy on the third by now.
    storage[1].kill()?;
    for number in 0..TWICE {
        has(&node, &format!("/twice/{number}"), &bytes(TWICE_BYTES + number))?;
    }
    let third = readable(&node, &storage)?;
    ensure((1..ALONE).contains(&third.len()), || format!("files were on all drives: {third:?}"))?;
    // It comes back with what it had, and the first one empty: what had no other copy is lost, and is never read as zeroes.
    storage[1].start_again()?;
    for file in ["flash.img", "flash.img.nvme"] {
        let file = storage[0].dir.join(file);
        std::fs::remove_file(&file).context(|| file.display().to_string())?;
    }
    storage[0].start_again()?;
    let mut said = String::new();
    let told = until(LIMIT, "one drive is back, and the other is without its content", || {
        let states = [namespace(&node, &storage[0])?, namespace(&node, &storage[1])?].map(|one| one["state"].clone());
        said = format!("{states:?}");
        Ok((states[0] == "lost" && states[1] == "up").then_some(()))
    });
    told.map_err(|e| format!("{e}: {said}\n{}", node.log()))?;
    let left = readable(&node, &storage)?;
    let is_more = left.len() > third.len() && left.len() < ALONE && third.iter().all(|number| left.contains(number));
    ensure(is_more, || format!("of {ALONE} files {third:?} were on the third drive, and {left:?} can be read now"))?;
    for number in 0..TWICE {
        has(&node, &format!("/twice/{number}"), &bytes(TWICE_BYTES + number))?;
    }
    let mut said = String::new();
    let whole = until(LIMIT, "all blocks of files with two copies have two", || {
        let scrub = node.cli(&["fs", "--store", &address(&node), "scrub", "--json"])?;
        said = scrub.describe();
        let found: Value = serde_json::from_str(&scrub.stdout).context(|| said.clone())?;
        Ok((found["short_blocks"] == 0).then_some(()))
    });
    whole.map_err(|e| format!("{e}\n{said}"))?;
    node.stop()?;
    storage.into_iter().try_for_each(Node::stop)
}
