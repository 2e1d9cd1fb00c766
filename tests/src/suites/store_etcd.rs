//! A store whose metadata are in etcd: what was acknowledged outlives kills of the node and of etcd; an etcd that is full, stopped or away is named.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::Value;
use weir_store::keys::name_key;
use weir_store::kv::{Commit, CommitOutcome, Kv as _, KvWrite};
use weir_store::records::{NameRecord, to_value};
use weir_store::{EntryName, InodeId, InodeKind};
use weir_store_node::etcd::{EtcdMeta, WaitingEtcdKv};

use super::{long, store, test};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, Setup};
use crate::process::{Finished, Process, until};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "store_etcd";
    vec![
        test(S, "files_outlive_kills_of_node_and_etcd", |env| usual(env, outlives)),
        test(S, "files_outlive_kills_of_node_and_a_newer_etcd", |env| newer(env, outlives)),
        test(S, "damaged_metadata_in_etcd_are_found_and_put_right", |env| usual(env, damaged)),
        long(S, "damaged_metadata_in_a_newer_etcd_are_found_and_put_right", |env| newer(env, damaged)),
        long(S, "an_etcd_that_is_stopped_is_waited_for", |env| usual(env, stopped)),
        long(S, "a_newer_etcd_that_is_stopped_is_waited_for", |env| newer(env, stopped)),
        long(S, "a_full_etcd_is_named_and_nothing_is_lost", |env| usual(env, full)),
        long(S, "a_newer_etcd_that_is_full_is_named_and_nothing_is_lost", |env| newer(env, full)),
        long(S, "without_etcd_a_node_says_why_it_does_not_start", |env| usual(env, away)),
        long(S, "the_leader_of_three_members_is_killed", |env| usual(env, leader)),
        long(S, "the_leader_of_three_newer_members_is_killed", |env| newer(env, leader)),
    ]
}

/// How long clients may see no service after a failure: elections, leases and starts on a busy machine.
pub(super) const RECOVERY: Duration = Duration::from_secs(60);

/// A member of an etcd.
pub(super) struct Member {
    name: String,
    dir: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    /// Where its clients find it.
    pub url: String,
    process: Option<Process>,
}

/// The ports of a member.
#[derive(Clone, Copy)]
struct Ports {
    client: u16,
    peer: u16,
}

/// The program; without one the test is skipped.
pub(super) fn program(env: &Env) -> Option<PathBuf> {
    let named = std::env::var_os("WEIR_ETCD").map(PathBuf::from);
    let found = named.into_iter().chain([PathBuf::from("/usr/bin/etcd")]).find(|path| path.exists());
    if found.is_none() {
        env.skip("there is no etcd; install Debian's package etcd-server, or name the program with WEIR_ETCD");
    }
    found
}

/// A test with the etcd that there is.
fn usual(env: &Env, test: fn(&Env, &Path) -> Outcome) -> Outcome {
    program(env).map_or(Ok(()), |program| test(env, &program))
}

/// The same with the etcd of a newer Debian; without one it is skipped.
fn newer(env: &Env, test: fn(&Env, &Path) -> Outcome) -> Outcome {
    match std::env::var_os("WEIR_NEWER_ETCD").map(PathBuf::from).filter(|path| path.exists()) {
        Some(program) => test(env, &program),
        None => {
            env.skip("there is no second etcd; name the program of a newer one with WEIR_NEWER_ETCD");
            Ok(())
        }
    }
}

/// An etcd of so many members.
pub(super) fn etcd(env: &Env, program: &Path, members: usize, more: &[&str]) -> Result<Vec<Member>, String> {
    etcd_at(env, program, "http", members, more)
}

