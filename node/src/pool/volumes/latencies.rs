//! How long the commands of volumes took, as their hosts see them.

use super::{Volumes, Wanted};
use crate::refusal::Refusal;
use crate::snapshot::VolumeLatencies;
use std::collections::BTreeMap;
use weir_controller::Latencies;
use weir_pool::VolumeId;

impl Volumes {
    /// Of the volumes that are exported, pool by pool.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn latencies(&self) -> Result<Vec<VolumeLatencies>, Refusal> {
        let exports = self.turn();
        let mut all = Vec::new();
        for pool in 0..self.pools.len() {
            let fronts: BTreeMap<VolumeId, _> =
                exports.iter().filter(|e| e.pool == pool).map(|e| (e.volume, e.front)).collect();
            if fronts.is_empty() {
                continue;
            }
            for found in self.look(pool, Wanted::All)? {
                let Some(front) = fronts.get(&found.id).copied() else { continue };
                let by_tenant = self.at(front.shard, move |s| s.drives.machine(front.drive).latencies())?;
                let mut latencies = Latencies::default();
                by_tenant.iter().for_each(|of_tenant| latencies.merge(of_tenant));
                all.push(VolumeLatencies { volume: found.name, tenant: found.tenant, latencies });
            }
        }
        Ok(all)
    }
}
