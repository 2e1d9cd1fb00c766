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
mod cell;
mod geometry;
mod name;
mod timing;
mod variability;
mod wire;

pub use array::{Array, Programmed, Relocation, Scope};
pub use cell::{CellType, MAX_LEVELS, PageMap};
pub use geometry::{Divisor, Geometry, GeometryError, Lpn, Place, Shape, UNIT, Unit};
pub use name::UnknownName;
pub use timing::{Gate, Levels, Overheads, Registers, Suspend, Timing, TimingError, levels, uniform};
pub use variability::Variability;
pub use wire::{Packet, Wire};
