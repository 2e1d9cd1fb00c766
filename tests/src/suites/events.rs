//! What a node tells of what has happened: `weir events`, the stream, `on_failure`, and what of it outlives a worker.

use std::time::Duration;

use serde_json::Value;

use super::test;
use crate::harness::{Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{NQN, Node, Setup, with_node};
use crate::process::{Process, until};
use crate::vfio::{Drive, Queue, ams, in_turn, io};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "events";
    vec![
        test(S, "a_disturbance_is_told_from_its_beginning_to_its_end", disturbance),
        test(S, "events_outlive_the_worker_and_are_followed_over_its_death", worker_dies),
        test(S, "on_failure_is_run_with_what_happened", on_failure),
    ]
}

const SOCKET: &str = "a.sock";
const READ: u8 = 0x02;
const WRITE: u8 = 0x01;
/// How long anything may take here.
const WAIT: Duration = Duration::from_secs(60);

struct Client {
    drive: Drive,
    queue: Queue,
    page: u64,
}

impl Client {
    fn of(node: &Node) -> Result<Self, String> {
        let mut drive = in_turn(|| Drive::ready(&node.socket(SOCKET), ams::ROUND_ROBIN))?;
        let queue = drive.create_queue(1, 16, 0, None)?;
        let page = drive.allocate(4096);
        Ok(Self { drive, queue, page })
    }

    /// The status of a command of one block.
    fn block(&mut self, opcode: u8, lba: u64) -> Result<u16, String> {
        self.queue.submit(&self.drive, 0x55, io(opcode, lba, 1, (self.page, 0)))?;
        self.drive.ring(&self.queue)?;
        let done = self.drive.await_completion(&mut self.queue, WAIT)?;
        done.map(|done| done.status & 0x7ff)
            .ok_or_else(|| format!("command {opcode:#x} of block {lba} does not complete"))
    }
}

/// A node whose drive fails by rule, and one in front of it.
fn with_both(env: &Env, front: &str, test: impl FnOnce(&Node, &Node, &mut Client) -> Outcome) -> Outcome {
    let target = Setup { node: "faults = true".into(), ..Setup::default() };
    with_node(env, &target, |target| {
        let media = format!("nvme:nvme-tcp://127.0.0.1:{}/{NQN}?ns=1", target.address().port());
        let front = Setup { media, node: front.into(), ..Setup::default() }.vfio(SOCKET, "");
        with_node(env, &front, |front| test(target, front, &mut Client::of(front)?))
    })
}

fn events(node: &Node) -> Result<Vec<Value>, String> {
    let printed = node.cli_ok(&["events", "--json"])?;
    serde_json::from_str(&printed).map_err(|e| format!("{e}: {printed}"))
}

/// The drive's events with that verdict at their end, as (what, event).
fn episode(events: &[Value], verdict: &str) -> Option<(u64, Vec<String>)> {
    let end = events.iter().find(|e| e["verdict"] == verdict && e["what"] == "healthy")?;
    let number = end["episode"].as_u64()?;
    let of = events.iter().filter(|e| e["device"] == "ssd0" && e["episode"] == number);
    Some((number, of.filter_map(|e| e["what"].as_str().map(str::to_owned)).collect()))
}

fn fail_controller(target: &Node, client: &mut Client) -> Outcome {
    target.cli_ok(&["fault", "add", "ssd0", "status", "code=0/06h", "op=read", "count=6"])?;
    for lba in [8, 9, 10, 11] {
        let status = client.block(READ, lba)?;
        ensure(status == 0, || format!("block {lba}: status {status:#x}"))?;
    }
    Ok(())
}

fn disturbance(env: &Env) -> Outcome {
    with_both(env, "", |target, front, client| {
        ensure(client.block(WRITE, 8)? == 0, || "a write fails".into())?;
        fail_controller(target, client)?;
        let all = until(WAIT, "the disturbance has no end", || {
            let all = events(front)?;
            Ok(episode(&all, "controller").map(|_| all))
        })?;
        let (number, words) = episode(&all, "controller").ok_or("it is gone again")?;
        ensure(words == ["pause", "reset", "replay", "healthy"], || format!("{words:?} in {all:#?}"))?;
        let of = |what: &str| all.iter().find(|e| e["episode"] == number && e["what"] == what);
        let (replay, healthy) = (of("replay").ok_or("no replay")?, of("healthy").ok_or("no end")?);
        ensure(replay["pause_ns"].as_u64() > Some(0) && healthy["duration_ns"].as_u64() > Some(0), || {
            format!("{all:#?}")
        })?;
        ensure(healthy["evidence"].as_str().is_some_and(|e| e.contains("Internal Error")), || format!("{healthy:#}"))?;
        // The target tells of its rule, a second later at the most.
        until(WAIT, "the rule is not told", || {
            Ok(events(target)?.iter().any(|e| e["kind"] == "fault-rule" && e["what"] == "applied").then_some(()))
        })?;
        let text = front.cli_ok(&["events", "--since", "60min"])?;
        ensure(text.contains(" drive ssd0 healthy: disturbance"), || text.clone())?;
        // Reads that failed after the reset may be disturbances of their own; each is told once, everywhere.
        until(WAIT, "events, metrics and log tell of different disturbances", || {
            let ended = ends(&events(front)?);
            let (_, metrics) = http::request(&front.api(), "GET", "/metrics", None)?;
            let lines = [
                format!("weir_device_disturbances_total{{device=\"ssd0\",verdict=\"controller\"}} {ended}"),
                "weir_device_health_state{device=\"ssd0\",state=\"serving\"} 1".into(),
            ];
            let log = front.log();
            let logged = log.lines().filter(|l| l.contains("disturbance") && l.contains("(controller)")).count();
            let has = |line: &String| metrics.lines().any(|l| l == line);
            Ok((ended > 0 && logged == ended && lines.iter().all(has)).then_some(()))
        })
    })
}

