//! The client of a vfio-user server (protocol 0.1): finds the drive's registers and doorbells and hands it our memory, without
//! the socket.
//!
//! ```text
//!   Hello ──► VERSION ─ DEVICE_GET_INFO ─ DEVICE_GET_REGION_INFO ─ REGION_READ, REGION_WRITE of the configuration space ─ DMA_MAP
//!     └──► Negotiated: where the doorbells can be mapped ──► nvme::BringUp over a Port that speaks REGION_READ and REGION_WRITE
//! ```
//! Doorbells are stores to a mapped page where the server has one (and then polls), else writes that nobody answers.
//!
//! **Left out**: interrupts (every caller polls), DMA_READ and DMA_WRITE (our memory always has a descriptor), migration.

mod message;
mod negotiate;
#[cfg(test)]
mod tests;

pub use message::{Outgoing, ReplyError, check, read, write};
pub use negotiate::{Area, DmaMemory, Hello, Negotiated};

/// Most bytes of a reply that the client takes: no answer that it asks for is longer.
pub const MAX_REPLY: usize = 4096;
