//! What goes wrong around a node: a medium that fails, a kill without warning, a machine on which little is allowed.

use std::fs::{File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::Signal;
use serde_json::Value;

use super::test;
use crate::bench::{Bench, bench};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, host_nqn, with_node};
use crate::process::{Finished, Process, until};
use crate::raw::nvme_tcp::{Data, Host, capsule, io, kind, sqe};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "faults";
    vec![
        test(S, "a_medium_that_fails_is_seen", medium_that_fails),
        test(S, "a_drive_behind_that_goes_is_seen", drive_behind_that_goes),
        test(S, "a_killed_node_starts_again_at_once", killed_and_started),
        test(S, "scripts_say_the_exact_command", scripts_say_the_command),
    ]
}

/// Byte 0 of the SMART log: the critical warning.
fn critical_warning(admin: &mut Host, cid: u16) -> Result<u8, String> {
    let data = Data::Transport(512);
    admin.send(&capsule(&sqe(0x02, cid, u32::MAX, [127 << 16 | 0x02, 0, 0, 0, 0, 0], data), data))?;
    let page = admin.expect(kind::C2H_DATA)?;
    admin.success()?;
    page.bytes.get(usize::from(page.bytes[3])).copied().ok_or_else(|| "an empty SMART log".into())
}

/// The status of a write (opcode 1) of one block, or a read (2).
pub(super) fn block(queue: &mut Host, opcode: u8, cid: u16) -> Result<u16, String> {
    let bytes = [0x5a; 512];
    let data = if opcode == 1 { Data::InCapsule(&bytes) } else { Data::Transport(512) };
    queue.send(&io(opcode, cid, 8, 1, data))?;
    loop {
        match queue.receive()? {
            Some(pdu) if pdu.kind == kind::RESPONSE => return Ok(pdu.status()),
            Some(pdu) if pdu.kind == kind::C2H_DATA => {}
            other => return Err(format!("expected a response, not {other:02x?}")),
        }
    }
}

fn health(node: &Node) -> Result<Value, String> {
    let printed = node.cli_ok(&["device", "health", "ssd0", "--json"])?;
    serde_json::from_str(&printed).context(|| printed.clone())
}

