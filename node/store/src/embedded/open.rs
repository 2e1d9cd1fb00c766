//! Opening a store: what the database has, and after it what the logs have.

use super::checkpoint;
use super::error::EmbeddedError;
use super::last_run::LastRun;
use super::log::{self, Contents, Header, Log, NoLog, PRIVATE};
use super::overlay::{self, Overlay, Table, VALUES};
use super::{Durability, State};
use redb::{Database, TableDefinition, TableError, WriteTransaction};
use std::error::Error;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What there is to know of the store: `format` (1), `id`, and `revision`, up to which the database has everything.
const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("weir-store");
const FORMAT: u64 = 1;

/// Bytes of the database that are kept in memory.
const CACHE: usize = 64 << 20;

type Failure = Box<dyn Error>;

/// The database, and what it had when it was looked at last.
pub(super) struct Stored {
    pub database: Arc<Database>,
    pub table: Table,
}

pub(super) fn state(path: &Path, durability: Durability) -> Result<State, EmbeddedError> {
    let path = &resolved(path)?;
    let (lock, is_new_lock) = lock(path)?;
    let last_run = if path.exists() { LastRun::read(&lock) } else { LastRun::NEW };
    let logs = logs(path)?;
    if !path.exists() {
        if let Some((_, log)) = logs.first() {
            return Err(EmbeddedError::new(
                log,
                "it is there without the store that it belongs to: put that back, or move the log away",
            ));
        }
        make(path)?;
    }
    let fail = |e: Failure| EmbeddedError::new(path, e);
    let mut stored = stored(path).inspect_err(|_| remove_lock(path, is_new_lock))?;
    let (id, mut revision) = about(&stored.database).map_err(fail)?;
    let mut fresh = Overlay::new();
    let last = logs.last().map_or(0, |(number, _)| *number);
    let next_log = last.checked_add(2).ok_or_else(|| EmbeddedError::new(path, "there are no numbers left for logs"))?;
    let Replayed { is_whole, misses, was_durable } = replay(&logs, id, &mut revision, &mut fresh)?;
    let may_have_lost = misses || last_run.may_have_lost || !(last_run.is_known || was_durable);
    // What is left out now must not be read by a later start, and what is promised to outlive a power cut stands on what does.
    if !is_whole || durability == Durability::Power && !fresh.is_empty() {
        checkpoint::write(&stored.database, &fresh, revision).map_err(fail)?;
        stored.table = table_of(&stored.database).map_err(fail)?;
        fresh.clear();
    }
    let mut before = logs.into_iter().map(|(_, path)| path).collect();
    // Logs of which the database has everything are removed; others wait for the first checkpoint.
    if fresh.is_empty() {
        remove(std::mem::take(&mut before)).map_err(|e| EmbeddedError::new(path, e))?;
    }
    if !is_whole {
        log::sync_folder(path).map_err(|e| fail(e.into()))?;
    }
    // Before the log: one that says that commits were durable would speak for those that this start has not found.
    LastRun::begin(&lock, may_have_lost).map_err(|e| EmbeddedError::new(&beside(path, ".lock"), e))?;
    let new = log_path(path, next_log - 1);
    let header = Header { id, after: revision, durability };
    let log = Log::create(&new, header).map_err(|e| EmbeddedError::new(&new, e))?;
    Ok(State {
        path: path.clone(),
        id,
        durability,
        stored: Some(stored),
        frozen: Arc::default(),
        frozen_until: 0,
        fresh,
        log,
        next_log,
        before,
        revision,
        failures: 0,
        is_wanted: false,
        is_sync_wanted: false,
        synced: 0,
        cannot_sync: false,
        is_writing: false,
        closes: false,
        refused: None,
        unfinished: None,
        fault: None,
        may_have_lost,
        lock,
    })
}

/// The same file from every folder, and under every name that a symbolic link gives it.
fn resolved(path: &Path) -> Result<PathBuf, EmbeddedError> {
    if path.exists() {
        return path.canonicalize().map_err(|e| EmbeddedError::new(path, e));
    }
    let name = path.file_name().ok_or_else(|| EmbeddedError::new(path, "it is no name of a file"))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(folder.canonicalize().map_err(|e| EmbeddedError::new(path, e))?.join(name))
}

