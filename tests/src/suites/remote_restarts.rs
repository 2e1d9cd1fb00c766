//! A drive on another node's drive, and that node goes: killed, shut down, upgraded, stopped for longer than its keep alive, out of reach,
//! inaccessible. Verified load at the drive in front sees a pause and no error; a drive that is another one is refused by name.

use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use serde_json::Value;

use super::faults::block;
use super::pool::{self, device, head, volume};
use super::{libblkio, long, test};
use crate::bench::{Bench, bench};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{NQN, Node, Setup, host_nqn, with_node};
use crate::process::until;
use crate::proxy::Proxy;
use crate::raw::nvme_tcp::Host;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "remote_restarts";
    vec![
        test(S, "killed_over_tcp", |env| restarts(env, TCP, kill, 5)),
        test(S, "killed_over_vfio_user", |env| restarts(env, VFIO, kill, 5)),
        test(S, "shut_down_over_tcp", |env| restarts(env, TCP, shut_down, 3)),
        test(S, "shut_down_over_vfio_user", |env| restarts(env, VFIO, shut_down, 3)),
        test(S, "upgraded", |env| restarts(env, Front { keeper: true, unseen: true, ..TCP }, upgrade, 2)),
        test(S, "its_worker_killed", |env| restarts(env, Front { keeper: true, ..TCP }, kill_worker, 3)),
        test(S, "stopped_for_longer_than_its_keep_alive", stopped),
        test(S, "out_of_reach_in_silence", silent),
        test(S, "inaccessible_for_a_while", inaccessible),
        test(S, "another_drive_is_refused_by_name", another_drive),
        test(S, "resized_is_another_drive", resized),
        test(S, "errors_end_with_the_outage", errors_end),
        test(S, "a_pool_of_a_remote_and_a_local_drive", of_a_pool),
        test(S, "node_and_target_go_together", both),
        test(S, "qemu_writes_and_reads_through_restarts", qemu),
        long(S, "killed_500_times_over_tcp", |env| restarts(env, TCP, kill, 500)),
        long(S, "killed_500_times_over_vfio_user", |env| restarts(env, VFIO, kill, 500)),
    ]
}

/// How the target is reached, whether it has a keeper, and whether it goes without the drive in front losing its connection.
#[derive(Clone, Copy)]
struct Front {
    vfio: bool,
    keeper: bool,
    unseen: bool,
}

const TCP: Front = Front { vfio: false, keeper: false, unseen: false };
const VFIO: Front = Front { vfio: true, ..TCP };
const SOCKET: &str = "target.sock";
const LOAD: &str = "gold.sock";
/// How long anything here may take that is waited for.
const WAIT: Duration = Duration::from_secs(30);

/// A drive in a file, which outlives its node.
fn target(front: Front) -> Setup {
    let (node, device) = (format!("keeper = {}", front.keeper), "max_capacity = \"64MiB\"".into());
    let setup = Setup { media: "file:disk".into(), capacity: "32MiB".into(), node, device, ..Setup::default() };
    if front.vfio { setup.vfio(SOCKET, "") } else { setup }
}

fn behind(media: &str, keys: &str) -> Setup {
    let setup = Setup { media: format!("nvme:{media}"), capacity: "32MiB".into(), ..Setup::default() };
    setup.device(keys).socket(LOAD)
}

fn tcp(port: u16) -> String {
    format!("nvme-tcp://127.0.0.1:{port}/{NQN}?ns=1")
}

impl Front {
    fn media(self, target: &Node) -> String {
        if self.vfio { format!("{}?ns=1", target.vfio_target(SOCKET)) } else { tcp(target.port) }
    }
}

/// Writes and verifies for so long.
fn load(env: &Env, node: &Node, time: &str) -> Result<Bench, String> {
    let args = ["--rw", "randrw", "--bs", "4KiB:80/64KiB:20", "--qd", "16", "--region", "16MiB", "--verify", "crc32c"];
    let running = Bench::start(env, &node.socket_target(LOAD), &[&args[..], &["--time", time]].concat())?;
    until(WAIT, "the load writes", || {
        let status = http::get(&node.api(), "/v1/status")?;
        Ok((status["tenants"][0]["io"]["writes"].as_u64() > Some(50)).then_some(()))
    })?;
    Ok(running)
}

/// How the way to the drive behind is.
fn link(node: &Node) -> Result<Value, String> {
    Ok(http::get(&node.api(), "/v1/devices")?[0]["link"].clone())
}

