//! `weir upgrade`: another program takes over while I/O runs; one that cannot leaves the one before it serving.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_sys::arena::{Arena, Schema};
use weir_sys::keeper_channel::{Channel, ToKeeper};

use super::{long, pool, test};
use crate::bench::{Bench, bench};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, Setup, host_nqn, program, text, with_node};
use crate::process::{Process, until};
use crate::raw::nvme_tcp::{self, Data, Host};
use crate::raw::vhost_user::{Front, STATUS, message, pair, request};
use crate::systemd::Store;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "upgrade";
    vec![
        test(S, "a_new_program_has_what_the_old_one_had", stays),
        test(S, "what_cannot_serve_is_refused_and_nobody_notices", refused),
        test(S, "what_fails_after_it_took_over_is_replaced", taken_back),
        test(S, "a_node_on_probation_ends_as_any_other", ends),
        test(S, "a_worker_that_is_not_the_owner_ends", disowned),
        test(S, "systemd_keeps_what_a_killed_keeper_held", systemd),
        test(S, "hosts_stay_connected", |env| upgrades(env, "ram", 5)),
        long(S, "hosts_of_a_file_stay_connected", |env| upgrades(env, "file", 3)),
        test(S, "the_keeper_goes_on_in_the_middle_of_a_message", renews),
        test(S, "a_keeper_that_cannot_be_taken_over_stays", not_renewed),
        long(S, "what_does_not_end_is_not_handed_over", not_quiet),
        test(S, "what_is_begun_is_complete_when_it_was_due", |env| begun(env, 2)),
        test(S, "what_volumes_have_begun_is_complete_when_it_was_due", volumes_begun),
        long(S, "what_is_begun_for_7_s_is_complete_when_it_was_due", |env| begun(env, 7)),
        test(S, "volumes_on_two_cores_serve_on", volumes),
        test(S, "what_a_host_waits_for_goes_on", waits),
        test(S, "from_the_program_before_the_last_change", from_before),
        long(S, "hosts_stay_connected_over_100_upgrades", |env| upgrades(env, "ram", 100)),
    ]
}

fn kept(setup: Setup) -> Setup {
    Setup { node: "keeper = true".into(), ..setup }
}

const REGION: [&str; 4] = ["--region", "4MiB", "--verify", "crc32c"];

fn write(env: &Env, target: &str) -> Outcome {
    let args = ["--rw", "write", "--bs", "64KiB", "--time", "200ms"];
    bench(env, target, &[&args[..], &REGION[..]].concat())?.clean()
}

fn read(env: &Env, target: &str) -> Outcome {
    let args = ["--rw", "read", "--bs", "64KiB", "--time", "500ms"];
    bench(env, target, &[&args[..], &REGION[..]].concat())?.clean()
}

/// What the binary says to a keeper once it is prepared: the layouts that it knows.
pub(super) fn layouts(env: &Env, config: &Path) -> Result<String, String> {
    let (channel, theirs) = Channel::pair().context(|| "a channel".into())?;
    let mut worker = Command::new(&env.weir)
        .args(["worker", "-c", &text(config)])
        .stdin(Stdio::from(theirs))
        .stderr(Stdio::null())
        .spawn()
        .context(|| "weir worker".into())?;
    let heard = until(Duration::from_secs(10), "a worker is prepared", || channel.hear().map_err(|e| e.to_string()));
    let _ = (worker.kill(), worker.wait());
    match heard? {
        (ToKeeper::Prepared(layouts), _) => Ok(layouts),
        (word, _) => Err(format!("a worker begins with {word:?}")),
    }
}

/// `weir upgrade` with these arguments has to fail and to say that; the status as JSON.
fn fails(node: &Node, args: &[&str], part: &str) -> Outcome {
    let finished = node.cli(&[&["upgrade"], args].concat())?;
    let said = || format!("{args:?}: {}\n{}", finished.describe(), node.log());
    ensure(finished.status.code() == Some(1), said)?;
    ensure(finished.stderr.contains(part), said)
}

/// Data, changes, listeners; the file that the node was started from is replaced by another one.
fn stays(env: &Env) -> Outcome {
    with_node(env, &kept(Setup::default().socket("gold.sock").vfio("pci.sock", "")), |node| {
        let targets = [node.tcp_target(), node.socket_target("gold.sock"), node.vfio_target("pci.sock")];
        write(env, &targets[0])?;
        node.cli_ok(&["tenant", "add", "late", "--class", "low", "--host", &host_nqn("late")])?;
        // A file of its own, which is gone afterwards: what runs is held open.
        let copy = node.dir.join("weir-2");
        for (i, args) in [vec![], vec!["--binary", "weir-2"], vec!["--probation", "300ms"]].into_iter().enumerate() {
            std::fs::copy(&env.weir, &copy).context(|| text(&copy))?;
            let before = node.worker()?;
            let probation: &[&str] = if i == 2 { &[] } else { &["--probation", "0s"] };
            let said = node.cli_ok(&[&["upgrade", "--json"], &args[..], probation].concat())?;
            let said: Value = serde_json::from_str(&said).context(|| said.clone())?;
            let of = |key: &str| said[key].as_u64().unwrap_or(0);
            ensure(said["state"] == "upgraded" && of("number") == i as u64 + 1 && of("take_over_ns") > 0, || {
                said.to_string()
            })?;
            ensure(said["binary"].as_str().is_some_and(|b| b.ends_with("weir-2")) == (i == 1), || said.to_string())?;
            std::fs::remove_file(&copy).context(|| text(&copy))?;
            until(Duration::from_secs(5), "the old worker ends", || Ok((node.worker()? != before).then_some(())))?;
            for target in &targets {
                read(env, target).map_err(|e| format!("{target} after upgrade {i}: {e}"))?;
            }
            ensure(node.cli_ok(&["tenant", "ls"])?.contains("late"), || "a tenant is lost".into())?;
        }
        Ok(())
    })
}