/// The same, which clients reach by that scheme.
pub(super) fn etcd_at(
    env: &Env,
    program: &Path,
    scheme: &str,
    members: usize,
    more: &[&str],
) -> Result<Vec<Member>, String> {
    let dir = env.folder()?;
    let ports = (0..members).map(|_| Ok(Ports { client: env.free_port()?, peer: env.free_port()? }));
    let ports = ports.collect::<Result<Vec<_>, String>>()?;
    let peer = |(i, ports): (usize, &Ports)| format!("m{i}=http://127.0.0.1:{}", ports.peer);
    let cluster = ports.iter().enumerate().map(peer).collect::<Vec<_>>().join(",");
    let mut started = Vec::new();
    for (i, ports) in ports.iter().enumerate() {
        let (name, url) = (format!("m{i}"), format!("{scheme}://127.0.0.1:{}", ports.client));
        let peer = format!("http://127.0.0.1:{}", ports.peer);
        let pairs = [
            ("--name", name.clone()),
            ("--data-dir", dir.join(&name).display().to_string()),
            ("--listen-client-urls", url.clone()),
            ("--advertise-client-urls", url.clone()),
            ("--listen-peer-urls", peer.clone()),
            ("--initial-advertise-peer-urls", peer),
            ("--initial-cluster", cluster.clone()),
        ];
        let mut arguments: Vec<String> = pairs.into_iter().flat_map(|(key, value)| [key.into(), value]).collect();
        arguments.extend(more.iter().map(ToString::to_string));
        let mut member = Member { name, dir: dir.clone(), program: program.into(), arguments, url, process: None };
        member.start()?;
        started.push(member);
    }
    Ok(started)
}

impl Member {
    /// Its process.
    pub(super) fn pid(&self) -> Result<Pid, String> {
        let pid = self.process.as_ref().ok_or("it does not run")?.pid();
        i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| "it does not run".into())
    }

    /// Whether it says that it leads.
    pub(super) fn leads(&self) -> bool {
        self.leader().is_some_and(|(leader, member)| leader == member)
    }

    /// The member that leads, as far as it knows, and itself; `None` if it does not answer, or knows of none.
    pub(super) fn leader(&self) -> Option<(String, String)> {
        let at = self.url.trim_start_matches("http://");
        let (_, body) = http::request_at(at, "POST", "/v3/maintenance/status", "{}").ok()?;
        let status: Value = serde_json::from_str(&body).ok()?;
        Some((status["leader"].as_str()?.to_owned(), status["header"]["member_id"].as_str()?.to_owned()))
    }

    /// Starts it again once it has ended, which is waited for.
    pub(super) fn restart(&mut self) -> Outcome {
        let ended = self.process.take().map(|process| process.wait(RECOVERY));
        ended.transpose()?;
        self.start()?;
        let at = self.url.trim_start_matches("http://").trim_start_matches("https://").to_owned();
        until(RECOVERY, "the member is back", || Ok(std::net::TcpStream::connect(&at).is_ok().then_some(())))
    }

    fn start(&mut self) -> Outcome {
        self.process = Some(Process::start(&self.dir, &self.name, &self.program, &self.arguments)?);
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Outcome {
        self.process.as_ref().ok_or("it does not run")?.signal(signal)
    }

    pub(super) fn kill(&mut self) -> Outcome {
        self.signal(Signal::KILL)?;
        self.process.take().ok_or("it does not run")?.wait(RECOVERY).map(drop)
    }
}

pub(super) fn setup(members: &[Member]) -> Setup {
    let urls: Vec<&str> = members.iter().map(|member| member.url.as_str()).collect();
    let whole = store::setup().whole.replace("redb:store.redb", &format!("etcd:{}/e2e", urls.join(",")));
    Setup { whole, ..Setup::default() }
}

fn fs(node: &Node, args: &[&str]) -> Result<Finished, String> {
    node.cli(&[&["fs", "--store", &store::address(node)], args].concat())
}

/// The command comes to succeed.
pub(super) fn succeeds(node: &Node, args: &[&str]) -> Result<String, String> {
    let mut said = String::new();
    let done = until(RECOVERY, &format!("weir fs {}", args.join(" ")), || {
        let finished = fs(node, args)?;
        said = finished.describe();
        Ok((finished.status.code() == Some(0)).then_some(finished.stdout))
    });
    done.map_err(|e| format!("{e}\n{said}\n{}", node.log()))
}

/// A file of this machine with bytes of its own.
pub(super) fn file(node: &Node, fill: u8, len: usize) -> Result<PathBuf, String> {
    let path = node.socket(&format!("put{fill}"));
    let bytes: Vec<u8> = (0..len).map(|at| fill ^ (at / 251 + at) as u8).collect();
    std::fs::write(&path, bytes).context(|| path.display().to_string())?;
    Ok(path)
}

pub(super) fn put(node: &Node, from: &Path, to: &str) -> Outcome {
    let args = ["put", "--class", "flash", &from.display().to_string(), to];
    fs(node, &args)?.success(&format!("weir fs {}", args.join(" "))).map(drop)
}

