//! A lost drive takes part in its pool again while the node runs: its target went and is there again, or it was taken out by hand. What it has
//! missed is rebuilt, what has one copy can be read again, and a drive that is not what it was is refused by name.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::pool::{device, head, marked, nqn, places, setup, volume};
use super::test;
use crate::bench::Bench;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{NQN, Node, Setup, host_nqn, with_node};
use crate::process::until;
use crate::raw::nvme_tcp::{Data, Host, io, kind};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "pool_online";
    vec![
        test(S, "a_target_that_was_lost_is_back_and_is_rebuilt_under_load", |env| target_is_back(env, "[0]")),
        test(S, "a_target_of_another_core_is_back", |env| target_is_back(env, "[0, 1]")),
        test(S, "what_has_one_copy_can_be_read_again", one_copy),
        test(S, "by_hand_under_load", by_hand),
        test(S, "an_old_copy_behind_the_target_is_refused_by_name", old_copy),
        test(S, "the_worker_is_killed_while_a_drive_comes_back", killed),
        test(S, "what_cannot_be_is_refused_by_name", refused),
        test(S, "a_drive_that_fails_while_it_comes_back_stays_lost", fails_again),
    ]
}

/// How long anything here may take that is waited for.
const WAIT: Duration = Duration::from_secs(60);
/// MiB of volume `safe`.
const MIB: u32 = 40;

/// A drive in a file behind a node of its own.
fn target(env: &Env, capacity: &str) -> Result<Node, String> {
    Node::start(env, &Setup { media: "file:disk".into(), capacity: capacity.into(), ..Setup::default() })
}

/// Drive `far` on that target, drive `near` in a file, and pool `p` of both.
fn near_and_far(target: &Node, cores: &str) -> String {
    let far = format!(
        "media = \"nvme:nvme-tcp://127.0.0.1:{}/{NQN}?ns=1\"\nkeep_alive_tmo = \"1s\"\nfast_io_fail_tmo = \"1s\"",
        target.port
    );
    head().replace("cores = [0]", &format!("cores = {cores}"))
        + &device("near", "media = \"file:near.img\"\ncapacity = \"64MiB\"")
        + &device("far", &far)
        + "[[pool]]\nname = \"p\"\ndrives = [\"near\", \"far\"]\n"
}

fn safe() -> String {
    volume("safe", "gold", &format!("{MIB}MiB"), "\"nvme-tcp\", \"vhost-user:safe.sock\"") + "copies = 2\n"
}

/// A raw host of a volume.
struct Client {
    _admin: Host,
    queue: Host,
    cid: u16,
}

impl Client {
    fn new(node: &Node, volume: &str) -> Result<Self, String> {
        let (admin, cntlid) = Host::admin_of(&nqn(volume), node.address(), &host_nqn("gold"), 0)?;
        let queue = Host::io_queue_of(&nqn(volume), node.address(), &host_nqn("gold"), cntlid, 1)?;
        Ok(Client { _admin: admin, queue, cid: 0 })
    }

    /// The byte that all of a block is, or the status.
    fn read(&mut self, lba: u32) -> Result<Result<u8, u16>, String> {
        self.cid += 1;
        Ok(match super::pool::read(&mut self.queue, self.cid, lba)? {
            Ok(block) => {
                ensure(block.iter().all(|b| *b == block[0]), || format!("block {lba} is torn"))?;
                Ok(block[0])
            }
            Err(status) => Err(status),
        })
    }

    fn write(&mut self, lba: u32, byte: u8) -> Outcome {
        self.cid += 1;
        self.queue.send(&io(1, self.cid, lba, 1, Data::InCapsule(&[byte; 512])))?;
        let status = self.queue.expect(kind::RESPONSE)?.status() & 0x7ff;
        ensure(status == 0, || format!("a write of block {lba}: status {status:#x}"))
    }
}

/// The last block of each MiB of `safe`.
fn blocks() -> impl Iterator<Item = u32> {
    (0..MIB).map(|mib| mib * 2048 + 2047)
}

