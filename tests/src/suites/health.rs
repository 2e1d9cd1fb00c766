//! A drive on another drive that fails by rule: what the node in front makes of it, and what its clients see.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{long, test};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::node::{NQN, Node, Setup, with_node};
use crate::process::until;
use crate::vfio::{Drive, Queue, ams, in_turn, io};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "health";
    vec![
        test(S, "a_bad_block_costs_that_block", bad_block),
        test(S, "a_controller_that_fails_for_a_time_costs_nothing", controller),
        test(S, "what_a_host_asks_for_wrongly_is_no_evidence", wrong_commands),
        test(S, "a_drive_in_memory_has_a_smart_log", memory),
        test(S, "a_drive_on_another_that_is_slower_than_its_calibration_is_found", slow_target),
        test(S, "a_die_that_a_rule_makes_fail_is_named", failing_die),
        long(S, "a_die_that_became_slow_is_found_under_load", slow_die),
        long(S, "a_hundred_failures_cost_the_blocks_that_cannot_be_read", hundred),
    ]
}

const SOCKET: &str = "a.sock";
const READ: u8 = 0x02;
const WRITE: u8 = 0x01;
/// How long a diagnosis may take here.
const WAIT: Duration = Duration::from_secs(60);

/// The client of a node whose drive is another node's.
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

    /// Reads or writes a block; its status without More and DNR.
    fn block(&mut self, opcode: u8, lba: u64) -> Result<u16, String> {
        self.queue.submit(&self.drive, 0x55, io(opcode, lba, 1, (self.page, 0)))?;
        self.drive.ring(&self.queue)?;
        let done = self.drive.await_completion(&mut self.queue, WAIT)?;
        done.map(|done| done.status & 0x7ff)
            .ok_or_else(|| format!("command {opcode:#x} of block {lba} does not complete"))
    }

    fn is_well(&mut self, opcode: u8, lba: u64) -> Outcome {
        let status = self.block(opcode, lba)?;
        ensure(status == 0, || format!("command {opcode:#x} of block {lba}: status {status:#x}"))
    }
}

fn with_both(env: &Env, test: impl FnOnce(&Node, &Node, &mut Client) -> Outcome) -> Outcome {
    let target = Setup { node: "faults = true".into(), ..Setup::default() };
    with_node(env, &target, |target| {
        let media = format!("nvme:nvme-tcp://127.0.0.1:{}/{NQN}?ns=1", target.address().port());
        let front = Setup { media, ..Setup::default() }.vfio(SOCKET, "");
        with_node(env, &front, |front| test(target, front, &mut Client::of(front)?))
    })
}

fn health(front: &Node) -> Result<Value, String> {
    let printed = front.cli_ok(&["device", "health", "ssd0", "--json"])?;
    serde_json::from_str(&printed).map_err(|e| format!("{e}: {printed}"))
}

fn verdicts(health: &Value) -> Vec<&str> {
    health["reports"].as_array().into_iter().flatten().filter_map(|report| report["verdict"].as_str()).collect()
}

fn bad_block(env: &Env) -> Outcome {
    with_both(env, |target, front, client| {
        for lba in [8, 9, 100] {
            client.is_well(WRITE, lba)?;
        }
        // The log as it is before anything fails is what is compared with.
        until(WAIT, "the SMART log is not read", || Ok(health(front)?["media_errors"].is_u64().then_some(())))?;
        target.cli_ok(&["fault", "add", "ssd0", "media-error", "lba=8", "op=read"])?;
        let status = client.block(READ, 8)?;
        ensure(status == 0x281, || format!("Unrecovered Read Error, not {status:#x}"))?;
        client.is_well(READ, 9)?;
        client.is_well(READ, 100)?;
        let found = health(front)?;
        let state = (found["state"].as_str(), found["commands"].as_str(), found["verdict"].as_str());
        ensure(state == (Some("serving"), Some("sent"), Some("bad-blocks")), || format!("{found:#}"))?;
        ensure(found["bad_blocks"][0]["lba"] == 8, || format!("{found:#}"))?;
        let text = front.cli_ok(&["device", "health", "ssd0"])?;
        ensure(text.contains("unreadable: 1 blocks at 8") && text.contains("to do: restore"), || text.clone())?;
        // Written again, it is a block like others.
        target.cli_ok(&["fault", "rm", "ssd0", "all"])?;
        client.is_well(WRITE, 8)?;
        client.is_well(READ, 8)?;
        let found = health(front)?;
        ensure(found["bad_blocks"] == serde_json::json!([]), || format!("{found:#}"))
    })
}

