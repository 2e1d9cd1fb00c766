//! Against a real etcd, the one that `WEIR_ETCD` names or that of `PATH`; without one they say that they were left out.

use super::messages::{Compared, Operation};
use super::{WaitingEtcdKv, transaction};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_config::{EtcdAccess, EtcdMeta};
use weir_store::kv::{Commit, CommitOutcome, Expect, Kv as _, KvKey, KvUnavailable, KvWrite, Revision, conformance};

/// An etcd of one member, in a folder of its own.
pub(crate) struct Etcd {
    child: Child,
    program: PathBuf,
    folder: PathBuf,
    /// Where it is reached.
    pub url: String,
    arguments: Vec<String>,
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map(|at| at.port()).expect("a free port")
}

impl Etcd {
    /// `None` where there is no etcd.
    pub(crate) fn start(name: &str, more: &[&str]) -> Option<Etcd> {
        Self::start_at("http", name, more)
    }

    /// One that clients reach by that scheme.
    pub(crate) fn start_at(scheme: &str, name: &str, more: &[&str]) -> Option<Etcd> {
        let named = std::env::var_os("WEIR_ETCD").map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut programs = named.into_iter().chain(std::env::split_paths(&path).map(|folder| folder.join("etcd")));
        let Some(program) = programs.find(|path| path.is_file()) else {
            println!("left out: WEIR_ETCD names no etcd, and there is none in PATH");
            return None;
        };
        let folder = std::env::temp_dir().join(format!("weir-etcd-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let url = format!("{scheme}://127.0.0.1:{}", free_port());
        let peer = format!("http://127.0.0.1:{}", free_port());
        let mut arguments: Vec<String> = vec!["--data-dir".into(), folder.join("data").display().to_string()];
        for (key, value) in [
            ("--listen-client-urls", &url),
            ("--advertise-client-urls", &url),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
        ] {
            arguments.extend([key.to_string(), value.clone()]);
        }
        arguments.extend([format!("--initial-cluster=default={peer}"), "--unsafe-no-fsync".into()]);
        // Versions before 3.5 do not know it.
        arguments.retain(|argument| argument != "--unsafe-no-fsync");
        arguments.extend(more.iter().map(|more| (*more).to_string()));
        let child = Self::run(&program, &arguments, &folder);
        Some(Etcd { child, program, folder, url, arguments })
    }

    fn run(program: &PathBuf, arguments: &[String], folder: &std::path::Path) -> Child {
        let log = std::fs::File::create(folder.join("log")).expect("a log");
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::null()).stderr(log).stdin(Stdio::null());
        command.spawn().expect("etcd starts")
    }

    pub(crate) fn meta(&self, prefix: &str) -> EtcdMeta {
        EtcdMeta { endpoints: vec![self.url.clone()], prefix: prefix.into(), access: EtcdAccess::default() }
    }

    /// etcdctl does that; `None` where there is none beside etcd.
    pub(crate) fn control(&self, args: &[&str]) -> Option<()> {
        let program = self.program.with_file_name("etcdctl");
        if !program.is_file() {
            println!("left out: there is no etcdctl beside {}", self.program.display());
            return None;
        }
        let begun = Instant::now();
        loop {
            let mut command = Command::new(&program);
            let done =
                command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url]).args(args).output().expect("it runs");
            if done.status.success() {
                return Some(());
            }
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(begun.elapsed() < Duration::from_secs(60), "etcdctl {args:?}: {said}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it ends");
    }

    pub(crate) fn start_again(&mut self) {
        self.child = Self::run(&self.program, &self.arguments, &self.folder);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(super) fn key(text: &str) -> KvKey {
    KvKey(text.as_bytes().to_vec())
}

pub(super) fn put(name: &str, value: &[u8]) -> Commit {
    Commit { expect: Vec::new(), writes: vec![KvWrite::Put(key(name), value.to_vec())] }
}

/// A store that answers.
pub(crate) fn opened(meta: &EtcdMeta) -> WaitingEtcdKv {
    let mut kv = WaitingEtcdKv::open(meta).expect("threads");
    let begun = Instant::now();
    while kv.get(&key("x")).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "etcd does not answer: {:?}", kv.trouble());
    }
    kv
}

