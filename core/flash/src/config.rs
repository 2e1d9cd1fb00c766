//! What a drive is made from: every choice with its default, and the check that they fit together.

use crate::buffer::Flush;
use crate::cache::{Cache, Dram};
use crate::fdp::FdpConfig;
use crate::ftl::{GcMode, PlaneAllocation, Separate, Victim, Wear};
use crate::geometry::{Geometry, GeometryError, Shape, UNIT};
use crate::host::HostTiming;
use crate::lun::Promise;
use crate::name::names;
use crate::preset::Preset;
use crate::timing::{FlashTiming, OperationUnit, TimingError};
use crate::variability::{Variability, VariabilityError};
use alloc::format;
use alloc::string::String;
use core::fmt;
use weir_units::{Bytes, Nanos};

/// How logical units are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mapping {
    /// A word for each unit, all in memory.
    Page,
    /// The same map in flash, with a cache of `map_cache` bytes in memory (DFTL; Gupta, Kim and Urgaonkar, 2009).
    Cached,
    /// A word for each block, and log blocks for what is overwritten (BAST, FAST).
    Hybrid,
    /// None: the medium is overwritten where it lies (3D XPoint). Consecutive units lie on consecutive planes; nothing is
    /// collected or erased, and what is written is durable when it is complete.
    InPlace,
}

names!(Mapping, "mapping", Page = "page", Cached = "cached", Hybrid = "hybrid", InPlace = "in-place");

/// What a read of a unit without contents costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnmappedRead {
    /// A read like any other.
    Flash,
    /// No flash time (FEMU and NVMeVirt do this).
    Free,
}

names!(UnmappedRead, "cost of an unmapped read", Flash = "flash", Free = "free");

/// What Write Zeroes does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteZeroes {
    /// Unmaps, as trim does.
    Unmap,
    /// Programs pages of zeroes.
    Program,
}

names!(WriteZeroes, "way to write zeroes", Unmap = "unmap", Program = "program");

/// When data leaves the pseudo-SLC blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fold {
    /// When a write finds them all full; it waits.
    Foreground,
    /// When their plane has nothing else to do; a write that finds them full goes to ordinary blocks.
    Idle,
}

names!(Fold, "time to fold", Foreground = "foreground", Idle = "idle");

/// Which log block takes an overwritten unit (hybrid mapping).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Association {
    /// One log block serves one data block (BAST; Kim et al., 2002).
    Block,
    /// Any log block of the plane (FAST; Lee et al., 2007).
    Full,
}

names!(Association, "log block association", Block = "block", Full = "full");

/// Garbage collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcConfig {
    /// Which block.
    pub victim: Victim,
    /// d of d-choice.
    pub choices: u32,
    /// Who waits.
    pub mode: GcMode,
    /// Collection begins when a plane has no more free blocks than this; at least 1.
    pub start: u32,
    /// Preemptive collection: writes wait at no more free blocks than this; at least 1, at most `start`.
    pub hard: u32,
}

/// Wear levelling, and when blocks fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WearConfig {
    /// Which block is written next.
    pub policy: Wear,
    /// Static wear levelling: how many erases a block may lag behind.
    pub gap: u32,
    /// Erases that a block endures, within a fifth; 0: for ever.
    pub endurance: u32,
    /// Chance that an erase fails before, in a million.
    pub failures: u32,
}

/// Pseudo-SLC blocks that the host's data passes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlcConfig {
    /// Blocks of each plane, not counted as capacity; 0: none. Only their pages of the lowest level are used.
    pub blocks: u32,
    /// When their data moves on.
    pub fold: Fold,
}

impl SlcConfig {
    /// Whether folding waits for idle planes.
    pub fn idle(&self) -> bool {
        self.fold == Fold::Idle
    }
}

/// The hybrid mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HybridConfig {
    /// Log blocks of each plane.
    pub log_blocks: u32,
    /// What they serve.
    pub association: Association,
}

