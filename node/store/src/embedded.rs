//! A key-value store in a file: redb, and a log before it, since redb alone is either slow or loses what it has acknowledged when its
//! process dies.
//!
//! ```text
//!   commit ──► fresh (in memory) ──► log.N (one write, before the answer) ── each second, or 64 MiB ──┐
//!                                                                                                     ▼
//!   get, range ──► fresh, frozen, redb            log.N+1 begins, fresh is frozen ──► redb, durable ──► log.N is removed
//! ```
//! With [`Durability::Process`] the kernel has a commit before it is answered: the death of the process loses nothing, a power cut at
//! most what came since the last checkpoint began, and always the newest. With [`Durability::Power`] the medium has it. What must not be lost
//! to a power cut although it was answered for the process alone is synced with the log: [`EmbeddedKv::sync`].
//!
//! Commits do not wait for a checkpoint. Where the file system is full, commits are [unknown](CommitOutcome::Unknown), in truth not made, until
//! there is room again; a checkpoint that fails is tried again. [`EmbeddedKv::trouble`] says so. After a failure of which nobody knows
//! what the medium has, nothing is answered any more.

mod checkpoint;
mod error;
mod last_run;
mod log;
mod open;
mod overlay;
mod sync;
#[cfg(test)]
mod tests;

pub use error::EmbeddedError;

use last_run::LastRun;
use log::{Log, LogFailure};
use open::Stored;
use overlay::{Change, Overlay, Table};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_store::kv::{Commit, CommitOutcome, Expect, Kv, KvKey, KvUnavailable, Revision, Versioned};

/// When a commit is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The kernel has it: it outlives the process.
    Process,
    /// The medium has it: it outlives a power cut.
    Power,
}

/// How long changes are in the log alone, at the most, before a checkpoint begins.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// Bytes of a log at which a checkpoint begins before its time. At twice as many commits wait for it.
const LOG_MAX: u64 = 64 << 20;

/// See the [module](self). A drop makes a last checkpoint.
pub struct EmbeddedKv {
    shared: Arc<Shared>,
    checkpointer: Option<JoinHandle<()>>,
    syncer: Option<JoinHandle<()>>,
}

/// What the checkpointer shares with the owner.
struct Shared {
    state: Mutex<State>,
    /// There is reason for a checkpoint, or one has ended.
    changed: Condvar,
}

/// Commits that are made together.
#[derive(Default)]
struct Batch {
    /// For the log.
    records: Vec<u8>,
    /// What was in memory before, in order.
    replaced: Vec<(KvKey, Option<Change>)>,
}

struct State {
    path: PathBuf,
    /// Of this store: a log with another one is not its.
    id: u64,
    durability: Durability,
    /// What redb had at the last checkpoint; `None` after a failure that a second attempt to open it has not helped.
    stored: Option<Stored>,
    /// What came since, and is being written by a checkpoint; and the last revision in it.
    frozen: Arc<Overlay>,
    frozen_until: u64,
    /// What came since then.
    fresh: Overlay,
    log: Log,
    /// The number of the next log.
    next_log: u64,
    /// Logs whose commits the next checkpoint has.
    before: Vec<PathBuf>,
    revision: u64,
    /// Checkpoints that have failed.
    failures: u64,
    is_wanted: bool,
    /// The logs are to be synced; up to which revision they are; and whether that has failed once.
    is_sync_wanted: bool,
    synced: u64,
    cannot_sync: bool,
    /// The checkpointer has the database open for itself.
    is_writing: bool,
    closes: bool,
    /// Why the last commit was refused, and why the last checkpoint failed: both are tried again.
    refused: Option<String>,
    unfinished: Option<String>,
    /// What failed for good.
    fault: Option<String>,
    /// What was told last may not be there: see [`EmbeddedKv::may_have_lost`].
    may_have_lost: bool,
    /// Held for life: one process at a time. It says how the last one has ended.
    lock: File,
}

impl EmbeddedKv {
    /// Opens the store in that file, or makes it, and its logs beside it (`PATH.log.N`).
    ///
    /// # Errors
    /// Somebody has it open, it is something else or of a newer version, its logs are damaged, or the folder is not writable.
    pub fn open(path: &Path, durability: Durability) -> Result<Self, EmbeddedError> {
        let state = open::state(path, durability)?;
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let with = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("weir-checkpoint".into()).spawn(move || checkpoint::run(&with));
        let checkpointer = thread.map_err(|e| EmbeddedError::new(path, format!("no thread for checkpoints: {e}")))?;
        Ok(Self { shared, checkpointer: Some(checkpointer), syncer: None })
    }

