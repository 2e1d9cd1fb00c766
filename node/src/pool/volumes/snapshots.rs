//! Snapshots and clones of volumes, while their hosts use them.

use super::{Export, Volumes, not_exported, refusal, tenant_index, uuid_of_a_volume};
use crate::directory::Place;
use crate::refusal::Refusal;
use crate::snapshot::VolumeSnapshot;
use std::collections::BTreeMap;
use weir_config::Config;
use weir_pool::{PoolError, PoolRequest, SNAPSHOT_MARK};

impl Volumes {
    /// Makes a snapshot of a volume, which hosts may be writing: their writes wait meanwhile, and what has been acknowledged is in it. It is durable
    /// when this returns.
    ///
    /// # Errors
    /// There is no such volume, it has that snapshot, is degraded or is being rebuilt; or its drives do not finish what is being written.
    pub fn snapshot(&self, config: &Config, name: &str, snapshot: &str) -> Result<VolumeSnapshot, Refusal> {
        let exports = self.turn();
        self.recover(self.find(name)?.pool, &exports)?;
        let found = self.find(name)?;
        self.must_have_left(&found)?;
        let uuid = uuid_of_a_volume()?;
        let request = PoolRequest::Snapshot { name: name.into(), snapshot: snapshot.into(), uuid };
        let front = exports.iter().find(|e| (e.pool, e.volume) == (found.pool, found.id)).map(|e| e.front);
        let asked = match front.map(|front| self.freeze(front)) {
            None | Some(Ok(())) => self.change(found.pool, request, &exports),
            Some(Err(why)) => Err(why),
        };
        if let Some(front) = front {
            // Without a layout the front asks the pool before the first write of each chunk.
            let laid = self.lay_out(found.pool, found.id, front);
            self.at(front.shard, move |s| s.drives.thaw_front(front.drive))?;
            laid?;
        }
        asked?;
        Ok(self.status(config, &self.find(&format!("{name}{SNAPSHOT_MARK}{snapshot}"))?, &exports))
    }

    /// No write of a front's hosts is at its drives, nor begins.
    fn freeze(&self, front: Place) -> Result<(), Refusal> {
        self.at(front.shard, move |s| s.drives.freeze_front(front.drive))?;
        match self.until(front.shard, move |s| !s.drives.front_writes(front.drive))? {
            true => Ok(()),
            false => {
                let what = "the volume's drives do not finish what is being written; nothing was changed";
                Err(Refusal::Unavailable(what.into()))
            }
        }
    }

    /// A name that neither a volume nor a drive of the node has.
    pub(super) fn is_name_free(&self, config: &Config, name: &str) -> Result<(), Refusal> {
        if self.look_for(name)?.is_some() {
            return Err(refusal(PoolError::Exists(name.into())));
        }
        match config.devices.iter().any(|d| d.nqn == self.nqn(name)) {
            true => {
                Err(Refusal::Conflict(format!("name: a drive of this node is called \"{name}\"; choose another name")))
            }
            false => Ok(()),
        }
    }

    /// A new volume with what a snapshot has; its tenant is the snapshot's if none is named.
    ///
    /// # Errors
    /// There is no such snapshot or tenant, or the name is none or taken.
    pub fn clone_snapshot(
        &self,
        config: &Config,
        snapshot: &str,
        name: &str,
        tenant: Option<&str>,
    ) -> Result<VolumeSnapshot, Refusal> {
        let exports = self.turn();
        let found = self.find(snapshot)?;
        let tenant = tenant.unwrap_or(&found.tenant).to_string();
        tenant_index(config, &tenant)?;
        self.is_name_free(config, name)?;
        let (snapshot, uuid) = (snapshot.into(), uuid_of_a_volume()?);
        self.change(found.pool, PoolRequest::Clone { snapshot, name: name.into(), tenant, uuid }, &exports)?;
        Ok(self.status(config, &self.find(name)?, &exports))
    }

    /// A volume that is not exported has again what it had when its snapshot was made.
    ///
    /// # Errors
    /// There is no such snapshot, or the volume is exported.
    pub fn roll_back(&self, config: &Config, snapshot: &str) -> Result<VolumeSnapshot, Refusal> {
        let exports = self.turn();
        let pool = self.find(snapshot)?.pool;
        let name = snapshot.split_once(SNAPSHOT_MARK).map_or(snapshot, |(name, _)| name);
        let found = self.find(name)?;
        not_exported(&found, &exports)?;
        self.must_have_left(&found)?;
        self.readers_must_pass(pool, &exports)?;
        self.change(pool, PoolRequest::Rollback { snapshot: snapshot.into() }, &exports)?;
        Ok(self.status(config, &self.find(name)?, &exports))
    }

    /// What hosts have asked of a pool's volumes by now is over. A volume that has got a chunk of its own may still be read where it had it with
    /// others, who are about to give it up.
    pub(super) fn readers_must_pass(&self, pool: usize, exports: &[Export]) -> Result<(), Refusal> {
        if !self.call(pool, |s, number| s.drives.pool(number).has_shared())? {
            return Ok(());
        }
        let open = exports.iter().filter(|e| e.pool == pool).map(|e| e.front);
        let leaving: Vec<Place> = self.leaving().iter().filter(|((of, _), _)| *of == pool).map(|(_, f)| *f).collect();
        let mut marks: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for front in open.chain(leaving) {
            let mark = self.at(front.shard, move |s| s.drives.front_mark(front.drive))?;
            marks.insert((front.shard, front.drive), mark);
        }
        for ((shard, drive), mark) in marks {
            if !self.until(shard, move |s| s.drives.is_front_past(drive, mark))? {
                let what = "the pool's drives do not finish what hosts have asked of its volumes; nothing was changed";
                return Err(Refusal::Unavailable(what.into()));
            }
        }
        Ok(())
    }
}