fn controller(env: &Env) -> Outcome {
    with_both(env, |target, front, client| {
        client.is_well(WRITE, 8)?;
        target.cli_ok(&["fault", "add", "ssd0", "status", "code=0/06h", "op=read", "count=6"])?;
        for lba in [8, 9, 10, 11] {
            client.is_well(READ, lba)?;
        }
        let found = health(front)?;
        ensure(verdicts(&found).contains(&"controller"), || format!("{found:#}"))?;
        ensure(found["commands"] == "sent" && found["bad_blocks"] == serde_json::json!([]), || format!("{found:#}"))?;
        let reset = found["reports"].to_string().contains("reset");
        ensure(reset, || format!("more failures than retries: {found:#}"))
    })
}

fn wrong_commands(env: &Env) -> Outcome {
    with_both(env, |target, front, client| {
        client.is_well(WRITE, 8)?;
        target.cli_ok(&["fault", "add", "ssd0", "status", "code=2/85h", "lba=8"])?;
        for _ in 0..20 {
            let status = client.block(READ, 8)?;
            ensure(status == 0x285, || format!("Compare Failure, not {status:#x}"))?;
        }
        let found = health(front)?;
        ensure(found["disturbances"] == 0 && found["verdict"].is_null(), || format!("{found:#}"))
    })
}

/// A kind of failure at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Controller,
    Interrupted,
    BadBlock,
    WriteFault,
    Link,
}

/// What is written to a block in a round.
fn pattern(lba: u64, round: u64) -> [u8; 512] {
    let first = (lba * 31 + round * 7) as u8;
    std::array::from_fn(|at| first.wrapping_add(at as u8))
}

/// Twenty failures of each of five kinds, one after the other. A client sees errors of the blocks that cannot be read and of nothing else, every byte
/// is what it was written as, and no drive is isolated.
fn hundred(env: &Env) -> Outcome {
    const KINDS: [Kind; 5] = [Kind::Controller, Kind::Interrupted, Kind::BadBlock, Kind::WriteFault, Kind::Link];
    with_both(env, |target, front, client| {
        until(WAIT, "the SMART log is not read", || Ok(health(front)?["media_errors"].is_u64().then_some(())))?;
        for round in 0..100 {
            let kind = KINDS[round as usize % KINDS.len()];
            let lba = 8 + round * 13 % 64;
            let fails = |status: u16| format!("round {round}, {kind:?}: status {status:#x} of block {lba}");
            client.drive.write(client.page, &pattern(lba, round))?;
            client.is_well(WRITE, lba)?;
            let (count, at) = (format!("count={}", 1 + round % 7), format!("lba={lba}"));
            let rule: &[&str] = match kind {
                Kind::Controller => &["status", "code=0/06h", &count],
                Kind::Interrupted => &["status", "code=0/21h", &count],
                Kind::BadBlock => &["media-error", &at, "op=read"],
                Kind::WriteFault => &["media-error", &at, "op=write", &count],
                Kind::Link => &["link-loss", "lasts=100ms"],
            };
            target.cli_ok(&[&["fault", "add", "ssd0"], rule].concat())?;
            let opcode = if kind == Kind::WriteFault { WRITE } else { READ };
            let status = client.block(opcode, lba)?;
            let expected = if kind == Kind::BadBlock { 0x281 } else { 0 };
            ensure(status == expected, || fails(status))?;
            target.cli_ok(&["fault", "rm", "ssd0", "all"])?;
            if kind == Kind::BadBlock {
                client.drive.write(client.page, &pattern(lba, round))?;
                client.is_well(WRITE, lba)?;
            }
            client.drive.write(client.page, &[0; 512])?;
            client.is_well(READ, lba)?;
            let mut found = [0; 512];
            client.drive.read(client.page, &mut found)?;
            ensure(found == pattern(lba, round), || format!("round {round}, {kind:?}: other bytes in block {lba}"))?;
        }
        let found = health(front)?;
        let of = |verdict: &str| {
            let all = found["verdicts"].as_array().into_iter().flatten();
            all.filter(|total| total["verdict"] == verdict)
                .filter_map(|total| total["disturbances"].as_u64())
                .sum::<u64>()
        };
        ensure(found["state"] == "serving" && found["bad_blocks"] == serde_json::json!([]), || format!("{found:#}"))?;
        ensure(of("media") == 0 && of("other-drive") == 0, || format!("{:#}", found["verdicts"]))?;
        ensure((of("link"), of("bad-blocks")) == (20, 20), || format!("{:#}", found["verdicts"]))?;
        println!("    verdicts: {}", found["verdicts"]);
        Ok(())
    })
}

