#![no_std]
#![forbid(unsafe_code)]
//! The host's side of a drive: what brings a controller up and keeps its queue pairs full.
//!
//! Pure protocol machines; whoever carries the bytes (`weir-sys`' transports, `weir-node`'s in-process one) implements
//! [`QueuePair`] on top of them:
//!
//! ```text
//!   weir bench ──► QueuePair ──┬─ node::local                 nvme::{AdminQueue, IoQueue}    memory and doorbells
//!                              ├─ sys::transport::vfio_user   vfio_user, then nvme        memory and doorbells of a socket
//!                              ├─ sys::transport::nvme_tcp    nvme_tcp (initiator)        one connection
//!                              └─ sys::transport::vhost_user  vhost_user (front end)      a ring in shared memory
//! ```
//!
//! Where a drive has no arbitration that tells its clients apart, [`host_arbiter`] stands before their queue pairs. [`link_recovery`] decides what
//! is done when the other side goes.
//!
//! May depend on `weir-spec`, `weir-units`, `weir-arbiter` and `weir-session` (its `Memory` port, and PDUs that arrive) only: no clock, no thread, no
//! socket.
//!
//! Left out: waiting (a caller polls, or waits for an interrupt that its transport has asked for), metadata, fused commands, more than one namespace a queue pair.

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod health;
pub mod host_arbiter;
pub mod link_recovery;
pub mod nvme;
pub mod nvme_tcp;
pub mod vfio_user;
pub mod vhost_user;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use health::SmartReading;
use weir_spec::nvme::Status;
use weir_units::Nanos;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// Drive to buffer.
    Read,
    /// Buffer to drive.
    Write,
    /// Zeroes to the drive; no buffer.
    WriteZeroes,
    /// Tells the drive that the range is not needed (dataset management, discard); no buffer.
    Trim,
    /// Makes finished writes durable; `offset` and `len` are 0.
    Flush,
}

/// One request to a [`QueuePair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// What to do.
    pub kind: IoKind,
    /// First byte; a multiple of the block size.
    pub offset: u64,
    /// Bytes; a multiple of the block size, at most [`QueuePair::max_io`], or [`QueuePair::max_zeroes`] of zeroes.
    pub len: u32,
    /// Names the buffer and comes back in [`Done`]; less than [`QueuePair::depth`], and not in flight already.
    pub slot: u32,
}

/// A finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The request's slot, free again.
    pub slot: u32,
    /// How it ended. Transports that are not NVMe translate (virtio's IOERR is an internal error).
    pub status: Status,
}

/// What a drive says of its namespace by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceNotice {
    /// Its attributes have changed: its size, perhaps which one it is (base 2.0, Figure 147, Namespace Attribute Changed).
    AttributesChanged,
    /// Its ANA state has changed, and lets commands through or does not (base 2.0, 8.1).
    AccessChanged {
        /// Optimized or non-optimized.
        is_accessible: bool,
    },
}

/// Requests to one namespace over one queue, with a buffer for each that may be in flight. Never blocks.
pub trait QueuePair {
    /// Requests that may be in flight.
    fn depth(&self) -> u32;
    /// Bytes of a block, a power of two: the unit of offsets and lengths.
    fn block_size(&self) -> u32;
    /// Bytes of the namespace.
    fn capacity(&self) -> u64;
    /// Bytes of the longest request, and of each buffer.
    fn max_io(&self) -> u32;
    /// Bytes of the longest request that writes zeroes, which moves none: its limit is another one (WZSL, NVM Command Set 1.0, Figure 102).
    fn max_zeroes(&self) -> u32 {
        self.max_io()
    }
    /// The buffer of a slot, [`max_io`](Self::max_io) bytes, allocated at the start. While the slot is in flight its content
    /// belongs to the drive.
    fn buffer(&mut self, slot: u32) -> &mut [u8];
    /// Queues a request; it leaves with the next [`poll`](Self::poll), together with the others.
    ///
    /// # Errors
    /// The transport is broken for good, or the request breaks the rules of [`Io`].
    fn submit(&mut self, io: Io) -> Result<(), TransportError>;
    /// Sends what was queued and appends what has finished to `done`.
    ///
    /// # Errors
    /// The transport is broken for good: what was in flight will not come back.
    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError>;
    /// Keeps the drive's association alive while the queue is not polled: to be called every second or so then.
    ///
    /// # Errors
    /// The transport is broken for good.
    fn attend(&mut self) -> Result<(), TransportError> {
        Ok(())
    }
    /// This process ends, and the next one goes on with the drive: nothing is done to it when the queue pair is dropped, where something outlives
    /// the process. Nothing is in flight, and nothing is submitted any more.
    fn leave_open(&mut self) {}
    /// When the drive has last answered something beside requests, a keep alive for example; 0 where nothing is known.
    fn heard(&self) -> Nanos {
        Nanos(0)
    }
    /// What the drive has said of its namespace since the last call; polls and [`attend`](Self::attend) hear it.
    fn take_notice(&mut self) -> Option<NamespaceNotice> {
        None
    }
    /// Asks for the SMART log with the next [`attend`](Self::attend); whether it can be asked for.
    fn ask_smart(&mut self) -> bool {
        false
    }
    /// The answer to [`ask_smart`](Self::ask_smart), once.
    fn take_smart(&mut self) -> Option<SmartReading> {
        None
    }
}

