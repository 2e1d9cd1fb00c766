//! A node that was killed is started again at once: nothing that the dead process had is refused to the next one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::pool::{device, head, nqn, setup, volume};
use super::{long, test};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, host_nqn, program};
use crate::process::run;
use crate::raw::nvme_tcp::{self, Data, Host};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "restart";
    vec![
        test(S, "a_start_right_after_a_kill_is_not_refused", |env| campaign(env, 8)),
        long(S, "a_thousand_starts_right_after_a_kill_are_not_refused", |env| campaign(env, 1000_usize.div_ceil(12))),
    ]
}

/// How the node is killed and started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The next one starts when the process has ended.
    Ended,
    /// It starts when the signal was sent.
    Signalled,
    /// The same, of a node with a keeper, which is killed.
    Keeper,
    /// Each process is in a pid namespace of its own, where the one before it is not to be seen.
    Namespace,
}

/// By kind of drive and way to kill; refusals are counted before anything is said of them.
fn campaign(env: &Env, rounds: usize) -> Outcome {
    let loops = Loop::new(env)?;
    let mut kinds = vec![("file drives", files()), ("drives of a pool", in_a_pool())];
    match &loops {
        Ok(device) => kinds.push(("a block device", block(&device.path))),
        Err(why) => println!("    not tried: block devices ({why})"),
    }
    let (mut refused, mut all) = (Vec::new(), 0);
    for (kind, whole) in &kinds {
        for way in [Way::Ended, Way::Signalled, Way::Keeper, Way::Namespace] {
            if way == Way::Namespace {
                if let Err(why) = has_namespaces(env) {
                    println!("    not tried: another pid namespace ({why})");
                    continue;
                }
            }
            let (begin, before) = (std::time::Instant::now(), refused.len());
            starts(env, whole, way, rounds, &mut refused).map_err(|e| format!("{kind}, {way:?}: {e}"))?;
            all += rounds;
            let (of, took) = (refused.len() - before, begin.elapsed().as_secs_f64());
            println!("    {kind}, {way:?}: {of} of {rounds} starts refused ({took:.1} s)");
        }
    }
    let first = || format!("{} of {all} starts were refused; the first one: {}", refused.len(), refused[0]);
    ensure(refused.is_empty(), first)
}

fn starts(env: &Env, whole: &str, way: Way, rounds: usize, refused: &mut Vec<String>) -> Outcome {
    let keeper = if way == Way::Keeper { "keeper = true" } else { "keeper = false" };
    let whole = whole.replace("cores = [0]\n", &format!("cores = [0]\n{keeper}\n"));
    let mut all = setup(whole);
    if way == Way::Namespace {
        let weir = env.weir.display();
        let script = format!("exec unshare --pid --fork --kill-child --mount-proc -- '{weir}' \"$@\"");
        all.program = Some(program(&env.folder()?, "in-a-namespace", &script)?);
    }
    let mut node = Node::start(env, &all)?;
    for round in 0..rounds {
        let _connected = busy(&node, &all).map_err(|e| format!("round {round}: {e}\n{}", node.log()))?;
        if way == Way::Ended {
            node.kill()?;
        } else {
            node.process().signal(Signal::KILL)?;
        }
        let mut again = node.start_at_once();
        while let Err(why) = again {
            refused.push(why);
            ensure(refused.len() < 100, || format!("refused again and again: {}", refused[0]))?;
            // What was refused once is tried until it is not.
            again = node.start_at_once();
        }
    }
    node.cli_ok(&["shutdown"])?;
    node.finish()
}

/// Durable writes are under way when it is killed, which the kernel is not done with at once.
fn busy(node: &Node, setup: &Setup) -> Result<(Host, Host), String> {
    /// Of the first dword of Write that is the command's own: Force Unit Access, 8 blocks.
    const DURABLE: u32 = 1 << 30 | 7;
    let subsystem = if setup.whole.contains("[[volume]]") { nqn("v0") } else { crate::node::NQN.to_owned() };
    let host = host_nqn("gold");
    let (admin, cntlid) = Host::admin_of(&subsystem, node.address(), &host, 60_000)?;
    let mut queue = Host::io_queue_of(&subsystem, node.address(), &host, cntlid, 1)?;
    let block = [7; 4096];
    let mut bytes = Vec::new();
    for cid in 0..30u16 {
        let lba = u32::from(cid) * 8 + u32::from(cid % 2) * (63 << 11);
        let entry = nvme_tcp::sqe(1, cid, 1, [lba, 0, DURABLE, 0, 0, 0], Data::InCapsule(&block));
        bytes.extend(nvme_tcp::capsule(&entry, Data::InCapsule(&block)));
    }
    queue.send(&bytes)?;
    queue.success()?;
    Ok((admin, queue))
}

fn export() -> &'static str {
    "[[export]]\ndevice = \"ssd0\"\ndoor = \"nvme-tcp\"\n"
}

fn ssd0(keys: &str) -> String {
    device("ssd0", &format!("nqn = \"{}\"\n{keys}", crate::node::NQN))
}

/// One whose flash's state lies beside it, and a plain one.
fn files() -> String {
    head()
        + &ssd0("media = \"file:a.img\"\ncapacity = \"64MiB\"\nprofile = \"p3700\"")
        + &device("ssd1", "media = \"file:b.img\"\ncapacity = \"64MiB\"")
        + export()
}

fn in_a_pool() -> String {
    head()
        + &device("d0", "media = \"file:a.img\"\ncapacity = \"64MiB\"")
        + &device("d1", "media = \"file:b.img\"\ncapacity = \"64MiB\"")
        + &volume("v0", "gold", "80MiB", "\"nvme-tcp\"")
}

fn block(device: &Path) -> String {
    head() + &ssd0(&format!("media = \"block:{}\"", device.display())) + export()
}

fn has_namespaces(env: &Env) -> Outcome {
    let tried = Path::new("unshare");
    let args = ["--pid", "--fork", "--kill-child", "--mount-proc", "--", "true"];
    run(&env.folder()?, tried, args, Duration::from_secs(10))?.success("unshare").map(drop)
}

/// A loop device, gone when dropped.
pub(super) struct Loop {
    pub(super) path: PathBuf,
    dir: PathBuf,
}

impl Loop {
    /// The device, or why there is none.
    pub(super) fn new(env: &Env) -> Result<Result<Self, String>, String> {
        let dir = env.folder()?;
        let file = dir.join("disk.img");
        std::fs::File::create(&file).and_then(|f| f.set_len(64 << 20)).context(|| file.display().to_string())?;
        let args = ["--find", "--show", "--direct-io=on", "disk.img"];
        let made = run(&dir, Path::new("losetup"), args, Duration::from_secs(10));
        Ok(made.and_then(|made| made.success("losetup")).map(|said| Self { path: said.trim().into(), dir }))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let args = ["--detach".as_ref(), self.path.as_os_str()];
        let _ = run(&self.dir, Path::new("losetup"), args, Duration::from_secs(10));
    }
}