#[test]
fn it_keeps_the_rules_of_every_key_value_store() {
    let Some(etcd) = Etcd::start("rules", &[]) else { return };
    drop(opened(&etcd.meta("first")));
    static STORES: AtomicUsize = AtomicUsize::new(0);
    let open = || opened(&etcd.meta(&format!("store{}", STORES.fetch_add(1, Ordering::Relaxed))));
    conformance(open).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn stores_with_other_prefixes_do_not_meet() {
    let Some(etcd) = Etcd::start("prefixes", &[]) else { return };
    let (mut one, mut other) = (opened(&etcd.meta("a")), opened(&etcd.meta("a/b")));
    assert!(matches!(one.commit(&put("x", b"1")), CommitOutcome::Done(_)));
    assert!(matches!(other.commit(&put("x", b"2")), CommitOutcome::Done(_)));
    let value = |kv: &mut WaitingEtcdKv| kv.get(&key("x")).expect("an answer").expect("a value").value;
    assert_eq!((value(&mut one), value(&mut other)), (b"1".to_vec(), b"2".to_vec()));
    let all = one.range(&KvKey(vec![0]), &KvKey(vec![255]), 10).expect("an answer");
    assert_eq!(all.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [key("x")], "no keys of the other's");
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill_of_etcd() {
    let Some(mut etcd) = Etcd::start("killed", &[]) else { return };
    let mut kv = opened(&etcd.meta("weir"));
    for round in 0..3u32 {
        let (mut done, mut count) = (0, 0u32);
        let end = Instant::now() + Duration::from_millis(300);
        while Instant::now() < end {
            count += 1;
            if matches!(kv.commit(&put(&format!("k{round}"), &count.to_be_bytes())), CommitOutcome::Done(_)) {
                done = count;
            }
        }
        etcd.kill();
        assert_eq!(kv.get(&key("x")), Err(KvUnavailable));
        assert_eq!(kv.commit(&put("x", b"?")), CommitOutcome::Unknown);
        let trouble = kv.trouble().expect("it is gone");
        assert!(trouble.contains("etcd does not answer") && trouble.contains(&etcd.url), "{trouble}");
        etcd.start_again();
        let mut again = opened(&etcd.meta("weir"));
        let found = again.get(&key(&format!("k{round}"))).expect("an answer").expect("a value").value;
        let found = u32::from_be_bytes(found.try_into().expect("four bytes"));
        assert!(done > 0 && found >= done && found <= count, "{done} were acknowledged, {found} are there");
        // The one of before goes on, too.
        let begun = Instant::now();
        while kv.get(&key("x")).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", kv.trouble());
        }
        assert_eq!(kv.trouble(), None);
    }
}

#[test]
fn a_full_etcd_reads_on_and_says_so() {
    let Some(etcd) = Etcd::start("full", &["--quota-backend-bytes", "4000000"]) else { return };
    let mut kv = opened(&etcd.meta("weir"));
    let mut names = 0..;
    let refused = loop {
        let name = format!("k{}", names.next().expect("a number"));
        match kv.commit(&put(&name, &[7; 100_000])) {
            CommitOutcome::Done(_) => assert!(names.start < 200, "4 MB are never full"),
            outcome => break outcome,
        }
    };
    // etcd makes the change by which it notices that it is full, and calls it refused nevertheless; the next one is not made.
    assert_eq!(refused, CommitOutcome::Unknown);
    assert_eq!(kv.commit(&put("later", &[7; 100_000])), CommitOutcome::Unknown);
    assert_eq!(kv.get(&key("later")), Ok(None), "it was not made");
    assert!(kv.get(&key("k0")).expect("reads go on").is_some());
    let trouble = kv.trouble().expect("it is full");
    assert!(
        trouble.starts_with("etcd is full, no change is acknowledged") && trouble.contains("raise its quota"),
        "{trouble}"
    );
}

#[test]
fn a_member_that_is_gone_is_left_for_the_next() {
    let Some(etcd) = Etcd::start("members", &[]) else { return };
    let gone = format!("http://127.0.0.1:{}", free_port());
    let meta = EtcdMeta { endpoints: vec![gone, etcd.url.clone()], ..etcd.meta("weir") };
    let mut kv = opened(&meta);
    assert!(matches!(kv.commit(&put("x", b"1")), CommitOutcome::Done(_)));
    let expect = vec![(key("x"), Expect::Value(b"1".to_vec()))];
    let next = Commit { expect, ..put("x", b"2") };
    assert!(matches!(kv.commit(&next), CommitOutcome::Done(_)));
    assert_eq!(kv.commit(&next), CommitOutcome::Conflict);
}

/// A member with an old state must not say that something is so: it answers without its fellows unless the transaction reads or writes.
#[test]
fn a_commit_without_writes_is_linearizable() {
    let expect = vec![(key("a"), Expect::Present)];
    let made = transaction(b"p/", Commit { expect, writes: Vec::new() });
    assert!(matches!(&made.success[..], [only] if matches!(only.request, Some(Operation::Range(_)))), "{made:?}");
    let made = transaction(b"p/", Commit { expect: Vec::new(), writes: vec![KvWrite::Delete(key("a"))] });
    assert!(matches!(&made.success[..], [only] if matches!(only.request, Some(Operation::Delete(_)))), "{made:?}");
}

/// etcd takes 0 for the revision of an absent key; the store has no such revision.
#[test]
fn no_key_has_revision_zero() {
    for revision in [0, u64::MAX] {
        let expect = vec![(key("a"), Expect::Revision(Revision(revision)))];
        let made = transaction(b"p/", Commit { expect, writes: Vec::new() });
        assert_eq!(made.compare[0].compared, Some(Compared::ModRevision(-1)), "{revision}");
    }
}