/// Four dies whose reads take long enough for a busy machine not to matter.
const SLOW_READS: &str = r#"kind = "flash"
[device.flash]
channels = 2
ways = 2
planes = 1
blocks = 64
pages = 64
page_size = "4KiB"
cell = "slc"
read = "2ms"
precondition = "sequential"
"#;

fn slow_die(env: &Env) -> Outcome {
    let setup = Setup { node: "faults = true".into(), capacity: "32MiB".into(), ..Setup::default() };
    with_node(env, &setup.device(SLOW_READS).vfio(SOCKET, ""), |node| {
        let client = &mut Client::of(node)?;
        let idle = health(node)?;
        ensure(idle["speed"]["state"] == "not-judged" && idle["speed"]["why"] == "idle", || format!("{idle:#}"))?;
        // A hundred reads, by turns from each die, and what is known of the drive then.
        let mut page = 0;
        let mut load = |is: &dyn Fn(&Value) -> bool| -> Result<Option<Value>, String> {
            for _ in 0..100 {
                page = (page + 1) % 4096;
                client.is_well(READ, page * 8)?;
            }
            let found = health(node)?;
            Ok(is(&found).then_some(found))
        };
        let found =
            until(WAIT * 2, "the drive is not judged", || load(&|found| found["speed"]["state"] == "as-expected"))?;
        ensure(found["verdict"].is_null() && found["state"] == "serving", || format!("{found:#}"))?;
        node.cli_ok(&["fault", "add", "ssd0", "slow-die", "die=2", "times=5"])?;
        let found = until(WAIT * 2, "the slow die is not found", || load(&|found| found["verdict"] == "slow"))?;
        let speed = &found["speed"];
        let factor = speed["factor"].as_f64().unwrap_or_default();
        ensure(speed["die"] == 2 && (4.5..=5.1).contains(&factor), || format!("{found:#}"))?;
        ensure(verdicts(&found) == ["slow"] && found["commands"] == "sent", || format!("{found:#}"))?;
        let text = node.cli_ok(&["device", "health", "ssd0"])?;
        let says = text.starts_with("ssd0: slow; ") && text.contains("speed: die 2 takes 5.0 times what it should");
        ensure(says, || text.clone())?;
        // Repaired, it is as expected again.
        node.cli_ok(&["fault", "rm", "ssd0", "all"])?;
        let found = until(WAIT * 2, "the die stays accused", || load(&|found| found["verdict"].is_null()))?;
        ensure(found["speed"]["dies"] == serde_json::json!([]) && found["disturbances"] == 1, || format!("{found:#}"))
    })
}

/// Reads or writes for a second or longer, and then what is known of the drive's speed.
fn speed_after(client: &mut Client, front: &Node, opcode: u8) -> Result<Value, String> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1100) {
        (0..8).try_for_each(|lba| client.is_well(opcode, lba))?;
    }
    health(front)
}

