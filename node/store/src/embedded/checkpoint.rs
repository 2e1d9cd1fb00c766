//! Checkpoints: a thread that writes what is in the log into the database, while commits go on.

use super::log::{Header, Log};
use super::open::{log_path, remove, set_revision, table_of};
use super::overlay::{Overlay, VALUES};
use super::{CHECKPOINT_EVERY, LOG_MAX, Shared, State};
use redb::Database;
use std::error::Error;
use std::sync::{Arc, PoisonError};

/// Where the thread panics, nobody waits for it for ever.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().fail("no checkpoints any more", &"their thread has panicked");
            self.0.changed.notify_all();
        }
    }
}

/// Until the store closes. The last checkpoint is made then.
pub(super) fn run(shared: &Shared) {
    let _ends = Ends(shared);
    let mut state = shared.lock();
    loop {
        // Nothing to do, and nobody who could: no timer.
        let rests = |s: &mut State| !s.closes && (s.is_settled() || s.fault.is_some());
        state = shared.changed.wait_while(state, rests).unwrap_or_else(PoisonError::into_inner);
        // After a failure the next attempt is not made at once, however full the log is.
        let enough = if state.unfinished.is_some() { u64::MAX } else { LOG_MAX };
        let gathers = |s: &mut State| !s.closes && !s.is_wanted && s.fault.is_none() && s.log.len() < enough;
        let woken = shared.changed.wait_timeout_while(state, CHECKPOINT_EVERY, gathers);
        state = woken.unwrap_or_else(PoisonError::into_inner).0;
        state.is_wanted = false;
        if state.fault.is_some() {
            if state.closes {
                return;
            }
            continue;
        }
        let closes = state.closes;
        // What is frozen has not been written by the checkpoint before.
        while !(state.frozen.is_empty() && state.fresh.is_empty()) {
            drop(state);
            let result = checkpoint(shared);
            state = shared.lock();
            state.is_writing = false;
            state.unfinished = result.err().map(|e| state.told(state.unfinished.as_ref(), "a checkpoint failed", &e));
            if state.unfinished.is_some() {
                state.failures += 1;
                // It says itself what that comes to.
                let _ = state.reopen();
            }
            if !closes || state.unfinished.is_some() {
                break;
            }
        }
        shared.changed.notify_all();
        if closes {
            return;
        }
    }
}

type Failure = Box<dyn Error>;

fn checkpoint(shared: &Shared) -> Result<(), Failure> {
    let (database, frozen, revision) = freeze(shared)?;
    write(&database, &frozen, revision)?;
    let table = table_of(&database)?;
    let done = {
        let mut state = shared.lock();
        if let Some(stored) = &mut state.stored {
            stored.table = table;
        }
        state.frozen = Arc::default();
        std::mem::take(&mut state.before)
    };
    // A log that stays has only what the database has: it is removed by the next start.
    Ok(remove(done)?)
}

/// The next log begins, and what is in the one before is set aside; where that was done by a checkpoint that failed, it is that.
fn freeze(shared: &Shared) -> Result<(Arc<Database>, Arc<Overlay>, u64), Failure> {
    let mut state = shared.lock();
    state.is_writing = true;
    let database = state.stored.as_ref().map(|stored| Arc::clone(&stored.database)).ok_or("it is not open")?;
    if !state.frozen.is_empty() {
        return Ok((database, Arc::clone(&state.frozen), state.frozen_until));
    }
    let path = log_path(&state.path, state.next_log);
    let header = Header { id: state.id, after: state.revision, durability: state.durability };
    let log = Log::create(&path, header).map_err(|e| format!("{}: {e}", path.display()))?;
    state.next_log += 1;
    let before = std::mem::replace(&mut state.log, log);
    state.before.push(before.path().into());
    state.frozen = Arc::new(std::mem::take(&mut state.fresh));
    state.frozen_until = state.revision;
    Ok((database, Arc::clone(&state.frozen), state.revision))
}

/// Changes, and up to which revision the database has all, in one transaction that is durable when this returns.
pub(super) fn write(database: &Database, changes: &Overlay, revision: u64) -> Result<(), Failure> {
    let mut transaction = database.begin_write()?;
    // Where the process is killed, the next start does not look through the whole file.
    transaction.set_quick_repair(true);
    {
        let mut values = transaction.open_table(VALUES)?;
        for (key, change) in changes {
            match change.stored() {
                Some(value) => drop(values.insert(&key.0[..], &value[..])?),
                None => drop(values.remove(&key.0[..])?),
            }
        }
    }
    set_revision(&transaction, revision)?;
    transaction.commit()?;
    Ok(())
}
