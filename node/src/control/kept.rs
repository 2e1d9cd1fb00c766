//! What the keeper hears of a worker that serves, and says to it.

use super::NodeControl;
use crate::node::place;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use weir_sys::keep::{Introduction, ToKeeper, ToWorker};

/// What the keeper calls the configuration as it is now.
pub const CONFIG: &str = "config";

impl NodeControl {
    /// Has the keeper hold the configuration as it is now: the next worker begins with it.
    pub(super) fn hold_config(&self) {
        if self.keep.is_kept() {
            if let Err(e) = self.keep.hold_text(CONFIG, &self.config().to_toml()) {
                tracing::error!("changes of the configuration will not outlive this process: {e}");
            }
        }
    }

    /// Deals with what the keeper says, as long as there is one; the thread calls `hand_over` when another worker is to serve, and
    /// `gone` when there is no keeper any more.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn serve_keeper(
        self: &Arc<Self>,
        hand_over: impl Fn() + Send + 'static,
        gone: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        if !self.keep.is_kept() {
            return Ok(());
        }
        self.hold_config();
        self.keep.say(&ToKeeper::Ready, &[])?;
        let control = self.clone();
        let listen = move || {
            loop {
                match control.keep.hear() {
                    Ok(Some((ToWorker::HandOver, _))) => hand_over(),
                    Ok(Some((ToWorker::Connection(met), fds))) => control.introduce(met, fds),
                    Ok(Some((ToWorker::Upgrade(text), _))) => control.hear_upgrade(&text),
                    Ok(Some((word, _))) => tracing::warn!("the keeper says {word:?} to a worker that serves"),
                    Ok(None) => break,
                    Err(e) => {
                        tracing::error!("the keeper: {e}");
                        break;
                    }
                }
            }
            gone();
        };
        std::thread::Builder::new().name("weir-keeper".into()).spawn(listen)?;
        Ok(())
    }

    fn introduce(&self, met: Introduction, fds: Vec<OwnedFd>) {
        let config = self.config();
        let path = Path::new(&met.path);
        let export = config.exports.iter().find(|e| e.door.socket().is_some_and(|(p, _)| p == path));
        let shard = export.map(|e| place(e.device, self.shards.len()).shard).or_else(|| self.volumes.shard_at(path));
        let (Some(shard), Some(fd)) = (shard, fds.into_iter().next()) else {
            tracing::error!(socket = met.path, "a front end came to an export that is not there");
            let _ = self.keep.say(&ToKeeper::Close(met.number), &[]);
            return;
        };
        let adopt = move |s: &mut crate::shard::Shard| {
            s.with_doors(|doors, cx| doors.vhost_user.adopt(met, UnixStream::from(fd), cx));
        };
        self.shards[shard as usize].post(adopt);
    }
}
