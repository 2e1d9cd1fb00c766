//! Another program for the node: asked for here, decided and carried out by the keeper.

use super::{NodeControl, gone};
use crate::refusal::Refusal;
use crate::upgrade::{UpgradeStart, UpgradeState, UpgradeStatus};
use rustix::fs::Access;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use weir_keeper::Layouts;
use weir_session::vfio_user::checkpoint;
use weir_sys::keeper_channel::{self, ToKeeper};
use weir_sys::media::{FLASH_SCHEMA, RAM_SCHEMA, REGIONS_SCHEMA};

/// What this program reads and writes of what outlives a worker.
pub fn layouts() -> Layouts {
    let arenas = [RAM_SCHEMA, FLASH_SCHEMA, REGIONS_SCHEMA, crate::owner::SCHEMA];
    let list = Layouts::default()
        .with("keeper", keeper_channel::VERSION, keeper_channel::VERSION)
        .with("arena", weir_sys::arena::VERSION, weir_sys::arena::VERSION)
        .with("journal", weir_journal::VERSION, weir_journal::VERSION)
        .with("nvme-tcp-connection", weir_session::nvme_tcp::SAVED_VERSION, weir_session::nvme_tcp::SAVED_VERSION)
        .with("association", weir_controller::ASSOCIATION_VERSION, weir_controller::ASSOCIATION_VERSION)
        .with("vfio-user-client", weir_session::vfio_user::SAVED_VERSION, weir_session::vfio_user::SAVED_VERSION)
        .with("vfio-user-checkpoint", checkpoint::VERSION, checkpoint::VERSION)
        .with("checkpoint", weir_controller::CHECKPOINT_VERSION, weir_controller::CHECKPOINT_VERSION)
        .with("function", weir_controller::FUNCTION_VERSION, weir_controller::FUNCTION_VERSION)
        .with("drive-state", weir_controller::NONVOLATILE_VERSION, weir_controller::NONVOLATILE_VERSION)
        // A name that programs of layout 1 do not know: they may be followed, since a file stays as it is then, and may not follow.
        .with("drive-state-file", weir_sys::media::REMEMBERED_VERSION, weir_sys::media::REMEMBERED_VERSION);
    arenas.into_iter().fold(list, |list, s| list.with(s.name, s.version, s.version))
}

/// Why a file cannot be a program, and what to do.
fn unfit(path: &Path) -> Option<String> {
    let shown = path.display();
    if !path.is_absolute() {
        return Some(format!("binary: {shown}: write its whole path, from / on"));
    }
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) => return Some(format!("binary: {shown}: {e}; name a weir binary")),
    };
    if !meta.is_file() {
        return Some(format!("binary: {shown} is no file; name a weir binary"));
    }
    let may = rustix::fs::access(path, Access::EXEC_OK);
    may.err().map(|_| format!("binary: {shown} cannot be executed by the node; chmod +x it, or name another one"))
}

impl NodeControl {
    /// The keeper has said how far the upgrade is.
    pub(super) fn hear_upgrade(&self, text: &str) {
        match serde_json::from_str::<UpgradeStatus>(text) {
            Ok(status) => {
                let mut known = self.upgrade.lock().unwrap_or_else(PoisonError::into_inner);
                let before = std::mem::replace(&mut *known, status.clone());
                drop(known);
                self.note_upgrade(&before, &status);
            }
            Err(e) => tracing::warn!("the keeper says of an upgrade what this release does not understand: {e}"),
        }
    }

    /// How far the last upgrade is.
    pub fn upgrade_status(&self) -> UpgradeStatus {
        self.upgrade.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins to replace the program that serves; returns at once.
    ///
    /// # Errors
    /// There is no keeper, an upgrade is under way, or the file is no program.
    pub fn upgrade(&self, start: &UpgradeStart) -> Result<UpgradeStatus, Refusal> {
        if !self.keep.is_kept() {
            return Err(Refusal::Conflict(
                "upgrade: the node has no keeper, and only one can replace its program while it serves; leave keeper = false out of \
                 [node] and start the node again"
                    .into(),
            ));
        }
        if let Some(why) = start.binary.as_deref().and_then(|path| unfit(Path::new(path))) {
            return Err(Refusal::Invalid(why));
        }
        let mut now = self.upgrade.lock().unwrap_or_else(PoisonError::into_inner);
        if now.state.is_open() {
            let on = if now.state == UpgradeState::Probation { " (it serves, on probation)" } else { "" };
            return Err(Refusal::Conflict(format!(
                "upgrade: one to {} is under way{on}; wait for its end",
                now.binary
            )));
        }
        if self.draining.load(Ordering::Relaxed) {
            return Err(gone());
        }
        let what = serde_json::to_string(start).map_err(|e| Refusal::Invalid(e.to_string()))?;
        let unheard = |e| Refusal::Unavailable(format!("upgrade: the keeper does not hear: {e}"));
        self.keep.say(&ToKeeper::Upgrade(what), &[]).map_err(unheard)?;
        let binary = start.binary.clone().unwrap_or_default();
        let begun =
            UpgradeStatus { number: now.number + 1, state: UpgradeState::Preparing, binary, ..Default::default() };
        let before = std::mem::replace(&mut *now, begun.clone());
        self.note_upgrade(&before, &begun);
        Ok(begun)
    }
}
