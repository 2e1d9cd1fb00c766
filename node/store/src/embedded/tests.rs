//! Against the conformance suite, a model, and every damage that a log can have.

use super::log::{Contents, Header, NoLog, Record};
use super::*;
use proptest::prelude::*;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use weir_store::kv::{KvWrite, MemoryKv, conformance};

/// A folder that ends with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir-embedded-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        // Memory, where there is some for files: what a power cut leaves is not tested by waiting for a medium.
        let memory = Path::new("/dev/shm");
        let path = if memory.is_dir() { memory.join(name) } else { std::env::temp_dir().join(name) };
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn store(&self) -> PathBuf {
        self.0.join("meta.redb")
    }

    fn open(&self) -> EmbeddedKv {
        EmbeddedKv::open(&self.store(), Durability::Process).expect("the store opens")
    }

    fn refused(&self) -> String {
        match EmbeddedKv::open(&self.store(), Durability::Process) {
            Ok(_) => panic!("it opens"),
            Err(e) => e.to_string(),
        }
    }

    /// The logs, in order.
    fn logs(&self) -> Vec<PathBuf> {
        let mut found: Vec<_> = fs::read_dir(&self.0).expect("a folder").map(|e| e.expect("an entry").path()).collect();
        found.retain(|path| path.to_string_lossy().contains(".log."));
        found.sort_by_key(|path| open::number_of(path));
        found
    }

    /// What there is when the process dies at this moment, as a folder of its own.
    fn dies(&self) -> Folder {
        let left = Folder::new();
        for path in self.logs().into_iter().chain([self.store()]) {
            fs::copy(&path, left.0.join(path.file_name().expect("a name"))).expect("a copy");
        }
        left
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn key(n: u32) -> KvKey {
    KvKey(format!("k{n:06}").into_bytes())
}

fn put(n: u32, value: &[u8]) -> Commit {
    Commit { expect: vec![], writes: vec![KvWrite::Put(key(n), value.to_vec())] }
}

fn all(kv: &mut impl Kv) -> Vec<(KvKey, Versioned)> {
    kv.range(&KvKey(vec![0]), &KvKey(vec![0xff; 8]), usize::MAX).expect("an answer")
}

/// Copies of a database at any moment are what a power cut leaves; of one that nobody writes they are whole.
fn without_checkpoints(kv: &EmbeddedKv) -> MutexGuard<'_, State> {
    kv.shared.lock()
}

#[test]
fn it_conforms() {
    for durability in [Durability::Process, Durability::Power] {
        let mut folders = Vec::new();
        let open = || {
            folders.push(Folder::new());
            EmbeddedKv::open(&folders[folders.len() - 1].store(), durability).expect("the store opens")
        };
        assert_eq!(conformance(open), Ok(()), "{durability:?}");
    }
}

