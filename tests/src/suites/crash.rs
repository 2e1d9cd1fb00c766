//! The worker is killed and its keeper starts the next one: what was written stays, what was changed stays, who listens stays.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::guest_vhost::disk_at;
use super::journal::{Histogram, found, under_a_guest};
use super::power::Client;
use super::{long, pool, test};
use crate::bench::{Bench, bench};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, Setup, host_nqn, program, text, with_node};
use crate::process::{stop, until};
use crate::raw::nvme_tcp::Host;
use crate::stepped;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "crash";
    vec![
        test(S, "what_was_written_stays", written_stays),
        test(S, "what_was_changed_stays", changed_stays),
        test(S, "zones_in_memory_stay", zones_stay),
        test(S, "a_worker_that_cannot_start_says_why", cannot_start),
        test(S, "a_crash_loop_ends_and_is_ended", crash_loop),
        test(S, "nobody_outlives_the_keeper", nobody_is_left),
        test(S, "a_front_end_notices_no_kill", |env| killed(env, &[case(ram, "split", 1)], 10, 0)),
        test(S, "four_packed_queues_notice_no_kill", |env| killed(env, &[case(slow, "packed", 4)], 8, 1)),
        test(S, "a_drive_that_collects_notices_no_kill", |env| killed(env, &[case(flash, "split", 4)], 8, 1)),
        test(S, "a_drive_goes_on_from_its_map", from_its_map),
        test(S, "a_standby_takes_over", |env| killed(env, &[case(standby, "packed", 1)], 6, 0)),
        test(S, "between_two_instructions", |env| {
            killed(env, &[instructions("split", 1), instructions("packed", 4)], 8, 1)
        }),
        test(S, "a_standby_that_is_killed_is_replaced", standby_dies),
        test(S, "a_standby_that_is_stopped_is_given_up", standby_stops),
        test(S, "a_stopped_standby_keeps_the_keeper_from_nothing", standby_hears_nothing),
        test(S, "nvme_tcp_hosts_come_back_at_once", tcp_comes_back),
        test(S, "what_memory_held_without_its_keeper_is_not_zeroes", lost),
        long(S, "a_guest_notices_no_kill", |env| guest(env, false, 3)),
        long(S, "a_guest_with_packed_rings_notices_no_kill", |env| guest(env, true, 10)),
        long(S, "a_worker_that_hangs_before_it_serves_is_replaced", hangs),
        long(S, "a_thousand_kills", |env| killed(env, &every_case(), campaign()?, 800)),
        long(S, "a_thousand_kills_between_two_instructions", |env| killed(env, &every_stepped(), campaign()?, 800)),
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
            until(Duration::from_secs(5), "another worker", || Ok((node.worker()? != before).then_some(())))?;
            drop(load);
            verified(target, "read").map_err(|e| format!("{target} after kill {i}: {e}"))?;
        }
        let said = node.process().stderr();
        ensure(said.matches("the next one takes over").count() == 3, || said)
    })
}

