//! Volumes that grow and shrink while their hosts use them.

use super::{Found, Volumes, chunks, refusal};
use crate::directory::Place;
use crate::pool::host::Ask;
use crate::refusal::Refusal;
use crate::shard::Shard;
use crate::snapshot::VolumeSnapshot;
use weir_config::Config;
use weir_pool::{CHUNK, PoolError, PoolRequest, SNAPSHOT_MARK};
use weir_units::Bytes;

impl Volumes {
    /// Another size for a volume, while its hosts use it: they are told. A smaller one only if it may `shrink`.
    ///
    /// # Errors
    /// There is none of that name, not so much room, or it would shrink and may not.
    pub fn resize(&self, config: &Config, name: &str, bytes: u64, shrink: bool) -> Result<VolumeSnapshot, Refusal> {
        let exports = self.turn();
        self.recover(self.find(name)?.pool, &exports)?;
        let found = self.find(name)?;
        let front = exports.iter().find(|e| (e.pool, e.volume) == (found.pool, found.id)).map(|e| e.front);
        let (before, after) = (found.chunks, chunks(bytes)?);
        self.must_have_left(&found)?;
        let request = Ask::Request(PoolRequest::Resize { name: name.into(), chunks: after });
        let pool = &self.pools[found.pool];
        let size = |chunks: u32| u64::from(chunks) * CHUNK;
        if after == 0 {
            return Err(refusal(PoolError::Empty));
        }
        if name.contains(SNAPSHOT_MARK) {
            return Err(refusal(PoolError::IsSnapshot(name.into())));
        }
        if after < before && !shrink {
            let (has, end) = (Bytes(size(before)), Bytes(size(after)));
            return Err(Refusal::Conflict(format!(
                "size_bytes: volume {name} has {has}, and what lies behind {end} would be lost; ask for it by --shrink (\"shrink\": true over \
                 HTTP)"
            )));
        }
        if after < before {
            self.readers_must_pass(found.pool, &exports)?;
        }
        if let Some(front) = front.filter(|_| after < before) {
            self.show(front, size(after))?;
            if let Err(why) = self.wait(front, size(after)) {
                self.show(front, size(before))?;
                return Err(why);
            }
        }
        let asked = self.ask(pool, request);
        if let Some(front) = front {
            match &asked {
                Ok(_) => {
                    self.lay_out(found.pool, found.id, front).map_err(|why| self.shrink_back(&found, why))?;
                    self.show(front, size(after))?;
                }
                // Nobody knows which size it has when the pool has recovered: what is written behind the smaller one could be lost.
                Err(why) if after < before && self.fault(found.pool)?.is_some() => {
                    let size = Bytes(size(after));
                    return Err(Refusal::Unavailable(format!("{}; its hosts see {size} until then", why.text())));
                }
                Err(_) => self.show(front, size(before))?,
            }
        }
        asked?;
        Ok(self.status(config, &self.find(name)?, &exports))
    }

    /// A volume has grown to where its front does not come: it is what it was, nobody has seen more of it.
    #[cold]
    fn shrink_back(&self, found: &Found, why: Refusal) -> Refusal {
        let request = PoolRequest::Resize { name: found.name.clone(), chunks: found.chunks };
        match self.ask(&self.pools[found.pool], Ask::Request(request)) {
            Ok(_) => why,
            Err(other) => Refusal::Unavailable(format!(
                "the volume has grown, its hosts were not told ({}), and it could not be made smaller again ({}): end its exports and \
                 export it again",
                why.text(),
                other.text()
            )),
        }
    }

    /// A front's hosts see this size from now on.
    pub(super) fn show(&self, front: Place, bytes: u64) -> Result<(), Refusal> {
        let show = move |s: &mut Shard| {
            s.drives.resize_front(front.drive, bytes)?;
            s.with_doors(|doors, cx| doors.vhost_user.resized(front.drive, bytes, cx));
            Ok(())
        };
        self.at(front.shard, show)?.map_err(|why: String| Refusal::Invalid(why))
    }

    /// Until nothing is on its way behind `bytes`.
    fn wait(&self, front: Place, bytes: u64) -> Result<(), Refusal> {
        if self.until(front.shard, move |s| !s.drives.reaches(front.drive, bytes))? {
            return Ok(());
        }
        let what = "the volume's drives do not finish what they are doing behind the new end; nothing was changed";
        Err(Refusal::Unavailable(what.into()))
    }
}