#[test]
fn it_conforms_with_a_checkpoint_after_every_commit() {
    struct Eager(EmbeddedKv, #[expect(dead_code, reason = "the folder lives as long")] Folder);
    impl Kv for Eager {
        fn get(&mut self, key: &KvKey) -> Result<Option<Versioned>, KvUnavailable> {
            self.0.get(key)
        }
        fn range(&mut self, from: &KvKey, to: &KvKey, most: usize) -> Result<Vec<(KvKey, Versioned)>, KvUnavailable> {
            self.0.range(from, to, most)
        }
        fn commit(&mut self, commit: &Commit) -> CommitOutcome {
            let outcome = self.0.commit(commit);
            self.0.checkpoint().expect("a checkpoint");
            outcome
        }
    }
    let open = || {
        let folder = Folder::new();
        Eager(folder.open(), folder)
    };
    assert_eq!(conformance(open), Ok(()));
}

#[test]
fn a_store_that_was_closed_is_as_it_was() {
    let folder = Folder::new();
    let mut kv = folder.open();
    (0..500).for_each(|n| assert!(matches!(kv.commit(&put(n, b"value")), CommitOutcome::Done(_))));
    let (before, revision) = (all(&mut kv), kv.revision());
    drop(kv);
    assert_eq!(folder.logs().len(), 1, "the last checkpoint has all");
    let mut kv = folder.open();
    assert_eq!((all(&mut kv), kv.revision()), (before, revision));
}

/// Copied while nothing is written: what the death of the process leaves. Any number of deaths later it is the same.
#[test]
fn a_death_loses_nothing() {
    let folder = Folder::new();
    let mut kv = folder.open();
    (0..300).for_each(|n| _ = kv.commit(&put(n % 50, &n.to_le_bytes())));
    kv.checkpoint().expect("a checkpoint");
    (300..400).for_each(|n| _ = kv.commit(&put(n % 70, &n.to_le_bytes())));
    let expected = all(&mut kv);
    let guard = without_checkpoints(&kv);
    let mut left = folder.dies();
    drop(guard);
    for death in 0..4 {
        let mut kv = left.open();
        assert_eq!(all(&mut kv), expected, "after death {death}");
        let guard = without_checkpoints(&kv);
        let next = left.dies();
        drop(guard);
        drop(kv);
        left = next;
    }
}

/// A log that ends anywhere gives the commits before that, and the store goes on from there.
#[test]
fn a_torn_log_is_a_beginning() {
    let folder = Folder::new();
    let mut kv = folder.open();
    kv.checkpoint().expect("a checkpoint");
    (0..12).for_each(|n| _ = kv.commit(&put(n, &[7; 5])));
    let guard = without_checkpoints(&kv);
    let (log, states) = (folder.logs().pop().expect("a log"), folder.dies());
    drop(guard);
    let whole = fs::read(&log).expect("the log");
    let name = log.file_name().expect("a name");
    for len in (0..=whole.len()).step_by(7) {
        let left = states.dies();
        fs::write(left.0.join(name), &whole[..len]).expect("a log");
        let mut kv = left.open();
        let found = all(&mut kv);
        let revisions: Vec<u64> = found.iter().map(|(_, v)| v.revision.0).collect();
        assert_eq!(revisions, (1..=found.len() as u64).collect::<Vec<_>>(), "{len} bytes");
        assert!(len < whole.len() || found.len() == 12, "{len} bytes");
        assert!(matches!(kv.commit(&put(99, b"next")), CommitOutcome::Done(r) if r.0 == found.len() as u64 + 1));
        let expected = all(&mut kv);
        drop(kv);
        assert_eq!(all(&mut left.open()), expected, "{len} bytes, the start after");
    }
}

/// No bit of a log may be another one: the commits from there on count for nothing, or the log is refused.
#[test]
fn a_flipped_bit_is_found() {
    let folder = Folder::new();
    let mut kv = folder.open();
    (0..6).for_each(|n| _ = kv.commit(&put(n, b"abc")));
    let expected = all(&mut kv);
    let guard = without_checkpoints(&kv);
    let (log, states) = (folder.logs().pop().expect("a log"), folder.dies());
    drop(guard);
    let whole = fs::read(&log).expect("the log");
    for bit in (0..whole.len() * 8).step_by(5) {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let Ok(Contents { records, .. }) = log::read(&damaged) else { continue };
        let read: Vec<u64> = records.iter().map(|r| r.revision).collect();
        assert!(read.len() < 6 || damaged[32..36] == whole[32..36] && (36..40).contains(&(bit / 8)), "bit {bit}");
        assert_eq!(read, (1..=read.len() as u64).collect::<Vec<_>>());
    }
    assert_eq!(all(&mut states.open()), expected);
}

#[test]
fn commits_behind_a_gap_are_left_out_for_good() {
    let folder = Folder::new();
    let mut kv = folder.open();
    (0..4).for_each(|n| _ = kv.commit(&put(n, b"old")));
    let guard = without_checkpoints(&kv);
    let (log, id, left) = (folder.logs().pop().expect("a log"), guard.id, folder.dies());
    drop(guard);
    // The log after it was written back by the kernel, and the last commit of this one was not.
    let bytes = fs::read(&log).expect("the log");
    fs::write(left.0.join(log.file_name().expect("a name")), &bytes[..bytes.len() - 1]).expect("a log");
    let mut newer = Header { id, after: 4, durability: Durability::Process }.to_bytes().to_vec();
    log::encode(id, 5, &put(4, b"lost").writes, &mut newer);
    let number = open::number_of(&log).expect("a number");
    fs::write(open::log_path(&left.store(), number + 1), newer).expect("a log");
    let mut kv = left.open();
    assert_eq!(kv.revision(), Revision(3));
    (10..14).for_each(|n| _ = kv.commit(&put(n, b"new")));
    let expected = all(&mut kv);
    assert!(expected.iter().all(|(_, found)| found.value != b"lost"));
    drop(kv);
    assert_eq!(all(&mut left.open()), expected);
}

/// Of a node that was killed just now the kernel may have files open a moment longer, here 300 ms: whoever opens the store then waits for that.
#[test]
fn the_store_of_a_process_that_was_killed_just_now_opens() {
    let folder = Folder::new();
    drop(folder.open());
    let lock = fs::File::options().append(true).open(folder.0.join("meta.redb.lock")).expect("the lock");
    // The process that takes the lock has ended, and its descriptor is still open here.
    let stdin = Stdio::from(lock.try_clone().expect("a copy"));
    let taken = Command::new("flock").args(["-n", "0"]).stdin(stdin).status().expect("flock(1)");
    assert!(taken.success());
    let goes = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(lock);
    });
    drop(folder.open());
    goes.join().expect("it was let go");
}