/// How many disturbances by the controller are over.
fn ends(events: &[Value]) -> usize {
    events.iter().filter(|e| e["verdict"] == "controller" && e["what"] == "healthy").count()
}

/// The numbers of the events that a follower has told, a line of JSON each.
fn numbers(said: &str) -> Vec<u64> {
    said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()?["number"].as_u64()).collect()
}

fn worker_dies(env: &Env) -> Outcome {
    let setup = Setup { node: "keeper = true".into(), ..Setup::default() };
    with_node(env, &setup, |node| {
        let api = format!("unix:{}", node.api().display());
        let args = ["events", "--follow", "--json", "--api", &api];
        let follower = Process::start(&env.folder()?, "follower", &env.weir, args)?;
        // It follows once it has told the first: a node that is not there when it begins would be a mistake.
        until(WAIT, "the follower does not say that the node serves", || {
            Ok((numbers(&follower.stdout()) == [1]).then_some(()))
        })?;
        node.kill_worker()?;
        let all = until(WAIT, "the next worker does not say that it serves", || {
            let all = events(node)?;
            Ok((all.iter().filter(|e| e["what"] == "serving").count() == 2).then_some(all))
        })?;
        let words: Vec<&str> = all.iter().filter_map(|e| e["what"].as_str()).collect();
        ensure(words == ["serving", "restarting", "serving"], || format!("{all:#?}"))?;
        let listed: Vec<u64> = all.iter().filter_map(|e| e["number"].as_u64()).collect();
        ensure(listed == [1, 2, 3], || format!("{listed:?}"))?;
        ensure(all[1]["text"].as_str().is_some_and(|t| t.contains("was killed")), || format!("{:#}", all[1]))?;
        let followed = until(WAIT, "the follower misses something", || {
            Ok(Some(numbers(&follower.stdout())).filter(|numbers| numbers.len() >= 3))
        })?;
        ensure(followed == [1, 2, 3], || format!("each once, over the worker's death: {followed:?}"))
    })
}

fn on_failure(env: &Env) -> Outcome {
    let folder = env.folder()?;
    let (script, told) = (folder.join("on-failure.sh"), folder.join("told"));
    let text = format!(
        "#!/bin/sh\necho \"$1 $WEIR_DEVICE $WEIR_EPISODE $WEIR_VERDICT $WEIR_ACTION $WEIR_LEVEL\" >> {}\nexit 3\n",
        told.display()
    );
    std::fs::write(&script, text).map_err(|e| e.to_string())?;
    let key = format!("on_failure = [\"/bin/sh\", \"{}\", \"storage\"]", script.display());
    with_both(env, &key, |target, front, client| {
        ensure(client.block(WRITE, 8)? == 0, || "a write fails".into())?;
        fail_controller(target, client)?;
        // Once for each disturbance that is over.
        let said = until(WAIT, "the command is not run for each disturbance", || {
            let said = std::fs::read_to_string(&told).unwrap_or_default();
            let ended = ends(&events(front)?);
            Ok((ended > 0 && said.lines().count() == ended).then_some(said))
        })?;
        let line = |n: usize| format!("storage ssd0 {n} controller healthy warning\n");
        ensure(said == (1..=said.lines().count()).map(line).collect::<String>(), || format!("{said:?}"))?;
        // Its own failure is told, and is no reason to run it again.
        until(WAIT, "its failure is not told", || {
            let all = events(front)?;
            let is_own = |e: &&Value| {
                e["kind"] == "on-failure" && e["text"].as_str().is_some_and(|t| t.contains("exit status: 3"))
            };
            Ok((all.iter().filter(is_own).count() == said.lines().count()).then_some(()))
        })?;
        let again = std::fs::read_to_string(&told).map_err(|e| e.to_string())?;
        ensure(again == said, || format!("{again:?}"))
    })
}
