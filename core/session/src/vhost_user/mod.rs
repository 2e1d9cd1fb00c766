//! The back end of vhost-user-blk: what a device does with the front end's messages and with the rings in its memory.
//!
//! Implements the vhost-user protocol as documented with QEMU 9 and the block device of Virtio 1.2, with split and packed
//! virtqueues. Pure: the caller moves bytes of the socket, owns the descriptors and maps the memory.
//!
//! ```text
//!   socket ──► Inbox ──Message──► VhostUserDevice::message ──Action──► the door (reply, watch, signal, start, stop)
//!                                    │ owns
//!                                    ▼
//!   guest memory ◄──Memory──► Virtqueue: Ring (split | packed) ─Chain─► request ──DriveCommand──► the door ──► Subsystem
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
#[cfg(any(test, feature = "testing"))]
mod model;
mod queue;
mod request;
mod ring;
mod segments;

#[cfg(test)]
mod tests;

pub use crate::memory::MapError;
pub use chain::{Chain, GuestSegment, MAX_CHAIN, Violation};
pub use device::{Action, VhostUserDevice, has_reply};
pub use disk::Disk;
pub use inbox::{Inbox, Message, ProtocolError};
pub use journal::StartError;
pub use map::{GuestRegion, Map};
pub use queue::{DriveCommand, MAX_QUEUE_SIZE, QueueState, Virtqueue};
pub use request::{Op, RequestTag};