/// Zones of a drive in memory, over two kills and an upgrade: their states, write pointers and data; and they take what comes next where it belongs.
fn zones_stay(env: &Env) -> Outcome {
    let zoned =
        "block_size = 4096\nzoned = { zone_size = \"1MiB\", zone_capacity = \"768KiB\", max_open = 2, max_active = 3 }";
    let (node, capacity) = ("keeper = true\nstandby = true".into(), "8MiB".into());
    let setup = Setup { node, capacity, ..Setup::default() };
    with_node(env, &setup.device(zoned), |node| {
        let start = |zone: u32| zone * 256;
        let mut host = Client::of_zones(node)?;
        let mut value = 0;
        let mut next = || {
            value += 1;
            value
        };
        // By zone: blocks as they were written.
        let mut written = vec![Vec::new(); 5];
        for round in 0..3 {
            for zone in [0usize, 3] {
                for _ in 0..3 + round {
                    let (at, value) = (start(zone as u32) + written[zone].len() as u32, next());
                    host.write(at, value)?;
                    written[zone].push(value);
                }
            }
            let (at, value) = (start(1) + written[1].len() as u32, next());
            let placed = host.append(start(1), value)?;
            ensure(placed == at, || format!("appended at {placed}, not {at}"))?;
            written[1].push(value);
            if round == 0 {
                // Zone Management Send: finish.
                host.command(0x79, [start(3), 0, 0, 2, 0, 0])?;
            } else if round == 1 {
                let refused = host.write(start(2), next());
                ensure(refused.as_ref().is_err_and(|e| e.ends_with("1bd")), || {
                    format!("a fourth active zone: {refused:?}")
                })?;
            }
            let before = host.zones(5)?;
            if round < 2 {
                node.kill_worker()?;
                answers(node)?;
                host = Client::of_zones(node)?;
            } else {
                // Its connections stay.
                node.cli_ok(&["upgrade", "--probation", "0s"])?;
            }
            let after = host.zones(5)?;
            let closed = |(state, wp): (u8, u32)| (if matches!(state, 2 | 3) { 4 } else { state }, wp);
            let expected: Vec<_> = before.into_iter().map(closed).collect();
            ensure(after == expected, || format!("round {round}: zones were {expected:?}, are {after:?}"))?;
            for (zone, values) in written.iter().enumerate() {
                for at in 0..values.len() as u32 + 2 {
                    let (found, is) = (host.read(start(zone as u32) + at)?, values.get(at as usize).copied());
                    ensure(found == is.unwrap_or(0), || {
                        format!("round {round}: zone {zone}, block {at} has {found}, not {is:?}")
                    })?;
                }
            }
            if round == 0 {
                ensure(after[3].0 == 14, || format!("finished: {after:?}"))?;
                let refused = host.write(start(3) + 3, next());
                ensure(refused.is_err(), || "a finished zone takes a write".into())?;
                // Reset.
                host.command(0x79, [start(3), 0, 0, 4, 0, 0])?;
                written[3].clear();
            }
        }
        Ok(())
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
    // Nobody serves, and whoever asks hears why.
    for command in ["status", "upgrade"] {
        let said = node.cli(&[command])?;
        ensure(said.status.code() == Some(1) && said.stderr.contains("no more are started"), || said.describe())?;
    }
    node.process().signal(Signal::HUP)?;
    answers(&node)?;
    bench(env, &node.tcp_target(), &["--rw", "read", "--region", "4MiB", "--time", "200ms", "--verify", "crc32c"])?
        .clean()?;
    node.stop()
}

/// The standby, once it is prepared: it has looked at what it is to take over.
fn prepared(node: &Node, but: Option<Pid>) -> Result<Pid, String> {
    until(Duration::from_secs(20), "a standby is prepared", || {
        let workers = node.workers()?;
        let Some(spare) = workers.get(1).filter(|pid| Some(**pid) != but) else { return Ok(None) };
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", spare.as_raw_nonzero())).unwrap_or_default();
        Ok(maps.contains("memfd:weir-ram").then_some(*spare))
    })
}

/// A standby that is killed is followed by another one, so that the next crash is not a cold start.
fn standby_dies(env: &Env) -> Outcome {
    with_node(env, &standby(), |node| {
        let target = node.socket_target("gold.sock");
        let region = ["--region", "4MiB", "--bs", "64KiB", "--time", "300ms", "--verify", "crc32c"];
        bench(env, &target, &[&["--rw", "write"][..], &region].concat())?.clean()?;
        let mut dead = None;
        for kill in 1..=2 {
            let spare = prepared(node, dead)?;
            rustix::process::kill_process(spare, Signal::KILL).context(|| "kill the standby".into())?;
            until(Duration::from_secs(10), "the keeper says so", || {
                let said = node.process().stderr();
                Ok((said.matches("the standby was killed").count() == kill).then_some(()))
            })?;
            dead = Some(spare);
        }
        let spare = prepared(node, dead)?;
        node.kill_worker()?;
        until(Duration::from_secs(10), "the standby serves", || Ok((node.worker()? == spare).then_some(())))?;
        answers(node)?;
        bench(env, &target, &[&["--rw", "read"][..], &region].concat())?.clean()
    })
}

/// A standby that somebody has stopped, after it was prepared, does not answer when it is to take over: another one does.
fn standby_stops(env: &Env) -> Outcome {
    with_node(env, &standby(), |node| {
        let target = node.socket_target("gold.sock");
        let region = ["--region", "4MiB", "--bs", "64KiB", "--time", "300ms", "--verify", "crc32c"];
        bench(env, &target, &[&["--rw", "write"][..], &region].concat())?.clean()?;
        let spare = prepared(node, None)?;
        stop(spare)?;
        node.kill_worker()?;
        until(Duration::from_secs(30), "the keeper gives it up", || {
            Ok(node.process().stderr().contains("its process is stopped").then_some(()))
        })?;
        until(Duration::from_secs(10), "another one serves", || Ok((node.worker()? != spare).then_some(())))?;
        answers(node)?;
        bench(env, &target, &[&["--rw", "read"][..], &region].concat())?.clean()
    })
}

/// Changes of the configuration: more words than a socket has room for, and fewer than two have.
const CHANGES: u64 = 400;

fn change(node: &Node, changes: u64) -> Outcome {
    for weight in 0..changes {
        let body = serde_json::json!({ "weight": weight % 100 + 1 });
        let (code, said) = http::request(&node.api(), "PATCH", "/v1/tenants/gold", Some(&body))?;
        ensure(code == 200, || format!("change {weight}: {code} {said}"))?;
    }
    Ok(())
}

/// The system call that the keeper waits in.
fn waits_in(node: &mut Node) -> Result<String, String> {
    let path = format!("/proc/{}/syscall", node.process().pid());
    let text = std::fs::read_to_string(&path).context(|| path)?;
    Ok(text.split(' ').next().unwrap_or_default().to_owned())
}

/// A standby that is stopped hears of no change. Its keeper waits for everybody else meanwhile, replaces a worker that is killed, and takes an
/// upgrade.
fn standby_hears_nothing(env: &Env) -> Outcome {
    let upgrade = |node: &mut Node| node.cli_ok(&["upgrade", "--probation", "0s"]).map(drop);
    for (what, end) in [("a kill", None), ("an upgrade", Some(upgrade))] {
        with_node(env, &standby(), |node| {
            let target = node.socket_target("gold.sock");
            let region = ["--region", "4MiB", "--bs", "64KiB", "--time", "300ms", "--verify", "crc32c"];
            bench(env, &target, &[&["--rw", "write"][..], &region].concat())?.clean()?;
            let (serves, spare) = (node.worker()?, prepared(node, None)?);
            let idle = waits_in(node)?;
            stop(spare)?;
            change(node, CHANGES)?;
            let waits = (0..50).map(|_| {
                std::thread::sleep(Duration::from_millis(5));
                waits_in(node)
            });
            let waits = waits.collect::<Result<Vec<_>, _>>()?;
            ensure(waits.contains(&idle), || format!("the keeper waits in system call {}, not in {idle}", waits[0]))?;
            match end {
                None => node.kill_worker()?,
                Some(upgrade) => upgrade(node)?,
            }
            let next = until(Duration::from_secs(20), &format!("another one serves after {what}"), || {
                Ok(Some(node.worker()?).filter(|pid| *pid != serves && *pid != spare))
            })?;
            change(node, 1)?;
            bench(env, &target, &[&["--rw", "read"][..], &region].concat())?.clean()?;
            // The next standby hears all of it.
            let spare = prepared(node, Some(next))?;
            node.kill_worker()?;
            until(Duration::from_secs(10), "the standby serves", || Ok((node.worker()? == spare).then_some(())))?;
            bench(env, &target, &[&["--rw", "read"][..], &region].concat())?.clean()
        })?;
    }
    Ok(())
}

/// The next worker reads its configuration where nothing ever comes. It is killed for it, and the one after it serves.
fn hangs(env: &Env) -> Outcome {
    with_node(env, &kept(Setup::default()), |node| {
        let (file, aside) = (node.dir.join("weir.toml"), node.dir.join("aside.toml"));
        let target = node.tcp_target();
        let region = ["--region", "4MiB", "--bs", "64KiB", "--time", "300ms", "--verify", "crc32c"];
        bench(env, &target, &[&["--rw", "write"][..], &region].concat())?.clean()?;
        std::fs::rename(&file, &aside).context(|| "aside".into())?;
        rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RWXU).context(|| "a pipe".into())?;
        node.kill_worker()?;
        // Whoever opens the pipe to read waits for as long as this is open.
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        let _pipe = until(Duration::from_secs(20), "the next worker reads it", || {
            Ok(rustix::fs::open(&file, flags, rustix::fs::Mode::empty()).ok())
        })?;
        std::fs::rename(&aside, &file).context(|| "back".into())?;
        let said = "had not read its configuration after 60s";
        until(Duration::from_secs(100), "it is killed", || Ok(node.process().stderr().contains(said).then_some(())))?;
        answers(node)?;
        bench(env, &target, &[&["--rw", "read"][..], &region].concat())?.clean()
    })
}

/// Drives of two profiles that collect, written at two depths: each worker goes on from the map that the one before was changing when it was killed,
/// and what was written is right. So does the program that comes by an upgrade.
fn from_its_map(env: &Env) -> Outcome {
    for (profile, depth, standby) in [("p3700", "32", true), ("femu-bbssd", "4", false)] {
        let drive = format!("kind = \"flash\"\nprofile = \"{profile}\"\n[device.flash]\nprecondition = \"steady\"");
        let node = format!("keeper = true\nstandby = {standby}");
        let script = format!("WEIR_LOG=warn,weir_node::flash=info exec {} \"$@\"", env.weir.display());
        let program = Some(program(&env.folder()?, "weir-that-tells", &script)?);
        let setup = Setup { node, program, ..Setup::default().socket("gold.sock") }.device(&drive);
        with_node(env, &setup, |node| {
            let target = node.socket_target("gold.sock");
            let verified = |rw: &str, sizes: &str, time: &str| {
                let args = ["--rw", rw, "--bs", sizes, "--qd", depth, "--time", time];
                Bench::start(env, &target, &[&args[..], &["--region", "32MiB", "--verify", "crc32c"]].concat())
            };
            let mut load = verified("randrw", "4KiB:70/64KiB:30", "3s")?;
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(500));
                node.kill_worker()?;
                answers(node)?;
            }
            ensure(load.process().running(), || "the load ended before the kills".into())?;
            load.finish()?.clean()?;
            // Once over the region at least, also where the machine is busy.
            verified("write", "64KiB", "1s")?.finish()?.clean()?;
            node.kill_worker()?;
            answers(node)?;
            verified("read", "64KiB", "400ms")?.finish()?.clean()?;
            node.cli_ok(&["upgrade", "--probation", "0s"])?;
            verified("read", "64KiB", "400ms")?.finish()?.clean()?;
            let said = node.process().stderr();
            let (went_on, found) =
                (said.matches("the drive goes on from its map").count(), said.matches("map is found again").count());
            ensure((went_on, found) == (5, 0), || {
                format!("{profile}: {went_on} went on, {found} found it again\n{said}")
            })
        })?;
    }
    Ok(())
}

