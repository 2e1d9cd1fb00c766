//! What is in flight when the node dies is journalled by its front ends, and nothing of it is lost: the whole process is killed under
//! verified load, again and again, and starts again on the same file.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::guest_vhost::disk;
use super::{long, test};
use crate::bench::{Bench, number};
use crate::guest::Guest;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, text, with_node};
use crate::process::until;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "journal";
    vec![
        test(S, "killed_under_load_split", |env| killed(env, "split", "", 6)),
        long(S, "killed_under_load_packed", |env| killed(env, "packed", "", 6)),
        test(S, "killed_with_much_in_flight", |env| killed(env, "split", "latency = \"2ms\"", 6)),
        test(S, "killed_with_its_keeper", |env| killed_with(env, "packed", "", "keeper = true\nstandby = true", 4)),
        test(S, "a_front_end_that_does_not_come_back_loses_nothing_of_others", left_alone),
        long(S, "killed_under_a_guest", |env| guest(env, false, 2)),
        long(S, "killed_under_load_split_long", |env| killed(env, "split", "", 100)),
        long(S, "killed_under_load_packed_long", |env| killed(env, "packed", "latency = \"1ms\"", 100)),
        long(S, "killed_under_a_guest_packed", |env| guest(env, true, 5)),
    ]
}

/// A drive in a file beside the binary, which goes with the test.
fn with_file(env: &Env, name: &str, keys: &str, test: impl FnOnce(&mut Node) -> Outcome) -> Outcome {
    with_file_of(env, name, keys, "", test)
}

/// The same, with keys of the node.
fn with_file_of(env: &Env, name: &str, keys: &str, of_node: &str, test: impl FnOnce(&mut Node) -> Outcome) -> Outcome {
    let folder = env.weir.parent().ok_or("no folder")?;
    let file = folder.join(format!("e2e-journal-{name}-{}.img", std::process::id()));
    let setup = Setup { media: format!("file:{}", file.display()), capacity: "64MiB".into(), ..Setup::default() };
    let setup = Setup { node: of_node.into(), ..setup };
    let result = with_node(env, &setup.device(keys).socket("gold.sock"), test);
    for suffix in ["", ".nvme"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
    result
}

/// What `weir status` says was recovered at the socket, once `queues` queues were.
fn recovered(node: &Node, queues: f64) -> Result<Value, String> {
    until(Duration::from_secs(10), "the front end has come back", || {
        let text = node.cli_ok(&["status", "--json"])?;
        let status: Value = serde_json::from_str(&text).context(|| text.clone())?;
        Ok(found(&status, queues))
    })
}

/// What a status says was recovered, once `queues` queues were: that of the only export with such queues, or the numbers of all of them.
pub(super) fn found(status: &Value, queues: f64) -> Option<Value> {
    let exports = status["exports"].as_array()?;
    let all: Vec<&Value> = exports.iter().map(|e| &e["recovered"]).filter(|r| !r.is_null()).collect();
    let found = all.iter().skip(1).fold((*all.first()?).clone(), |sum, one| added(&sum, one));
    found["queues"].as_f64().is_some_and(|n| n >= queues).then_some(found)
}

/// Numbers are added, and those inside of objects.
fn added(a: &Value, b: &Value) -> Value {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            Value::Object(a.iter().map(|(key, value)| (key.clone(), added(value, &b[key]))).collect())
        }
        _ => Value::from(a.as_u64().unwrap_or(0) + b.as_u64().unwrap_or(0)),
    }
}

/// Sums what was recovered in several lives.
#[derive(Default)]
pub(super) struct Histogram {
    pub(super) queues: f64,
    pub(super) requests: f64,
    rolled_back: f64,
    closed: f64,
    pub(super) steps: Vec<(String, f64)>,
}

impl Histogram {
    pub(super) fn add(&mut self, found: &Value) -> Outcome {
        self.queues += number(found, "queues")?;
        self.requests += number(found, "requests")?;
        self.rolled_back += number(found, "rolled_back")?;
        self.closed += number(found, "closed")?;
        for (step, count) in found["steps"].as_object().ok_or("no steps")? {
            let count = count.as_f64().ok_or("no number")?;
            match self.steps.iter_mut().find(|(s, _)| s == step) {
                Some((_, n)) => *n += count,
                None => self.steps.push((step.clone(), count)),
            }
        }
        Ok(())
    }

