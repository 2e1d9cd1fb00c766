//! One drive as the dashboard shows it: dies, queues, and who is to get what.

use super::{NodeControl, gone};
use crate::directory::place;
use crate::refusal::Refusal;
use crate::snapshot::{DriveBoard, ExpectedTenants};
use weir_config::prediction::{Prediction, predict};
use weir_config::{Arbitration, TenantConfig};
use weir_units::Class;

/// What of a drive's arbitration might be otherwise.
#[derive(Clone, Copy)]
pub struct SharesChange<'a> {
    /// From its arbitration as it is to the one that is asked about.
    pub arbitration: &'a dyn Fn(Arbitration) -> Arbitration,
    /// Other classes and weights of tenants, by their names.
    pub tenants: &'a [TenantShares],
}

/// A tenant's class and weight as they might be; `None`: as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantShares {
    /// Whose.
    pub name: String,
    /// Its class.
    pub class: Option<Class>,
    /// Its weight, 1 to 256.
    pub weight: Option<u16>,
}

impl NodeControl {
    /// How many workers have served before this one.
    pub fn generation(&self) -> u64 {
        self.keep.generation()
    }

    /// Whether failures may be injected.
    pub fn has_faults(&self) -> bool {
        self.config().node.faults
    }

    /// A drive as it is at this moment.
    ///
    /// # Errors
    /// There is no such drive.
    pub fn drive_board(&self, name: &str) -> Result<DriveBoard, Refusal> {
        let index = self.device_index(name)?;
        let place = place(index, self.shards.len());
        let look = move |shard: &mut crate::shard::Shard| {
            let now = shard.reactor.now();
            let device = shard.drives.device_mut(place.drive);
            let (dies, channels) = match device.flash() {
                Some(flash) => (flash.die_figures(now), flash.flash().shape().channels()),
                None => (Vec::new(), 0),
            };
            let (stats, controllers) = (device.machine().stats(), device.machine().controllers());
            DriveBoard { now, dies, channels, stats, controllers }
        };
        self.shards[place.shard as usize].call(look).ok_or_else(gone)
    }

    /// What its tenants with queues are to expect of a drive, as it is and with a change; nothing is changed.
    ///
    /// # Errors
    /// There is no such drive, or no such tenant in the change.
    pub fn expected(&self, name: &str, change: &SharesChange<'_>) -> Result<ExpectedTenants, Refusal> {
        let (index, config) = (self.device_index(name)?, self.config());
        for tenant in change.tenants {
            self.tenant_index(&tenant.name)?;
        }
        let stats = self.drive_board(name)?.stats;
        let arbitration = self.settle()[index];
        let device = &config.devices[index];
        let is_there = |(at, tenant): &(usize, &TenantConfig)| {
            !tenant.is_gone() && stats.tenants.get(*at).is_some_and(|found| found.queues > 0)
        };
        // As they are on the drive: what was changed while it runs is there first.
        let live = |(at, tenant): (usize, &TenantConfig)| TenantConfig {
            class: stats.tenants[at].class,
            weight: stats.tenants[at].weight,
            floor: stats.tenants[at].floor,
            ceiling: stats.tenants[at].ceiling,
            ..tenant.clone()
        };
        let before: Vec<TenantConfig> = config.tenants.iter().enumerate().filter(is_there).map(live).collect();
        let changed = |tenant: &TenantConfig| {
            let change = change.tenants.iter().find(|change| change.name == tenant.name);
            TenantConfig {
                class: change.and_then(|c| c.class).unwrap_or(tenant.class),
                weight: change.and_then(|c| c.weight).unwrap_or(tenant.weight),
                ..tenant.clone()
            }
        };
        let after: Vec<TenantConfig> = before.iter().map(changed).collect();
        let asked = |arbitration: &Arbitration, tenants: &[TenantConfig]| -> Option<Prediction> {
            predict(device, arbitration, &tenants.iter().collect::<Vec<_>>())
        };
        Ok(ExpectedTenants {
            tenants: before.iter().map(|t| t.name.clone()).collect(),
            before: asked(&arbitration, &before),
            after: asked(&(change.arbitration)(arbitration), &after),
        })
    }
}