/// One process at a time has a store, and makes it: one that was killed just now may have it for a moment more. Whether the file of the lock was
/// not there before is told as well.
fn lock(path: &Path) -> Result<(File, bool), EmbeddedError> {
    let path = beside(path, ".lock");
    let fail = |e: std::io::Error| EmbeddedError::new(&path, e);
    let is_new = !path.exists();
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true).mode(PRIVATE);
    let file = options.open(&path).map_err(fail)?;
    match weir_sys::lock::exclusive(&file) {
        Ok(true) => Ok((file, is_new)),
        Ok(false) => Err(EmbeddedError::new(
            &path,
            "somebody has the store open; a store has one service, or its metadata are in etcd",
        )),
        Err(e) => Err(fail(e.into())),
    }
}

/// A lock that was made beside a file of something else is nobody's.
fn remove_lock(path: &Path, is_new: bool) {
    if is_new {
        // Where it cannot be removed it is in nobody's way.
        let _ = std::fs::remove_file(beside(path, ".lock"));
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Removes logs, the newest first: what stays where that is cut short is a beginning.
pub(super) fn remove(logs: Vec<PathBuf>) -> Result<(), String> {
    logs.iter().rev().try_for_each(|log| std::fs::remove_file(log).map_err(|e| format!("{}: {e}", log.display())))
}

/// Opens the database.
pub(super) fn stored(path: &Path) -> Result<Stored, EmbeddedError> {
    let fail = |e: Failure| EmbeddedError::new(path, format!("not a metadata store that can be opened: {e}"));
    // Of a file that was cut short redb panics.
    let opened = std::panic::catch_unwind(|| Database::builder().set_cache_size(CACHE).open(path));
    let database = opened.map_err(|_| fail("it is damaged".into()))?.map_err(|e| fail(e.into()))?;
    about(&database).map_err(|e| EmbeddedError::new(path, e))?;
    let table = table_of(&database).map_err(fail)?;
    Ok(Stored { database: Arc::new(database), table })
}

/// A new store has its name when it is whole: `PATH.new` is what the death of a process leaves that makes one.
fn make(path: &Path) -> Result<(), EmbeddedError> {
    let new = beside(path, ".new");
    let fail = |e: Failure| EmbeddedError::new(path, format!("cannot be made: {e}"));
    if new.exists() {
        std::fs::remove_file(&new).map_err(|e| fail(e.into()))?;
    }
    let file = File::options().create_new(true).read(true).write(true).mode(PRIVATE).open(&new);
    let file = file.map_err(|e| fail(e.into()))?;
    let made = Database::builder().create_file(file).map_err(|e| fail(e.into()))?;
    create(&made).map_err(fail)?;
    drop(made);
    std::fs::rename(&new, path).and_then(|()| log::sync_folder(path)).map_err(|e| fail(e.into()))
}

/// Its identity, and up to which revision it has everything.
fn about(database: &Database) -> Result<(u64, u64), Failure> {
    let read = database.begin_read()?;
    let about = match read.open_table(ABOUT) {
        Err(TableError::TableDoesNotExist(_)) => return Err("it is a database of something else".into()),
        opened => opened?,
    };
    let number = |key: &str| -> Result<u64, Failure> {
        Ok(about.get(key)?.ok_or_else(|| format!("it does not say its {key}"))?.value())
    };
    match number("format")? {
        FORMAT => Ok((number("id")?, number("revision")?)),
        other => Err(format!("it has format {other}, and this program knows {FORMAT} alone: use a newer one").into()),
    }
}

fn create(database: &Database) -> Result<(), Failure> {
    // Two stores differ: the hash of nothing under a key that each process draws.
    let id = RandomState::new().hash_one(std::process::id());
    let transaction = database.begin_write()?;
    {
        let mut about = transaction.open_table(ABOUT)?;
        for (key, value) in [("format", FORMAT), ("id", id), ("revision", 0)] {
            about.insert(key, value)?;
        }
        transaction.open_table(VALUES)?;
    }
    transaction.commit()?;
    Ok(())
}

pub(super) fn set_revision(transaction: &WriteTransaction, revision: u64) -> Result<(), Failure> {
    transaction.open_table(ABOUT)?.insert("revision", revision)?;
    Ok(())
}

/// What the database has now.
pub(super) fn table_of(database: &Database) -> Result<Table, Failure> {
    Ok(database.begin_read()?.open_table(VALUES)?)
}

/// The log of that number.
pub(super) fn log_path(store: &Path, number: u64) -> PathBuf {
    beside(store, &format!(".log.{number}"))
}

/// The number of a log.
pub(super) fn number_of(log: &Path) -> Option<u64> {
    log.extension()?.to_str()?.parse().ok()
}

/// All logs of a store, in the order of their numbers.
fn logs(store: &Path) -> Result<Vec<(u64, PathBuf)>, EmbeddedError> {
    let folder = store.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let read = || -> std::io::Result<Vec<(u64, PathBuf)>> {
        let paths = std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| folder.join(entry.file_name())));
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        let numbered = paths.into_iter().filter_map(|path| number_of(&path).map(|number| (number, path)));
        // Names are compared as they would be written.
        Ok(numbered.filter(|(number, path)| path.file_name() == log_path(store, *number).file_name()).collect())
    };
    let mut found = read().map_err(|e| EmbeddedError::new(folder, e))?;
    found.sort();
    Ok(found)
}