pub(super) fn has(node: &Node, name: &str, from: &Path) -> Outcome {
    let got = node.socket("got");
    let _ = std::fs::remove_file(&got);
    succeeds(node, &["get", name, &got.display().to_string()])?;
    let read = |path: &Path| std::fs::read(path).context(|| path.display().to_string());
    ensure(read(&got)? == read(from)?, || format!("{name} has other bytes than were put"))
}

/// The node and etcd are killed in turns, and both: every file that was put is there.
fn outlives(env: &Env, program: &Path) -> Outcome {
    let mut members = etcd(env, program, 1, &[])?;
    let mut node = Node::start(env, &setup(&members))?;
    // One that lies in its inode nowhere, one with a map, and one with chunks of a map.
    let sizes = [200, 300_000, 5 << 20];
    let files: Vec<PathBuf> = (0u8..).zip(sizes).map(|(i, size)| file(&node, i, size)).collect::<Result<_, _>>()?;
    for (i, from) in files.iter().enumerate() {
        put(&node, from, &format!("/f{i}"))?;
    }
    for (round, (kills_node, kills_etcd)) in [(true, false), (false, true), (true, true)].into_iter().enumerate() {
        if kills_node {
            node.kill()?;
        }
        if kills_etcd {
            members[0].kill()?;
            members[0].start()?;
        }
        if kills_node {
            node.start_again()?;
        }
        for (i, from) in files.iter().enumerate() {
            has(&node, &format!("/f{i}"), from)?;
        }
        succeeds(&node, &["mkdir", &format!("/d{round}")])?;
    }
    let listed = succeeds(&node, &["ls", "/"])?;
    ensure(listed.split_whitespace().count() == 6, || listed)?;
    node.stop()
}

/// Metadata are damaged while no service runs: `weir store fsck` names what is wrong, puts it right, and finds nothing after that; the service starts and the
/// files read. As long as a service lives it does nothing.
fn damaged(env: &Env, program: &Path) -> Outcome {
    let members = etcd(env, program, 1, &[])?;
    let mut node = Node::start(env, &setup(&members))?;
    let from = file(&node, 1, 300_000)?;
    for name in ["/one", "/two"] {
        put(&node, &from, name)?;
    }
    let meta = format!("etcd:{}/e2e", members[0].url);
    let fsck = |node: &Node, meta: &str, more: &[&str], status: i32, words: &[&str]| -> Outcome {
        let finished = node.cli(&[&["store", "fsck", meta], more].concat())?;
        let said = format!("{}{}", finished.stdout, finished.stderr);
        let is_right = finished.status.code() == Some(status) && words.iter().all(|word| said.contains(word));
        ensure(is_right, || format!("{more:?}: {:?}, {words:?}: {said}", finished.status.code()))
    };
    let at = store::address(&node);
    let served = format!("the metadata service at {at} serves it; stop the metadata services");
    fsck(&node, &meta, &["--repair"], 1, &[&meta, &served])?;
    // It is killed: nobody renews its lease.
    node.kill()?;
    fsck(&node, &meta, &[], 0, &["records"])?;
    let kv = |writes: Vec<KvWrite>| {
        let meta: EtcdMeta = format!("{}/e2e", members[0].url).parse()?;
        let mut kv = WaitingEtcdKv::open(&meta).context(|| meta.prefix.clone())?;
        let outcome = kv.commit(&Commit { expect: Vec::new(), writes });
        ensure(matches!(outcome, CommitOutcome::Done(_)), || format!("{outcome:?}: {:?}", kv.trouble()))
    };
    let name = |name: &[u8]| EntryName::new(name).map(|name| name_key(InodeId::ROOT, &name)).map_err(|e| e.to_string());
    let nowhere = NameRecord { inode: InodeId(9999), kind: InodeKind::File };
    kv(vec![KvWrite::Put(name(b"gone")?, to_value(&nowhere)), KvWrite::Delete(name(b"one")?)])?;
    let found = ["found     dangling-name: name \"gone\"", "nameless-inode", "--repair puts right"];
    fsck(&node, &meta, &[], 1, &found)?;
    fsck(&node, &meta, &["--repair", "--json"], 1, &["\"dangling-name\"", "\"repaired\"", "nothing is left"])?;
    fsck(&node, &meta, &["--repair"], 0, &["records"])?;
    fsck(&node, &meta.replace("/e2e", "/other"), &["--repair"], 1, &["/other: there is no store with the prefix"])?;
    fsck(&node, "etcd:127.0.0.1:2379", &[], 2, &["is no member of an etcd"])?;
    node.start_again()?;
    has(&node, "/two", &from)?;
    let lost = succeeds(&node, &["ls", "/lost+found"])?;
    has(&node, &format!("/lost+found/{}", lost.trim()), &from)?;
    node.stop()
}

