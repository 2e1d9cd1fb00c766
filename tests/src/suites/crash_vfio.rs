//! The worker is killed under clients of vfio-user, which never connect again: they go on with the next one, and notice a pause.

use std::time::{Duration, Instant};

use super::{long, test};
use crate::bench::{Bench, bench};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, Setup, with_node};
use crate::process::until;
use crate::raw::Rng;
use crate::raw::vfio_user::{Client, DMA, HEADER};
use crate::tracee::{Next, Tracee};
use crate::vfio::{Drive, ams, command};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "crash_vfio";
    vec![
        test(S, "no_message_of_a_start_is_lost", |env| start(env, 2)),
        test(S, "clients_notice_no_kill", |env| killed(env, &[ram], 8)),
        test(S, "a_namespace_is_made_once", |env| made_once(env, 24)),
        long(S, "no_message_of_many_starts_is_lost", |env| start(env, 20)),
        long(S, "many_namespaces_are_made_once", |env| made_once(env, 200)),
        long(S, "a_thousand_kills", |env| killed(env, &[ram, slow, flash, standby], 1000)),
    ]
}

fn ram() -> Setup {
    let setup = Setup { node: "keeper = true".into(), ..Setup::default() };
    setup.vfio("mapped.sock", "").vfio("trap.sock", "doorbells = \"trap\"")
}

fn slow() -> Setup {
    ram().device("latency = \"2ms\"\ncmb = \"4MiB\"")
}

fn flash() -> Setup {
    ram().device("kind = \"flash\"\nprofile = \"p3700\"\n[device.flash]\nprecondition = \"steady\"")
}

fn standby() -> Setup {
    Setup { node: "keeper = true\nstandby = true".into(), ..ram() }
}

/// Kills the worker; the next one serves when this returns.
pub(super) fn kill(node: &Node) -> Outcome {
    let dead = node.worker()?;
    node.kill_worker()?;
    let serves = || Ok((node.worker()? != dead && http::get(&node.api(), "/v1/status").is_ok()).then_some(()));
    until(Duration::from_secs(10), "the next worker answers", serves)
}

/// A client that starts a controller, has it identify itself and makes a queue pair, with a kill after everything that it says: at once, or
/// when the worker has had time to answer.
fn start(env: &Env, rounds: u64) -> Outcome {
    with_node(env, &ram(), |node| {
        let mut rng = Rng::new(5);
        for round in 0..rounds {
            let socket = ["mapped.sock", "trap.sock"][round as usize % 2];
            let mut strike = || {
                std::thread::sleep(Duration::from_micros(rng.below(2) as u64 * rng.below(3000) as u64));
                kill(node)
            };
            let mut client = Client::open(&node.socket(socket))?;
            let memory = client.memory.try_clone().context(|| "the memory".into())?;
            let messages: Vec<_> =
                client.setup_messages().into_iter().map(|(bytes, fd)| (bytes, fd.is_some())).collect();
            for (i, (bytes, with_memory)) in messages.iter().enumerate() {
                use std::os::fd::AsFd;
                let fds = if *with_memory { vec![memory.as_fd()] } else { Vec::new() };
                client.send(bytes, &fds)?;
                strike()?;
                let (head, _) = client.receive().map_err(|e| format!("round {round}, message {i}: {e}"))?;
                let same = head[0].to_le_bytes() == bytes[..4] && head[2] & 0x2f == 1;
                ensure(same, || format!("round {round}: {head:x?} answers {:02x?}", &bytes[..HEADER]))?;
            }
            let begin = Instant::now();
            while client.register(0x1c)? & 1 == 0 {
                ensure(begin.elapsed() < Duration::from_secs(10), || "the controller does not become ready".into())?;
            }
            client.identify()?;
            // Queues of 32 entries, made anew again and again.
            for _ in 0..2 {
                let size = 31 << 16 | 1;
                for (opcode, at, flags) in [(0x05, 0x1_1000, 1), (0x01, 0x1_0000, 1 << 16 | 1)] {
                    client.submit(opcode, [DMA + at, 0], [size, flags])?;
                    strike()?;
                    let status = client.completion(Duration::from_secs(5))?;
                    ensure(status == Some(0), || format!("round {round}, command {opcode:#x}: {status:x?}"))?;
                }
                for opcode in [0x00, 0x04] {
                    client.submit(opcode, [0, 0], [1, 0])?;
                    strike()?;
                    let status = client.completion(Duration::from_secs(5))?;
                    ensure(status == Some(0), || format!("round {round}, command {opcode:#x}: {status:x?}"))?;
                }
            }
            client.identify()?;
        }
        Ok(())
    })
}