/// What is killed, and under which load.
#[derive(Clone, Copy)]
struct Case {
    drive: fn() -> Setup,
    ring: &'static str,
    queues: u32,
    /// Queues of another front end that has the drive copy much, and does not look at it: one that waits for nobody else is busy all the time.
    bulk: u32,
    /// A host of NVMe/TCP writes and verifies beside.
    host: bool,
    /// The worker is killed between two instructions of its drives' thread, not wherever it happens to be.
    stepped: bool,
}

const fn case(drive: fn() -> Setup, ring: &'static str, queues: u32) -> Case {
    Case { drive, ring, queues, bulk: 0, host: false, stepped: false }
}

/// Small requests, so that most instructions are the door's, and another front end with more of them.
const fn instructions(ring: &'static str, queues: u32) -> Case {
    Case { stepped: true, bulk: 1, ..case(standby, ring, queues) }
}

fn ram() -> Setup {
    kept(Setup::default().socket("gold.sock"))
}

pub(super) fn slow() -> Setup {
    ram().device("latency = \"2ms\"")
}

/// A small drive of flash as it is after long use: it collects from the first write on.
pub(super) fn flash() -> Setup {
    ram().device("kind = \"flash\"\nprofile = \"p3700\"\n[device.flash]\nprecondition = \"steady\"")
}