/// A file that no longer takes writes (a sealed memory file: EPERM) stands in for a drive that fails.
fn medium_that_fails(env: &Env) -> Outcome {
    let file: File =
        memfd_create("e2e-medium", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).context(|| "memfd".into())?.into();
    file.set_len(16 << 20).context(|| "memfd".into())?;
    let media = format!("file:/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let setup = Setup { media, capacity: "16MiB".into(), ..Setup::default() };
    with_node(env, &setup, |node| {
        let host = host_nqn("gold");
        let (mut admin, cntlid) = Host::admin(node.address(), &host, 0)?;
        let mut queue = Host::io_queue(node.address(), &host, cntlid, 1)?;
        ensure(block(&mut queue, 1, 1)? == 0, || "a good write fails".into())?;
        ensure(critical_warning(&mut admin, 900)? == 0, || "a critical warning from the start".into())?;
        let status = node.cli_ok(&["status"])?;
        ensure(!status.contains("FAULT"), || format!("a fault from the start: {status}"))?;

        // What was written is gone, and its place comes back.
        file.set_len(0).context(|| "truncate".into())?;
        let status = block(&mut queue, 2, 10)?;
        ensure(status & 0x7ff == 0x281, || format!("status {status:#x} of a read of what is not there"))?;
        ensure(health(node)?["verdict"] == "bad-blocks", || "a read that fails is not diagnosed".into())?;
        ensure(health(node)?["bad_blocks"] == serde_json::json!([{ "lba": 8, "blocks": 1 }]), || "bad blocks".into())?;
        file.set_len(16 << 20).context(|| "memfd".into())?;
        ensure(block(&mut queue, 1, 11)? == 0 && block(&mut queue, 2, 12)? == 0, || "a written block fails".into())?;
        ensure(health(node)?["verdict"].is_null(), || "a block that was written stays bad".into())?;

        fcntl_add_seals(&file, SealFlags::WRITE).context(|| "seal".into())?;
        let write_fault = 0x280;
        for cid in 2..4 {
            let status = block(&mut queue, 1, cid)?;
            ensure(status & 0x7ff == write_fault, || format!("status {status:#x} of a write that fails"))?;
        }
        ensure(block(&mut queue, 2, 4)? == 0, || "reads do not go on".into())?;

        let found = health(node)?;
        ensure(found["verdict"] == "read-only" && found["commands"] == "sent", || format!("{found:#}"))?;
        let told: Vec<&Value> = found["reports"].as_array().into_iter().flatten().map(|r| &r["verdict"]).collect();
        ensure(told == ["bad-blocks", "read-only"], || format!("each once: {found:#}"))?;
        let events = node.cli_ok(&["events"])?;
        ensure(events.contains("bad-blocks") && events.contains("read-only"), || events.clone())?;

        let warning = critical_warning(&mut admin, 901)?;
        ensure(warning == 0x0c, || format!("critical warning {warning:#x}, not degraded and read-only"))?;
        for command in [&["status"][..], &["device", "ls"]] {
            let out = node.cli_ok(command)?;
            let line = out.lines().find(|l| l.starts_with("FAULT ssd0: "));
            ensure(line.is_some_and(|l| l.contains("write failed at byte 4096")), || format!("{command:?}: {out}"))?;
        }
        let devices = node.cli_ok(&["device", "ls", "--json"])?;
        let devices: Value = serde_json::from_str(&devices).context(|| devices.clone())?;
        let fault = devices[0]["fault"].as_str().unwrap_or_default().to_owned();
        ensure(fault.contains("write failed at byte 4096"), || format!("fault {fault:?} in JSON"))
    })
}

/// A drive made of another node's, and that node is killed: the failure is said, and the drive's own node goes on.
fn drive_behind_that_goes(env: &Env) -> Outcome {
    let mut behind = Node::start(env, &Setup::default())?;
    let setup = Setup { media: format!("nvme:{}", behind.tcp_target()), ..Setup::default() };
    with_node(env, &setup.device("fast_io_fail_tmo = 0"), |node| {
        let host = host_nqn("gold");
        let (mut admin, cntlid) = Host::admin(node.address(), &host, 0)?;
        let mut queue = Host::io_queue(node.address(), &host, cntlid, 1)?;
        ensure(block(&mut queue, 1, 1)? == 0 && block(&mut queue, 2, 2)? == 0, || "good commands fail".into())?;
        behind.process().signal(Signal::KILL)?;
        let mut cid = 3;
        until(Duration::from_secs(10), "reads fail", || {
            cid += 1;
            Ok((block(&mut queue, 2, cid)? != 0).then_some(()))
        })?;
        let status = node.cli_ok(&["status"])?;
        ensure(status.contains("\nFAULT ssd0: "), || format!("no fault in the status: {status}"))?;
        let warning = critical_warning(&mut admin, 901)?;
        ensure(warning == 0x04, || format!("critical warning {warning:#x}, not degraded"))
    })
}

/// SIGKILL under load, and the same addresses again without a pause: the kernel may hold them for some milliseconds.
fn killed_and_started(env: &Env) -> Outcome {
    let setup = Setup::default().socket("gold.sock");
    with_node(env, &setup, |node| {
        for _ in 0..8 {
            let args = ["--rw", "randrw", "--bs", "4KiB", "--qd", "32", "--time", "30s"];
            let fronts = [node.socket_target("gold.sock"), node.tcp_target()];
            let running: Result<Vec<Bench>, String> = fronts.iter().map(|t| Bench::start(env, t, &args)).collect();
            let running = running?;
            std::thread::sleep(Duration::from_millis(300));
            node.kill_and_start()?;
            drop(running);
        }
        bench(env, &node.socket_target("gold.sock"), &["--time", "200ms"])?.clean()?;
        bench(env, &node.tcp_target(), &["--time", "200ms"])?.clean()
    })
}

/// Runs `./weir up` in `dir` as a user who is not root, with this environment alone.
fn as_nobody(dir: &Path, environment: &[(&str, &str)]) -> Result<Finished, String> {
    let mut command = Command::new("/usr/bin/env");
    command.arg("-C").arg(dir).args(["setpriv", "--pdeathsig", "KILL"]);
    if rustix::process::geteuid().is_root() {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    command.args(["--", "/usr/bin/env", "-i"]);
    command.args(environment.iter().map(|(key, value)| format!("{key}={value}")));
    command.args(["/bin/bash", "./weir", "up"]);
    // Its output does not go where it may not write.
    let logs = dir.with_extension("logs");
    std::fs::create_dir_all(&logs).context(|| "a folder".into())?;
    Process::spawn(&logs, "weir-script", command)?.wait(Duration::from_secs(20))
}

fn scripts_say_the_command(env: &Env) -> Outcome {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no repository root")?;
    let dir = env.folder()?.join("checkout");
    let (bin, home) = (env.folder()?.join("bin"), env.folder()?.join("home"));
    for folder in [&dir.join(".ci"), &bin, &home] {
        std::fs::create_dir_all(folder).context(|| "a folder".into())?;
    }
    for file in ["weir", ".ci/toolchain.sh"] {
        std::fs::copy(root.join(file), dir.join(file)).context(|| file.into())?;
    }
    if rustix::process::geteuid().is_root() {
        chown(&home, Some(65534), Some(65534)).context(|| "chown".into())?;
    }
    // No git, no compiler, no sudo.
    for tool in "apt-get bash cut date dirname env find getent head id mkdir readlink sed sort whoami".split(' ') {
        let found = ["/usr/bin", "/bin"].map(|d| Path::new(d).join(tool)).into_iter().find(|p| p.exists());
        symlink(found.ok_or_else(|| format!("no {tool}"))?, bin.join(tool)).context(|| "symlink".into())?;
    }
    let closed = || std::fs::set_permissions(&dir, Permissions::from_mode(0o555)).context(|| "chmod".into());
    closed()?;
    let (bin, home) = (bin.display().to_string(), home.display().to_string());
    let target = format!("{home}/target");
    for (environment, said) in [
        (vec![("PATH", "/usr/bin:/bin")], "run this:  mkdir -m 700 /var/tmp/weir-"),
        (vec![("PATH", "/usr/bin:/bin"), ("HOME", &home)], "run this:  CARGO_TARGET_DIR="),
        (
            vec![("PATH", &bin), ("HOME", &home), ("CARGO_TARGET_DIR", &target)],
            "run this once:  su -c 'apt-get update && apt-get install -y --no-install-recommends git",
        ),
    ] {
        let out = as_nobody(&dir, &environment)?;
        let fine = out.status.code() == Some(1) && out.stderr.starts_with("weir: ") && out.stderr.contains(said);
        ensure(fine, || format!("{environment:?}: '{said}' expected: {}", out.describe()))?;
        ensure(out.stderr.lines().count() == 1, || format!("more than one line: {}", out.stderr))?;
    }
    Ok(())
}