/// Every program that cannot serve, while a host writes and verifies: it sees nothing.
fn refused(env: &Env) -> Outcome {
    let alone = Node::start(env, &Setup { node: "keeper = false".into(), ..Setup::default() })?;
    fails(&alone, &[], "the node has no keeper")?;
    alone.stop()?;
    with_node(env, &kept(Setup::default()), |node| {
        let (dir, before) = (node.dir.clone(), node.worker()?);
        let plain = dir.join("plain");
        std::fs::write(&plain, "x").context(|| text(&plain))?;
        let other = program(&dir, "other", "printf '\\000arena=7 keeper=1' >&0; exec sleep 20")?;
        let hangs = program(&dir, "hangs", "exec sleep 20")?;
        let babbles = program(&dir, "babbles", "printf '\\377x' >&0; exec sleep 20")?;
        let args = ["--rw", "randrw", "--bs", "4KiB", "--qd", "8", "--time", "5s"];
        let mut load = Bench::start(env, &node.tcp_target(), &[&args[..], &REGION[..]].concat())?;
        for (binary, more, part) in [
            ("nothing-there", vec![], "nothing-there: No such file"),
            (".", vec![], "is no file"),
            ("plain", vec![], "cannot be executed"),
            ("/bin/false", vec![], "ended with status 1 before it took over"),
            ("/bin/true", vec![], "ended before it took over"),
            (&text(&other), vec![], "does not fit: what is there has layout 1 of arena, and it reads 7"),
            (&text(&babbles), vec![], "before it took over"),
            (&text(&hangs), vec!["--within", "300ms"], "did not get ready in time"),
        ] {
            fails(node, &[&["--binary", binary], &more[..]].concat(), part)?;
            ensure(node.worker()? == before, || format!("{binary}: another worker serves"))?;
        }
        // A second one at once, and one that is no time.
        let api = format!("unix:{}", node.api().display());
        let first = ["upgrade", "--binary", &text(&hangs), "--within", "1s", "--api", &api].map(str::to_owned);
        let first = Process::start(&dir, "first", &env.weir, first)?;
        until(Duration::from_secs(5), "the first one is under way", || Ok(open(node).then_some(())))?;
        fails(node, &[], "is under way; wait for its end")?;
        let first = first.wait(Duration::from_secs(10))?;
        ensure(first.stderr.contains("did not get ready in time"), || first.describe())?;
        let wrong = node.cli(&["upgrade", "--within", "soon"])?;
        ensure(wrong.status.code() == Some(2), || wrong.describe())?;
        ensure(load.process().running(), || "the load has ended".into())?;
        load.finish()?.clean()
    })
}

/// Whether an upgrade is under way.
fn open(node: &Node) -> bool {
    http::get(&node.api(), "/v1/upgrade").is_ok_and(|now| now["state"] == "preparing")
}

/// It takes over and hangs, or dies while it takes over, or a moment after it serves: the old program serves, with its data.
fn taken_back(env: &Env) -> Outcome {
    with_node(env, &kept(Setup::default().vfio("pci.sock", "")), |node| {
        let target = node.tcp_target();
        write(env, &target)?;
        // Prepared, and warm.
        let said = format!("printf '\\000{}' >&0; printf '\\011' >&0", layouts(env, &node.dir.join("weir.toml"))?);
        let weir = text(&env.weir);
        for (name, within, script, part) in [
            ("hangs", "700ms", format!("{said}; exec sleep 20"), "did not get ready in time"),
            ("dies", "10s", format!("{said}; sleep 0.5; exit 7"), "ended with status 7 after it took over"),
            // The real one, which somebody kills when it has served for a moment.
            (
                "late",
                "10s",
                format!("exec 3<&0; '{weir}' \"$@\" <&3 & sleep 1; kill -9 $!; exit 9"),
                "ended with status 9 after it took over",
            ),
        ] {
            let path = program(&node.dir, name, &script)?;
            // Clients that nobody has taken over are the old program's again.
            let args =
                ["--rw", "randrw", "--qd", "4", "--verify", "crc32c", "--region", "4MiB+4MiB", "--time", "2500ms"];
            let load =
                if name == "late" { None } else { Some(Bench::start(env, &node.vfio_target("pci.sock"), &args)?) };
            std::thread::sleep(Duration::from_millis(300));
            fails(node, &["--binary", &text(&path), "--within", within], part)?;
            load.map_or(Ok(()), |load| load.finish()?.clean().map_err(|e| format!("{name}: {e}")))?;
            read(env, &target).map_err(|e| format!("{name}: {e}"))?;
        }
        let said = http::get(&node.api(), "/v1/upgrade")?;
        ensure(said["state"] == "rolled-back" && said["number"] == 3, || said.to_string())?;
        node.cli_ok(&["upgrade", "--probation", "0s"])?;
        read(env, &target)
    })
}