pub(super) fn standby() -> Setup {
    Setup { node: "keeper = true\nstandby = true".into(), ..ram() }
}

/// Queues of the front end beside, in campaigns: what is in flight there lasts until it has its turn at a core again.
const BULK: u32 = 2;

fn shapes() -> impl Iterator<Item = (&'static str, u32)> {
    ["split", "packed"].into_iter().flat_map(|ring| [(ring, 1), (ring, 4)])
}

fn every_stepped() -> Vec<Case> {
    shapes().map(|(ring, queues)| instructions(ring, queues)).collect()
}

fn every_case() -> Vec<Case> {
    let drives: [fn() -> Setup; 4] = [ram, slow, flash, standby];
    // A drive has nothing in flight while a client verifies, or waits for a core: so there is one that has much to copy.
    let of = |drive, (ring, queues)| Case { bulk: BULK, host: queues == 4, ..case(drive, ring, queues) };
    shapes().flat_map(|shape| drives.map(|drive| of(drive, shape))).collect()
}

/// What kills found, all cases together.
#[derive(Default)]
struct Kills {
    /// How many, of how many the next worker was asked what it found (those of workers that are killed soon after are not), and of how
    /// many it is known.
    made: u32,
    asked: u32,
    seen: u32,
    /// Of these: with requests in flight.
    in_flight: u32,
    /// Single steps before them.
    instructions: u64,
    /// Of those between two instructions: whose thread slept in the kernel, and of these with requests in flight.
    asleep: u32,
    asleep_in_flight: u32,
    /// What one took in the last run, in milliseconds.
    pace: u32,
    histogram: Histogram,
}