    pub(super) fn print(&self) {
        let Self { queues, requests, rolled_back, closed, steps } = self;
        let steps: Vec<_> = steps.iter().filter(|(_, n)| *n > 0.0).map(|(s, n)| format!("{s} {n}")).collect();
        println!(
            "    {queues} queues recovered: {requests} requests again, of which {rolled_back} had been done; {closed} closed; {}",
            steps.join(", ")
        );
    }
}

fn killed(env: &Env, ring: &str, keys: &str, kills: u32) -> Outcome {
    killed_with(env, ring, keys, "", kills)
}

/// Of a node with these keys, the keeper and with it the worker where it has one.
fn killed_with(env: &Env, ring: &str, keys: &str, of_node: &str, kills: u32) -> Outcome {
    with_file_of(env, ring, keys, of_node, |node| {
        let time = format!("{}s", 4 + kills);
        let args = ["--rw", "randrw", "--bs", "4KiB:70/64KiB:30", "--qd", "32", "--jobs", "2", "--region", "48MiB"];
        let more = ["--time", &time, "--verify", "crc32c", "--ring", ring, "--reconnect", "30s"];
        let mut load = Bench::start(env, &node.socket_target("gold.sock"), &[&args[..], &more].concat())?;
        let mut seen = Histogram::default();
        for i in 0..kills {
            // Not in step with anything.
            std::thread::sleep(Duration::from_millis(350 + u64::from(i * 7919 % 97)));
            ensure(load.process().running(), || "the load has ended before the kills have".into())?;
            node.kill_and_start()?;
            seen.add(&recovered(node, 2.0)?)?;
        }
        load.finish()?.clean()?;
        seen.print();
        ensure(seen.queues >= f64::from(2 * kills), || "every queue of every life".into())?;
        ensure(seen.requests > 0.0, || "requests were in flight".into())
    })
}

/// A front end that dies with its node; another one comes, with a region of its own.
fn left_alone(env: &Env) -> Outcome {
    with_file(env, "left", "latency = \"2ms\"", |node| {
        let target = node.socket_target("gold.sock");
        let args = ["--rw", "randwrite", "--bs", "4KiB", "--qd", "32", "--time", "60s", "--reconnect", "30s"];
        let mut load = Bench::start(env, &target, &args)?;
        std::thread::sleep(Duration::from_millis(600));
        load.process().signal(rustix::process::Signal::KILL)?;
        node.kill_and_start()?;
        let args = ["--rw", "randrw", "--bs", "4KiB", "--qd", "32", "--time", "1s", "--verify", "crc32c"];
        Bench::start(env, &target, &args)?.finish()?.clean()?;
        let text = node.cli_ok(&["status", "--json"])?;
        ensure(!text.contains("\"recovered\""), || format!("nothing was there to recover: {text}"))
    })
}

fn guest(env: &Env, packed: bool, kills: u32) -> Outcome {
    with_file(env, "guest", "latency = \"1ms\"", |node| {
        let qemu = disk(&text(Path::new(&node.socket("gold.sock"))), packed, 2);
        under_a_guest(env, &qemu, node, kills, Node::kill_and_start)
    })
}

/// A guest of two queues writes and verifies while `kill` is called so many times.
pub(super) fn under_a_guest(
    env: &Env,
    qemu: &[String],
    node: &mut Node,
    kills: u32,
    mut kill: impl FnMut(&mut Node) -> Outcome,
) -> Outcome {
    let guest = Guest { cpus: 2, net: false, qemu, limit: if env.full { 300 } else { 120 } };
    // More than the kills take on a fast machine: a guest that has ended does not come back.
    let size = "48m";
    let script = format!(
        r#"
section io
echo waiting
verify /dev/vda 2 randwrite {size}
verify /dev/vda 2 randrw {size}
section kernel
dmesg | grep -iE 'vda|virtio_blk' | grep -iE 'error|timeout|reset' || true
section end
"#
    );
    let mut seen = Histogram::default();
    let out = guest.run_with(env, &script, "waiting", || {
        for i in 0..kills {
            std::thread::sleep(Duration::from_millis(700 + u64::from(i * 7919 % 97)));
            kill(node)?;
            seen.add(&recovered(node, 2.0)?)?;
        }
        Ok(())
    })?;
    ensure(out.matches(" verified").count() == 2, || out.clone())?;
    ensure(!out.to_lowercase().contains("i/o error"), || out.clone())?;
    seen.print();
    Ok(())
}