/// What the logs have come to.
struct Replayed {
    /// All that is in them counts.
    is_whole: bool,
    /// Commits between two of them are not there.
    misses: bool,
    /// The newest says that commits were answered when the medium had them.
    was_durable: bool,
}

/// Applies what the logs have beyond the database.
///
/// A power cut takes the newest commits, where they were not answered as durable, and may leave later ones: a commit counts only if all
/// before it are there.
fn replay(
    logs: &[(u64, PathBuf)],
    id: u64,
    revision: &mut u64,
    fresh: &mut Overlay,
) -> Result<Replayed, EmbeddedError> {
    let (known, mut is_whole, mut was_durable) = (*revision, true, false);
    let (mut misses, mut last_was_durable) = (false, false);
    for (_, path) in logs {
        let bytes = std::fs::read(path).map_err(|e| EmbeddedError::new(path, e))?;
        let Contents { header, records, torn } = match log::read(&bytes) {
            Ok(contents) => contents,
            // Its beginning was never written. Whether it had anything is told by the log behind it.
            Err(NoLog::Torn) => {
                // Nor does anything say what its commits were answered for.
                (is_whole, last_was_durable) = (false, false);
                continue;
            }
            Err(NoLog::Foreign) => {
                return Err(EmbeddedError::new(path, "it is no log of a store, or damaged: move it away"));
            }
            Err(NoLog::Version(v)) => {
                return Err(EmbeddedError::new(path, format!("it is a log of version {v}: use a newer program")));
            }
        };
        if header.id != id {
            return Err(EmbeddedError::new(path, "it is the log of another store: move it away"));
        }
        last_was_durable = header.durability == Durability::Power;
        was_durable |= last_was_durable;
        if header.after > *revision {
            let missing = format!("commits {} to {} are missing", *revision + 1, header.after);
            if was_durable && !records.is_empty() {
                return Err(EmbeddedError::new(
                    path,
                    format!("{missing} before it: the log before it is damaged or gone"),
                ));
            }
            tracing::warn!("{}: {missing} before it, and those in it are left out", path.display());
            (is_whole, misses) = (false, true);
            continue;
        }
        if *revision > known && header.after < *revision && !records.is_empty() {
            let what = format!("it begins behind commit {}, and the log before it ends with {revision}", header.after);
            return Err(EmbeddedError::new(path, what));
        }
        if torn > 0 {
            tracing::warn!("{}: the last {torn} bytes are no whole commit, and are left out", path.display());
            is_whole = false;
        }
        for record in records.into_iter().filter(|record| record.revision > known) {
            overlay::apply(fresh, record.revision, &record.writes, |_, _| ());
            *revision = record.revision;
        }
    }
    Ok(Replayed { is_whole, misses, was_durable: last_was_durable })
}