/// How many kills a campaign makes: a thousand, or as many as WEIR_KILLS says, for one that is made in parts.
pub(super) fn campaign() -> Result<u32, String> {
    std::env::var("WEIR_KILLS").map_or(Ok(1000), |text| text.parse().context(|| format!("WEIR_KILLS={text}")))
}

/// The worker is killed at random moments while a front end that knows nothing of it writes and verifies at full speed: no
/// error, no disconnection, nothing wrong in what is read. Of a thousand kills at least `least` find requests in flight: a drive
/// without latency waits for a front end that verifies nearly all of the time, and of few kills none may find any.
fn killed(env: &Env, cases: &[Case], wanted: u32, least: u32) -> Outcome {
    let mut kills = Kills::default();
    // Other moments in each run: what a kill meets depends on the machine anyway.
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut random = since.map_or(0x9e37_79b9_7f4a_7c15, |since| since.as_nanos() as u64);
    let each = wanted.div_ceil(cases.len() as u32);
    for (i, case) in cases.iter().enumerate() {
        let enough = (each * (i as u32 + 1)).min(wanted);
        let (was, mut idle) = ((kills.seen, kills.in_flight), 0);
        while kills.made < enough {
            let before = kills.made;
            let mut setup = (case.drive)();
            setup.sockets.push(("bulk.sock".into(), "silver".into()));
            with_node(env, &setup, |node| kill_under(env, node, case, (enough, &mut kills, &mut random)))
                .map_err(|e| format!("{} rings, {} queues, after {} kills: {e}", case.ring, case.queues, kills.made))?;
            // A busy machine may take longer to begin than the load takes.
            idle = if kills.made > before { 0 } else { idle + 1 };
            ensure(idle < 5, || "the load ended before there was a kill".into())?;
        }
        if env.full {
            let (seen, found) = (kills.seen - was.0, kills.in_flight - was.1);
            println!(
                "    case {i}, {} rings, {} queues: {found} of {seen} found requests in flight",
                case.ring, case.queues
            );
        }
    }
    let Kills { made, asked, seen, in_flight, instructions, asleep, asleep_in_flight, histogram, .. } = &kills;
    println!("    {made} kills; of {seen} it is known what they left: {in_flight} times requests in flight");
    if *instructions > 0 {
        println!(
            "    {instructions} single steps; {asleep} times the thread slept by then, {asleep_in_flight} of them with requests in flight"
        );
    }
    histogram.print();
    let enough = (seen * least).div_ceil(1000);
    ensure(*in_flight >= enough, || format!("{in_flight} of {seen} kills found requests in flight"))?;
    if env.full {
        let missed: Vec<_> = histogram.steps.iter().filter(|(_, n)| *n == 0.0).map(|(s, _)| s).collect();
        println!("    steps that no kill found: {missed:?}");
    }
    ensure(*seen * 2 >= *asked, || format!("of {seen} of {asked} kills it is known what they left"))
}