/// A namespace is created and deleted, and the worker killed at every system call that its shard makes on the way: what the drive remembers and what is written
/// of its client are two writes. Each command is answered once, and has its effect once.
fn made_once(env: &Env, calls: u32) -> Outcome {
    const CREATE: u32 = 0;
    const DELETE: u32 = 1;
    const MANAGEMENT: u8 = 0x0d;
    with_node(env, &standby(), |node| {
        let mut drive = Drive::ready(&node.socket("mapped.sock"), ams::ROUND_ROBIN)?;
        let (fields, list) = (drive.allocate(4096), drive.allocate(4096));
        // NSZE, NCAP: 1 MiB in blocks of 4 KiB.
        drive.write(fields, &[256u64.to_le_bytes(), 256u64.to_le_bytes()].concat())?;
        let allocated = |drive: &mut Drive| {
            drive.admin_ok(command(0x06, (list, 0), &[(1, 0), (10, 0x10)]))?;
            let mut bytes = [0; 4096];
            drive.read(list, &mut bytes)?;
            let nsids = bytes.chunks_exact(4).map(|n| u32::from_le_bytes([n[0], n[1], n[2], n[3]]));
            Ok::<Vec<u32>, String>(nsids.take_while(|nsid| *nsid != 0).collect())
        };
        // It has all the room.
        drive.admin_ok(command(MANAGEMENT, (0, 0), &[(1, 1), (10, DELETE)]))?;
        let mut made = allocated(&mut drive)?;
        // The first of them has just begun to serve.
        std::thread::sleep(Duration::from_millis(50));
        let mut late = 0;
        for call in 0..2 * calls {
            let creates = call % 2 == 0;
            let nsid = made.last().copied().unwrap_or(0);
            let sqe = match creates {
                true => command(MANAGEMENT, (fields, 0), &[(1, 0), (10, CREATE)]),
                false => command(MANAGEMENT, (0, 0), &[(1, nsid), (10, DELETE)]),
            };
            let (tracee, mut next) = Tracee::stop(node.worker()?)?;
            drive.submit_admin(1, sqe)?;
            for _ in 0..call / 2 {
                ensure(next != Next::Ended, || format!("call {call}: the worker ended by itself"))?;
                if next == Next::Asleep {
                    break;
                }
                next = tracee.call()?;
            }
            let before = drive.admin_completion(Duration::ZERO)?;
            late += u32::from(before.is_some());
            tracee.kill()?;
            let done = match before {
                Some(done) => done,
                None => {
                    drive.admin_completion(Duration::from_secs(10))?.ok_or_else(|| format!("call {call}: no answer"))?
                }
            };
            ensure(done.status == 0, || format!("call {call}: status {:#x}", done.status))?;
            let again = drive.admin_completion(Duration::from_millis(5))?;
            ensure(again.is_none(), || format!("call {call}: it is answered twice"))?;
            if creates {
                made.push(done.result);
            } else {
                made.pop();
            }
            let there = allocated(&mut drive)?;
            ensure(there == made, || format!("call {call}: there are {there:?} and not {made:?}"))?;
        }
        println!("    {} kills, {late} of them after the answer", 2 * calls);
        ensure(late < 2 * calls, || "every kill came after the answer".into())
    })
}

/// Clients write and verify at full speed while the worker is killed at random moments: no error, nothing wrong in what is read.
fn killed(env: &Env, drives: &[fn() -> Setup], wanted: u32) -> Outcome {
    let mut rng = Rng::new(9);
    let (mut kills, mut runs) = (0, 0);
    let each = wanted.div_ceil(drives.len() as u32);
    for (i, drive) in drives.iter().enumerate() {
        let enough = (each * (i as u32 + 1)).min(wanted);
        while kills < enough {
            let before = kills;
            with_node(env, &drive(), |node| {
                let time = format!("{}ms", 2500 + 300 * (enough - kills).min(100));
                let load = |socket: &str, depth: &str, region: &str| {
                    let args = ["--rw", "randrw", "--bs", "4KiB:70/64KiB:30", "--verify", "crc32c", "--qd", depth];
                    let more = ["--jobs", "2", "--time", &time, "--region", region];
                    Bench::start(env, &node.vfio_target(socket), &[&args[..], &more].concat())
                };
                let mut loads = [load("mapped.sock", "32", "16MiB")?, load("trap.sock", "4", "16MiB+16MiB")?];
                until(Duration::from_secs(30), "the clients write", || {
                    let status = http::get(&node.api(), "/v1/status")?;
                    Ok((status["devices"][0]["io"]["writes"].as_u64() > Some(100)).then_some(()))
                })?;
                while kills < enough && loads.iter_mut().all(|load| load.process().running()) {
                    if rng.below(5) == 0 {
                        node.kill_worker()?;
                    } else {
                        kill(node)?;
                    }
                    kills += 1;
                    std::thread::sleep(Duration::from_micros(rng.below(150_000) as u64));
                }
                let mut longest = Vec::new();
                for load in loads {
                    let report = load.finish()?;
                    report.clean().map_err(|e| format!("after {kills} kills: {e}\n{}", node.log()))?;
                    longest.push(report.total("longest_gap_ns")? / 1e6);
                }
                println!("    {} kills; the longest gaps: {longest:.1?} ms", kills - before);
                // Who comes afterwards finds a drive as after power-on.
                bench(env, &node.vfio_target("mapped.sock"), &["--time", "200ms"])?.clean()
            })?;
            runs = if kills > before { 0 } else { runs + 1 };
            ensure(runs < 5, || "the load ended before there was a kill".into())?;
        }
    }
    Ok(())
}
