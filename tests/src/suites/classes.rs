//! The class of a client by the I/O priority of its process (`ionice`), in shares and in the status, and followed as it changes:
//! over vhost-user (our front end, libblkio's, QEMU with a guest), over NVMe/TCP and on local drives.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::test;
use crate::bench::number;
use crate::guest::{Guest, host_program};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, host_nqn, text, with_node};
use crate::process::{Process, until};
use crate::raw::nvme_tcp as raw;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "classes";
    vec![
        test(S, "ionice_gives_a_front_end_its_class", ionice_gives_a_class),
        test(S, "a_changed_priority_is_followed", a_changed_priority_is_followed),
        test(S, "niced_front_ends_share_by_class", niced_front_ends_share),
        test(S, "a_front_end_that_waits_is_followed", a_front_end_that_waits_is_followed),
        test(S, "an_idle_front_end_is_followed", an_idle_front_end_is_followed),
        test(S, "niced_clients_of_libblkio_share_by_class", niced_clients_of_libblkio),
        test(S, "a_niced_guest", a_niced_guest),
        test(S, "ionice_before_weir_bench_over_tcp", ionice_over_tcp),
        test(S, "ionice_before_weir_bench_on_a_local_drive", ionice_local),
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
    niced_bench(env, class, &[&node.socket_target(socket), "--qd", "128", "--time", time])
}

/// The same with any target and options.
pub(super) fn niced_bench(env: &Env, class: &str, args: &[&str]) -> Result<Process, String> {
    let weir = text(&env.weir);
    let bench = [&[&weir, "bench", "--json", "--rw", "randread", "--bs", "4KiB"][..], args].concat();
    niced_program(env, class, &bench)
}

/// `ionice -c CLASS PROGRAM ARGS`.
fn niced_program(env: &Env, class: &str, program: &[&str]) -> Result<Process, String> {
    let mut command = Command::new("ionice");
    command.args(["-c", class, "setpriv", "--pdeathsig", "KILL", "--"]).args(program);
    Process::spawn(&env.folder()?, "niced", command)
}

/// `ionice -c CLASS -p PID`.
pub(super) fn renice(pid: u32, class: &str) -> Outcome {
    let status = Command::new("ionice").args(["-c", class, "-p", &pid.to_string()]).status();
    ensure(status.context(|| "ionice".into())?.success(), || format!("ionice -c {class} -p {pid} fails"))
}

/// The classes that the queues of a socket's front end, or of the host of that NQN, are in.
fn classes(node: &Node, socket: &str) -> Result<Vec<String>, String> {
    let status = node.cli_ok(&["device", "ls", "--json"])?;
    let status: Value = serde_json::from_str(&status).context(|| status.clone())?;
    let path = text(&node.socket(socket));
    let clients = status[0]["clients"].as_array().ok_or("no clients in weir device ls --json")?;
    let ours = clients.iter().filter(|c| c["host"].as_str().is_some_and(|h| h.starts_with(&path) || h == socket));
    Ok(ours.flat_map(|c| c["classes"].as_array().cloned().unwrap_or_default()).map(unquoted).collect())
}

fn unquoted(value: Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Waits until all queues of a socket's client, or of the host of that NQN, are in that class.
pub(super) fn reaches(node: &Node, socket: &str, class: &str) -> Outcome {
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
            let changed = Instant::now();
            renice(front.pid(), priority)?;
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

/// What two processes are to one another in the intervals of their series from `from` to `to` seconds.
fn ratio_between(reports: &[Value; 2], from: f64, to: f64) -> Result<f64, String> {
    let mean = |report: &Value| {
        let points = report["total"]["series"].as_array().cloned().unwrap_or_default();
        let inside = points.iter().filter(|p| p["t_s"].as_f64().is_some_and(|t| (from..=to).contains(&t)));
        let iops: Vec<f64> = inside.filter_map(|p| p["iops"].as_f64()).collect();
        ensure(!iops.is_empty(), || format!("no points from {from} to {to} s: {points:?}"))?;
        Ok::<f64, String>(iops.iter().sum::<f64>() / iops.len() as f64)
    };
    Ok(mean(&reports[0])? / mean(&reports[1])?)
}

fn report(process: Process) -> Result<Value, String> {
    let text = process.wait(Duration::from_secs(60))?.success("weir bench under ionice")?;
    serde_json::from_str(&text).context(|| text.clone())
}

/// Both are saturating: the one that gets little has its whole queue waiting when its priority changes.
fn a_front_end_that_waits_is_followed(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let start = |socket: &str, class: &str| {
            let target = node.socket_target(socket);
            niced_bench(env, class, &[&target, "--qd", "128", "--time", "6500ms", "--series", "250ms"])
        };
        let (high, low) = (start("a.sock", "0")?, start("b.sock", "3")?);
        reaches(node, "b.sock", "low")?;
        std::thread::sleep(Duration::from_millis(2500));
        renice(low.pid(), "2")?;
        reaches(node, "b.sock", "medium")?;
        let reports = [report(high)?, report(low)?];
        let (before, after) = (ratio_between(&reports, 0.5, 2.0)?, ratio_between(&reports, 4.5, 6.2)?);
        println!("    high against low {before:.2}, ideal 4.00; against medium {after:.2}, ideal 2.00");
        ensure((3.6..=4.4).contains(&before) && (1.8..=2.2).contains(&after), || format!("{before:.2}, {after:.2}"))
    })
}