/// The load that must notice nothing, and those beside it: of tenants gold, silver and bronze.
fn loads(env: &Env, node: &Node, case: &Case, millis: u32) -> Result<(Bench, Vec<Bench>), String> {
    let (jobs, time, longer) = (case.queues.to_string(), format!("{millis}ms"), format!("{}ms", millis + 3000));
    let sizes = if case.stepped { "512:80/2KiB:20" } else { "4KiB:70/64KiB:30" };
    let args = ["--rw", "randrw", "--bs", sizes, "--qd", "32", "--jobs", &jobs, "--ring", case.ring];
    let more = ["--region", "48MiB", "--verify", "crc32c", "--time", &time];
    let load = Bench::start(env, &node.socket_target("gold.sock"), &[&args[..], &more].concat())?;
    let mut beside = Vec::new();
    if case.bulk > 0 {
        let (sizes, depth) = if case.stepped { (sizes, "128") } else { ("1MiB", "64") };
        let jobs = case.bulk.to_string();
        let args = ["--rw", "randrw", "--bs", sizes, "--qd", depth, "--jobs", &jobs, "--ring", case.ring];
        let more = ["--region", "128MiB+96MiB", "--time", &longer];
        beside.push(Bench::start(env, &node.socket_target("bulk.sock"), &[&args[..], &more].concat())?);
    }
    if case.host {
        let host = host_nqn("bronze");
        let args =
            ["--rw", "randrw", "--bs", "4KiB:50/64KiB:50", "--qd", "8", "--region", "64MiB+48MiB", "--hostnqn", &host];
        let more = ["--verify", "crc32c", "--time", &longer, "--reconnect", "20s"];
        beside.push(Bench::start(env, &node.tcp_target(), &[&args[..], &more].concat())?);
    }
    Ok((load, beside))
}

/// One run of the load, up to so many kills in all.
fn kill_under(
    env: &Env,
    node: &mut Node,
    case: &Case,
    (enough, kills, random): (u32, &mut Kills, &mut u64),
) -> Outcome {
    // Kills come some ten a second, on a busy machine far fewer.
    let lasts = (enough - kills.made).saturating_mul(kills.pace.max(100)).saturating_mul(3) / 2;
    let millis = 2000 + lasts.min(40_000);
    let (mut load, beside) = loads(env, node, case, millis)?;
    let queues = case.queues + case.bulk;
    // Rings that have not started leave nothing to find, and nobody connects for the first time twice.
    until(Duration::from_secs(60), "the front ends write", || {
        let status = http::get(&node.api(), "/v1/status").unwrap_or_default();
        let writes = |tenant: usize| status["tenants"][tenant]["io"]["writes"].as_u64().unwrap_or(0);
        let all = writes(0) > 100 && (case.bulk == 0 || writes(1) > 0) && (!case.host || writes(2) > 0);
        Ok((all || !load.process().running()).then_some(()))
    })?;
    let mut next = |below: u64| {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33) % below
    };
    let (begun, before) = (Instant::now(), kills.made);
    while kills.made < enough && load.process().running() {
        let (worker, mut asleep) = (node.worker()?, false);
        if case.stepped {
            // By then its front ends, which a step does not slow down, have filled their rings.
            let stepped = stepped::kill(worker, 5000 + next(15_000))?;
            kills.instructions += stepped.made;
            asleep = stepped.asleep;
        } else {
            node.kill_worker()?;
        }
        kills.made += 1;
        if next(5) == 0 && !case.stepped {
            // The next one soon after: while it starts, takes over or recovers.
            std::thread::sleep(Duration::from_micros(next(20_000)));
            continue;
        }
        kills.asked += 1;
        if let Some(what) = left(node, worker, f64::from(queues), &mut load)? {
            kills.seen += 1;
            let in_flight = u32::from(what["requests"].as_f64().is_some_and(|n| n > 0.0));
            kills.in_flight += in_flight;
            kills.asleep += u32::from(asleep);
            kills.asleep_in_flight += u32::from(asleep) * in_flight;
            kills.histogram.add(&what)?;
        }
        // Some soon after; others late enough that a drive which takes long to start gets something done.
        let most = if next(4) == 0 { 300_000 } else { 40_000 };
        std::thread::sleep(Duration::from_micros(300 + next(most)));
    }
    kills.pace = (begun.elapsed().as_millis() / u128::from((kills.made - before).max(1))).min(10_000) as u32;
    load.finish()?.clean()?;
    beside.into_iter().try_for_each(|load| load.finish()?.clean())
}

