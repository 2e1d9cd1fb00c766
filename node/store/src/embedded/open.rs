//! Opening a store: what the database has, and after it what the logs have.

use super::checkpoint;
use super::error::EmbeddedError;
use super::log::{self, Contents, Header, Log, NoLog};
use super::overlay::{self, Overlay, Table, VALUES};
use super::{Durability, State};
use redb::{Database, DatabaseError, TableDefinition, TableError, WriteTransaction};
use std::error::Error;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What there is to know of the store: `format` (1), `id`, and `revision`, up to which the database has everything.
const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("weir-store");
const FORMAT: u64 = 1;

type Failure = Box<dyn Error>;

pub(super) fn state(path: &Path, durability: Durability) -> Result<State, EmbeddedError> {
    let fail = |e: Failure| EmbeddedError::new(path, e);
    let database = Arc::new(database(path)?);
    let (id, mut revision) = about(&database).map_err(fail)?;
    let mut fresh = Overlay::new();
    let logs = logs(path)?;
    let last = logs.last().map_or(0, |(number, _)| *number);
    let is_whole = replay(&logs, id, &mut revision, &mut fresh)?;
    if !is_whole {
        // What is left out now must not be read by a later start.
        checkpoint::write(&database, &fresh, revision).map_err(fail)?;
        fresh.clear();
    }
    // Whoever goes on writes behind nothing that was torn.
    let header = Header { id, after: revision, durability };
    let new = log_path(path, last + 1);
    let log = Log::create(&new, header).map_err(|e| EmbeddedError::new(&new, e))?;
    let table = table(&database).map_err(fail)?;
    let (path, before) = (path.to_path_buf(), logs.into_iter().map(|(_, path)| path).collect());
    let mut state = State {
        path,
        id,
        durability,
        database,
        table,
        frozen: Arc::default(),
        frozen_until: 0,
        fresh,
        log,
        before,
        revision,
        checkpoints: 0,
        is_wanted: false,
        closes: false,
        trouble: None,
        fault: None,
    };
    // Logs of which the database has everything are removed; others wait for the first checkpoint.
    if state.fresh.is_empty() {
        remove(std::mem::take(&mut state.before)).map_err(|e| EmbeddedError::new(&state.path, e))?;
    }
    Ok(state)
}

/// Removes logs, the newest first: what stays where that is cut short is a beginning.
pub(super) fn remove(logs: Vec<PathBuf>) -> Result<(), String> {
    logs.iter().rev().try_for_each(|log| std::fs::remove_file(log).map_err(|e| format!("{}: {e}", log.display())))
}

fn database(path: &Path) -> Result<Database, EmbeddedError> {
    if !path.exists() {
        make(path)?;
    }
    Database::open(path).map_err(|e| match e {
        DatabaseError::DatabaseAlreadyOpen => {
            EmbeddedError::new(path, "somebody has it open; a store has one service, or its metadata are in etcd")
        }
        e => EmbeddedError::new(path, format!("not a metadata store that can be opened: {e}")),
    })
}

/// A new store has its name when it is whole: `PATH.new` is what the death of a process leaves that makes one.
fn make(path: &Path) -> Result<(), EmbeddedError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let fail = |e: Failure| EmbeddedError::new(path, format!("cannot be made: {e}"));
    if new.exists() {
        if let Err(DatabaseError::DatabaseAlreadyOpen) = Database::open(&new) {
            return Err(EmbeddedError::new(path, "somebody is about to make it"));
        }
        std::fs::remove_file(&new).map_err(|e| fail(e.into()))?;
    }
    let made = Database::create(&new).map_err(|e| fail(e.into()))?;
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
pub(super) fn table(database: &Database) -> Result<Table, Failure> {
    Ok(database.begin_read()?.open_table(VALUES)?)
}

/// The log of that number.
pub(super) fn log_path(store: &Path, number: u64) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(format!(".log.{number}"));
    name.into()
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

/// Applies what the logs have beyond the database; whether that was all of them.
///
/// A power cut takes the newest commits, where they were not answered as durable, and may leave later ones: a commit counts only if all
/// before it are there.
fn replay(logs: &[(u64, PathBuf)], id: u64, revision: &mut u64, fresh: &mut Overlay) -> Result<bool, EmbeddedError> {
    let (known, mut is_whole) = (*revision, true);
    for (i, (_, path)) in logs.iter().enumerate() {
        let bytes = std::fs::read(path).map_err(|e| EmbeddedError::new(path, e))?;
        let Contents { header, records, torn } = match log::read(&bytes) {
            Ok(contents) => contents,
            // Nothing was answered before its beginning was written.
            Err(NoLog::Torn) if i + 1 == logs.len() => return Ok(false),
            Err(NoLog::Torn) => {
                return Err(EmbeddedError::new(path, "its beginning is damaged, and a newer log is there"));
            }
            Err(NoLog::Version(v)) => {
                return Err(EmbeddedError::new(path, format!("it is a log of version {v}: use a newer program")));
            }
        };
        if header.id != id {
            return Err(EmbeddedError::new(path, "it is the log of another store: move it away"));
        }
        if header.after > *revision {
            let missing = format!("commits {} to {} are missing", *revision + 1, header.after);
            if header.durability == Durability::Power && !records.is_empty() {
                return Err(EmbeddedError::new(
                    path,
                    format!("{missing} before it: the log before it is damaged or gone"),
                ));
            }
            tracing::warn!("{}: {missing} before it, and those in it are left out", path.display());
            is_whole = false;
            continue;
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
    Ok(is_whole)
}