/// Waits until the link is in a state.
fn await_link(node: &Node, state: &str) -> Result<Value, String> {
    let mut last = Value::Null;
    until(WAIT, &format!("the link is {state}"), || {
        last = link(node)?;
        Ok((last["state"] == state).then(|| last.clone()))
    })
    .map_err(|e| format!("{e}: {last}"))
}

fn kill(target: &mut Node, pause: Duration) -> Outcome {
    target.kill()?;
    std::thread::sleep(pause);
    target.start_again()
}

fn shut_down(target: &mut Node, pause: Duration) -> Outcome {
    target.process().signal(Signal::TERM)?;
    until(WAIT, "the target ends", || Ok((!target.process().running()).then_some(())))?;
    std::thread::sleep(pause);
    target.start_again()
}

fn upgrade(target: &mut Node, _: Duration) -> Outcome {
    target.cli_ok(&["upgrade", "--probation", "0s"]).map(|_| ())
}

fn kill_worker(target: &mut Node, _: Duration) -> Outcome {
    let before = target.worker()?;
    target.kill_worker()?;
    until(WAIT, "another worker", || Ok((target.worker()? != before).then_some(())))
}

/// Random moments; other ones in each run.
struct Moments(u64);

impl Moments {
    fn new() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self(since.map_or(1, |since| since.as_nanos() as u64))
    }

    fn next(&mut self, below_ms: u64) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis((self.0 >> 33) % below_ms)
    }
}

/// The target goes and comes back `count` times under verified load.
fn restarts(env: &Env, front: Front, restart: fn(&mut Node, Duration) -> Outcome, count: u32) -> Outcome {
    let (mut made, mut moments) = (0, Moments::new());
    while made < count {
        let mut behind_it = Node::start(env, &target(front))?;
        with_node(env, &behind(&front.media(&behind_it), ""), |node| {
            // What is left takes longer than any run of the load in a long test.
            let seconds = (3 + (count - made)).min(60);
            let mut running = load(env, node, &format!("{seconds}s"))?;
            while made < count && running.process().running() {
                restart(&mut behind_it, moments.next(400))?;
                made += 1;
                await_link(node, "serving")?;
                std::thread::sleep(moments.next(150));
            }
            running.finish()?.clean()?;
            ensure(front.unseen || link(node)?["outages"].as_u64() > Some(0), || "no outage was seen".into())?;
            ensure(!node.process().stderr().contains("commands fail"), || "commands have failed".into())
        })
        .map_err(|e| format!("after {made} restarts: {e}\ntarget: {}", behind_it.log()))?;
        behind_it.stop()?;
    }
    Ok(())
}

/// The node must not spin while it waits, which is compared with the time that passes.
fn rests(node: &Node, during: impl FnOnce() -> Outcome) -> Outcome {
    let (begun, before) = (Instant::now(), node.cpu_time()?);
    during()?;
    let (passed, used) = (begun.elapsed(), node.cpu_time()? - before);
    ensure(used < passed / 2, || format!("it used {used:?} of {passed:?} while it waited"))
}

const SHORT: &str = "keep_alive_tmo = \"1s\"\nfast_io_fail_tmo = \"30s\"";

fn stopped(env: &Env) -> Outcome {
    let mut behind_it = Node::start(env, &target(TCP))?;
    with_node(env, &behind(&tcp(behind_it.port), SHORT), |node| {
        let running = load(env, node, "6s")?;
        behind_it.process().signal(Signal::STOP)?;
        rests(node, || {
            std::thread::sleep(Duration::from_secs(3));
            Ok(())
        })?;
        let seen = link(node)?;
        behind_it.process().signal(Signal::CONT)?;
        ensure(seen["out_s"].as_f64() > Some(0.0), || format!("no outage was seen: {seen}"))?;
        await_link(node, "serving")?;
        running.finish()?.clean()
    })?;
    behind_it.stop()
}

/// Nothing comes through, in either direction, and no end is told.
fn silent(env: &Env) -> Outcome {
    let behind_it = Node::start(env, &target(TCP))?;
    let proxy = Proxy::start(behind_it.address(), Duration::ZERO)?;
    with_node(env, &behind(&tcp(proxy.port), SHORT), |node| {
        let running = load(env, node, "7s")?;
        proxy.freeze(true);
        rests(node, || {
            std::thread::sleep(Duration::from_secs(3));
            Ok(())
        })?;
        let seen = link(node)?;
        ensure(seen["out_s"].as_f64() > Some(0.0), || format!("no outage was seen: {seen}"))?;
        ensure(seen["held"].as_u64() > Some(0), || format!("nothing waits: {seen}"))?;
        proxy.freeze(false);
        await_link(node, "serving")?;
        running.finish()?.clean()
    })?;
    behind_it.stop()
}