/// NVMe/TCP connections end with the worker, which their hosts see at once: they connect again and submit again.
fn tcp_comes_back(env: &Env) -> Outcome {
    with_node(env, &kept(Setup::default().device("latency = \"1ms\"")), |node| {
        let args = ["--rw", "randrw", "--bs", "4KiB", "--qd", "16", "--jobs", "2", "--region", "32MiB"];
        let more = ["--verify", "crc32c", "--time", "3s", "--reconnect", "10s"];
        let load = Bench::start(env, &node.tcp_target(), &[&args[..], &more].concat())?;
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(500));
            node.kill_worker()?;
        }
        let report = load.finish()?;
        report.clean()?;
        let longest = report.total("longest_gap_ns")?;
        println!("    the longest gap: {:.1} ms", longest / 1e6);
        // The keep-alive's 15 s are not waited for.
        ensure(longest < 10e9, || format!("{longest} ns without a completion"))
    })
}

/// A guest whose QEMU would not connect again.
fn guest(env: &Env, packed: bool, kills: u32) -> Outcome {
    let setup = Setup { capacity: "64MiB".into(), ..kept(Setup::default().socket("gold.sock")) };
    with_node(env, &setup.device("latency = \"1ms\""), |node| {
        let qemu = disk_at(&text(&node.socket("gold.sock")), packed, 2);
        under_a_guest(env, &qemu, node, kills, |node| {
            let dead = node.worker()?;
            node.kill_worker()?;
            let takes_over =
                || Ok((node.worker()? != dead && http::get(&node.api(), "/v1/status").is_ok()).then_some(()));
            until(Duration::from_secs(10), "the next worker answers", takes_over)
        })
    })
}

/// A campaign has a machine to itself, or shares it with others that keep it busy: what hangs does so for good.
const HANGS: Duration = Duration::from_secs(60);

/// What the next worker finds in the journals, or nothing if the load ends meanwhile.
pub(super) fn left(
    node: &Node,
    dead: rustix::process::Pid,
    queues: f64,
    load: &mut Bench,
) -> Result<Option<Value>, String> {
    let begun = Instant::now();
    while load.process().running() {
        let asked = http::get(&node.api(), "/v1/status").ok();
        if let Some(found) = asked.and_then(|status| found(&status, queues)).filter(|_| node.worker() != Ok(dead)) {
            return Ok(Some(found));
        }
        ensure(begun.elapsed() < HANGS, || "no worker took the queues up again".into())?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(None)
}

/// Keeper and worker are killed, and with them what a drive in memory held. The next node has an empty one under the same name: those who had
/// the other are not served from it, they are told. Whoever comes anew is served.
fn lost(env: &Env) -> Outcome {
    with_node(env, &kept(Setup::default().socket("gold.sock")), |node| {
        let args = ["--rw", "randrw", "--bs", "4KiB", "--qd", "8", "--region", "16MiB", "--reconnect", "2s"];
        let args = [&args[..], &["--verify", "crc32c", "--time", "20s"]].concat();
        let targets = [node.socket_target("gold.sock"), node.tcp_target()];
        let start = |target: &String| Bench::start(env, target, &args);
        let loads = targets.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        std::thread::sleep(Duration::from_millis(700));
        node.kill_and_start()?;
        for (load, part) in loads.into_iter().zip(["", "is not the drive it was"]) {
            let ended = load.ended(Duration::from_secs(15))?;
            let told = ended.status.code() == Some(1) && ended.stderr.contains(part);
            ensure(told && !ended.stderr.contains("verif"), || ended.describe())?;
        }
        let said = node.process().stderr();
        ensure(said.contains("that is no more"), || said)?;
        for target in &targets {
            bench(env, target, &["--rw", "write", "--region", "4MiB", "--time", "200ms", "--verify", "crc32c"])?
                .clean()?;
        }
        Ok(())
    })?;
    // A volume on drives in memory: there is one of that name again, and it is another one.
    let Setup { whole, .. } = pool::three_volumes();
    let whole = whole.replace("cores = [0]", "cores = [0]\nkeeper = true");
    with_node(env, &Setup { whole, ..Setup::default() }, |node| {
        let args =
            ["--rw", "randrw", "--bs", "4KiB", "--qd", "8", "--verify", "crc32c", "--reconnect", "2s", "--time", "20s"];
        let load = Bench::start(env, &node.socket_target("v0.sock"), &args)?;
        std::thread::sleep(Duration::from_millis(700));
        node.kill_and_start()?;
        let ended = load.ended(Duration::from_secs(15))?;
        ensure(ended.status.code() == Some(1) && !ended.stderr.contains("verif"), || ended.describe())?;
        let said = node.process().stderr();
        ensure(said.contains("a volume that is no more"), || said)
    })
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
