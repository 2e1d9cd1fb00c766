//! The worker is killed and its keeper starts the next one: what was written stays, what was changed stays, who listens stays.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::test;
use crate::bench::{Bench, bench};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, Setup, host_nqn, with_node};
use crate::process::until;
use crate::raw::nvme_tcp::Host;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "crash";
    vec![
        test(S, "what_was_written_stays", written_stays),
        test(S, "what_was_changed_stays", changed_stays),
        test(S, "a_worker_that_cannot_start_says_why", cannot_start),
        test(S, "a_crash_loop_ends_and_is_ended", crash_loop),
        test(S, "nobody_outlives_the_keeper", nobody_is_left),
    ]
}

fn kept(setup: Setup) -> Setup {
    Setup { node: "keeper = true".into(), ..setup }
}

/// The next worker answers on the API, which was never closed.
fn answers(node: &Node) -> Outcome {
    http::request(&node.api(), "GET", "/v1/status", None).map(|_| ()).map_err(|e| format!("{e}\n{}", node.log()))
}

/// Data of every door, read through every door after each kill; also while somebody writes, with the API's clients waiting.
fn written_stays(env: &Env) -> Outcome {
    with_node(env, &kept(Setup::default().socket("gold.sock").vfio("pci.sock", "")), |node| {
        let targets = [node.tcp_target(), node.socket_target("gold.sock"), node.vfio_target("pci.sock")];
        let region = ["--region", "2MiB", "--verify", "crc32c"];
        let verified = |target: &str, rw: &str| {
            let args = ["--rw", rw, "--bs", "64KiB", "--qd", "4", "--time", "600ms"];
            bench(env, target, &[&args[..], &region[..]].concat())?.clean()
        };
        verified(&targets[0], "write")?;
        for (i, target) in targets.iter().enumerate() {
            let busy = ["--rw", "randread", "--bs", "4KiB", "--qd", "32", "--time", "30s"];
            let load = Bench::start(env, &targets[(i + 1) % 3], &busy)?;
            std::thread::sleep(Duration::from_millis(200));
            let before = node.worker()?;
            node.kill_worker()?;
            answers(node)?;
            ensure(node.worker()? != before, || "the same worker".into())?;
            drop(load);
            verified(target, "read").map_err(|e| format!("{target} after kill {i}: {e}"))?;
        }
        let said = node.process().stderr();
        ensure(said.matches("the next one takes over").count() == 3, || said)
    })
}

/// Tenants and exports that came while the node ran, changed shares, a drive's saved state.
fn changed_stays(env: &Env) -> Outcome {
    with_node(env, &kept(Setup::default()), |node| {
        let pci = node.socket("late.sock").display().to_string();
        node.cli_ok(&["tenant", "add", "late", "--class", "low", "--host", &host_nqn("late")])?;
        node.cli_ok(&["tenant", "rm", "silver"])?;
        node.cli_ok(&["tenant", "set", "bronze", "--weight", "7"])?;
        node.cli_ok(&["device", "set", "ssd0", "--arbitration", "drr"])?;
        node.cli_ok(&["export", "vfio-user", "ssd0", &pci, "--tenant", "late"])?;
        // What an operator sees, without what counts.
        let view = |node: &Node| -> Result<Value, String> {
            let text = node.cli_ok(&["status", "--json"])?;
            let mut all: Value = serde_json::from_str(&text).context(|| text.clone())?;
            let keep = |all: &mut Value, list: &str, keys: &[&str]| {
                let of = |one: &Value| keys.iter().map(|k| one[*k].clone()).collect::<Value>();
                all[list].as_array().map_or(Value::Null, |l| l.iter().map(of).collect())
            };
            Ok(Value::Array(vec![
                keep(&mut all, "tenants", &["name", "class", "weight", "hosts"]),
                keep(&mut all, "exports", &["device", "door", "addresses", "tenant"]),
                keep(&mut all, "devices", &["name", "arbitration", "capacity_bytes"]),
                all["pid"].clone(),
                all["api"].clone(),
            ]))
        };
        let before = view(node)?;
        ensure(before.to_string().contains("late.sock"), || before.to_string())?;
        for _ in 0..2 {
            node.kill_worker()?;
            let after = view(node)?;
            ensure(after == before, || format!("before {before}\nafter  {after}"))?;
        }
        bench(env, &node.vfio_target("late.sock"), &["--time", "200ms"])?.clean()?;
        Host::admin(node.address(), &host_nqn("late"), 0).map(|_| ())
    })
}

/// The message and the exit status are the worker's.
fn cannot_start(env: &Env) -> Outcome {
    let busy = std::net::TcpListener::bind("127.0.0.1:0").context(|| "a port".into())?;
    let port = busy.local_addr().context(|| "a port".into())?.port();
    let setup = Setup { args: vec!["--listen".into(), format!("127.0.0.1:{port}")], ..kept(Setup::default()) };
    let Err(said) = Node::start(env, &setup) else { return Err("started on a busy port".into()) };
    ensure(said.contains("in use by") && !said.contains("takes over"), || said)
}

/// A worker that crashes again and again is not started for ever; SIGHUP tries once more; SIGTERM ends the node.
fn crash_loop(env: &Env) -> Outcome {
    let mut node = Node::start(env, &kept(Setup::default()))?;
    bench(env, &node.tcp_target(), &["--rw", "write", "--region", "4MiB", "--time", "200ms", "--verify", "crc32c"])?
        .clean()?;
    for _ in 0..8 {
        let worker = node.worker()?;
        answers(&node)?;
        // What a bug of its own would do.
        rustix::process::kill_process(worker, Signal::ABORT).context(|| "abort".into())?;
        let path = std::path::PathBuf::from(format!("/proc/{}", worker.as_raw_nonzero()));
        until(Duration::from_secs(5), "the worker ends", || Ok((!path.exists()).then_some(())))?;
    }
    let limit = Duration::from_secs(5);
    until(limit, "the keeper gives up", || Ok(node.process().stderr().contains("no more are started").then_some(())))?;
    ensure(node.process().running(), || "the keeper has ended".into())?;
    node.process().signal(Signal::HUP)?;
    answers(&node)?;
    bench(env, &node.tcp_target(), &["--rw", "read", "--region", "4MiB", "--time", "200ms", "--verify", "crc32c"])?
        .clean()?;
    node.stop()
}

/// SIGKILL of the keeper: its worker does not stay.
fn nobody_is_left(env: &Env) -> Outcome {
    let mut node = Node::start(env, &kept(Setup::default()))?;
    let worker = format!("/proc/{}", node.worker()?.as_raw_nonzero());
    node.process().signal(Signal::KILL)?;
    until(Duration::from_secs(5), "the worker ends with its keeper", || {
        let stat = std::fs::read_to_string(format!("{worker}/stat")).unwrap_or_default();
        Ok((stat.is_empty() || stat.contains(") Z ")).then_some(()))
    })
}