impl<Q: QueuePair + ?Sized> QueuePair for alloc::boxed::Box<Q> {
    fn depth(&self) -> u32 {
        (**self).depth()
    }
    fn block_size(&self) -> u32 {
        (**self).block_size()
    }
    fn capacity(&self) -> u64 {
        (**self).capacity()
    }
    fn max_io(&self) -> u32 {
        (**self).max_io()
    }
    fn max_zeroes(&self) -> u32 {
        (**self).max_zeroes()
    }
    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        (**self).buffer(slot)
    }
    #[inline]
    fn submit(&mut self, io: Io) -> Result<(), TransportError> {
        (**self).submit(io)
    }
    #[inline]
    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError> {
        (**self).poll(done)
    }
    fn attend(&mut self) -> Result<(), TransportError> {
        (**self).attend()
    }
    fn leave_open(&mut self) {
        (**self).leave_open();
    }
    fn heard(&self) -> Nanos {
        (**self).heard()
    }
    fn take_notice(&mut self) -> Option<NamespaceNotice> {
        (**self).take_notice()
    }
    fn ask_smart(&mut self) -> bool {
        (**self).ask_smart()
    }
    fn take_smart(&mut self) -> Option<SmartReading> {
        (**self).take_smart()
    }
}

/// Why a queue pair cannot be had, or can go no further. The text is what the user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportError {
    /// Nobody answers at that address, or it cannot be reached.
    Unreachable(String),
    /// The other side said no.
    Refused(String),
    /// The other side has no such namespace, or an inactive one.
    NoNamespace(String),
    /// The other side went away in the middle.
    Closed(String),
    /// The other side broke the protocol.
    Protocol(String),
    /// The other side did not answer in time.
    Timeout(String),
    /// The caller asked for what the queue pair cannot do.
    Usage(String),
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(m)
            | Self::Refused(m)
            | Self::NoNamespace(m)
            | Self::Closed(m)
            | Self::Protocol(m)
            | Self::Timeout(m)
            | Self::Usage(m) => f.write_str(m),
        }
    }
}

impl core::error::Error for TransportError {}

impl Io {
    /// Checks the request against what a queue pair can do; every implementation's `submit` calls it first.
    ///
    /// # Errors
    /// [`TransportError::Usage`], saying which rule is broken.
    #[inline]
    pub fn check<Q: QueuePair + ?Sized>(&self, q: &Q) -> Result<(), TransportError> {
        // Blocks are powers of two, and this is on every request's way: no division.
        let mask = q.block_size().wrapping_sub(1);
        let most = if self.kind == IoKind::WriteZeroes { q.max_zeroes() } else { q.max_io() };
        let fits = match self.kind {
            IoKind::Flush => self.len == 0 && self.offset == 0,
            _ => {
                self.len != 0
                    && self.len <= most
                    && self.len & mask == 0
                    && self.offset & u64::from(mask) == 0
                    && self.offset.checked_add(u64::from(self.len)).is_some_and(|end| end <= q.capacity())
            }
        };
        if fits && self.slot < q.depth() { Ok(()) } else { Err(self.refusal()) }
    }

    #[cold]
    pub(crate) fn refusal(&self) -> TransportError {
        TransportError::Usage(alloc::format!(
            "the request {:?} of {} bytes at {} in slot {} does not fit the queue pair",
            self.kind,
            self.len,
            self.offset,
            self.slot
        ))
    }
}
