//! The white box: the drive's flash by physical addresses, as the Open-Channel SSD specification 2.0 (LightNVM, January 2018)
//! shows it. No page map, no garbage collection: the host decides what lies where, the drive holds it to the rules of the
//! medium.
//!
//! ```text
//!  group = channel, parallel unit = die, chunk = the block of that number on every plane of the die
//!  write unit (ws_min) = one page of every plane of the die
//!
//!  read, write, reset, copy, move_pages ──> Chunks          states, write pointers, limits; pure, in logical blocks of 4 KiB
//!              │ accepted
//!              └──> OpenChannel ──> Array, Host             when it is done
//! ```
//! `copy` is the standard's vector chunk copy: data goes to the controller, which corrects it, and back. `move_pages` is the
//! page move of papers/002 section 4: copied back within the plane where source and destination allow it. Neither crosses
//! the host link.

mod address;
mod chunks;
mod config;
mod drive;
#[cfg(test)]
mod model;
mod power_loss;
#[cfg(test)]
mod power_loss_tests;
mod relocate;
#[cfg(test)]
mod tests;

pub use address::{AddressFormat, Ppa};
pub use chunks::{Chunk, ChunkError, ChunkState, Chunks, VectorError};
pub use config::{ChunkConfig, OpenChannelConfig, OpenChannelError};
pub use drive::{OpenChannel, OpenChannelWork, VectorOutcome};