#[test]
fn what_cannot_be_opened_is_refused_by_name() {
    // Somebody has it.
    let folder = Folder::new();
    let kv = folder.open();
    assert!(folder.refused().contains("meta.redb.lock: somebody has the store open"), "{}", folder.refused());
    let id = kv.shared.lock().id;
    drop(kv);
    // A log of another store, of a newer version, with commits before it missing where they were durable.
    let stray = open::log_path(&folder.store(), 90);
    let header = |id, after, durability| Header { id, after, durability }.to_bytes();
    let with_record = |after: u64, durability| {
        let mut bytes = header(id, after, durability).to_vec();
        log::encode(id, after + 1, &put(1, b"x").writes, &mut bytes);
        bytes
    };
    let mut newer = header(id, 0, Durability::Process);
    newer[8] = 2;
    let crc = weir_spec::crc32c::crc32c(&newer[..32]);
    newer[32..36].copy_from_slice(&crc.to_le_bytes());
    for (bytes, says) in [
        (header(id ^ 1, 0, Durability::Process).to_vec(), "it is the log of another store"),
        (newer.to_vec(), "it is a log of version 2: use a newer program"),
        (with_record(7, Durability::Power), "commits 1 to 7 are missing before it"),
    ] {
        fs::write(&stray, bytes).expect("a log");
        let refused = folder.refused();
        assert!(refused.contains("meta.redb.log.90") && refused.contains(says), "{refused}");
    }
    fs::write(&stray, b"nothing that a log begins with, and long enough").expect("a log");
    assert!(folder.refused().contains("meta.redb.log.90: it is no log of a store"), "{}", folder.refused());
    // A log without its store.
    let alone = Folder::new();
    fs::write(open::log_path(&alone.store(), 3), header(id, 0, Durability::Process)).expect("a log");
    assert!(alone.refused().contains("meta.redb.log.3: it is there without the store"), "{}", alone.refused());
    assert!(!alone.store().exists());
    // Something else.
    let other = Folder::new();
    fs::write(other.store(), vec![5; 8192]).expect("a file");
    assert!(other.refused().contains("meta.redb: not a metadata store"), "{}", other.refused());
    let database = Folder::new();
    {
        let made = redb::Database::create(database.store()).expect("a database");
        let transaction = made.begin_write().expect("a transaction");
        drop(transaction.open_table(redb::TableDefinition::<u64, u64>::new("theirs")).expect("a table"));
        transaction.commit().expect("a commit");
    }
    assert!(database.refused().contains("it is a database of something else"), "{}", database.refused());
    let empty = Folder::new();
    fs::write(empty.store(), b"").expect("a file");
    assert!(empty.refused().contains("not a metadata store"), "{}", empty.refused());
    let missing = EmbeddedKv::open(Path::new("/nonexistent/meta.redb"), Durability::Power).err().expect("refused");
    assert!(missing.to_string().starts_with("/nonexistent/meta.redb: "), "{missing}");
}

