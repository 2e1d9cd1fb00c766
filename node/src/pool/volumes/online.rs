//! Drives that were lost and are there again, while the node runs: by hand, or when the way to a drive that had gone is back.

use super::lost_links::{LinkLook, LostLinks};
use super::{Export, Volumes};
use crate::directory::{Place, place};
use crate::refusal::Refusal;
use crate::snapshot::LostDrive;
use std::sync::{MutexGuard, PoisonError};
use weir_config::Config;
use weir_driver::link_recovery::LinkState;

impl Volumes {
    /// The device that a lost drive is, by its own name, or by what names the lost drive.
    ///
    /// # Errors
    /// There is none.
    pub fn device_of_lost(&self, config: &Config, pool: &str, name: &str) -> Result<usize, Refusal> {
        let named = |name: &str| config.devices.iter().position(|d| d.name == name);
        if let Some(device) = named(name) {
            return Ok(device);
        }
        let at = self.pool_named(Some(pool))?;
        let number = self.is_lost(config, at, name)?;
        let lost = self.lost(at)?.into_iter().find(|lost| lost.number == number).ok_or_else(super::gone)?;
        named(&lost.name).ok_or_else(|| {
            Refusal::NotFound(format!("there is no device \"{}\": name the one that drive {number} is now", lost.name))
        })
    }

    /// Lost drives whose way has gone and is back: their numbers, and the devices that they are.
    pub(super) fn found_again(&self, config: &Config, pool: usize) -> Result<Vec<(u16, usize)>, Refusal> {
        let all = self.lost(pool)?;
        self.links().keep(pool, |number| all.iter().any(|lost| lost.number == number));
        let mut found = Vec::new();
        for LostDrive { number, name, .. } in all {
            let device = config.devices.iter().position(|d| d.name == name);
            let Some(device) = device.filter(|device| self.pool_of(*device).is_none()) else { continue };
            let Some(link) = self.link_of(device)? else { continue };
            if self.links().look((pool, number), link) {
                found.push((number, device));
            }
        }
        Ok(found)
    }

    /// The way to a drive on another drive; `None`: it is on no other drive.
    pub(super) fn link_of(&self, device: usize) -> Result<Option<LinkLook>, Refusal> {
        let Place { shard, drive } = place(device, self.shards.len());
        self.at(shard, move |s| {
            let link = s.drives.device(drive).link(s.reactor.now()).map(|status| status.link);
            link.map(|link| LinkLook { serves: link.state == LinkState::Serving, outages: link.outages })
        })
    }

    fn links(&self) -> MutexGuard<'_, LostLinks> {
        self.lost_links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A drive was taken out, and how the way to it was before that.
    pub(super) fn note_link(&self, pool: usize, number: u16, link: Option<LinkLook>) {
        self.links().begin((pool, number), link);
    }

    /// A lost drive that was there again is refused for good: what is on it does not change by itself.
    pub fn refuse_return(&self, pool: &str, lost: u16) {
        if let Ok(at) = self.pool_named(Some(pool)) {
            self.links().refuse((at, lost));
        }
    }

    /// All fronts of a pool hear of drives that are back. One that cannot is told again by and by: until then what is written is stale there.
    pub(super) fn tell_of_return(&self, pool: usize, exports: &[Export]) -> Result<(), Refusal> {
        let back = self.call(pool, |s, number| s.drives.pool(number).returning())?;
        if back.is_empty() {
            return Ok(());
        }
        let mut fronts: Vec<_> =
            exports.iter().filter(|e| e.pool == pool).map(|Export { volume, front, .. }| (*volume, *front)).collect();
        fronts.extend(self.leaving().iter().filter(|((of, _), _)| *of == pool).map(|((_, id), front)| (*id, *front)));
        for (volume, front) in fronts {
            if let Err(why) = self.lay_out(pool, volume, front) {
                let name = &self.pools[pool].name;
                tracing::warn!(
                    "pool {name}: a volume does not use the drive that is back ({}); it is tried again",
                    why.text()
                );
                return Ok(());
            }
        }
        self.call(pool, move |s, number| s.drives.use_pool_drives(number, &back))
    }
}
