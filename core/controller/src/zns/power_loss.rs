//! What zones keep through a loss of power: where it lies, and what becomes of the media's bytes.

use super::Engine;
use super::io::extent;
use crate::subsystem::Subsystem;
use crate::zns::ZoneLoss;
use alloc::vec::Vec;
use weir_flash::{RegionError, RegionImage, RegionSize, SplitMix64};
use weir_units::Nanos;

impl Subsystem {
    /// What survives of a namespace's zones; `None` where it has none.
    pub fn zones_image(&self, nsid: u32) -> Option<RegionSize> {
        let space = self.zoned.iter().find(|s| s.nsid == nsid)?;
        Some(match &space.engine {
            Engine::Plain(zones) => zones.image_size(),
            Engine::Flash(flash) => flash.image_size(),
        })
    }

    /// The zones of a namespace go on from what an image tells, before hosts come. Answers where the media has to read as zeroes
    /// unless the drive was stopped: what lies behind the data of each zone.
    ///
    /// # Errors
    /// The image is of another size, or more zones are active than may be.
    pub fn adopt_zones(&mut self, nsid: u32, image: RegionImage) -> Result<Vec<(u64, u64)>, RegionError> {
        let Some(at) = self.zoned.iter().position(|s| s.nsid == nsid) else { return Ok(Vec::new()) };
        match &mut self.zoned[at].engine {
            Engine::Plain(zones) => zones.adopt_image(image)?,
            Engine::Flash(flash) => flash.adopt(image)?,
        }
        let zones = self.zoned[at].zones();
        let ends: Vec<(u32, u32)> = (0..zones.config().zones).map(|zone| (zone, zones.data_end(zone))).collect();
        Ok(self.behind(at, &ends))
    }

    /// The power is back after [`power_cut`](Self::power_cut): zones are what the standard says (ZNS 1.1, 2.1.1.4), and what
    /// did not survive is gone, as `seed` draws it where the buffer is volatile.
    pub fn zones_power_on(&mut self, now: Nanos, seed: u64) -> ZoneLoss {
        let mut all = ZoneLoss::default();
        for at in 0..self.zoned.len() {
            let mut rng = SplitMix64::new(seed);
            let space = &mut self.zoned[at];
            let mut loss = match &mut space.engine {
                Engine::Plain(zones) => zones.power_on(Some(&mut rng), |_| 0),
                Engine::Flash(flash) => flash.power_cut(now, &mut rng),
            };
            // Zones that are being reset have their bytes yet.
            let locked = (0..).zip(space.busy()).filter(|(_, (_, locked))| *locked).map(|(zone, _)| (zone, 0));
            loss.gone.extend(locked);
            let shift = self.namespaces.active(space.nsid).map_or(0, |ns| ns.shift);
            all.lost += loss.lost << shift;
            let gone = self.behind(at, &loss.gone);
            all.gone.extend(gone);
        }
        all
    }

    /// The bytes of zones from these blocks on.
    fn behind(&self, at: usize, ends: &[(u32, u32)]) -> Vec<(u64, u64)> {
        let Some(space) = self.zoned.get(at) else { return Vec::new() };
        let Ok(ns) = self.namespaces.active(space.nsid) else { return Vec::new() };
        let mut list: Vec<(u64, u64)> = Vec::new();
        for (zone, from) in ends {
            let (offset, len) = extent(space, ns, *zone);
            let skip = u64::from(*from) << ns.shift;
            let (offset, len) = (offset + skip, len.saturating_sub(skip));
            match list.last_mut() {
                Some(last) if last.0 + last.1 == offset => last.1 += len,
                _ if len > 0 => list.push((offset, len)),
                _ => {}
            }
        }
        list
    }

    /// The power goes: writes that have not completed do not land any more, resets that have not begun never will.
    pub(crate) fn cut_zones(&mut self) {
        for at in 0..self.zoned.len() {
            self.zoned[at].life += 1;
            for id in core::mem::take(&mut self.zoned[at].held) {
                self.slots.delay_done(id, Nanos(0));
            }
        }
    }

    /// A flush of a namespace (or of all) begins: what has landed by now is durable when it is done.
    pub(crate) fn flush_zones(&mut self, nsid: u32) {
        for space in self.zoned.iter_mut().filter(|s| s.nsid == nsid || nsid == u32::MAX) {
            space.zones_mut().flush();
        }
    }
}
