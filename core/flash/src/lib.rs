#![no_std]
#![forbid(unsafe_code)]
//! What is inside a flash drive, and when it is done.
//!
//! Depends on `weir-units` only. Holds no data and reads no clock: the time is handed in, and each operation answers
//! with the time at which it is complete. Nothing is called back.
//!
//! ```text
//!  Geometry ── checked ──> Shape        channels, dies, planes, blocks, pages, 4 KiB units
//!  Timing, Variability ──> Array        read, program, erase, relocate: planes and channels are booked
//!                          └ Wire       how long bytes take
//! ```

extern crate alloc;

mod array;
mod calendar;
mod cell;
mod geometry;
mod host;
mod lun;
mod name;
mod preset;
mod relocate;
#[cfg(test)]
mod tests;
mod timing;
mod variability;
mod wire;

pub use array::{Array, Programmed, ReadOutcome, Utilisation};
pub use calendar::Calendar;
pub use cell::{CellType, MAX_LEVELS, PageMap};
pub use geometry::{Divisor, Geometry, GeometryError, Lpn, Place, Shape, UNIT, Unit};
pub use host::{Firmware, Host, HostOp, HostTiming};
pub use lun::Promise;
pub use name::UnknownName;
pub use preset::{CellTimes, Parts, Preset, cell_times, page_type_factors};
pub use relocate::{Relocation, Scope};
pub use timing::{Gate, Levels, Overheads, Registers, Suspend, Timing, TimingError, levels, uniform};
pub use variability::{EccSteps, Errors, Variability, VariabilityError};
pub use wire::{Packet, Wire};
