//! What follows from a drive's configuration, where all of it fits together.

use crate::config::{Cache, FlashDriveConfig, Flush, Mapping};
use crate::config_error::{ConfigError, wrong};
use crate::ftl::{BLOCK_UNITS_MAX, Separate, UNITS_MAX};
use crate::geometry::{Shape, UNIT};
use alloc::format;

/// What follows from a configuration that fits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DerivedConfig {
    pub(crate) shape: Shape,
    /// Units that the host is offered.
    pub(crate) logical: u32,
    /// Those and the units of the map in flash.
    pub(crate) mapped: u32,
    /// Units of the write buffer.
    pub(crate) slots: u32,
    /// Units of a pseudo-SLC block.
    pub(crate) slc_units: u32,
    /// Programs whose loss is remembered.
    pub(crate) flights: u32,
    /// Streams that have a collection point each; 0: one takes all that is moved.
    pub(crate) moved: u32,
}

/// Entries of a page of the map in flash, for each 4 KiB of the page.
pub(crate) const ENTRIES: u32 = UNIT / 4;

impl FlashDriveConfig {
    pub(crate) fn log_reserve(&self) -> u32 {
        // The log, the block that a merge writes, and the one it frees.
        self.ftl.hybrid.log_blocks + 2
    }

    /// Checks that everything fits together.
    ///
    /// # Errors
    /// Names the first key that does not.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.plan().map(|_| ())
    }

    /// Checks everything and derives the numbers.
    pub(crate) fn plan(&self) -> Result<DerivedConfig, ConfigError> {
        self.timing.validate()?;
        self.variability.validate()?;
        let shape = self.geometry.shape()?;
        self.check_sizes(&shape)?;
        self.check_ftl(&shape)?;
        self.check_buffer()?;
        let logical = self.capacity(&shape)?;
        let pages =
            if self.ftl.mapping == Mapping::Cached { logical.div_ceil(ENTRIES * shape.units_per_page()) } else { 0 };
        let mapped = logical + pages * shape.units_per_page();
        self.check_room(&shape, logical, mapped)?;
        let slots = self.buffer.write_units();
        let low = self.geometry.page_map.table(self.geometry.cell, self.geometry.pages);
        let low = low.iter().filter(|l| **l == 0).count() as u32;
        let volatile = slots > 0 && self.buffer.early && !self.buffer.protected && self.ftl.spare;
        Ok(DerivedConfig {
            shape,
            logical,
            mapped,
            slots,
            slc_units: low * shape.units_per_page(),
            flights: if volatile { slots } else { 0 },
            moved: self.moved_streams(&shape, logical, mapped),
        })
    }

    fn check_sizes(&self, shape: &Shape) -> Result<(), ConfigError> {
        if shape.units_per_block() > BLOCK_UNITS_MAX {
            let message = format!(
                "and geometry.page_bytes make {} units of 4 KiB a block; the FTL counts at most {BLOCK_UNITS_MAX}",
                shape.units_per_block()
            );
            return Err(wrong("geometry.pages", message));
        }
        if shape.units() > UNITS_MAX {
            let message =
                format!("makes a drive of {} units of 4 KiB; the FTL counts at most {UNITS_MAX}", shape.units());
            return Err(wrong("geometry.blocks", message));
        }
        Ok(())
    }

    fn check_ftl(&self, shape: &Shape) -> Result<(), ConfigError> {
        let ftl = &self.ftl;
        if !(0.0..=16.0).contains(&ftl.over_provisioning) {
            let message = format!("is {}; a fraction of the capacity from 0 to 16, like 0.07", ftl.over_provisioning);
            return Err(wrong("ftl.over_provisioning", message));
        }
        if ftl.gc.start == 0 {
            return Err(wrong(
                "ftl.gc.start",
                "is 0; collection needs a free block to move data to: at least 1".into(),
            ));
        }
        if ftl.gc.hard == 0 || ftl.gc.hard > ftl.gc.start {
            let message = format!("is {}; from 1 to ftl.gc.start ({})", ftl.gc.hard, ftl.gc.start);
            return Err(wrong("ftl.gc.hard", message));
        }
        if ftl.gc.choices == 0 {
            return Err(wrong("ftl.gc.choices", "is 0; at least 1".into()));
        }
        if !(1..=16).contains(&ftl.streams) {
            return Err(wrong("ftl.streams", format!("is {}; 1 to 16", ftl.streams)));
        }
        if ftl.separation == Separate::Frequency && ftl.streams < 2 {
            return Err(wrong("ftl.streams", "is 1; ftl.separation = \"frequency\" needs 2".into()));
        }
        if ftl.factory_bad > 500_000 {
            let message = format!("is {} in a million; at most 500000", ftl.factory_bad);
            return Err(wrong("ftl.factory_bad", message));
        }
        if ftl.slc.blocks >= shape.blocks_per_plane() {
            let message = format!("is {}; a plane has {} blocks", ftl.slc.blocks, shape.blocks_per_plane());
            return Err(wrong("ftl.slc.blocks", message));
        }
        if ftl.slc.blocks > 0 && ftl.multi_plane {
            return Err(wrong(
                "ftl.multi_plane",
                "is true; pseudo-SLC blocks (ftl.slc.blocks) are written plane by plane".into(),
            ));
        }
        if ftl.mapping == Mapping::Cached && ftl.map_cache.0 < u64::from(shape.page_bytes()) {
            let message = format!("is {}; at least one page of the map, {}", ftl.map_cache, shape.page_bytes());
            return Err(wrong("ftl.map_cache", message));
        }
        if let Some(fdp) = &ftl.fdp {
            fdp.check(shape, ftl)?;
        }
        self.check_striping(shape)?;
        match ftl.mapping {
            Mapping::Hybrid => self.check_hybrid(),
            Mapping::InPlace => self.check_in_place(),
            Mapping::Page | Mapping::Cached => Ok(()),
        }
    }

    fn check_in_place(&self) -> Result<(), ConfigError> {
        let ftl = &self.ftl;
        let absent = [
            ("ftl.slc.blocks", ftl.slc.blocks > 0),
            ("ftl.factory_bad", ftl.factory_bad > 0),
            ("ftl.wear.endurance", ftl.wear.endurance > 0 || ftl.wear.failures > 0),
            ("buffer.size", self.buffer.size.0 > 0),
        ];
        match absent.into_iter().find(|(_, there)| *there) {
            Some((key, _)) => Err(wrong(key, "is not 0; ftl.mapping = \"in-place\" has none".into())),
            None => Ok(()),
        }
    }

    fn check_hybrid(&self) -> Result<(), ConfigError> {
        let ftl = &self.ftl;
        if ftl.hybrid.log_blocks == 0 {
            return Err(wrong("ftl.hybrid.log_blocks", "is 0; at least 1".into()));
        }
        if ftl.slc.blocks > 0 {
            return Err(wrong("ftl.slc.blocks", "is not 0; the hybrid mapping has no pseudo-SLC blocks".into()));
        }
        if ftl.wear.endurance > 0 || ftl.wear.failures > 0 {
            return Err(wrong("ftl.wear.endurance", "is not 0; blocks of the hybrid mapping do not fail".into()));
        }
        if self.buffer.size.0 > 0 {
            return Err(wrong("buffer.size", "is not 0; the hybrid mapping has no write buffer".into()));
        }
        if ftl.multi_plane {
            return Err(wrong("ftl.multi_plane", "is true; the hybrid mapping writes page by page".into()));
        }
        Ok(())
    }

    fn check_buffer(&self) -> Result<(), ConfigError> {
        let buffer = &self.buffer;
        if buffer.size.0 % u64::from(UNIT) != 0 || buffer.size.0 / u64::from(UNIT) > u64::from(UNITS_MAX) {
            return Err(wrong("buffer.size", format!("is {}; a multiple of 4KiB, at most 8TiB", buffer.size)));
        }
        if buffer.high > 100 || buffer.low > buffer.high {
            let message =
                format!("and buffer.low are {} and {}; hundredths, low at most high", buffer.high, buffer.low);
            return Err(wrong("buffer.high", message));
        }
        let die = self.geometry.planes.saturating_mul(self.geometry.page_bytes);
        if buffer.size.0 > 0 && buffer.size.0 < u64::from(die) {
            let message = format!("is {}; at least what a die programs at once, {die} bytes, or 0", buffer.size);
            return Err(wrong("buffer.size", message));
        }
        self.check_cache()
    }

    fn check_cache(&self) -> Result<(), ConfigError> {
        let (buffer, cache) = (&self.buffer, self.buffer.cache);
        let message = if cache == Cache::None {
            return Ok(());
        } else if buffer.size.0 == 0 {
            "needs buffer.size, which is 0"
        } else if cache.writes() && buffer.flush != Flush::Eager {
            "says what leaves at once; buffer.flush is \"eager\" with it"
        } else if cache.writes() && (self.ftl.streams > 1 || self.ftl.fdp.is_some()) {
            "keeps no streams apart; ftl.streams is 1 with it, and there are no placement handles"
        } else {
            return Ok(());
        };
        Err(wrong("buffer.cache", format!("= \"{cache}\" {message}")))
    }
}
