#![no_std]
#![forbid(unsafe_code)]
//! What is inside a flash drive, and when it is done.
//!
//! Depends on `weir-units` only. Holds no data and reads no clock: the time is handed in, and each operation answers
//! with the time at which it is complete. Nothing is called back.
//!
//! ```text
//!  FlashDriveConfig ──> Flash ── submit(now, op, lpn, units) ──> when it is complete
//!             ├ Host      firmware and link: fetch, deliver
//!             ├ Buffer    writes on their way (FlushPolicy), and what stays there (Cache)
//!             ├ ftl       page map, collection, wear (VictimPolicy, WearPolicy, Separation), map cache, pseudo-SLC
//!             ├ Array     read, program, erase, relocate: planes and channels are booked
//!             ├ Image     what survives the loss of power: spare areas, and a few words a block
//!             └ Mapped    the controller's memory, where it outlives the process
//!
//!  Geometry ── checked ──> Shape        channels, dies, planes, blocks, pages, 4 KiB units
//!  FlashTiming, Variability ──> Array
//!  (a Preset has all)      ├ Scheduler  where channels are arbitrated when they are free: events, and ends that are a When
//!                          ├ Lun        a plane or die: one operation after the other, and what may still be suspended
//!                          ├ Calendar   a channel: disjoint intervals, holes are filled
//!                          ├ CreditRing a channel or link in its place: so many units in each 4 µs (NVMeVirt)
//!                          └ Wire       how long bytes take
//!  ZoneConfig          ──> ZonedFlash   zones instead of a page map, on an Array
//!  FdpConfig           ──> Fdp          reclaim units and their handles, beside the page map
//!  OpenChannelConfig   ──> OpenChannel  physical addresses instead of a map, on an Array
//! ```
//! With booked channels an operation's end is known when it begins. With others it is a [`When`]: [`Flash::begin`], [`Flash::tell`],
//! [`Flash::advance`]. A completion that was answered never moves. Work that nobody was told about ([`Promise::Open`]) may be suspended by a
//! read until somebody asks for its end ([`Array::tell`]).
//!
//! **Left out**: collection booked in aggregate ([`Relocation`]) has no retries and counts no reads for read disturb;
//! a suspended program's successors keep the channel time that they were given; planes programmed together wear as the
//! first one's block.

extern crate alloc;

mod array;
#[cfg(test)]
mod behaviour_tests;
mod buffer;
mod cache;
mod cached_read;
mod calendar;
mod capacity;
mod cell;
mod cells;
mod check;
mod commands;
mod completions;
mod config;
mod config_error;
mod cost;
mod credits;
mod derived_config;
mod die_times;
mod durable;
mod fdp;
mod flash;
mod flush_policy;
mod ftl;
mod geometry;
mod host;
mod image;
#[cfg(test)]
mod image_tests;
mod lru;
mod lun;
mod mapped;
#[cfg(test)]
mod model;
mod name;
mod oc;
mod pending_commands;
mod power;
#[cfg(test)]
mod power_tests;
mod precondition;
mod preset;
mod queues;
mod reading;
mod region;
mod relocate;
mod restore;
mod scheduler;
mod shuffle;
mod stats;
#[cfg(test)]
mod tests;
mod timing;
mod variability;
mod wire;
mod writing;
mod zns;

pub use array::{Array, Programmed, ReadOutcome, Utilisation};
pub use calendar::Calendar;
pub use cell::{CellType, MAX_LEVELS, PageMap};
pub use commands::FlashOp;
pub use config::{
    Association, BufferConfig, Cache, Dram, FlashDriveConfig, Flush, Fold, FtlConfig, GcConfig, GcMode, HybridConfig,
    Mapping, SlcConfig, UnmappedRead, WearConfig, WriteZeroes,
};
pub use config_error::ConfigError;
pub use credits::CreditRing;
pub use fdp::{Fdp, FdpConfig, FdpEvent, FdpEventKind, FdpStatistics, HandleWork, Isolation};
pub use flash::Flash;
pub use flush_policy::{FlushPolicy, Level};
pub use ftl::{
    Greedy, Lost, PlaneAllocation, PlaneView, Prefetch, Separate, Separation, Victim, VictimPolicy, Wear, WearPolicy,
};
pub use geometry::{Divisor, Geometry, GeometryError, Lpn, PageAddress, Shape, UNIT, Unit};
pub use host::{Firmware, Host, HostOp, HostTiming};
pub use image::{IMAGE_KEYS, Image, ImageKeys, ImageSize, Lender};
pub use lun::{OpenEnd, Promise};
pub use mapped::{Mapped, MappedSize};
pub use name::UnknownName;
pub use oc::{
    AddressFormat, Chunk, ChunkConfig, ChunkError, ChunkState, Chunks, OpenChannel, OpenChannelConfig,
    OpenChannelError, OpenChannelWork, Ppa, VectorError, VectorOutcome,
};
pub use power::PowerLoss;
pub use precondition::Precondition;
pub use preset::{CellTimes, Preset, PresetParts, cell_times, page_type_factors};
pub use region::{REGION_KEYS, RegionError, RegionImage, RegionKeys, RegionLoss, RegionSize};
pub use relocate::{Relocation, Scope};
pub use scheduler::When;
pub use shuffle::Shuffle;
pub use stats::{DieBlocks, Stats, WearSpread};
pub use timing::{
    Arbitration, FlashTiming, Levels, OperationUnit, Order, Overheads, Registers, Suspend, TimingError, levels, uniform,
};
pub use variability::{DieWork, EccSteps, Errors, Housekeeping, Variability, VariabilityError};
pub use weir_units::rng::SplitMix64;
pub use wire::{Packet, Wire};
pub use zns::{
    Placed, Selection, Stripe, StripeError, Zone, ZoneAction, ZoneConfig, ZoneConfigError, ZoneError, ZoneState,
    ZonedBuffer, ZonedConfig, ZonedError, ZonedFlash, Zones, Zrwa,
};