/// The flash translation layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FtlConfig {
    /// How units are found.
    pub mapping: Mapping,
    /// Flash beyond the capacity, as a fraction of the capacity: 0.07 is 7 %.
    pub over_provisioning: f64,
    /// The capacity, where it does not follow from `over_provisioning`; a multiple of 4 KiB.
    pub capacity: Option<Bytes>,
    /// Garbage collection.
    pub gc: GcConfig,
    /// Write points that keep the host's data apart in each plane; 1 to 16.
    pub streams: u8,
    /// Who chooses among them.
    pub separation: Separate,
    /// Placement handles instead of both.
    pub fdp: Option<FdpConfig>,
    /// Wear levelling.
    pub wear: WearConfig,
    /// Blocks that are bad from the factory, in a million.
    pub factory_bad: u32,
    /// Pseudo-SLC blocks.
    pub slc: SlcConfig,
    /// Memory of the map cache (cached mapping).
    pub map_cache: Bytes,
    /// Log blocks (hybrid mapping).
    pub hybrid: HybridConfig,
    /// Reads of nothing.
    pub unmapped_read: UnmappedRead,
    /// Write Zeroes.
    pub write_zeroes: WriteZeroes,
    /// Whether the planes of a die are programmed together.
    pub multi_plane: bool,
    /// How a write's plane is chosen.
    pub plane_allocation: PlaneAllocation,
    /// Parts of the drive with as many channels each, over which units of 4 KiB are striped (NVMeVirt, `SSD_PARTITIONS`): unit n goes to
    /// part n modulo this; 1: one.
    pub partitions: u32,
    /// Whether pages keep sequence numbers, so that the map can be rebuilt after power loss (8 bytes a page).
    pub spare: bool,
}

impl FtlConfig {
    /// Page map, 7 % over-provisioning, greedy collection that blocks the plane.
    pub const DEFAULT: FtlConfig = FtlConfig {
        mapping: Mapping::Page,
        over_provisioning: 0.07,
        capacity: None,
        gc: GcConfig { victim: Victim::Greedy, choices: 8, mode: GcMode::Plane, start: 2, hard: 1 },
        streams: 1,
        separation: Separate::None,
        fdp: None,
        wear: WearConfig { policy: Wear::Static, gap: 100, endurance: 0, failures: 0 },
        factory_bad: 0,
        slc: SlcConfig { blocks: 0, fold: Fold::Idle },
        map_cache: Bytes(4 << 20),
        hybrid: HybridConfig { log_blocks: 8, association: Association::Full },
        unmapped_read: UnmappedRead::Flash,
        write_zeroes: WriteZeroes::Unmap,
        multi_plane: false,
        plane_allocation: PlaneAllocation::Dynamic,
        partitions: 1,
        spare: false,
    };
}

impl Default for FtlConfig {
    fn default() -> Self {
        FtlConfig::DEFAULT
    }
}

/// The write buffer in the controller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferConfig {
    /// Its size; 0: none, and a write is complete when it is programmed.
    pub size: Bytes,
    /// When data leaves it.
    pub flush: Flush,
    /// `watermark`: leaving begins when so many hundredths are dirty.
    pub high: u32,
    /// `watermark`: it ends at so many.
    pub low: u32,
    /// Data does not wait longer than this for its page to fill; 0: for ever.
    pub timeout: Nanos,
    /// Whether a write is complete when it is in the buffer.
    pub early: bool,
    /// Whether the buffer survives power loss: flush and FUA then cost nothing.
    pub protected: bool,
    /// To copy a command's data in or out.
    pub latency: Nanos,
    /// What stays in it.
    pub cache: Cache,
    /// `cache`: what is written again within this stays. All that was written is forgotten together, once for each such time.
    pub window: Nanos,
    /// `cache`: how much may be on its way into the flash; 0: a page of each plane.
    pub pending: Bytes,
    /// What an access takes; one follows the other.
    pub dram: Dram,
}

impl BufferConfig {
    /// No buffer.
    pub const NONE: BufferConfig = BufferConfig {
        size: Bytes(0),
        flush: Flush::Eager,
        high: 80,
        low: 50,
        timeout: Nanos(0),
        early: true,
        protected: false,
        latency: Nanos(0),
        cache: Cache::None,
        window: Nanos::from_secs(1),
        pending: Bytes(0),
        dram: Dram::INSTANT,
    };

    /// Units that have been written and fit.
    pub fn write_units(&self) -> u32 {
        let size = if self.cache == Cache::Read { 0 } else { self.size.0 };
        u32::try_from(size / u64::from(UNIT)).unwrap_or(u32::MAX)
    }
}