/// ANA: the namespace's only path is inaccessible and comes back.
fn inaccessible(env: &Env) -> Outcome {
    let behind_it = Node::start(env, &target(TCP))?;
    with_node(env, &behind(&tcp(behind_it.port), ""), |node| {
        let say = |state: &str| behind_it.cli_ok(&["device", "set", "ssd0", "--ana", state]);
        let running = load(env, node, "4s")?;
        for state in ["optimized", "non-optimized"] {
            say("inaccessible")?;
            let seen = await_link(node, "inaccessible")?;
            ensure(
                seen["last_cause"]
                    .as_str()
                    .is_some_and(|cause| cause.contains("ANA state") || cause.contains("Access")),
                || seen.to_string(),
            )?;
            std::thread::sleep(Duration::from_millis(300));
            say(state)?;
            await_link(node, "serving")?;
        }
        running.finish()?.clean()?;
        // One that nobody uses hears of it as well.
        say("inaccessible")?;
        await_link(node, "inaccessible")?;
        say("optimized")?;
        await_link(node, "serving").map(|_| ())
    })?;
    behind_it.stop()
}

/// The queues of a host of the node.
fn queue(node: &Node) -> Result<(Host, Host), String> {
    let host = host_nqn("gold");
    let (admin, cntlid) = Host::admin(node.address(), &host, 0)?;
    Ok((admin, Host::io_queue(node.address(), &host, cntlid, 1)?))
}

/// Internal Path Error (SCT 3h, SC 00h).
const PATH_ERROR: u16 = 0x300;

/// A drive in memory is another one when its node was killed: its contents have gone.
fn another_drive(env: &Env) -> Outcome {
    let mut behind_it = Node::start(env, &Setup { capacity: "32MiB".into(), ..Setup::default() })?;
    with_node(env, &behind(&tcp(behind_it.port), ""), |node| {
        let (_admin, mut queue) = queue(node)?;
        ensure(block(&mut queue, 1, 1)? == 0, || "a good write fails".into())?;
        behind_it.kill_and_start()?;
        let mut cid = 1;
        until(WAIT, "commands fail", || {
            cid += 1;
            Ok((block(&mut queue, 2, cid)? & 0x7ff == PATH_ERROR).then_some(()))
        })?;
        let told = node.cli_ok(&["status"])?;
        ensure(told.contains("another drive is there: its NGUID is "), || told.clone())?;
        let said = node.process().stderr();
        ensure(said.matches("another drive is there").count() == 1, || format!("not told once: {said}"))
    })?;
    behind_it.stop()
}

fn resized(env: &Env) -> Outcome {
    let behind_it = Node::start(env, &target(TCP))?;
    with_node(env, &behind(&tcp(behind_it.port), ""), |node| {
        let (_admin, mut queue) = queue(node)?;
        ensure(block(&mut queue, 1, 1)? == 0, || "a good write fails".into())?;
        behind_it.cli_ok(&["device", "set", "ssd0", "--capacity", "48MiB"])?;
        until(WAIT, "the other size is refused", || {
            let told = node.cli_ok(&["status"])?;
            Ok(told.contains("another drive is there: it has 50331648 bytes, and the drive had 33554432").then_some(()))
        })?;
        ensure(block(&mut queue, 2, 2)? & 0x7ff == PATH_ERROR, || "a command does not fail".into())?;
        // The one of before comes back.
        behind_it.cli_ok(&["device", "set", "ssd0", "--capacity", "32MiB"])?;
        await_link(node, "serving")?;
        ensure(block(&mut queue, 2, 3)? == 0, || "a command fails when the drive is back".into())
    })?;
    behind_it.stop()
}