fn fill(node: &Node, add: u8) -> Outcome {
    let mut client = Client::new(node, "safe")?;
    blocks().try_for_each(|lba| client.write(lba, (lba / 2048) as u8 + add))
}

fn holds(node: &Node, add: u8) -> Outcome {
    let mut client = Client::new(node, "safe")?;
    blocks().try_for_each(|lba| {
        let (found, written) = (client.read(lba)?, (lba / 2048) as u8 + add);
        ensure(found == Ok(written), || format!("block {lba} is {found:x?}, and {written} was written"))
    })
}

fn load(env: &Env, node: &Node, time: &str) -> Result<Bench, String> {
    let args = ["--bs", "16KiB", "--qd", "4", "--rw", "randrw", "--verify", "crc32c", "--time", time];
    Bench::start(env, &node.socket_target("safe.sock"), &args)
}

fn pool(node: &Node) -> Result<Value, String> {
    Ok(http::get(&node.api(), "/v1/pools")?[0].clone())
}

/// Until the pool serves without so many drives.
fn lost(node: &Node, count: usize) -> Outcome {
    let mut last = Value::Null;
    until(WAIT, &format!("{count} drives are lost"), || {
        last = pool(node)?;
        Ok((last["lost"].as_array().map(Vec::len) == Some(count)).then_some(()))
    })
    .map_err(|why| format!("{why}: {last}\n{}", node.log()))?;
    let metrics = http::request(&node.api(), "GET", "/metrics", None)?.1;
    let line = format!("weir_pool_lost_drives{{pool=\"p\"}} {count}");
    ensure(metrics.contains(&line), || format!("no {line}: {metrics}"))
}

/// Until both copies of `safe` are whole.
fn whole(node: &Node) -> Outcome {
    let mut last = Value::Null;
    until(WAIT, "both copies are whole", || {
        last = http::get(&node.api(), "/v1/volumes/safe")?;
        Ok((last["rebuilding_bytes"] == 0 && last["alone_bytes"] == 0).then_some(()))
    })
    .map_err(|why| format!("{why}: {last}\n{}", node.log()))
}

/// The copies are compared: they are the same.
fn same(node: &Node) -> Outcome {
    node.cli_ok(&["pool", "scrub"])?;
    let found = until(WAIT, "the comparison ends", || {
        let scrub = pool(node)?["scrub"].clone();
        Ok((scrub["running"] == false).then_some(scrub))
    })?;
    let all = u64::from(MIB) << 20;
    ensure(
        found["differing_bytes"] == 0 && found["compared_bytes"].as_u64() >= Some(all) && found["failed_bytes"] == 0,
        || found.to_string(),
    )
}

/// An event of the pool, by its word and a part of its text.
fn told(node: &Node, what: &str, text: &str) -> Outcome {
    let events = http::get(&node.api(), "/v1/events")?;
    let is = |event: &Value| event["what"] == what && event["text"].as_str().is_some_and(|said| said.contains(text));
    let all = events.as_array().or(events["events"].as_array());
    ensure(all.into_iter().flatten().any(is), || format!("no event {what:?} with {text:?}: {events}"))
}