    /// Makes commits in their order, each as if it were alone, with one write and, for [`Durability::Power`], one wait for the medium.
    pub fn commit_all(&mut self, commits: &[Commit]) -> Vec<CommitOutcome> {
        let mut state = self.shared.lock();
        while state.is_behind() && state.fault.is_none() && state.unfinished.is_none() {
            self.shared.changed.notify_all();
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let was_settled = state.is_settled();
        let outcomes = state.commit_all(commits);
        if was_settled && !state.is_settled() || state.log.len() >= LOG_MAX {
            self.shared.changed.notify_all();
        }
        outcomes
    }

    /// What has failed last: nothing is answered since then, or it is tried again with the next commit or checkpoint. `None`: all is well.
    pub fn trouble(&self) -> Option<String> {
        let state = self.shared.lock();
        [&state.fault, &state.refused, &state.unfinished].into_iter().flatten().next().cloned()
    }

    /// Whether the store may lack what was told last: it was not closed, and the machine has been started since, or it is not known. With
    /// [`Durability::Power`] nothing is lost by that. It stays so over further starts until [`loss_is_over`](Self::loss_is_over).
    pub fn may_have_lost(&self) -> bool {
        self.shared.lock().may_have_lost
    }

    /// Nobody goes by what was lost any more.
    pub fn loss_is_over(&mut self) {
        let mut state = self.shared.lock();
        // Where it cannot be written the next start waits once more.
        if state.may_have_lost && LastRun::is_over(&state.lock).is_ok() {
            state.may_have_lost = false;
        }
    }

    /// The revision of the last commit that changed anything.
    pub fn revision(&self) -> Revision {
        Revision(self.shared.lock().revision)
    }

    /// All commits up to this revision are on the medium.
    pub fn durable(&self) -> Revision {
        let state = self.shared.lock();
        Revision(match state.durability {
            Durability::Power => state.revision,
            Durability::Process if state.is_settled() => state.revision,
            Durability::Process if state.frozen.is_empty() => state.frozen_until.max(state.synced),
            Durability::Process => state.synced,
        })
    }

    /// Has the medium take all commits so far, without waiting; [`durable`](Self::durable) says when it has. `has_synced` is called then, by another thread,
    /// and for each later call as well: that of the first call counts. Where logs cannot be synced the next checkpoint does it.
    pub fn sync(&mut self, has_synced: impl Fn() + Send + 'static) {
        {
            let mut state = self.shared.lock();
            let is_done = state.durability == Durability::Power || state.is_settled() || state.synced >= state.revision;
            if is_done || state.cannot_sync || state.fault.is_some() {
                return;
            }
            state.is_sync_wanted = true;
        }
        self.shared.changed.notify_all();
        if self.syncer.is_none() {
            let with = Arc::clone(&self.shared);
            let run = move || sync::run(&with, &has_synced);
            match std::thread::Builder::new().name("weir-log-sync".into()).spawn(run) {
                Ok(thread) => self.syncer = Some(thread),
                Err(e) => tracing::warn!("no thread to sync the log, which waits for a checkpoint: {e}"),
            }
        }
    }

    /// Makes a checkpoint, and waits for its end: then the medium has all commits, however they were answered.
    ///
    /// # Errors
    /// What has failed, for good or in this attempt.
    pub fn checkpoint(&mut self) -> Result<(), EmbeddedError> {
        let mut state = self.shared.lock();
        // One that is under way may be about to fail.
        let enough = state.failures + 2;
        while state.fault.is_none() && state.failures < enough && !state.is_settled() {
            state.is_wanted = true;
            self.shared.changed.notify_all();
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match state.fault.as_ref().or(state.unfinished.as_ref()) {
            None => Ok(()),
            Some(why) => Err(EmbeddedError::new(&state.path, why)),
        }
    }
}

impl Drop for EmbeddedKv {
    fn drop(&mut self) {
        self.shared.lock().closes = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.checkpointer.take() {
            // A panic there has been printed; the log has what it did not write.
            let _ = thread.join();
        }
        if let Some(thread) = self.syncer.take() {
            let _ = thread.join();
        }
        let state = self.shared.lock();
        if state.is_settled() && state.fault.is_none() {
            // Where it cannot be written the next start does not know, and waits.
            let _ = LastRun::end(&state.lock, state.may_have_lost);
        }
    }
}

impl Kv for EmbeddedKv {
    fn get(&mut self, key: &KvKey) -> Result<Option<Versioned>, KvUnavailable> {
        let mut state = self.shared.lock();
        state.answers()?;
        state.find(key)
    }

    fn range(&mut self, from: &KvKey, until: &KvKey, most: usize) -> Result<Vec<(KvKey, Versioned)>, KvUnavailable> {
        let mut state = self.shared.lock();
        state.answers()?;
        state.read(|state, table| overlay::range(&[&state.fresh, &state.frozen], table, (from, until), most))
    }

    fn commit(&mut self, commit: &Commit) -> CommitOutcome {
        self.commit_all(std::slice::from_ref(commit)).pop().unwrap_or(CommitOutcome::Unknown)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn answers(&self) -> Result<(), KvUnavailable> {
        if self.fault.is_some() { Err(KvUnavailable) } else { Ok(()) }
    }

    /// Something has failed: from now on nothing is answered.
    fn fail(&mut self, what: &str, why: &dyn std::fmt::Display) -> KvUnavailable {
        let why = format!("{}: {what}: {why}", self.path.display());
        tracing::error!("{why}; nothing is answered until the store was opened again");
        self.fault.get_or_insert(why);
        KvUnavailable
    }

    /// The database has all commits.
    fn is_settled(&self) -> bool {
        self.fresh.is_empty() && self.frozen.is_empty()
    }

    /// There is so much to be written that more would take too much memory.
    fn is_behind(&self) -> bool {
        self.log.len() >= 2 * LOG_MAX
    }

    /// What is said of something that failed and is tried again: once, while it is the same.
    fn told(&self, before: Option<&String>, what: &str, why: &dyn std::fmt::Display) -> String {
        let why = format!("{}: {what}: {why}", self.path.display());
        if before != Some(&why) {
            tracing::error!("{why}; it is tried again");
        }
        why
    }

    /// Reads the database. After a failed write it refuses everything until it was opened again.
    fn read<T>(&mut self, read: impl Fn(&Self, &Table) -> Result<T, redb::StorageError>) -> Result<T, KvUnavailable> {
        for attempt in 0..2 {
            match self.stored.as_ref().map(|stored| read(self, &stored.table)) {
                Some(Ok(found)) => return Ok(found),
                // A write of the checkpointer has failed, and it is about to open the database again.
                Some(Err(_)) if self.is_writing => return Err(KvUnavailable),
                Some(Err(_)) if attempt == 0 => self.reopen()?,
                Some(Err(e)) => return Err(self.fail("cannot be read", &e)),
                None => return Err(self.fail("cannot be read", &"it could not be opened again")),
            }
        }
        Err(KvUnavailable)
    }

    /// Opens the database again, as it was at the last checkpoint.
    fn reopen(&mut self) -> Result<(), KvUnavailable> {
        self.stored = None;
        match open::stored(&self.path) {
            Ok(stored) => self.stored = Some(stored),
            Err(e) => return Err(self.fail("cannot be opened again", &e)),
        }
        Ok(())
    }

    fn find(&mut self, key: &KvKey) -> Result<Option<Versioned>, KvUnavailable> {
        if let Some(change) = self.fresh.get(key).or_else(|| self.frozen.get(key)) {
            return Ok(change.versioned());
        }
        self.read(|_, table| overlay::stored(table, key))
    }

    fn holds(&mut self, key: &KvKey, expect: &Expect) -> Result<bool, KvUnavailable> {
        Ok(match (self.find(key)?, expect) {
            (None, Expect::Absent) | (Some(_), Expect::Present) => true,
            (Some(found), Expect::Value(value)) => found.value == *value,
            (Some(found), Expect::Revision(revision)) => found.revision == *revision,
            _ => false,
        })
    }

    /// Before it is in the log nobody sees it: the lock is held until then.
    fn commit_all(&mut self, commits: &[Commit]) -> Vec<CommitOutcome> {
        if self.is_behind() {
            self.refused = Some(self.told(self.refused.as_ref(), "commits are refused", &"checkpoints fail"));
            return vec![CommitOutcome::Unknown; commits.len()];
        }
        let (before, mut batch) = (self.revision, Batch::default());
        let outcomes = commits.iter().map(|commit| self.apply(commit, &mut batch)).collect::<Vec<_>>();
        let is_written = self.fault.is_none() && (batch.records.is_empty() || self.write(&batch.records));
        if is_written {
            return outcomes;
        }
        overlay::take_back(&mut self.fresh, batch.replaced);
        self.revision = before;
        let is_known = |outcome: &CommitOutcome| *outcome == CommitOutcome::TooLarge;
        outcomes.into_iter().map(|o| if is_known(&o) { o } else { CommitOutcome::Unknown }).collect()
    }

    /// Has the log take records; whether it has.
    fn write(&mut self, records: &[u8]) -> bool {
        match self.log.append(records, self.durability) {
            Ok(()) => {
                self.refused = None;
                return true;
            }
            Err(LogFailure::NotWritten(e)) => {
                self.refused = Some(self.told(self.refused.as_ref(), "commits are refused", &e));
            }
            Err(LogFailure::Uncertain(e)) => drop(self.fail("the log cannot be written", &e)),
        }
        false
    }

    fn apply(&mut self, commit: &Commit, batch: &mut Batch) -> CommitOutcome {
        if !commit.is_legal() {
            return CommitOutcome::TooLarge;
        }
        for (key, expect) in &commit.expect {
            match self.answers().and_then(|()| self.holds(key, expect)) {
                Ok(true) => {}
                Ok(false) => return CommitOutcome::Conflict,
                Err(KvUnavailable) => return CommitOutcome::Unknown,
            }
        }
        if !commit.writes.is_empty() {
            self.revision += 1;
            log::encode(self.id, self.revision, &commit.writes, &mut batch.records);
            overlay::apply(&mut self.fresh, self.revision, &commit.writes, |key, old| batch.replaced.push((key, old)));
        }
        CommitOutcome::Done(Revision(self.revision))
    }
}
