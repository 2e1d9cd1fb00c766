//! What the host is offered, and whether it leaves the FTL blocks enough to work with.

use crate::config::{FlashDriveConfig, Mapping};
use crate::config_error::{ConfigError, wrong};
use crate::ftl::Striping;
use crate::geometry::{Shape, UNIT};
use alloc::format;
use alloc::vec::Vec;
use weir_units::Bytes;

impl FlashDriveConfig {
    /// Units that the host is offered.
    pub(crate) fn capacity(&self, shape: &Shape) -> Result<u32, ConfigError> {
        let blocks = shape.blocks_per_plane() - self.ftl.slc.blocks;
        let physical = u64::from(blocks) * u64::from(shape.planes()) * u64::from(shape.units_per_block());
        let Some(capacity) = self.ftl.capacity else {
            return Ok((physical as f64 / (1.0 + self.ftl.over_provisioning)) as u32);
        };
        let units = capacity.0 / u64::from(UNIT);
        if capacity.0 % u64::from(UNIT) != 0 || units == 0 {
            return Err(wrong("ftl.capacity", format!("is {capacity}; a multiple of 4KiB, not 0")));
        }
        u32::try_from(units).ok().filter(|u| u64::from(*u) <= physical).ok_or_else(|| {
            let flash = Bytes(physical * u64::from(UNIT));
            wrong("ftl.capacity", format!("is {capacity}; the flash has {flash}"))
        })
    }

    /// Whether what is offered leaves the FTL room to work in.
    pub(crate) fn check_room(&self, shape: &Shape, logical: u32, mapped: u32) -> Result<(), ConfigError> {
        let ftl = &self.ftl;
        let held = match ftl.mapping {
            Mapping::Hybrid => self.log_reserve(),
            Mapping::InPlace => 0,
            _ => {
                let (host, kept) = ftl.write_points();
                FlashDriveConfig::reserve(host + kept, ftl.mapping == Mapping::Cached, ftl.gc.start)
            }
        };
        let (room, mapped) = self.room(shape, logical, mapped, held);
        if room >= mapped {
            return Ok(());
        }
        let key = if ftl.capacity.is_some() { "ftl.capacity" } else { "ftl.over_provisioning" };
        let spare = u64::from(shape.units()).saturating_sub(mapped);
        let message = format!(
            "leaves {:.1} blocks of each plane beside the data; the FTL needs {held} (write points, blocks kept free, bad \
             blocks not counted): raise the over-provisioning, lower ftl.gc.start or ftl.streams, or give each plane more \
             blocks (a larger capacity does, where they follow it; else a smaller one leaves more of them)",
            spare as f64 / f64::from(shape.units_per_block()) / f64::from(shape.planes())
        );
        Err(wrong(key, message))
    }

    /// Streams that collection keeps apart: none where the spare flash has no room for a block more of each.
    pub(crate) fn moved_streams(&self, shape: &Shape, logical: u32, mapped: u32) -> u32 {
        let ftl = &self.ftl;
        let streams = u32::from(ftl.streams.min(crate::ftl::MOVED));
        let keeps = ftl.separation.keeps_moved() && matches!(ftl.mapping, Mapping::Page | Mapping::Cached);
        if !keeps || streams < 2 {
            return 0;
        }
        let points = u32::from(ftl.streams) + streams - 1;
        let held = FlashDriveConfig::reserve(points, ftl.mapping == Mapping::Cached, ftl.gc.start);
        let (room, mapped) = self.room(shape, logical, mapped, held);
        if room >= mapped { streams } else { 0 }
    }

    /// Units that the planes hold with `held` blocks of each left to work with, and those that they have to. Where addresses say the
    /// planes, of the part of the drive that has least to spare.
    fn room(&self, shape: &Shape, logical: u32, mapped: u32, held: u32) -> (u64, u64) {
        let ftl = &self.ftl;
        let bad = crate::ftl::factory_bad(shape.blocks(), self.seed, ftl.factory_bad);
        let blocks = shape.blocks_per_plane();
        let room = |plane: u32| {
            let first = shape.block_index(plane, ftl.slc.blocks) as usize;
            let ordinary = first..shape.block_index(plane, blocks) as usize;
            let failed = if ftl.factory_bad == 0 { 0 } else { bad[ordinary.clone()].iter().filter(|b| **b).count() };
            let good = (ordinary.len() - failed) as u32;
            u64::from(good.saturating_sub(held)) * u64::from(shape.units_per_block())
        };
        let planes = 0..shape.planes();
        if ftl.mapping == Mapping::Hybrid {
            // Data blocks have their planes, so the fullest plane decides.
            let data = u64::from(mapped.div_ceil(shape.units_per_block())).div_ceil(u64::from(shape.planes()));
            let all = u64::from(shape.units_per_block() * shape.planes());
            return (planes.map(room).min().unwrap_or(0) * u64::from(shape.planes()), data * all);
        }
        let Some(striping) = Striping::new(self, shape, logical, mapped) else {
            return (planes.map(room).sum(), u64::from(mapped));
        };
        let mut parts: Vec<(u64, u64)> = (0..striping.count()).map(|part| (0, striping.units(part).into())).collect();
        planes.for_each(|plane| parts[striping.partition_of(plane) as usize].0 += room(plane));
        parts.into_iter().min_by_key(|(room, units)| *room as i64 - *units as i64).unwrap_or_default()
    }
}
