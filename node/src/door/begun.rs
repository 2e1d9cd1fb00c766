//! What drives have begun and that is not due when this process makes room for another one, as the keeper holds it: a file for each client,
//! and of NVMe/TCP one with each connection.

use super::context::Cx;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use weir_controller::Begun;
use weir_sys::keeper_channel::{self, Keep};

/// The bytes of a file that has such commands.
pub(super) fn file(list: &[Begun]) -> io::Result<OwnedFd> {
    keeper_channel::sealed("begun", &Begun::to_bytes(list))
}

/// What such a file says. What cannot be read is begun anew.
pub(super) fn contents(file: OwnedFd) -> Vec<Begun> {
    let read = keeper_channel::contents(file).map_err(|e| e.to_string());
    read.and_then(|bytes| Begun::from_bytes(&bytes).map_err(|e| e.to_string())).unwrap_or_else(|e| {
        tracing::error!("when commands in flight were due cannot be read, and they are begun anew: {e}");
        Vec::new()
    })
}

/// Has the keeper hold them under that name.
pub(super) fn hold(name: &str, list: &[Begun], cx: &Cx) {
    if list.is_empty() {
        return;
    }
    if let Err(e) = file(list).and_then(|file| cx.keep.hold(name, &[file.as_fd()])) {
        tracing::error!("{name}: cannot be handed over, and they are begun anew: {e}");
    }
}

/// What was held under that name, once.
pub(super) fn take(name: &str, keep: &Keep) -> Vec<Begun> {
    let Some(held) = keep.take_one(name) else { return Vec::new() };
    match keep.let_go(name) {
        Ok(()) => contents(held),
        Err(e) => {
            tracing::error!("{name}: the keeper does not listen: {e}");
            Vec::new()
        }
    }
}