/// A log whose beginning was never written had nothing, wherever it stands.
#[test]
fn logs_that_were_never_begun_are_nothing() {
    for left in [&b""[..], &[0; 100], b"WEIRKV"] {
        let folder = Folder::new();
        let mut kv = folder.open();
        (0..5).for_each(|n| _ = kv.commit(&put(n, b"a")));
        let expected = all(&mut kv);
        let guard = without_checkpoints(&kv);
        let (dead, log) = (folder.dies(), folder.logs().pop().expect("a log"));
        let id = guard.id;
        drop(guard);
        let number = open::number_of(&log).expect("a number");
        fs::write(open::log_path(&dead.store(), number + 1), left).expect("a log");
        let next = Header { id, after: 5, durability: Durability::Process }.to_bytes();
        fs::write(open::log_path(&dead.store(), number + 2), next).expect("a log");
        for _ in 0..2 {
            assert_eq!(all(&mut dead.open()), expected);
        }
    }
}

/// What is promised to outlive a power cut stands on nothing that does not.
#[test]
fn durable_commits_stand_on_durable_ones() {
    let folder = Folder::new();
    let mut kv = folder.open();
    (0..5).for_each(|n| _ = kv.commit(&put(n, b"a")));
    let guard = without_checkpoints(&kv);
    let left = folder.dies();
    drop(guard);
    let kv = EmbeddedKv::open(&left.store(), Durability::Power).expect("the store opens");
    let state = kv.shared.lock();
    assert!(state.is_settled() && state.before.is_empty() && state.revision == 5);
}

#[test]
fn links_and_folders_lead_to_the_same_store() {
    let folder = Folder::new();
    let link = folder.0.join("link");
    let mut kv = folder.open();
    kv.commit(&put(1, b"a"));
    std::os::unix::fs::symlink(folder.store(), &link).expect("a link");
    assert!(EmbeddedKv::open(&link, Durability::Process).is_err());
    drop(kv);
    let kv = EmbeddedKv::open(&link, Durability::Process).expect("the store opens");
    assert_eq!((kv.revision(), folder.logs().len()), (Revision(1), 1));
}

/// What was committed is in the database after a while, without anybody asking for it.
#[test]
fn a_checkpoint_comes_by_itself() {
    let folder = Folder::new();
    let mut kv = folder.open();
    kv.commit(&put(1, b"a"));
    let begun = std::time::Instant::now();
    while !kv.shared.lock().is_settled() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no checkpoint");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(folder.logs().len(), 1);
}

/// The database is opened again after a failure, and goes on from where it was.
#[test]
fn a_database_that_was_opened_again_goes_on() {
    let folder = Folder::new();
    let mut kv = folder.open();
    (0..5).for_each(|n| _ = kv.commit(&put(n, b"a")));
    kv.checkpoint().expect("a checkpoint");
    kv.commit(&put(9, b"b"));
    kv.shared.lock().reopen().expect("it opens again");
    assert_eq!(all(&mut kv).len(), 6);
    kv.checkpoint().expect("a checkpoint");
    assert_eq!((all(&mut kv).len(), kv.trouble()), (6, None));
}

/// A process has died while it made the store.
#[test]
fn a_store_that_was_half_made_is_made_anew() {
    for left in [&b""[..], &[0; 4096], b"redb"] {
        let folder = Folder::new();
        fs::write(folder.0.join("meta.redb.new"), left).expect("a file");
        let mut kv = folder.open();
        assert!(matches!(kv.commit(&put(1, b"a")), CommitOutcome::Done(Revision(1))));
        assert!(!folder.0.join("meta.redb.new").exists());
    }
}