/// Without patience commands fail at once, and all is well when the target is back: commands, status, SMART.
fn errors_end(env: &Env) -> Outcome {
    let mut behind_it = Node::start(env, &target(TCP))?;
    with_node(env, &behind(&tcp(behind_it.port), "fast_io_fail_tmo = 0"), |node| {
        let (_admin, mut queue) = queue(node)?;
        ensure(block(&mut queue, 1, 1)? == 0, || "a good write fails".into())?;
        behind_it.kill()?;
        let mut cid = 1;
        until(WAIT, "commands fail", || {
            cid += 1;
            Ok((block(&mut queue, 2, cid)? & 0x7ff == PATH_ERROR).then_some(()))
        })?;
        let told = node.cli_ok(&["status"])?;
        ensure(told.contains("\nFAULT ssd0: ") && told.contains("\nLINK ssd0: "), || told.clone())?;
        behind_it.start_again()?;
        await_link(node, "serving")?;
        ensure(block(&mut queue, 2, cid + 1)? == 0, || "a command fails when the drive is back".into())?;
        let told = node.cli_ok(&["status"])?;
        ensure(!told.contains("FAULT") && !told.contains("LINK"), || told.clone())?;
        let metrics = http::request(&node.api(), "GET", "/metrics", None)?.1;
        for line in ["weir_device_link_up{device=\"ssd0\"} 1", "weir_device_link_outages_total{device=\"ssd0\"} 1"] {
            ensure(metrics.contains(line), || format!("no {line}: {metrics}"))?;
        }
        Ok(())
    })?;
    behind_it.stop()
}

fn of_a_pool(env: &Env) -> Outcome {
    let mut behind_it = Node::start(env, &target(TCP))?;
    let whole = head()
        + &device("far", &format!("media = \"nvme:{}\"", tcp(behind_it.port)))
        + &device("near", "media = \"file:near\"\ncapacity = \"32MiB\"")
        + "[[pool]]\nname = \"p\"\ndrives = [\"far\", \"near\"]\n"
        + &volume("wide", "gold", "40MiB", &format!("\"vhost-user:{LOAD}\""));
    with_node(env, &pool::setup(whole), |node| {
        let args = ["--rw", "randrw", "--bs", "4KiB", "--qd", "16", "--verify", "crc32c", "--time", "5s"];
        let running = Bench::start(env, &node.socket_target(LOAD), &args)?;
        let mut moments = Moments::new();
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(300) + moments.next(300));
            kill(&mut behind_it, moments.next(300))?;
        }
        running.finish()?.clean()?;
        ensure(link(node)?["outages"].as_u64() >= Some(4), || "outages were not seen".into())?;
        // Nor has anything else been lost.
        bench(env, &node.socket_target(LOAD), &["--rw", "randread", "--time", "200ms"])?.clean()
    })?;
    behind_it.stop()
}

/// The node's own worker dies while its target is away: the next one waits for the target, and the front end sees a pause.
fn both(env: &Env) -> Outcome {
    let mut behind_it = Node::start(env, &target(TCP))?;
    let setup = Setup { node: "keeper = true".into(), ..behind(&tcp(behind_it.port), "") };
    with_node(env, &setup, |node| {
        let running = load(env, node, "5s")?;
        behind_it.kill()?;
        node.kill_worker()?;
        // Longer than a keeper goes on with workers that die at their start.
        std::thread::sleep(Duration::from_secs(2));
        behind_it.start_again()?;
        running.finish()?.clean()
    })?;
    behind_it.stop()
}

/// QEMU's block layer writes patterns and reads them back while the target is killed.
fn qemu(env: &Env) -> Outcome {
    let mut behind_it = Node::start(env, &target(TCP))?;
    with_node(env, &behind(&tcp(behind_it.port), ""), |node| {
        let mut commands = Vec::new();
        for round in 0..12u32 {
            let each = |verb: &str| {
                (0..32).map(|i| format!("{verb} -q -P {} {}k 64k", (i + round) % 255 + 1, i * 64)).collect::<Vec<_>>()
            };
            commands.extend([each("aio_write"), vec!["aio_flush".into()], each("aio_read")].concat());
            commands.extend(["aio_flush".to_owned(), "sleep 200".to_owned()]);
        }
        std::thread::scope(|scope| {
            let client = scope.spawn(|| libblkio::qemu_io(env, node, &commands));
            let mut moments = Moments::new();
            while !client.is_finished() {
                kill(&mut behind_it, moments.next(300))?;
                std::thread::sleep(moments.next(300));
            }
            client.join().map_err(|_| "the client panicked")?.map(|_| ())
        })?;
        ensure(link(node)?["outages"].as_u64() > Some(0), || "no outage was seen".into())
    })?;
    behind_it.stop()
}
