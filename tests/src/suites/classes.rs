//! A front end's class by the I/O priority of its process (`ionice`), in shares and in the status, and followed as it changes.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::test;
use crate::bench::number;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, text, with_node};
use crate::process::{Process, until};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "classes";
    vec![
        test(S, "ionice_gives_a_front_end_its_class", ionice_gives_a_class),
        test(S, "a_changed_priority_is_followed", a_changed_priority_is_followed),
        test(S, "niced_front_ends_share_by_class", niced_front_ends_share),
    ]
}

/// Two sockets of one tenant of class high, and a drive so slow that it is always behind, however seldom the front ends run.
fn setup() -> Setup {
    Setup {
        device: "latency = \"2ms\"\nslots = 8".into(),
        sockets: ["a.sock", "b.sock"].map(|s| (s.into(), "gold".into())).to_vec(),
        socket_keys: "class_from = \"peer\"".into(),
        ..Setup::default()
    }
}

/// `ionice -c CLASS weir bench SOCKET --time TIME`. Exec keeps the process, so it is also the one to be niced later.
fn niced(env: &Env, node: &Node, socket: &str, class: &str, time: &str) -> Result<Process, String> {
    let mut command = Command::new("ionice");
    command.args(["-c", class, "setpriv", "--pdeathsig", "KILL", "--"]).arg(&env.weir);
    command.args(["bench", &node.socket_target(socket), "--json", "--rw", "randread", "--bs", "4KiB", "--qd", "128"]);
    command.args(["--time", time]);
    Process::spawn(&env.folder()?, "niced-bench", command)
}

/// The classes that the queues of a socket's front end are in.
fn classes(node: &Node, socket: &str) -> Result<Vec<String>, String> {
    let status = node.cli_ok(&["device", "ls", "--json"])?;
    let status: Value = serde_json::from_str(&status).context(|| status.clone())?;
    let path = text(&node.socket(socket));
    let clients = status[0]["clients"].as_array().ok_or("no clients in weir device ls --json")?;
    let ours = clients.iter().filter(|c| c["host"].as_str().is_some_and(|h| h.starts_with(&path)));
    Ok(ours.flat_map(|c| c["classes"].as_array().cloned().unwrap_or_default()).map(unquoted).collect())
}

fn unquoted(value: Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn reaches(node: &Node, socket: &str, class: &str) -> Outcome {
    let what = format!("the queues of {socket} are in class {class}");
    until(Duration::from_secs(10), &what, || Ok((classes(node, socket)? == [class]).then_some(())))
}

/// The real-time class is for root.
fn priorities() -> Vec<(&'static str, &'static str)> {
    let all = [("1", "high"), ("2", "medium"), ("3", "low")];
    all[usize::from(!rustix::process::geteuid().is_root())..].to_vec()
}

fn ionice_gives_a_class(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        for (priority, class) in priorities() {
            let front = niced(env, node, "a.sock", priority, "1s")?;
            reaches(node, "a.sock", class).map_err(|e| format!("ionice -c {priority}: {e}"))?;
            front.wait(Duration::from_secs(30))?.success("weir bench under ionice")?;
        }
        Ok(())
    })
}

fn a_changed_priority_is_followed(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let mut front = niced(env, node, "a.sock", "3", "60s")?;
        reaches(node, "a.sock", "low")?;
        for (priority, class) in priorities().into_iter().chain([("0", "high")]) {
            let pid = front.pid().to_string();
            let changed = Instant::now();
            let status = Command::new("ionice").args(["-c", priority, "-p", &pid]).status();
            ensure(status.context(|| "ionice".into())?.success(), || format!("ionice -c {priority} -p {pid} fails"))?;
            reaches(node, "a.sock", class).map_err(|e| format!("ionice -c {priority} -p: {e}"))?;
            println!("    class {class} after {} ms", changed.elapsed().as_millis());
        }
        ensure(front.running(), || "the front end ended".into())
    })
}

fn niced_front_ends_share(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let medium = niced(env, node, "a.sock", "2", "4s")?;
        let low = niced(env, node, "b.sock", "3", "4s")?;
        let mut iops = Vec::new();
        for front in [medium, low] {
            let report = front.wait(Duration::from_secs(60))?.success("weir bench under ionice")?;
            let report: Value = serde_json::from_str(&report).context(|| report.clone())?;
            iops.push(number(&report["total"], "iops")?);
        }
        let ratio = iops[0] / iops[1];
        println!("    medium {:.0} IOPS, low {:.0} IOPS: {ratio:.2}, ideal 2.00", iops[0], iops[1]);
        ensure((1.8..=2.2).contains(&ratio), || format!("medium gets {ratio:.2} times what low gets, not 2"))
    })
}