#[test]
fn a_batch_is_as_its_commits_one_by_one() {
    let folder = Folder::new();
    let mut kv = folder.open();
    let mut expect = put(1, b"b");
    expect.expect.push((key(1), Expect::Value(b"a".to_vec())));
    let outcomes = kv.commit_all(&[put(1, b"a"), expect.clone(), expect, put(2, &[0; 600 << 10])]);
    let [CommitOutcome::Done(one), CommitOutcome::Done(two), CommitOutcome::Conflict, CommitOutcome::TooLarge] =
        outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
    assert_eq!((one, two), (Revision(1), Revision(2)));
}

/// Bytes that are written today are read for ever.
#[test]
fn golden_bytes() {
    let header = Header { id: 0x1122_3344_5566_7788, after: 4, durability: Durability::Power };
    let mut bytes = header.to_bytes().to_vec();
    let writes = [KvWrite::Put(KvKey(b"a".to_vec()), b"xy".to_vec()), KvWrite::Delete(KvKey(b"bc".to_vec()))];
    log::encode(header.id, 5, &writes, &mut bytes);
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, GOLDEN);
    let record = Record { revision: 5, writes: writes.to_vec() };
    assert_eq!(log::read(&bytes), Ok(Contents { header, records: vec![record], torn: 0 }));
    assert_eq!(log::read(&bytes[..39]), Err(NoLog::Torn));
}

const GOLDEN: &str = concat!(
    "574549524b564c47",
    "01000000",
    "01000000",
    "8877665544332211",
    "0400000000000000",
    "195e7b59",
    "00000000",
    "17000000",
    "5b2adc77",
    "0500000000000000",
    "02000000",
    "01",
    "01000000",
    "61",
    "02000000",
    "7879",
    "02",
    "02000000",
    "6263",
);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any history with checkpoints, closes and deaths in it is as in a map.
    #[test]
    fn a_history_is_as_in_memory(steps in prop::collection::vec((0u8..40, 0u32..12, 0u8..4), 1..120)) {
        let mut folder = Folder::new();
        let (mut kv, mut model) = (Some(folder.open()), MemoryKv::default());
        for (what, n, value) in steps {
            let store = kv.as_mut().expect("open");
            match what {
                0 => store.checkpoint().expect("a checkpoint"),
                1 => {
                    drop(kv.take());
                    kv = Some(folder.open());
                }
                2 => {
                    let guard = without_checkpoints(store);
                    let left = folder.dies();
                    drop(guard);
                    drop(kv.take());
                    folder = left;
                    kv = Some(folder.open());
                }
                3..10 => {
                    let commit = Commit { expect: vec![], writes: vec![KvWrite::Delete(key(n))] };
                    prop_assert_eq!(store.commit(&commit), model.commit(&commit));
                }
                10..20 => {
                    let mut commit = put(n, &[value]);
                    commit.expect.push((key(n), Expect::Value(vec![value ^ 1])));
                    prop_assert_eq!(store.commit(&commit), model.commit(&commit));
                }
                20..24 => {
                    let most = usize::from(value);
                    let (from, until) = (key(n), key(n + 6));
                    prop_assert_eq!(store.range(&from, &until, most), model.range(&from, &until, most));
                }
                _ => prop_assert_eq!(store.commit(&put(n, &[value])), model.commit(&put(n, &[value]))),
            }
            let store = kv.as_mut().expect("open");
            prop_assert_eq!(store.get(&key(n)), model.get(&key(n)));
            prop_assert_eq!(all(store), all(&mut model));
        }
    }

    /// No bytes are read as more than they are, and none panic.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut log = Header { id: 1, after: 0, durability: Durability::Process }.to_bytes().to_vec();
        prop_assert!(log::read(&bytes).is_err());
        log.extend(&bytes);
        prop_assert_eq!(log::read(&log).map(|c| (c.records.len(), c.torn)), Ok((0, bytes.len())));
    }
}