fn target_is_back(env: &Env, cores: &str) -> Outcome {
    let mut behind = target(env, "64MiB")?;
    with_node(env, &setup(near_and_far(&behind, cores) + &safe()), |node| {
        let serving = node.serving()?;
        fill(node, 1)?;
        let beside = load(env, node, "14s")?;
        for round in 0..2 {
            std::thread::sleep(Duration::from_millis(500));
            behind.kill()?;
            lost(node, 1)?;
            told(node, "degraded", "drive far")?;
            // What it misses of what was written before, and it is not there yet.
            std::thread::sleep(Duration::from_millis(500 + 300 * round));
            behind.start_again()?;
            lost(node, 0)?;
            told(node, "back", "drive far is back and takes part again")?;
            whole(node)?;
        }
        beside.finish()?.clean()?;
        same(node)?;
        node.cli_ok(&["pool", "status", "--check"])?;
        // What is read comes from the one that was lost.
        fill(node, 2)?;
        behind.kill()?;
        lost(node, 1)?;
        fill(node, 3)?;
        behind.start_again()?;
        lost(node, 0)?;
        whole(node)?;
        node.cli_ok(&["pool", "offline", "near"])?;
        holds(node, 3)?;
        load(env, node, "1s")?.finish()?.clean()?;
        // And from the other one after that one was lost, and the first has gone.
        fill(node, 4)?;
        node.cli_ok(&["pool", "online", "near"])?;
        whole(node)?;
        same(node)?;
        behind.kill()?;
        // It counts as lost when it does not take what is written.
        Client::new(node, "safe")?.write(0, 9)?;
        lost(node, 1)?;
        holds(node, 4)?;
        ensure(node.serving()? == serving, || "another worker serves".into())
    })?;
    behind.start_again()?;
    behind.stop()
}

/// Unrecovered Read Error, without Do Not Retry.
const READ_ERROR: u16 = 0x281;

/// What reads of volume `wide` come to: how many fail for what reason; the others are as they were marked.
fn failing(node: &Node, status: u16) -> Result<usize, String> {
    let mut client = Client::new(node, "wide")?;
    let mut failing = 0;
    for lba in places(30) {
        match client.read(lba)? {
            Ok(byte) => ensure(byte == (lba / 2048) as u8 + 1, || format!("block {lba} is {byte}"))?,
            Err(found) => {
                ensure(found == status, || format!("block {lba}: status {found:#x}"))?;
                failing += 1;
            }
        }
    }
    Ok(failing)
}

fn one_copy(env: &Env) -> Outcome {
    let mut behind = target(env, "24MiB")?;
    let whole = near_and_far(&behind, "[0]").replace("64MiB", "16MiB")
        + &volume("wide", "gold", "30MiB", "\"nvme-tcp\"")
        + &volume("small", "silver", "2MiB", "\"vhost-user:small.sock\"");
    with_node(env, &setup(whole), |node| {
        marked(node, false)?;
        for _ in 0..2 {
            let mut beside = Client::new(node, "wide")?;
            behind.kill()?;
            node.cli_ok(&["pool", "offline", "far"])?;
            lost(node, 1)?;
            let count = failing(node, READ_ERROR)?;
            ensure(count > 0 && count < places(30).count(), || format!("{count} blocks fail"))?;
            let said = node.cli(&["volume", "resize", "wide", "29MiB", "--shrink"])?;
            ensure(!said.status.success() && said.stderr.contains("has lost chunks"), || said.describe())?;
            behind.start_again()?;
            lost(node, 0)?;
            ensure(failing(node, 0)? == 0, || "what has come back fails".into())?;
            // A host that was connected all the time reads it too.
            for lba in places(30) {
                ensure(beside.read(lba)?.is_ok(), || format!("block {lba} fails"))?;
            }
            marked(node, true)?;
        }
        told(node, "back", "drive far is back")
    })?;
    behind.stop()
}

/// Drives `a` and `b` in files, and `safe` on both.
fn files(node: &str) -> String {
    let drive = |name: &str| device(name, &format!("media = \"file:{name}.img\"\ncapacity = \"64MiB\""));
    head().replace("cores = [0]\n", node)
        + &["a", "b", "c"].map(drive).concat()
        + "[[pool]]\nname = \"p\"\ndrives = [\"a\", \"b\"]\n"
        + &safe()
}

