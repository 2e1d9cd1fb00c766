//! The back end of vhost-user-blk: what a device does with the front end's messages and with the rings in its memory.
//!
//! Implements the vhost-user protocol as documented with QEMU 9 and the block device of Virtio 1.2, with split and packed
//! virtqueues. Pure: the caller moves bytes of the socket, owns the descriptors and maps the memory.
//!
//! ```text
//!   socket ──► Inbox ──Message──► Device::message ──Action──► the door (reply, watch, signal, start, stop)
//!                                    │ owns
//!                                    ▼
//!   guest memory ◄──Memory──► Queue: Ring (split | packed) ─Chain─► request ──Taken──► the door ──► Subsystem
//!                          journal ◄──┤ Track: taken, done, published                         │
//!                        dirty log ◄──┤ Logging: what was written                              │
//!                                    └────────── complete(tag, status), publish ◄───────────┘
//! ```
//!
//! A queue's states, and what moves it:
//!
//! ```text
//!   Stopped ──SET_VRING_KICK──► Started ──a malformed ring──► Broken
//!      ▲                           │ GET_VRING_BASE              │ GET_VRING_BASE
//!      └──── all completed ──── Draining ◄───────────────────────┘
//! ```
//!
//! Whether a started queue is served depends on SET_VRING_ENABLE as well, which starts nothing by itself.
//!
//! Limits: [`Disk::MAX_QUEUES`] queues of [`MAX_QUEUE_SIZE`] entries, [`MAX_CHAIN`] descriptors a request. Left out, and
//! therefore not offered: postcopy, IOMMU, in-band notifications,
//! zoned devices, secure erase, a writable write cache switch.

mod chain;
mod device;
mod disk;
mod inbox;
mod journal;
mod log;
mod map;
mod pool;
mod queue;
mod request;
mod ring;

#[cfg(test)]
mod tests;

pub use crate::memory::MapError;
pub use chain::{Chain, MAX_CHAIN, Segment, Violation};
pub use device::{Action, Device, has_reply};
pub use disk::Disk;
pub use inbox::{Inbox, Message, ProtocolError};
pub use journal::StartError;
pub use map::{Map, Region};
pub use queue::{MAX_QUEUE_SIZE, Queue, QueueState, Taken};
pub use request::{Op, Tag};