/// Only a start under the same boot id, or after a close, is known to have what was told; that it may not have stays until it is over.
#[test]
fn what_a_power_cut_may_have_taken_is_known_until_it_is_over() {
    let folder = Folder::new();
    let mut kv = folder.open();
    assert!(!kv.may_have_lost(), "a new one");
    kv.commit(&put(1, b"a"));
    let lock = |folder: &Folder| folder.0.join("meta.redb.lock");
    let killed = folder.dies();
    fs::copy(lock(&folder), lock(&killed)).expect("a copy");
    assert!(!killed.open().may_have_lost(), "the process was killed, and the machine runs on");
    let lost = |words: &[u8]| {
        let left = folder.dies();
        fs::write(lock(&left), words).expect("it is written");
        left
    };
    for words in [&b""[..], b"another boot\n", b"garbage"] {
        assert!(lost(words).open().may_have_lost(), "{words:?}");
    }
    let left = lost(b"another\n");
    assert!(left.open().may_have_lost());
    assert!(left.open().may_have_lost(), "the start before was closed, and had not waited");
    let mut kv = left.open();
    kv.loss_is_over();
    assert!(!kv.may_have_lost());
    drop(kv);
    assert!(!left.open().may_have_lost());
    // With `power` nothing was told before the medium had it.
    let folder = Folder::new();
    let mut kv = EmbeddedKv::open(&folder.store(), Durability::Power).expect("it opens");
    kv.commit(&put(1, b"a"));
    assert!(!folder.dies().open().may_have_lost());
}

/// Names, sizes and the places of bytes are nobody's but their owner's to read.
#[test]
fn files_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    let store = folder.open();
    let files: Vec<_> = fs::read_dir(&folder.0).expect("a folder").map(|entry| entry.expect("an entry")).collect();
    assert!(files.len() >= 3, "the database, its log, its lock: {files:?}");
    for file in files {
        let mode = file.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?} has mode {mode:o}", file.path());
    }
    drop(store);
}

/// What must outlive a power cut does not wait for a checkpoint.
#[test]
fn commits_are_synced_when_they_are_asked_for() {
    let folder = Folder::new();
    let mut kv = folder.open();
    let (told, is_told) = std::sync::mpsc::channel();
    for n in 1..20 {
        kv.commit(&put(n, b"a"));
        let (revision, told) = (kv.revision(), told.clone());
        // The call that is made is that of the first time.
        kv.sync(move || told.send(()).expect("it is listened to"));
        while kv.durable() < revision {
            // A checkpoint may be first.
            let _ = is_told.recv_timeout(CHECKPOINT_EVERY);
        }
    }
    drop(kv);
    assert_eq!(folder.open().get(&key(19)).map(|found| found.map(|found| found.value)), Ok(Some(b"a".to_vec())));
}

/// A log speaks for the commits of the run that it is of: not for those that an earlier one may have lost.
#[test]
fn that_something_may_be_lost_is_not_forgotten_by_a_start_that_is_cut_short() {
    let folder = Folder::new();
    let mut kv = folder.open();
    kv.commit(&put(1, b"a"));
    let left = folder.dies();
    // The words can be read, and not be written: so far the start comes.
    std::os::unix::fs::symlink("/dev/full", left.0.join("meta.redb.lock")).expect("a link");
    let logs = left.logs();
    assert!(EmbeddedKv::open(&left.store(), Durability::Power).is_err());
    assert!(left.logs().iter().all(|log| logs.contains(log)), "no log says that what is there was durable");
    // One that was never begun says nothing of what its run has answered.
    let folder = Folder::new();
    let mut kv = EmbeddedKv::open(&folder.store(), Durability::Power).expect("it opens");
    kv.commit(&put(1, b"a"));
    let left = folder.dies();
    let last = left.logs().last().and_then(|log| open::number_of(log)).expect("a log");
    fs::write(open::log_path(&left.store(), last + 1), [0; 10]).expect("it is written");
    assert!(left.open().may_have_lost());
}