fn by_hand(env: &Env) -> Outcome {
    for cores in ["cores = [0]\n", "cores = [0, 1]\n"] {
        with_node(env, &setup(files(cores)), |node| {
            fill(node, 1)?;
            let beside = load(env, node, "8s")?;
            for (drive, number) in [("a", "0"), ("b", "1"), ("a", "0")] {
                std::thread::sleep(Duration::from_millis(300));
                node.cli_ok(&["pool", "offline", drive])?;
                std::thread::sleep(Duration::from_millis(300));
                // One that was taken out while it works is not taken in by itself.
                lost(node, 1)?;
                let back = node.cli_ok(&["pool", "online", number, "--pool", "p", "--json"])?;
                let back: Value = serde_json::from_str(&back).context(|| "the pool is JSON".into())?;
                let back = back.as_array().map_or(&back, |all| &all[0]);
                ensure(back["drives"].as_array().map(Vec::len) == Some(2), || back.to_string())?;
                lost(node, 0)?;
                whole(node)?;
            }
            beside.finish()?.clean()?;
            same(node)?;
            fill(node, 2)?;
            node.cli_ok(&["pool", "offline", "a"])?;
            fill(node, 3)?;
            node.cli_ok(&["pool", "online", "a"])?;
            whole(node)?;
            node.cli_ok(&["pool", "offline", "b"])?;
            holds(node, 3)?;
            // And so it is after a kill.
            node.kill_and_start()?;
            whole(node)?;
            holds(node, 3)
        })?;
    }
    Ok(())
}

fn old_copy(env: &Env) -> Outcome {
    let mut behind = target(env, "64MiB")?;
    with_node(env, &setup(near_and_far(&behind, "[0]") + &safe()), |node| {
        fill(node, 1)?;
        let (disk, old, now) = (behind.dir.join("disk"), behind.dir.join("old"), behind.dir.join("now"));
        let copy = |from: &std::path::Path, to: &std::path::Path| {
            std::fs::copy(from, to).map(|_| ()).context(|| to.display().to_string())
        };
        copy(&disk, &old)?;
        for name in ["x", "y"] {
            node.cli_ok(&["volume", "create", name, "1MiB", "--tenant", "gold", "--copies", "2"])?;
        }
        fill(node, 2)?;
        behind.kill()?;
        lost(node, 1)?;
        copy(&disk, &now)?;
        copy(&old, &disk)?;
        behind.start_again()?;
        until(WAIT, "it is refused", || Ok(told(node, "refused", "drive far").ok()))?;
        told(node, "refused", "drive far has missed what the pool's other drives have been through")?;
        lost(node, 1)?;
        let by_hand = node.cli(&["pool", "online", "far"])?;
        let why = "drive far has missed what the pool's other drives have been through: it is an old copy";
        ensure(by_hand.status.code() == Some(1) && by_hand.stderr.contains(why), || by_hand.describe())?;
        ensure(std::fs::read(&disk).ok() == std::fs::read(&old).ok(), || "something was written on it".into())?;
        holds(node, 2)?;
        // The one that took part is there again.
        behind.kill()?;
        until(WAIT, "its way is gone", || {
            let devices = http::get(&node.api(), "/v1/devices")?;
            Ok((devices[1]["link"]["state"] != "serving").then_some(()))
        })?;
        copy(&now, &disk)?;
        behind.start_again()?;
        lost(node, 0)?;
        whole(node)?;
        same(node)?;
        node.cli_ok(&["pool", "offline", "near"])?;
        holds(node, 2)
    })?;
    behind.stop()
}

/// Has a lost drive take part again, by the API.
fn online(api: &std::path::Path, drive: &str) -> Outcome {
    let (status, said) = http::request(api, "POST", &format!("/v1/pools/p/drives/{drive}/online"), None)?;
    ensure(status == 200, || format!("{status}: {said}"))
}

