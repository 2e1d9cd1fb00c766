//! What a drive is made from: every choice with its default.

use crate::fdp::FdpConfig;
use crate::ftl::{PlaneAllocation, Separate, Victim, Wear};
use crate::geometry::{Geometry, UNIT};
use crate::host::HostTiming;
use crate::lun::Promise;
use crate::name::names;
use crate::preset::Preset;
use crate::timing::{FlashTiming, OperationUnit};
use crate::variability::Variability;
use crate::wire::Wire;
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

/// What waits while a block is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GcMode {
    /// The whole drive (OpenSSD; FEMU's controller blocking).
    Controller,
    /// The plane's channel (SSDSim; FEMU's channel blocking).
    Channel,
    /// The plane only: pages are copied back inside it.
    Plane,
    /// The plane, one page at a time, and only while no request wants it.
    Preemptive,
}

names!(
    GcMode,
    "garbage collection mode",
    Controller = "controller",
    Channel = "channel",
    Plane = "plane",
    Preemptive = "preemptive"
);

/// When data leaves the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flush {
    /// As soon as a program's worth has come.
    Eager,
    /// When `high` hundredths are dirty, down to `low`: units that are written again soon cost one program.
    Watermark,
}

names!(Flush, "flush policy", Eager = "eager", Watermark = "watermark");

/// What stays in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cache {
    /// Nothing: what was written leaves by the flush policy.
    None,
    /// What is written again.
    Write,
    /// What was read; writes go to the flash at once.
    Read,
    /// Both.
    Both,
}

names!(Cache, "cache", None = "none", Write = "write", Read = "read", Both = "write-read");

impl Cache {
    pub(crate) const fn writes(self) -> bool {
        matches!(self, Cache::Write | Cache::Both)
    }

    pub(crate) const fn reads(self) -> bool {
        matches!(self, Cache::Read | Cache::Both)
    }
}

/// What an access to the controller's memory takes; one follows the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dram {
    /// Once for the data of a command.
    pub access: Nanos,
    /// Its bytes.
    pub wire: Wire,
}

impl Dram {
    /// Takes no time.
    pub const INSTANT: Dram = Dram { access: Nanos(0), wire: Wire::INSTANT };
}

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

impl FlashDriveConfig {
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
}
