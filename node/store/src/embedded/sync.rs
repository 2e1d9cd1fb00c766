//! What must not wait for a checkpoint goes to the medium by the logs: a thread that syncs them while commits go on.

use super::log::sync_folder;
use super::{Shared, State};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

/// Until the store closes, or a log could not be synced: from then on checkpoints alone say what is durable.
pub(super) fn run(shared: &Shared, has_synced: &(dyn Fn() + Send)) {
    let mut state = shared.lock();
    loop {
        let rests = |state: &mut State| !state.closes && !state.is_sync_wanted;
        state = shared.changed.wait_while(state, rests).unwrap_or_else(PoisonError::into_inner);
        if state.closes {
            return;
        }
        state.is_sync_wanted = false;
        // Under the lock: logs that are listed are there.
        let (store, revision, logs) = (state.path.clone(), state.revision, open_logs(&state));
        drop(state);
        let result = logs.and_then(|logs| sync(&logs, &store));
        state = shared.lock();
        match result {
            Ok(()) => state.synced = state.synced.max(revision),
            Err(e) => {
                // The kernel says this once: whether the medium has it would not be told by another attempt.
                state.cannot_sync = true;
                tracing::error!("{}: a log cannot be synced, checkpoints go on: {e}", store.display());
                return;
            }
        }
        has_synced();
    }
}

/// The logs that have what the database does not.
fn open_logs(state: &State) -> io::Result<Vec<File>> {
    let current = state.log.path().to_path_buf();
    state.before.iter().chain([&current]).map(|log: &PathBuf| File::open(log)).collect()
}

fn sync(logs: &[File], store: &Path) -> io::Result<()> {
    logs.iter().try_for_each(File::sync_data)?;
    sync_folder(store)
}