impl Default for BufferConfig {
    fn default() -> Self {
        BufferConfig::NONE
    }
}

/// Everything that a drive is made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashDriveConfig {
    /// The flash's layout.
    pub geometry: Geometry,
    /// What its steps take.
    pub timing: FlashTiming,
    /// How its chips differ.
    pub variability: Variability,
    /// Firmware and link.
    pub host: HostTiming,
    /// The translation layer.
    pub ftl: FtlConfig,
    /// The write buffer.
    pub buffer: BufferConfig,
    /// What is drawn at random is drawn from this.
    pub seed: u64,
}

/// What does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The layout.
    Geometry(GeometryError),
    /// The times.
    Timing(TimingError),
    /// The differences of chips.
    Variability(VariabilityError),
    /// A key of the FTL or the buffer.
    Key {
        /// As configuration files write it, below the device's table.
        key: &'static str,
        /// What it is, what it may be, what to do.
        message: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Geometry(e) => e.fmt(f),
            ConfigError::Timing(e) => e.fmt(f),
            ConfigError::Variability(e) => e.fmt(f),
            ConfigError::Key { key, message } => write!(f, "{key} {message}"),
        }
    }
}

impl core::error::Error for ConfigError {}

impl From<GeometryError> for ConfigError {
    fn from(e: GeometryError) -> Self {
        ConfigError::Geometry(e)
    }
}

impl From<TimingError> for ConfigError {
    fn from(e: TimingError) -> Self {
        ConfigError::Timing(e)
    }
}

impl From<VariabilityError> for ConfigError {
    fn from(e: VariabilityError) -> Self {
        ConfigError::Variability(e)
    }
}

pub(crate) fn wrong(key: &'static str, message: String) -> ConfigError {
    ConfigError::Key { key, message }
}

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

/// The largest number of units of a block and of a drive that the FTL's words hold.
const BLOCK_UNITS_MAX: u32 = crate::ftl::BLOCK_UNITS_MAX;
const UNITS_MAX: u32 = crate::ftl::UNITS_MAX;

impl FlashDriveConfig {
    /// Whether programs of the host's data may be suspended: writes are complete before them, the chip can, and planes that
    /// are programmed together also stop together.
    pub(crate) fn promise(&self) -> Promise {
        let apart = self.ftl.multi_plane && self.timing.gate == OperationUnit::Plane;
        let early = self.buffer.write_units() > 0 && self.buffer.early;
        if early && self.timing.suspend.program.is_some() && !apart { Promise::Open } else { Promise::Told }
    }

    /// Blocks of a plane that cannot hold the host's data: those being written, those kept free, and one so that not all of
    /// the others can be wholly valid.
    pub(crate) fn reserve(streams: u32, cached: bool, start: u32) -> u32 {
        streams + 1 + u32::from(cached) + start + 1
    }

    pub(crate) fn log_reserve(&self) -> u32 {
        // The log, the block that a merge writes, and the one it frees.
        self.ftl.hybrid.log_blocks + 2
    }

    /// A published model; see [`Preset::parts`] for `quirks`.
    pub fn preset(preset: Preset, quirks: bool) -> FlashDriveConfig {
        let parts = preset.parts(quirks);
        let g = &parts.geometry;
        let flash = [g.channels, g.ways, g.planes, g.blocks, g.pages, g.page_bytes];
        let flash: u64 = flash.iter().map(|n| u64::from(*n)).product();
        let (part, whole) = parts.capacity;
        let capacity = flash / u64::from(whole) * u64::from(part);
        let ftl = FtlConfig {
            capacity: Some(Bytes(capacity / u64::from(UNIT) * u64::from(UNIT))),
            unmapped_read: if parts.unwritten_free { UnmappedRead::Free } else { UnmappedRead::Flash },
            multi_plane: g.planes > 1,
            gc: GcConfig { start: parts.gc_start, ..FtlConfig::DEFAULT.gc },
            partitions: parts.partitions,
            ..FtlConfig::DEFAULT
        };
        FlashDriveConfig {
            geometry: parts.geometry,
            timing: parts.timing,
            variability: parts.variability,
            host: parts.host,
            ftl,
            buffer: BufferConfig { size: parts.buffer, early: parts.early_completion, ..BufferConfig::NONE },
            seed: 1,
        }
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