fn killed(env: &Env) -> Outcome {
    let mut node = Node::start(env, &setup(files("cores = [0]\nkeeper = true\n")))?;
    fill(&node, 1)?;
    // How long a return takes that nothing comes in between of.
    node.cli_ok(&["pool", "offline", "a"])?;
    let begun = Instant::now();
    online(&node.api(), "a")?;
    let took = begun.elapsed();
    whole(&node)?;
    for round in 0..8u8 {
        let (drive, other) = if round % 2 == 0 { ("a", "b") } else { ("b", "a") };
        node.cli_ok(&["pool", "offline", drive])?;
        fill(&node, 2 + round)?;
        let before = node.worker()?;
        let api = node.api();
        let returns = std::thread::spawn(move || online(&api, drive));
        std::thread::sleep(took * u32::from(round) / 8);
        node.kill_worker()?;
        until(WAIT, "another worker", || Ok((node.worker().ok().is_some_and(|now| now != before)).then_some(())))?;
        // It is answered, or its connection ends.
        _ = returns.join();
        let begun = Instant::now();
        while let Err(why) = pool(&node) {
            ensure(begun.elapsed() < WAIT, || why)?;
            std::thread::sleep(Duration::from_millis(20));
        }
        holds(&node, 2 + round)?;
        lost(&node, 0)?;
        whole(&node)?;
        same(&node)?;
        // Each copy alone.
        node.cli_ok(&["pool", "offline", other])?;
        holds(&node, 2 + round)?;
        node.cli_ok(&["pool", "online", other])?;
        whole(&node)?;
    }
    node.alive()?;
    node.stop()
}

fn refused(env: &Env) -> Outcome {
    with_node(env, &setup(files("cores = [0]\n")), |node| {
        fill(node, 1)?;
        let no = |args: &[&str], why: &str| {
            let out = node.cli(&[&["pool", "online"], args].concat())?;
            ensure(out.status.code() == Some(1) && out.stderr.contains(why), || out.describe())
        };
        no(&["a"], "drive a is not lost")?;
        no(&["z"], "z is no drive of this pool; none is lost")?;
        no(&["c"], "drive c is not lost")?;
        node.cli_ok(&["pool", "offline", "a"])?;
        no(&["b"], "drive b is not lost")?;
        no(&["c"], "drive c is none of this pool's lost drives: it is empty")?;
        no(&["7"], "7 is no drive of this pool; lost are a (number 0)")?;
        no(&["a", "--pool", "q"], "q")?;
        let added = node.cli(&["pool", "add", "a"])?;
        ensure(added.stderr.contains("weir pool online a takes it in again"), || added.describe())?;
        // It was replaced meanwhile.
        node.cli_ok(&["pool", "replace", "a", "c"])?;
        whole(node)?;
        no(&["a"], "drive a is not lost")?;
        node.cli_ok(&["pool", "offline", "b"])?;
        no(&["a"], "drive a was replaced in this pool, or has left it")?;
        holds(node, 1)?;
        node.cli_ok(&["pool", "online", "b"])?;
        node.cli_ok(&["pool", "add", "a"])?;
        holds(node, 1)
    })
}

/// Writes of its metadata fail: the first of them, or a later one, when the other drive has heard that it is back.
fn fails_again(env: &Env) -> Outcome {
    with_node(env, &setup(files("cores = [0]\nfaults = true\n")), |node| {
        fill(node, 1)?;
        let beside = load(env, node, "6s")?;
        for skipped in [0, 1, 2, 5] {
            node.cli_ok(&["pool", "offline", "a"])?;
            let rule = ["code=2/80h", "op=write", "lba=0-4095"];
            let skip = format!("after={skipped}");
            node.cli_ok(&[&["fault", "add", "a", "status"], &rule[..], &[&skip]].concat())?;
            let out = node.cli(&["pool", "online", "a"])?;
            ensure(out.status.code() == Some(1), || format!("after {skipped}: {}", out.describe()))?;
            lost(node, 1)?;
            for rule in http::get(&node.api(), "/v1/devices/a/faults")?.as_array().into_iter().flatten() {
                node.cli_ok(&["fault", "rm", "a", &rule["id"].to_string()])?;
            }
            node.cli_ok(&["pool", "online", "a"])?;
            lost(node, 0)?;
            whole(node)?;
        }
        beside.finish()?.clean()?;
        same(node)
    })
}
