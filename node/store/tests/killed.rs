//! Processes that commit and are killed at any moment, or find no room: everything that was answered is there, in order, and nothing else.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use weir_store::kv::{Commit, CommitOutcome, Expect, Kv, KvKey, KvWrite};
use weir_store_node::embedded::{Durability, EmbeddedKv};

const CHILD: &str = "WEIR_TEST_COMMITS_TO";

fn key(n: u64) -> KvKey {
    KvKey(format!("key{:03}", n % 200).into_bytes())
}

/// Commits as fast as it can, and says the number of each that was answered.
fn commit_for_ever(path: &Path) -> ! {
    let mut kv = EmbeddedKv::open(path, Durability::Process).expect("the store opens");
    let mut out = std::io::stdout().lock();
    for n in kv.revision().0 + 1.. {
        let commit = Commit { expect: vec![], writes: vec![KvWrite::Put(key(n), n.to_le_bytes().to_vec())] };
        assert!(matches!(kv.commit(&commit), CommitOutcome::Done(r) if r.0 == n), "{:?}", kv.trouble());
        writeln!(out, "{n}").expect("somebody listens");
        if n % 64 == 0 {
            kv.checkpoint().expect("a checkpoint");
        }
    }
    unreachable!("there is no last number")
}

/// Kills a child after that time; the last number that it has said.
fn kill_after(path: &Path, time: Duration) -> u64 {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "a_killed_process_loses_nothing", "--nocapture"]).env(CHILD, path);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let reader = std::thread::spawn(move || {
        lines.map_while(Result::ok).filter_map(|line| line.trim().parse::<u64>().ok()).last().unwrap_or(0)
    });
    std::thread::sleep(time);
    child.kill().expect("it is killed");
    child.wait().expect("it has ended");
    reader.join().expect("the reader ends")
}

#[test]
fn a_killed_process_loses_nothing() {
    if let Some(path) = std::env::var_os(CHILD) {
        commit_for_ever(Path::new(&path));
    }
    let folder: PathBuf = std::env::temp_dir().join(format!("weir-embedded-killed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("meta.redb");
    let (mut last, mut grew) = (0, 0);
    for kill in 0..12u64 {
        let said = kill_after(&path, Duration::from_millis(60 + kill * 37 % 150)).max(last);
        let mut kv = EmbeddedKv::open(&path, Durability::Process).expect("the store opens");
        let revision = kv.revision().0;
        // The one on its way when it was killed may have been made.
        assert!(revision == said || revision == said + 1, "kill {kill}: {revision} is there, and {said} was said");
        for n in (revision.saturating_sub(199)).max(1)..=revision {
            let found = kv.get(&key(n)).expect("an answer").expect("a value");
            assert_eq!((found.value, found.revision.0), (n.to_le_bytes().to_vec(), n), "kill {kill}");
        }
        let check = Commit { expect: vec![(key(revision + 1), Expect::Absent)], writes: vec![] };
        assert_eq!(kv.commit(&check) == CommitOutcome::Conflict, revision >= 200);
        grew += u32::from(revision > last);
        last = revision;
    }
    assert!(grew > 6, "only {grew} of 12 processes came to commit anything");
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

const FILLS: &str = "WEIR_TEST_FILLS";

/// A commit of 16 KiB.
fn large(n: u64) -> Commit {
    let key = KvKey(format!("large{n:06}").into_bytes());
    Commit { expect: vec![], writes: vec![KvWrite::Put(key, vec![n as u8; 16 << 10])] }
}

/// Commits until there is no room, and says how many were made.
fn fill(path: &Path) {
    let mut kv = EmbeddedKv::open(path, Durability::Process).expect("the store opens");
    let made = (1..).take_while(|n| matches!(kv.commit(&large(*n)), CommitOutcome::Done(_))).count() as u64;
    assert!(made < 100_000, "there was room for everything");
    let trouble = kv.trouble().expect("trouble");
    assert!(trouble.contains("commits are refused") && trouble.contains("File too large"), "{trouble}");
    // Nothing of what was refused is there, and what is there can be read.
    assert_eq!(kv.commit(&large(made + 2)), CommitOutcome::Unknown);
    assert_eq!(kv.revision().0, made);
    let value =
        |kv: &mut EmbeddedKv, n: u64| kv.get(large(n).writes[0].key()).expect("an answer").map(|v| v.revision.0);
    assert_eq!((value(&mut kv, made), value(&mut kv, made + 1), value(&mut kv, made + 2)), (Some(made), None, None));
    let small = Commit { expect: vec![], writes: vec![KvWrite::Put(KvKey(b"small".to_vec()), vec![])] };
    assert!(matches!(kv.commit(&small), CommitOutcome::Done(_)), "there is room for a small one");
    assert_eq!(kv.trouble(), None);
    println!("{made}");
}

#[test]
fn where_there_is_no_room_nothing_is_lost() {
    if let Some(path) = std::env::var_os(FILLS) {
        return fill(Path::new(&path));
    }
    let folder: PathBuf = std::env::temp_dir().join(format!("weir-embedded-full-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("meta.redb");
    // No file may be longer than 4 MiB; the signal that says so would end the process.
    let limited =
        "trap '' XFSZ; ulimit -f 8192; exec \"$0\" --exact where_there_is_no_room_nothing_is_lost --nocapture";
    let mut child = Command::new("sh");
    child.args(["-c", limited]).arg(std::env::current_exe().expect("this program")).env(FILLS, &path);
    let output = child.output().expect("a child");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let made = said.lines().find_map(|line| line.trim().parse::<u64>().ok()).expect("a number");
    let mut kv = EmbeddedKv::open(&path, Durability::Process).expect("the store opens");
    assert_eq!(kv.revision().0, made + 1);
    for n in 1..=made {
        let found = kv.get(large(n).writes[0].key()).expect("an answer").expect("a value");
        assert_eq!((found.value.len(), found.value[0], found.revision.0), (16 << 10, n as u8, n));
    }
    drop(kv);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}