/// One request a second: between two of them nothing of the front end reaches the server.
fn an_idle_front_end_is_followed(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let target = node.socket_target("a.sock");
        let mut front = niced_bench(env, "3", &[&target, "--qd", "1", "--rate", "1", "--time", "60s"])?;
        reaches(node, "a.sock", "low")?;
        for (priority, class) in [("2", "medium"), ("3", "low"), ("0", "high")] {
            let changed = Instant::now();
            renice(front.pid(), priority)?;
            reaches(node, "a.sock", class).map_err(|e| format!("ionice -c {priority} -p: {e}"))?;
            println!("    class {class} after {} ms", changed.elapsed().as_millis());
        }
        ensure(front.running(), || "the front end ended".into())
    })
}

/// Commands that each tenant has had done.
fn commands(node: &Node) -> Result<Vec<f64>, String> {
    let status = node.cli_ok(&["tenant", "ls", "--json"])?;
    let tenants: Vec<Value> = serde_json::from_str(&status).context(|| status.clone())?;
    tenants.iter().map(|t| Ok(number(&t["io"], "reads")? + number(&t["io"], "writes")?)).collect()
}

/// The first tenant's commands to the second's over a while, when both are at it.
fn ratio_over(node: &Node, span: Duration) -> Result<f64, String> {
    let before = commands(node)?;
    std::thread::sleep(span);
    let after = commands(node)?;
    Ok((after[0] - before[0]) / (after[1] - before[1]))
}

/// `qemu-img bench` drives a disk by libblkio, which knows nothing of Weir.
fn niced_clients_of_libblkio(env: &Env) -> Outcome {
    let program = text(&host_program(env, "qemu-img")?);
    let sockets = [("a.sock", "one"), ("b.sock", "two")].map(|(s, t)| (s.to_owned(), t.to_owned())).to_vec();
    let setup = Setup { sockets, ..setup() }.tenants(&[("one", "high"), ("two", "high")]);
    with_node(env, &setup, |node| {
        let start = |socket: &str, class: &str| {
            let image = format!("driver=virtio-blk-vhost-user,path={},cache.direct=on", text(&node.socket(socket)));
            let bench = [&program, "bench", "-n", "-t", "none", "-c", "100000000", "-d", "64", "-s", "4096"];
            niced_program(env, class, &[&bench[..], &["--image-opts", &image]].concat())
        };
        let (mut medium, mut low) = (start("a.sock", "2")?, start("b.sock", "3")?);
        reaches(node, "a.sock", "medium")?;
        reaches(node, "b.sock", "low")?;
        let before = ratio_over(node, Duration::from_secs(2))?;
        renice(medium.pid(), "3")?;
        renice(low.pid(), "2")?;
        reaches(node, "a.sock", "low")?;
        reaches(node, "b.sock", "medium")?;
        let after = ratio_over(node, Duration::from_secs(2))?;
        println!("    medium against low {before:.2}, ideal 2.00; the other way round {after:.2}, ideal 0.50");
        ensure(medium.running() && low.running(), || "qemu-img bench ended".into())?;
        ensure((1.8..=2.2).contains(&before) && (0.45..=0.55).contains(&after), || format!("{before:.2}, {after:.2}"))
    })
}

/// The process that the kernel names at the other end of a socket, from `PATH (process PID)`.
fn peer(node: &Node, socket: &str) -> Result<u32, String> {
    let status = node.cli_ok(&["device", "ls", "--json"])?;
    let status: Value = serde_json::from_str(&status).context(|| status.clone())?;
    let path = text(&node.socket(socket));
    let hosts = status[0]["clients"].as_array().into_iter().flatten().filter_map(|c| c["host"].as_str());
    let pid = hosts.filter_map(|h| h.strip_prefix(&path)?.strip_prefix(" (process ")?.strip_suffix(')')).next();
    pid.and_then(|p| p.parse().ok()).ok_or_else(|| format!("no process at the other end of {path}: {status}"))
}

