//! Exports whose sockets the keeper has, so that no message of a front end is lost with this process.

use super::super::begun;
use super::{Door, Export, ExportConfig, MODE};
use crate::door::context::Cx;
use crate::held_names::{FRONTS, PLAIN_FRONTS};
use crate::listen::{self, BindError};
use std::os::unix::net::UnixStream;
use weir_controller::Begun;
use weir_sys::keeper_channel::{Introduction, ToKeeper};

/// Names of what a front end has under way at the drive: the keeper's number of it follows.
const BEGUN: &str = "passing:vhost-user-begun:";

fn kind(config: &ExportConfig) -> &'static str {
    // Without journals nobody could take up rings that have started.
    if config.journal { FRONTS } else { PLAIN_FRONTS }
}

/// The keeper listens there no more.
pub(super) fn give_up(config: &ExportConfig, cx: &Cx) {
    let _ = cx.keep.release(&format!("{}{}", kind(config), config.path.display()));
    let _ = std::fs::remove_file(&config.path);
}

/// What the process before had begun for a front end.
pub(super) fn begun(number: u64, cx: &Cx) -> Vec<Begun> {
    begun::take(&format!("{BEGUN}{number}"), cx.keep)
}

impl Door {
    /// Says of each front end's controller whether who serves it next goes on with what the drive has begun.
    pub fn mark_begun(&mut self, cx: &mut Cx) {
        for Export { config, conn, .. } in &self.exports {
            let Some(conn) = conn else { continue };
            let goes_on = conn.number().is_some() && conn.can_pass_on();
            cx.drives.to_poll(config.drive).set_goes_on(conn.controller(), goes_on);
        }
    }

    /// Has the keeper hold when what the drives have begun is due. Nothing is done for the front ends any more.
    pub fn leave(&mut self, cx: &mut Cx) {
        for Export { config, conn, .. } in &self.exports {
            let Some((number, conn)) = conn.as_ref().and_then(|conn| Some((conn.number()?, conn))) else { continue };
            let list = cx.drives.machine(config.drive).begun(conn.controller());
            begun::hold(&format!("{BEGUN}{number}"), &list, cx);
        }
    }

    /// An export whose front ends the keeper lets in, so that none of their messages is lost with this process.
    pub(super) fn export_kept(
        &mut self,
        config: ExportConfig,
        vacant: Option<usize>,
        cx: &mut Cx,
    ) -> Result<(), BindError> {
        listen::keep_door(cx.keep, kind(&config), &config.path, MODE)?;
        self.put(config, None, vacant);
        Ok(())
    }

    /// Takes a front end in that the keeper has let in, in place of the one before it and once what that one left is over.
    pub fn adopt(&mut self, met: Introduction, socket: UnixStream, cx: &mut Cx) {
        let at = self.exports.iter().position(|e| !e.ended && e.config.path == std::path::Path::new(&met.path));
        let Some(at) = at.map(|at| at as u16) else {
            let _ = cx.keep.say(&ToKeeper::Close(met.number), &[]);
            return tracing::warn!(socket = met.path, "a front end came to an export that is not there");
        };
        self.remove(at, cx);
        self.exports[usize::from(at)].met = Some((met, socket));
        self.accept(at, cx);
    }
}
