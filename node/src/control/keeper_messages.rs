//! What the keeper hears of a worker that serves, and says to it.

use super::NodeControl;
use crate::directory::place;
use crate::pool::volumes::Volumes;
use crate::shard::ShardHandle;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use weir_config::Config;
use weir_sys::keeper_channel::{Introduction, Keep, ToKeeper, ToWorker};
use weir_sys::sched;

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
            sched::prompt();
            loop {
                match control.keep.hear() {
                    Ok(Some((ToWorker::HandOver, _))) => hand_over(),
                    Ok(Some((ToWorker::Connection(met), fds))) => {
                        let (config, stream) = (control.config(), fds.into_iter().next());
                        introduce(&config, Some(&control.volumes), &control.shards, &control.keep, met, stream);
                    }
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
}

/// Hands a front end that the keeper has let in to the shard whose export it has come to.
pub(crate) fn introduce(
    config: &Config,
    volumes: Option<&Volumes>,
    shards: &[ShardHandle],
    keep: &Keep,
    met: Introduction,
    stream: Option<OwnedFd>,
) {
    let path = Path::new(&met.path);
    let export = config.exports.iter().find(|e| e.door.socket().is_some_and(|(p, _)| p == path));
    let of_volume = || volumes?.shard_at(path);
    let shard = export.map(|e| place(e.device, shards.len()).shard).or_else(of_volume);
    let (Some(shard), Some(fd)) = (shard, stream) else {
        tracing::error!(socket = met.path, "a front end came to an export that is not there");
        let _ = keep.say(&ToKeeper::Close(met.number), &[]);
        return;
    };
    shards[shard as usize].post(move |s| {
        s.with_doors(|doors, cx| match doors.vfio_user.knows(Path::new(&met.path)) {
            true => doors.vfio_user.adopt(met, UnixStream::from(fd), cx),
            false => doors.vhost_user.adopt(met, UnixStream::from(fd), cx),
        });
    });
}