/// Hosts write and verify over NVMe/TCP, with digests and without, and a front end over vhost-user, while one upgrade follows the other:
/// none of them connects again, and the hosts' controllers stay what they are. The keeper goes on as the new program each time.
fn upgrades(env: &Env, media: &str, count: u64) -> Outcome {
    let file = env.weir.parent().ok_or("no folder")?.join(format!("e2e-upgrade-{}.img", std::process::id()));
    let media = if media == "file" { format!("file:{}", file.display()) } else { media.into() };
    let setup = Setup { media, capacity: "64MiB".into(), ..kept(Setup::default().socket("gold.sock")) };
    let result = with_node(env, &setup, |node| under_load(env, node, count));
    for suffix in ["", ".nvme"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
    result
}

/// From the program that `tests/before.sh` has built, that of before the newest change to what ships, to the one under test: hosts of both
/// doors write and verify meanwhile. One whose layouts differ is refused, as [`refused`] tests; what fixtures of older ones do is in `layouts`.
fn from_before(env: &Env) -> Outcome {
    let folder = env.weir.ancestors().nth(2).ok_or("no folder")?.join("before");
    let before = folder.join("weir");
    if !before.is_file() {
        let why = std::fs::read_to_string(folder.join("none"));
        env.skip(why.map_or_else(|_| "tests/before.sh has not built it".into(), |why| why.trim().to_owned()));
        return Ok(());
    }
    let setup = kept(Setup::default().socket("gold.sock"));
    let setup = Setup { capacity: "64MiB".into(), program: Some(before.clone()), ..setup };
    let upgraded = with_node(env, &setup, |node| {
        ensure(node.program()? == before, || format!("{:?} runs", node.program()))?;
        under_load(env, node, 2)
    });
    match upgraded {
        Err(why) if why.contains("does not fit: ") => {
            env.skip(format!("the layouts differ: {}", why.lines().next().unwrap_or_default()));
            Ok(())
        }
        other => other,
    }
}

fn under_load(env: &Env, node: &mut Node, count: u64) -> Outcome {
    let (target, socket) = (node.tcp_target(), node.socket_target("gold.sock"));
    // Longer than the upgrades take on a machine that is busy with something else.
    let time = format!("{}s", 10 + count);
    let load = |target: &str, depth: &str, more: &[&str]| {
        let args = ["--rw", "randrw", "--qd", depth, "--verify", "crc32c", "--time", &time];
        Bench::start(env, target, &[&args[..], more].concat())
    };
    let mut loads = vec![
        load(&target, "8", &["--bs", "4KiB:70/64KiB:30", "--region", "8MiB"])?,
        load(&target, "4", &["--bs", "4KiB:50/128KiB:50", "--region", "8MiB+8MiB", "--digests", "hdr,data"])?,
        load(&socket, "4", &["--bs", "4KiB", "--region", "16MiB+8MiB"])?,
    ];
    std::thread::sleep(Duration::from_millis(500));
    // Identifiers are given out in turn: a host that had connected again would have another one.
    let controllers = |node: &Node| -> Result<Vec<Value>, String> {
        let status = http::get(&node.api(), "/v1/status")?;
        let clients = status["devices"][0]["clients"].as_array().cloned().unwrap_or_default();
        let hosts = clients.iter().filter(|c| c["host"].as_str().is_some_and(|host| host.starts_with("nqn.")));
        Ok(hosts
            .map(|c| Value::Array(vec![c["controller"].clone(), c["queues"].clone(), c["ready"].clone()]))
            .collect())
    };
    let before = until(Duration::from_secs(10), "two hosts have their queues", || {
        let now = controllers(node)?;
        Ok((now.len() == 2 && now.iter().all(|host| host[1] == 1)).then_some(now))
    })?;
    let (mut out, mut over, mut renewed) = (Vec::new(), Vec::new(), Vec::new());
    let (pid, mut descriptors) = (node.process().pid(), 0);
    for i in 0..count {
        // A file of its own each time.
        let copy = node.dir.join(format!("weir-{}", i % 2));
        let _ = std::fs::remove_file(&copy);
        std::fs::hard_link(&env.weir, &copy)
            .or_else(|_| std::fs::copy(&env.weir, &copy).map(|_| ()))
            .context(|| text(&copy))?;
        let said = node.cli_ok(&["upgrade", "--binary", &text(&copy), "--probation", "0s", "--json"])?;
        let said: Value = serde_json::from_str(&said).context(|| said.clone())?;
        ensure(said["renew_ns"].as_f64().is_some_and(|n| n > 0.0), || format!("{said}\n{}", node.log()))?;
        ensure(node.process().pid() == pid && node.program()? == copy, || text(&copy))?;
        renewed.push(said["renew_ns"].as_f64().unwrap_or(0.0) / 1e6);
        if i == 0 {
            descriptors = settled(node)?;
        }
        out.push(said["hand_over_ns"].as_f64().unwrap_or(0.0) / 1e6);
        over.push(said["take_over_ns"].as_f64().unwrap_or(0.0) / 1e6);
        let after = controllers(node)?;
        // On a busy machine the loads' time may be over before all is done; most has to be.
        if !loads.iter_mut().all(|load| load.process().running()) && i >= count / 2 {
            break;
        }
        ensure(after == before, || format!("upgrade {i}: before {before:?}, after {after:?}"))?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let after = settled(node)?;
    ensure(after <= descriptors, || format!("{descriptors} descriptors after one upgrade, {after} after all"))?;
    for list in [&mut out, &mut over, &mut renewed] {
        list.sort_by(f64::total_cmp);
    }
    let middle = out.len() / 2;
    println!(
        "    {} upgrades: handed over in {:.1} ms, taken over in {:.1} ms, keeper renewed in {:.1} ms (medians)",
        out.len(),
        out[middle],
        over[middle],
        renewed[middle]
    );
    loads.into_iter().try_for_each(|load| load.finish()?.clean())
}

/// Descriptors of the keeper, once the worker before has ended.
fn settled(node: &Node) -> Result<usize, String> {
    std::thread::sleep(Duration::from_millis(300));
    node.descriptors()
}

/// A front end that is in the middle of a message while the keeper goes on as another program, with a ring that runs: it is answered, and a
/// worker that dies afterwards is followed by one that knows all that it has said.
fn renews(env: &Env) -> Outcome {
    let setup = Setup { node: "keeper = true\nstandby = true".into(), ..Setup::default().socket("gold.sock") };
    with_node(env, &setup, |node| {
        let target = node.tcp_target();
        write(env, &target)?;
        let mut front = Front::ready(&node.socket("gold.sock"))?;
        ensure(front.read_sector()? == 0, || "a read".into())?;
        let asked = message(request::GET_CONFIG, 0, &[&pair(0, 8)[..], &[0; 4], &[0; 8]].concat());
        for cut in [1, 11, 12, 13, asked.len() - 1] {
            front.send(&asked[..cut], &[])?;
            std::thread::sleep(Duration::from_millis(20));
            let copy = node.dir.join(format!("weir-{cut}"));
            std::fs::copy(&env.weir, &copy).context(|| text(&copy))?;
            let old = node.worker()?;
            node.cli_ok(&["upgrade", "--binary", &text(&copy), "--probation", "0s"])?;
            until(Duration::from_secs(5), "the old worker ends", || Ok((node.worker()? != old).then_some(())))?;
            ensure(node.program()? == copy, || format!("{:?}", node.program()))?;
            front.send(&asked[cut..], &[])?;
            let config = front.reply(request::GET_CONFIG).map_err(|e| format!("cut at {cut}: {e}"))?;
            ensure(config[12..] == (256u64 << 11).to_le_bytes(), || format!("cut at {cut}: {config:?}"))?;
            ensure(front.read_sector()? == 0, || "a read after an upgrade".into())?;
            let before = node.worker()?;
            node.kill_worker()?;
            ensure(front.read_sector()? == 0, || "a read after a death".into())?;
            // The kernel may have it among the children for a moment after its successor has answered.
            until(Duration::from_secs(5), "another worker", || Ok((node.worker()? != before).then_some(())))?;
        }
        read(env, &target)
    })
}

/// A program that serves and cannot take the keeper over: it says so, stands between, or is an older one that knows no such thing. The keeper
/// stays what it is and does what it did.
fn not_renewed(env: &Env) -> Outcome {
    with_node(env, &kept(Setup::default()), |node| {
        let (target, weir, before) = (node.tcp_target(), text(&env.weir), node.program()?);
        write(env, &target)?;
        for (name, script) in [
            ("refuses", format!("[ \"$1\" = keeper ] && exit 1\nexec '{weir}' \"$@\"")),
            ("between", format!("if [ \"$1\" = keeper ]; then '{weir}' \"$@\"; exit $?; fi\nexec '{weir}' \"$@\"")),
            ("crashes", format!("[ \"$1\" = keeper ] && kill -SEGV $$\nexec '{weir}' \"$@\"")),
        ] {
            let path = program(&node.dir, name, &script)?;
            let said = node.cli_ok(&["upgrade", "--binary", &text(&path), "--probation", "0s", "--json"])?;
            let said: Value = serde_json::from_str(&said).context(|| said.clone())?;
            let reason = said["keeper"].as_str().is_some_and(|why| why.contains("cannot take over the keeper"));
            ensure(said["state"] == "upgraded" && reason && said["renew_ns"].is_null(), || said.to_string())?;
            ensure(node.program()? == before, || format!("{name}: {:?}", node.program()))?;
            node.kill_worker()?;
            read(env, &target).map_err(|e| format!("{name}: {e}"))?;
        }
        // By hand it is no program for anybody.
        let said = node.cli(&["keeper"])?;
        ensure(said.status.code() == Some(1) && said.stderr.contains("not the state of a keeper"), || said.describe())?;
        let said = node.cli_ok(&["upgrade", "--probation", "0s"])?;
        ensure(said.contains("the keeper went on as the new program"), || said.clone())?;
        read(env, &target)
    })
}

/// A command that takes longer than a hand-over may and cannot be carried: the worker has not left, the next one waits for the end of its process,
/// and its host connects again. A front end's request is submitted again.
fn not_quiet(env: &Env) -> Outcome {
    with_node(env, &kept(Setup::default().socket("gold.sock").device("latency = \"6s\"")), |node| {
        let (_admin, cntlid) = Host::admin(node.address(), &host_nqn("gold"), 0)?;
        let mut queue = Host::io_queue(node.address(), &host_nqn("gold"), cntlid, 1)?;
        let mut front = Front::ready(&node.socket("gold.sock"))?;
        front.begin_read()?;
        let uncorrectable = nvme_tcp::sqe(4, 7, 1, [8, 0, 0, 0, 0, 0], Data::None);
        queue.send(&nvme_tcp::capsule(&uncorrectable, Data::None))?;
        std::thread::sleep(Duration::from_millis(100));
        node.cli_ok(&["upgrade", "--probation", "0s"])?;
        let said = node.process().stderr();
        ensure(said.contains("have not finished what is in flight"), || said.clone())?;
        ensure(!said.contains("is the owner"), || said.clone())?;
        let answers = queue.until_closed()?;
        ensure(answers.is_empty(), || "a worker that was not quiet has answered".into())?;
        let used = front.completion(Duration::from_secs(10))?.ok_or("the front end's request is lost")?;
        ensure(used == (0, 513) && front.get::<1>(STATUS)?[0] == 0, || format!("{used:?}"))?;
        ensure(front.completion(Duration::from_millis(100))?.is_none(), || "completed twice".into())
    })
}

/// Upgrades in each of which commands are on the way.
const ROUNDS: u16 = 3;

/// What hosts use in upgrades.
struct Used {
    setup: Setup,
    nqn: String,
    socket: &'static str,
    /// Blocks from its beginning to where every second command goes: a place on another drive, if there is one.
    far: u32,
    /// What is sent earlier is complete earlier.
    is_in_order: bool,
}

impl Used {
    /// A drive.
    fn drive(media: Option<&str>, latency: Duration) -> Self {
        let mut setup = kept(Setup::default().socket("gold.sock").device(&latency_key(latency)));
        if let Some(media) = media {
            setup.media = media.into();
        }
        Used { setup, nqn: crate::node::NQN.into(), socket: "gold.sock", far: 4096, is_in_order: true }
    }

    /// A volume on two drives, of that many cores; `copies` says the rest of it.
    fn volume(cores: u32, copies: &str, latency: Duration) -> Self {
        let own = ["cores = [0]\nkeeper = true", "cores = [0, 1]\nkeeper = true"][cores as usize - 1];
        let size = if copies.is_empty() { "100MiB" } else { "40MiB" };
        let drive = |name| pool::device(name, &format!("capacity = \"64MiB\"\n{}", latency_key(latency)));
        let whole = pool::head().replace("cores = [0]", own)
            + &drive("d0")
            + &drive("d1")
            + &pool::volume("wide", "gold", size, "\"vhost-user:wide.sock\", \"nvme-tcp\"")
            + copies;
        let far = if copies.is_empty() { 80 << 11 } else { 30 << 11 };
        Used {
            setup: pool::setup(whole),
            nqn: pool::nqn("wide"),
            socket: "wide.sock",
            far,
            is_in_order: copies.is_empty(),
        }
    }

    /// The block that a round's command goes to.
    fn lba(&self, n: u32) -> u32 {
        n * 8 + if n % 2 == 1 { self.far } else { 0 }
    }
}

fn latency_key(latency: Duration) -> String {
    format!("latency = \"{}s\"", latency.as_secs())
}

/// For how long nobody was served, by upgrade, on a drive with that latency that has reads and writes over NVMe/TCP and a front end's read in
/// flight. Each is complete once and not before its time, and a read that was sent behind a write finds what was written.
fn blackouts(env: &Env, latency: Duration, used: &Used) -> Result<Vec<f64>, String> {
    let (mut out, mut ends) = (Vec::new(), Vec::new());
    with_node(env, &used.setup, |node| {
        let (_admin, cntlid) = Host::admin_of(&used.nqn, node.address(), &host_nqn("gold"), 0)?;
        let mut queue = Host::io_queue_of(&used.nqn, node.address(), &host_nqn("gold"), cntlid, 1)?;
        queue.stream().set_read_timeout(Some(latency * 12 + Duration::from_secs(20))).context(|| "a limit".into())?;
        let mut front = Front::ready(&node.socket(used.socket))?;
        // Where there are two copies, the first write of a region waits for the pool's metadata.
        queue.send(&nvme_tcp::io(1, 99, used.lba(0), 1, Data::InCapsule(&[0; 512])))?;
        queue.success()?;
        let asked = Instant::now();
        front.begin_read()?;
        let mut sent = Vec::new();
        for round in 0..ROUNDS {
            for i in 0..4u16 {
                let (cid, n) = (round * 8 + i * 2, u32::from(round * 4 + i));
                sent.push(Instant::now());
                queue.send(&nvme_tcp::io(1, cid, used.lba(n), 1, Data::InCapsule(&[cid as u8 + 1; 512])))?;
                // Of a write of the round before, which is complete before it is read.
                sent.push(Instant::now());
                queue.send(&nvme_tcp::io(2, cid + 1, used.lba(n.saturating_sub(4)), 1, Data::Transport(512)))?;
            }
            std::thread::sleep(Duration::from_millis(50));
            let said = node.cli_ok(&["upgrade", "--probation", "0s", "--json"])?;
            let said: Value = serde_json::from_str(&said).context(|| said.clone())?;
            let ms = |key: &str| said[key].as_f64().unwrap_or(0.0) / 1e6;
            out.push(ms("hand_over_ns") + ms("take_over_ns"));
        }
        let mut read = Vec::new();
        while ends.len() < sent.len() {
            let pdu = queue.receive()?.ok_or_else(|| format!("the queue has gone\n{}", node.log()))?;
            if pdu.kind == nvme_tcp::kind::C2H_DATA {
                let cid = pdu.u16(8);
                ensure(!read.contains(&cid), || format!("data of {cid} twice"))?;
                let wrote = if cid >= 8 { cid as u8 - 8 } else { 0 };
                let data = &pdu.bytes[pdu.bytes.len() - 512..];
                let is = |byte: u8| data.iter().all(|b| *b == byte);
                // Where writes wait for a copy that is rebuilt, they are not complete before what was sent later.
                let fits = cid < 8 || is(wrote) || !used.is_in_order && is(0);
                ensure(fits, || format!("{cid}: {:02x?}", &data[..4]))?;
                read.push(cid);
                continue;
            }
            let (cid, now) = (pdu.cid(), Instant::now());
            ensure(pdu.kind == nvme_tcp::kind::RESPONSE && pdu.status() == 0, || format!("{pdu:02x?}"))?;
            ensure(!ends.contains(&cid), || format!("{cid} is complete twice"))?;
            let took = now - sent[usize::from(cid)];
            // The drive's clock is read once a turn, and the turn may have been interrupted.
            ensure(took >= latency.mul_f64(0.9), || format!("{cid} took {took:?}"))?;
            ends.push(cid);
        }
        ensure(read.len() == ends.len() / 2, || format!("data of {read:?}"))?;
        for n in 0..ROUNDS * 4 {
            queue.send(&nvme_tcp::io(2, n, used.lba(n.into()), 1, Data::Transport(512)))?;
        }
        for _ in 0..ROUNDS * 8 {
            let pdu = queue.receive()?.ok_or("the queue has gone")?;
            if pdu.kind == nvme_tcp::kind::C2H_DATA {
                let n = pdu.u16(8);
                ensure(pdu.bytes.ends_with(&[n as u8 * 2 + 1; 512]), || format!("{n} was acknowledged, and is lost"))?;
            } else {
                ensure(pdu.status() == 0, || format!("{pdu:02x?}"))?;
            }
        }
        let used = front.completion(Duration::from_secs(20))?.ok_or("the front end's request is lost")?;
        ensure(asked.elapsed() >= latency.mul_f64(0.9), || format!("a front end's read took {:?}", asked.elapsed()))?;
        ensure(used == (0, 513) && front.get::<1>(STATUS)?[0] == 0, || format!("{used:?}"))?;
        ensure(front.completion(Duration::from_millis(50))?.is_none(), || "completed twice".into())
    })?;
    out.sort_by(f64::total_cmp);
    Ok(out)
}

/// The blackout of an upgrade does not depend on what the drive has begun.
fn begun(env: &Env, latency: u64) -> Outcome {
    // What a file has been given already is waited for: 20 ms of the modelled time.
    let drive = |media: Option<&'static str>| move |latency| Used::drive(media, latency);
    does_not_depend_on_latency(env, latency, ("memory", 0.0), drive(None))?;
    does_not_depend_on_latency(env, latency, ("a file", 25.0), drive(Some("file:ssd0.img")))
}

/// The same of volumes, whose commands are at drives of one core or of two.
fn volumes_begun(env: &Env) -> Outcome {
    let twice = "[[pool]]\nname = \"pool0\"\ncopies = 2\n";
    let volume = |cores, copies| move |latency| Used::volume(cores, copies, latency);
    does_not_depend_on_latency(env, 2, ("a volume on two drives", 0.0), volume(1, ""))?;
    does_not_depend_on_latency(env, 2, ("a volume on drives of two cores", 0.0), volume(2, ""))?;
    does_not_depend_on_latency(env, 2, ("a volume with two copies", 0.0), volume(1, twice))
}

fn does_not_depend_on_latency(
    env: &Env,
    latency: u64,
    (what, waited): (&str, f64),
    used: impl Fn(Duration) -> Used,
) -> Outcome {
    let without = blackouts(env, Duration::ZERO, &used(Duration::ZERO))?;
    let with = blackouts(env, Duration::from_secs(latency), &used(Duration::from_secs(latency)))?;
    let (one, other) = (without[without.len() / 2], with[with.len() / 2]);
    println!(
        "    {what}: nobody was served for {other:.1} ms with {latency} s of latency, for {one:.1} ms without (medians)"
    );
    ensure(other < 20.0 * one + waited, || format!("{what}: {with:?} ms with latency, {without:?} ms without"))
}

/// Volumes on drives of two cores, at a front end, over NVMe/TCP and as a PCIe drive; afterwards they are still the pool's.
fn volumes(env: &Env) -> Outcome {
    let Setup { whole, .. } = pool::three_volumes();
    let whole = whole.replace("cores = [0]", "cores = [0, 1]\nkeeper = true");
    with_node(env, &Setup { whole, ..Setup::default() }, |node| {
        let tcp = format!("nvme-tcp://127.0.0.1:{}/{}?ns=1", node.port, pool::nqn("wide"));
        let load = |target: &str, job: &str| {
            let job = format!("name=j,rw=randrw,qd=8{job}");
            Bench::start(
                env,
                target,
                &["--job", &job, "--bs", "4KiB:50/64KiB:50", "--verify", "crc32c", "--time", "9s"],
            )
        };
        let mut loads = vec![
            load(&node.socket_target("v0.sock"), "")?,
            load(&tcp, &format!(",region=32MiB,host={}", host_nqn("silver")))?,
        ];
        loads.push(load(&node.vfio_target("wide-pci.sock"), ",region=32MiB+32MiB")?);
        std::thread::sleep(Duration::from_millis(500));
        for i in 0..3 {
            node.cli_ok(&["upgrade", "--probation", "0s"])?;
            node.cli_ok(&["volume", "resize", "v1", &format!("{}MiB", 11 + i)])?;
            ensure(loads.iter_mut().all(|load| load.process().running()) || i == 2, || "a load has ended".into())?;
        }
        loads.into_iter().try_for_each(|load| load.finish()?.clean())?;
        let status = node.cli_ok(&["pool", "status"])?;
        ensure(status.contains("3 volumes"), || status.clone())
    })
}

/// An Asynchronous Event Request, a capsule of which half was sent, and the keep-alive timer of a host go to the next program with its
/// connections: the event is told, the command is answered, and who says nothing any more is found out.
fn waits(env: &Env) -> Outcome {
    const SET_FEATURES: u8 = 0x09;
    const ASYNC_EVENT: u8 = 0x0c;
    const KEEP_ALIVE: u8 = 0x18;
    let Setup { whole, .. } = pool::three_volumes();
    let whole = whole.replace("cores = [0]", "cores = [0]\nkeeper = true");
    with_node(env, &Setup { whole, ..Setup::default() }, |node| {
        let (nqn, host) = (pool::nqn("v0"), host_nqn("gold"));
        let (mut admin, cntlid) = Host::admin_of(&nqn, node.address(), &host, 4_000)?;
        admin.stream().set_read_timeout(Some(Duration::from_secs(15))).context(|| "a limit".into())?;
        let mut queue = Host::io_queue_of(&nqn, node.address(), &host, cntlid, 1)?;
        let command =
            |opcode, cid, dwords| nvme_tcp::capsule(&nvme_tcp::sqe(opcode, cid, 0, dwords, Data::None), Data::None);
        // Notices of namespaces that change are wanted.
        admin.send(&command(SET_FEATURES, 76, [0x0b, 0x100, 0, 0, 0, 0]))?;
        admin.success()?;
        admin.send(&command(ASYNC_EVENT, 77, [0; 6]))?;
        for i in 0..4u16 {
            let read = nvme_tcp::io(2, 40 + i, 0, 1, Data::Transport(512));
            let (first, rest) = read.split_at([1, 8, 40, 71][usize::from(i)]);
            queue.send(first)?;
            node.cli_ok(&["upgrade", "--probation", "0s"])?;
            admin.send(&command(KEEP_ALIVE, i, [0; 6]))?;
            ensure(admin.success()?.cid() == i, || format!("keep alive {i}"))?;
            queue.send(rest)?;
            queue.expect(nvme_tcp::kind::C2H_DATA)?;
            ensure(queue.success()?.cid() == 40 + i, || format!("read {i}"))?;
        }
        node.cli_ok(&["volume", "resize", "v0", "13MiB"])?;
        let event = admin.success()?;
        ensure(event.cid() == 77 && event.u32(8) == 0x0004_0002, || format!("{event:02x?}"))?;
        // The host says nothing any more.
        let (after, io) = (admin.until_closed()?, queue.until_closed()?);
        ensure(after.iter().all(|pdu| pdu.kind == nvme_tcp::kind::C2H_TERM) && io.is_empty(), || {
            format!("{after:02x?}")
        })
    })
}

/// Somebody else becomes the owner while a host waits for its reads: they are never answered, and the worker ends.
fn disowned(env: &Env) -> Outcome {
    with_node(env, &kept(Setup::default().device("latency = \"400ms\"")), |node| {
        let (_admin, cntlid) = Host::admin(node.address(), &host_nqn("gold"), 0)?;
        let mut queue = Host::io_queue(node.address(), &host_nqn("gold"), cntlid, 1)?;
        queue.send(&nvme_tcp::io(2, 7, 0, 1, Data::Transport(512)))?;
        std::thread::sleep(Duration::from_millis(100));
        let worker = node.worker()?;
        let folder = format!("/proc/{}/fd", worker.as_raw_nonzero());
        let is_owner =
            |file: &Path| std::fs::read_link(file).is_ok_and(|l| l.to_string_lossy().contains("memfd:weir-owner"));
        let files = std::fs::read_dir(&folder).context(|| folder.clone())?;
        let file = files.flatten().map(|f| f.path()).find(|f| is_owner(f)).ok_or("no word of the owner")?;
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&file).context(|| text(&file))?;
        let word = Arena::open(file.into(), Schema { name: "owner", version: 1 }).context(|| "the word".into())?;
        word.claim(word.epoch()).map_err(|e| format!("the epoch is {e}"))?;
        until(Duration::from_secs(5), "the worker ends", || Ok((node.worker()? != worker).then_some(())))?;
        // The admin queue may have been at rest, and goes on then.
        let answers = queue.until_closed()?;
        ensure(answers.is_empty(), || "a worker without ownership has answered".into())?;
        let said = node.process().stderr();
        ensure(said.contains("another worker is the owner"), || said.clone())?;
        bench(env, &node.tcp_target(), &["--time", "1s", "--qd", "1"])?.clean()
    })
}

/// The keeper gives systemd what it holds. Killed, and started again with that, the node has the data of its drive in memory and what was
/// changed; an orderly end takes everything back.
fn systemd(env: &Env) -> Outcome {
    let dir = env.folder()?;
    let mut store = Store::listen(&dir)?;
    let weir = store.program(env, &dir)?;
    let mut node = Node::start(env, &Setup { program: Some(weir), ..kept(Setup::default()) })?;
    let target = node.tcp_target();
    write(env, &target)?;
    node.cli_ok(&["tenant", "add", "late", "--class", "low", "--host", &host_nqn("late")])?;
    let said = store.hear();
    ensure(said == ["READY=1"], || format!("{said:?}"))?;
    ensure(store.kept.len() >= 6, || format!("{:?}", store.kept.keys()))?;
    store.forget_sockets();
    ensure(store.kept.len() == 4, || format!("{:?}", store.kept.keys()))?;
    store.program(env, &dir)?;
    // Neither another program nor a start that fails changes what is kept.
    renewed(&node)?;
    node.kill()?;
    let bind = || Ok(std::net::TcpListener::bind(node.address()).ok());
    let busy = until(Duration::from_secs(5), "the port is free", bind)?;
    let said = node.start_again().err().unwrap_or_default();
    ensure(said.contains("in use by"), || format!("started on a busy port: {said}"))?;
    drop(busy);
    store.hear();
    store.forget_sockets();
    ensure(store.kept.len() == 4, || format!("{:?}", store.kept.keys()))?;
    store.program(env, &dir)?;
    node.start_again()?;
    read(env, &target)?;
    ensure(node.cli_ok(&["tenant", "ls"])?.contains("late"), || "a tenant is lost".into())?;
    store.hear();
    Store::leave(env, &dir)?;
    node.stop()?;
    let said = store.hear();
    ensure(said == ["STOPPING=1"] && store.kept.is_empty(), || format!("{said:?} {:?}", store.kept.keys()))?;
    // Who listened may have gone by the time that the keeper is another program.
    let weir = store.program(env, &dir)?;
    let node = Node::start(env, &Setup { program: Some(weir), ..kept(Setup::default()) })?;
    write(env, &node.tcp_target())?;
    store.close()?;
    renewed(&node)?;
    read(env, &node.tcp_target())?;
    node.stop()
}

/// An upgrade after which the keeper goes on as the new program too.
fn renewed(node: &Node) -> Outcome {
    let said = node.cli_ok(&["upgrade", "--json", "--probation", "0s"])?;
    let status: Value = serde_json::from_str(&said).context(|| said.clone())?;
    ensure(status["renew_ns"].as_u64() > Some(0), || format!("{said}\n{}", node.log()))
}

/// SIGTERM and `weir shutdown` during the probation drain the new worker and end the node.
fn ends(env: &Env) -> Outcome {
    for how in ["term", "shutdown"] {
        let node = Node::start(env, &kept(Setup::default()))?;
        let api = format!("unix:{}", node.api().display());
        let asked = Process::start(&node.dir, "upgrade", &env.weir, ["upgrade", "--probation", "1min", "--api", &api])?;
        until(Duration::from_secs(10), "the new worker is on probation", || {
            let now = http::get(&node.api(), "/v1/upgrade").unwrap_or_default();
            Ok((now["state"] == "probation").then_some(()))
        })?;
        if how == "term" {
            node.stop()?;
        } else {
            node.cli_ok(&["shutdown"])?;
            node.finish()?;
        }
        drop(asked);
    }
    Ok(())
}
