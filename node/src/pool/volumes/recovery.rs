//! Changes of a pool, which has recovered before if its metadata could not be written; and its end.

use super::{Export, PoolPlace, Volumes, Wanted, gone, refusal};
use crate::pool::host::Ask;
use crate::refusal::Refusal;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use weir_pool::{CHUNK, PoolAnswer, PoolError, PoolRequest};

/// How long a node that ends waits for its drives to take what its pools tell them last.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

impl Volumes {
    /// Changes a pool. One whose metadata could not be written recovers first.
    pub(super) fn change(&self, pool: usize, request: PoolRequest, exports: &[Export]) -> Result<PoolAnswer, Refusal> {
        self.recover(pool, exports)?;
        self.ask(&self.pools[pool], Ask::Request(request))
    }

    /// What keeps a pool from being changed.
    pub(super) fn fault(&self, pool: usize) -> Result<Option<PoolError>, Refusal> {
        self.call(pool, |s, number| s.drives.pool(number).fault().cloned())
    }

    /// Has the drives of a pool say what it knows, if a write of its metadata has failed; its exported volumes have the size then that
    /// they have in the metadata.
    ///
    /// # Errors
    /// A drive cannot be written yet: nothing was changed.
    pub(super) fn recover(&self, pool: usize, exports: &[Export]) -> Result<(), Refusal> {
        if self.fault(pool)?.is_none() {
            return Ok(());
        }
        self.ask(&self.pools[pool], Ask::Request(PoolRequest::Recover))?;
        tracing::info!(pool = self.pools[pool].name, "its metadata could be written again");
        for Export { volume, front, .. } in exports.iter().filter(|e| e.pool == pool) {
            let found = self.look(pool, Wanted::Numbered(*volume))?.pop().ok_or_else(gone)?;
            self.lay_out(pool, found.id, *front)?;
            self.show(*front, u64::from(found.chunks) * CHUNK)?;
        }
        Ok(())
    }

    /// Asks a pool, and waits no longer than that for what becomes of it.
    pub(super) fn ask_within(&self, pool: &PoolPlace, ask: Ask, limit: Duration) -> Result<PoolAnswer, Refusal> {
        let (reply, answer) = mpsc::channel();
        let number = pool.number;
        self.shards[pool.shard as usize].post(move |s| {
            let reply = move |result| {
                let _ = reply.send(result);
            };
            s.drives.ask_pool(number, ask, Box::new(reply));
        });
        let late = || Refusal::Unavailable("its drives do not answer".into());
        answer.recv_timeout(limit).map_err(|_| late())?.map_err(refusal)
    }

    /// All pools are there as they are to be, and their volumes may have hosts from now on.
    pub(crate) fn begin_to_serve(&self) {
        for pool in &self.pools {
            let number = pool.number;
            self.shards[pool.shard as usize].post(move |s| s.drives.begin_to_serve(number));
        }
    }

    /// Whether a pool has the drive at that place, as far as it knows.
    pub(super) fn is_member(&self, pool: usize, place: usize) -> Result<bool, Refusal> {
        self.call(pool, move |s, number| s.drives.pool(number).drive(place).is_some())
    }

    /// The end: the drives of all pools are told that no change follows. Drives that do not answer in time find a pool that was not closed.
    pub(crate) fn close(&self) {
        let exports = self.turn();
        if let Err(why) = self.settle_all(&exports) {
            tracing::warn!("volumes with two copies are compared at the next start: {}", why.text());
        }
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let (reply, answers) = mpsc::channel();
        for pool in &self.pools {
            let (number, reply) = (pool.number, reply.clone());
            self.shards[pool.shard as usize].post(move |s| {
                let reply = move |result| {
                    let _ = reply.send(result);
                };
                s.drives.ask_pool(number, Ask::Request(PoolRequest::Close), Box::new(reply));
            });
        }
        for _ in &self.pools {
            let left = deadline.saturating_duration_since(Instant::now());
            match answers.recv_timeout(left) {
                Ok(Ok(_)) => {}
                Ok(Err(why)) => tracing::warn!("a pool could not be closed: {why}"),
                Err(_) => return tracing::warn!("the drives of a pool do not answer: it is not closed"),
            }
        }
    }
}