/// etcd stands still for longer than the service's lease: nothing hangs, and afterwards everything is there and new files are taken.
fn stopped(env: &Env, program: &Path) -> Outcome {
    let members = etcd(env, program, 1, &[])?;
    let node = Node::start(env, &setup(&members))?;
    let from = file(&node, 1, 300_000)?;
    put(&node, &from, "/before")?;
    members[0].signal(Signal::STOP)?;
    until(RECOVERY, "the log names the etcd that is silent", || {
        Ok(node.log().contains("etcd does not answer").then_some(()))
    })?;
    // Longer than the lease; the service may answer with an error, or not at all.
    std::thread::sleep(Duration::from_secs(6));
    members[0].signal(Signal::CONT)?;
    has(&node, "/before", &from)?;
    succeeds(&node, &["mkdir", "/after"])?;
    node.stop()
}

/// etcd has no room left: no change is acknowledged, the log says why, and what was put stays.
fn full(env: &Env, program: &Path) -> Outcome {
    let mut members = etcd(env, program, 1, &["--quota-backend-bytes", "4000000"])?;
    let mut node = Node::start(env, &setup(&members))?;
    let from = file(&node, 1, 200)?;
    let mut put_so_far = 0;
    let refused = loop {
        let name = format!("/f{put_so_far}");
        match put(&node, &from, &name) {
            Ok(()) if put_so_far < 100_000 => put_so_far += 1,
            Ok(()) => return Err("4 MB are never full".into()),
            Err(why) => break why,
        }
    };
    ensure(put_so_far > 0, || refused)?;
    until(RECOVERY, "the log names the etcd that is full", || {
        Ok(node.log().contains("etcd is full, no change is acknowledged").then_some(()))
    })?;
    node.kill()?;
    // An operator raises the quota, and takes the alarm away.
    members[0].kill()?;
    members[0].arguments.extend(["--quota-backend-bytes".into(), "100000000".into()]);
    members[0].start()?;
    let Some(ctl) = program.parent().map(|folder| folder.join("etcdctl")).filter(|ctl| ctl.exists()) else {
        return Ok(());
    };
    until(RECOVERY, "the alarm is taken away", || {
        let args = ["--endpoints", &members[0].url, "alarm", "disarm"];
        let mut command = std::process::Command::new(&ctl);
        let done = command.env("ETCDCTL_API", "3").args(args).output().context(|| ctl.display().to_string())?;
        Ok(done.status.success().then_some(()))
    })?;
    node.start_again()?;
    has(&node, "/f0", &from)?;
    has(&node, &format!("/f{}", put_so_far - 1), &from)?;
    put(&node, &from, "/again")?;
    node.stop()
}

fn away(env: &Env, program: &Path) -> Outcome {
    let mut members = etcd(env, program, 1, &[])?;
    members[0].kill()?;
    let whole = setup(&members).whole.replace("keeper = true", "keeper = false");
    let said = super::pool::fails(env, &env.folder()?, &whole)?;
    ensure(said.contains("etcd does not answer") && said.contains(&members[0].url), || said)
}

/// Whichever member leads, its death is outlived: each is killed once, and comes back before the next.
fn leader(env: &Env, program: &Path) -> Outcome {
    let mut members = etcd(env, program, 3, &[])?;
    let node = Node::start(env, &setup(&members))?;
    let from = file(&node, 1, 300_000)?;
    put(&node, &from, "/f")?;
    for (i, member) in members.iter_mut().enumerate() {
        member.kill()?;
        has(&node, "/f", &from)?;
        succeeds(&node, &["mkdir", &format!("/d{i}")])?;
        member.start()?;
        // The others have to see it before the next one goes: then a majority is left.
        until(RECOVERY, "the member is back", || {
            let at = member.url.trim_start_matches("http://").to_owned();
            Ok(std::net::TcpStream::connect(at).is_ok().then_some(()))
        })?;
        succeeds(&node, &["ls", "/"])?;
    }
    node.stop()
}
