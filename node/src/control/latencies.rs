//! How long commands took, by drive, tenant and volume.

use super::{NodeControl, gone};
use crate::directory::place;
use crate::refusal::Refusal;
use crate::snapshot::{NamedLatencies, NodeLatencies};
use weir_controller::Latencies;

impl NodeControl {
    /// How long commands took since the process that serves began.
    ///
    /// # Errors
    /// The node is stopping.
    pub fn latencies(&self) -> Result<NodeLatencies, Refusal> {
        let config = self.config();
        let mut by_tenant = vec![Latencies::default(); config.tenants.len()];
        let mut devices = Vec::with_capacity(config.devices.len());
        for (index, device) in config.devices.iter().enumerate() {
            let place = place(index, self.shards.len());
            let look = move |shard: &mut crate::shard::Shard| shard.drives.machine(place.drive).latencies();
            let found = self.shards[place.shard as usize].call(look).ok_or_else(gone)?;
            let mut latencies = Latencies::default();
            found.iter().for_each(|of_tenant| latencies.merge(of_tenant));
            by_tenant.iter_mut().zip(&found).for_each(|(all, here)| all.merge(here));
            devices.push(NamedLatencies { name: device.name.clone(), latencies });
        }
        let there = config.tenants.iter().zip(by_tenant).filter(|(tenant, _)| !tenant.is_gone());
        let tenants =
            there.map(|(tenant, latencies)| NamedLatencies { name: tenant.name.clone(), latencies }).collect();
        Ok(NodeLatencies { devices, tenants, volumes: self.volumes.latencies()? })
    }
}
