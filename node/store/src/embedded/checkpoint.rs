//! Checkpoints: a thread that writes what is in the log into the database, while commits go on.

use super::log::{Header, Log};
use super::open::{self, log_path, set_revision};
use super::overlay::{Overlay, VALUES};
use super::{CHECKPOINT_EVERY, LOG_MAX, Shared, State};
use redb::Database;
use std::error::Error;
use std::sync::{Arc, PoisonError};

/// Until the store closes. The last checkpoint is made then.
pub(super) fn run(shared: &Shared) {
    let mut state = shared.lock();
    loop {
        let waits = |s: &mut State| !s.closes && !s.is_wanted && s.log.len() < LOG_MAX;
        let woken = shared.changed.wait_timeout_while(state, CHECKPOINT_EVERY, waits);
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
            state.checkpoints += 1;
            match result {
                Ok(()) => state.trouble = None,
                Err(e) => state.note("a checkpoint failed", &e),
            }
            if !closes || state.trouble.is_some() {
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
    let table = open::table(&database)?;
    let done = {
        let mut state = shared.lock();
        (state.table, state.frozen) = (table, Arc::default());
        std::mem::take(&mut state.before)
    };
    // A log that stays has only what the database has: it is removed by the next start.
    Ok(open::remove(done)?)
}

/// The next log begins, and what is in the one before is set aside; where that was done by a checkpoint that failed, it is that.
fn freeze(shared: &Shared) -> Result<(Arc<Database>, Arc<Overlay>, u64), Failure> {
    let mut state = shared.lock();
    if !state.frozen.is_empty() {
        return Ok((Arc::clone(&state.database), Arc::clone(&state.frozen), state.frozen_until));
    }
    let path = log_path(&state.path, open::number_of(state.log.path()).unwrap_or(0) + 1);
    let header = Header { id: state.id, after: state.revision, durability: state.durability };
    let log = Log::create(&path, header).map_err(|e| format!("{}: {e}", path.display()))?;
    let before = std::mem::replace(&mut state.log, log);
    state.before.push(before.path().into());
    state.frozen = Arc::new(std::mem::take(&mut state.fresh));
    state.frozen_until = state.revision;
    Ok((Arc::clone(&state.database), Arc::clone(&state.frozen), state.revision))
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