/// A drive of 20 ms, longer than a busy machine takes a core away, behind NVMe/TCP, which was calibrated in virtual time for reads alone. It takes
/// 100 ms by a rule at its own node.
fn slow_target(env: &Env) -> Outcome {
    let target = Setup { node: "faults = true".into(), ..Setup::default() }.device("latency = \"20ms\"\nslots = 8\n");
    with_node(env, &target, |target| {
        let file = target.dir.join("ssd0.toml").display().to_string();
        let drive = "sim:ram?latency=20ms&slots=8";
        target.cli_ok(&["calibrate", drive, "--mixes", "100", "--sizes", "512,4KiB", "--time", "2s", "-o", &file])?;
        let media = format!("nvme:nvme-tcp://127.0.0.1:{}/{NQN}?ns=1", target.address().port());
        let calibrated = format!("calibration = \"{file}\"\n");
        let front = Setup { media, ..Setup::default() }.device(&calibrated).vfio(SOCKET, "");
        with_node(env, &front, |front| {
            let client = &mut Client::of(front)?;
            let mut known = |opcode, what: &str, is: &dyn Fn(&Value) -> bool| {
                let look = || Ok(Some(speed_after(client, front, opcode)?).filter(|found| is(found)));
                until(WAIT * 2, what, look)
            };
            known(READ, "the drive is not judged", &|found| found["speed"]["state"] == "as-expected")?;
            known(WRITE, "what was not measured is judged", &|found| found["speed"]["why"] == "unmeasured")?;
            target.cli_ok(&["fault", "add", "ssd0", "latency", "time=80ms"])?;
            let found = known(READ, "the slow drive is not found", &|found| found["verdict"] == "slow")?;
            let factor = found["speed"]["factor"].as_f64().unwrap_or_default();
            ensure((4.0..7.0).contains(&factor) && found["speed"]["die"].is_null(), || format!("{found:#}"))?;
            ensure(verdicts(&found).contains(&"slow") && found["commands"] == "sent", || format!("{found:#}"))?;
            let text = front.cli_ok(&["device", "health", "ssd0"])?;
            ensure(text.contains("speed: the drive takes "), || text.clone())
        })
    })
}

/// What a user sees who makes a die fail and watches.
fn failing_die(env: &Env) -> Outcome {
    let setup = Setup { node: "faults = true".into(), capacity: "32MiB".into(), ..Setup::default() };
    with_node(env, &setup.device(SLOW_READS).vfio(SOCKET, ""), |node| {
        let client = &mut Client::of(node)?;
        let before = health(node)?;
        ensure(before["media_errors"] == 0 && before["available_spare_pct"] == 100, || format!("{before:#}"))?;
        node.cli_ok(&["fault", "add", "ssd0", "media-error", "die=3"])?;
        let statuses = (0..64).map(|page| client.block(READ, page * 8)).collect::<Result<Vec<_>, _>>()?;
        let failed = statuses.iter().filter(|status| **status == 0x281).count();
        ensure(failed >= 4, || format!("{failed} reads of 64 failed"))?;
        let found = health(node)?;
        let die = &found["failing_dies"][0];
        ensure(found["verdict"] == "failing-die" && found["state"] == "serving", || format!("{found:#}"))?;
        ensure(found["media_errors"] == failed && die["die"] == 3 && die["errors"] == failed, || format!("{found:#}"))?;
        let text = node.cli_ok(&["device", "health", "ssd0"])?;
        let smart = format!("SMART: critical warning 0x00, {failed} media errors, available spare 100 %");
        ensure(text.contains(&smart) && text.contains("  failing: die 3: "), || text.clone())?;
        let top = node.cli_ok(&["top", "-n", "1"])?;
        ensure(top.contains("failing-die"), || top.clone())
    })
}

fn memory(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let said = node.cli_ok(&["device", "health", "ssd0"])?;
        let is = said.starts_with("ssd0: nothing is wrong; ") && said.contains("0 media errors, available spare 100 %");
        ensure(is, || said.clone())
    })
}