/// `ionice` before QEMU is the class of its guest's disk, and `ionice -p` changes it; a thread that is niced by itself does not.
fn a_niced_guest(env: &Env) -> Outcome {
    with_node(env, &setup(), |node| {
        let socket = text(&node.socket("a.sock"));
        let qemu = [
            "-chardev",
            &format!("socket,id=c0,path={socket}"),
            "-device",
            "vhost-user-blk-pci,chardev=c0,num-queues=1,romfile=",
        ]
        .map(str::to_owned);
        let guest = Guest { cpus: 1, net: false, qemu: &qemu, limit: 120 };
        // It works until it is told that it may stop, by a block that is written from outside.
        let script =
            "echo working\nwhile ! dd if=/dev/vda bs=512 count=1 iflag=direct 2>/dev/null | grep -q enough; do :; done";
        let mut running = guest.start_by(env, &env.folder()?, script, &["ionice", "-c", "3"])?;
        until(Duration::from_secs(120), "the guest works on its disk", || {
            ensure(running.running(), || format!("the guest ended:\n{}{}", running.stdout(), running.stderr()))?;
            Ok(running.stdout().lines().any(|l| l == "working").then_some(()))
        })?;
        reaches(node, "a.sock", "low")?;
        let pid = peer(node, "a.sock")?;
        renice(pid, "2")?;
        reaches(node, "a.sock", "medium")?;
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).context(|| "QEMU's threads".into())?;
        let threads = threads.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
        for thread in threads.filter(|t| *t != pid) {
            renice(thread, "3")?;
        }
        std::thread::sleep(Duration::from_millis(1500));
        ensure(classes(node, "a.sock")? == ["medium"], || "a niced thread changes the class of the process".into())?;
        let mut block = [b'x'; 512];
        block[..8].copy_from_slice(b"\nenough\n");
        write_block(node, &block)?;
        running.wait(Duration::from_secs(60))?.success("the guest").map(|_| ())
    })
}

/// Writes the drive's first block, over NVMe/TCP.
fn write_block(node: &Node, block: &[u8; 512]) -> Outcome {
    let host = host_nqn("gold");
    let (_admin, cntlid) = raw::Host::admin(node.address(), &host, 0)?;
    let mut queue = raw::Host::io_queue(node.address(), &host, cntlid, 1)?;
    queue.send(&raw::io(0x01, 2, 0, 1, raw::Data::InCapsule(block)))?;
    queue.success().map(|_| ())
}

/// The driver asks by CATTR, and connects its queues anew when its process is niced otherwise.
fn ionice_over_tcp(env: &Env) -> Outcome {
    let setup = setup()
        .device("latency = \"2ms\"\nslots = 8\nclass_from = \"cattr\"")
        .tenants(&[("one", "high"), ("two", "high")]);
    let setup = Setup { sockets: Vec::new(), ..setup };
    with_node(env, &setup, |node| {
        let target = node.tcp_target();
        let hosts = ["one", "two"].map(host_nqn);
        let start = |host: &str, class: &str| {
            niced_bench(env, class, &[&target, "--hostnqn", host, "--qd", "64", "--jobs", "2", "--time", "7s"])
        };
        let (medium, low) = (start(&hosts[0], "2")?, start(&hosts[1], "3")?);
        let both = |node: &Node, host: &str, class: &str| {
            let what = format!("both queues of {host} are in class {class}");
            until(Duration::from_secs(10), &what, || Ok((classes(node, host)? == [class]).then_some(())))
        };
        both(node, &hosts[0], "medium")?;
        both(node, &hosts[1], "low")?;
        let before = ratio_over(node, Duration::from_millis(1500))?;
        let changed = Instant::now();
        renice(medium.pid(), "3")?;
        renice(low.pid(), "2")?;
        both(node, &hosts[0], "low")?;
        both(node, &hosts[1], "medium")?;
        println!("    both followed after {} ms", changed.elapsed().as_millis());
        let after = ratio_over(node, Duration::from_millis(1200))?;
        println!("    medium against low {before:.2}, ideal 2.00; the other way round {after:.2}, ideal 0.50");
        for bench in [medium, low] {
            let report = report(bench)?;
            ensure(number(&report["total"], "errors")? == 0.0, || format!("a change costs requests: {report}"))?;
        }
        ensure((1.8..=2.2).contains(&before) && (0.45..=0.55).contains(&after), || format!("{before:.2}, {after:.2}"))
    })
}

/// A job without a class beside one with: the process' priority is the class of the first only.
fn ionice_local(env: &Env) -> Outcome {
    let target = "local:ram?capacity=64MiB&latency=800us&slots=8";
    let jobs = ["--job", "name=own,qd=64", "--job", "name=said,class=medium,qd=64"];
    for (priority, ideal) in [("3", 0.5), ("2", 1.0), ("0", 1.0)] {
        let bench = niced_bench(env, priority, &[&[target, "--time", "1s"][..], &jobs].concat())?;
        let report = report(bench)?;
        let iops = |job: usize| number(&report["jobs"][job], "iops");
        let found = iops(0)? / iops(1)?;
        println!("    ionice -c {priority}: {found:.2} against medium, ideal {ideal:.2}");
        ensure((found / ideal - 1.0).abs() < 0.05, || format!("ionice -c {priority}: {found:.3}, not {ideal}"))?;
    }
    Ok(())
}
