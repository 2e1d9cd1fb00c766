//! Requests on a virtqueue: the driver's side.

use super::layout::{QueueLayout, RANGE, STATUS};
use super::ring::{FrontRing, RequestDescriptor};
use crate::{Done, Io, IoKind};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;
use weir_session::memory::{Memory, MemoryFault};
use weir_spec::nvme::Status;
use weir_spec::virtio_blk::{RequestHeader, RequestStatus, RequestType, SECTOR};

/// What ends a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontError {
    /// The shared memory is not where it was said to be.
    Memory(MemoryFault),
    /// The device completed what was not in flight.
    NotInFlight,
}

impl fmt::Display for FrontError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(fault) => write!(f, "the shared memory cannot be accessed: {fault}"),
            Self::NotInFlight => f.write_str("the device completed a request that was not in flight"),
        }
    }
}

impl core::error::Error for FrontError {}

impl From<MemoryFault> for FrontError {
    fn from(fault: MemoryFault) -> Self {
        Self::Memory(fault)
    }
}

/// A status byte that the device has not written.
const UNWRITTEN: u8 = 0xff;

/// One queue.
#[derive(Debug)]
pub struct FrontQueue<M: Memory> {
    layout: QueueLayout,
    base: u64,
    head: M::Window,
    ring: FrontRing<M>,
    in_flight: Vec<bool>,
}

impl<M: Memory> FrontQueue<M> {
    /// A queue in memory that begins at `base` and is all zeroes.
    ///
    /// # Errors
    /// The memory is not there.
    pub fn new(memory: &M, layout: QueueLayout, base: u64) -> Result<Self, FrontError> {
        let ring = FrontRing::new(memory, &layout, &layout.addresses(base))?;
        let head = memory.window(base, layout.head_bytes() as usize)?;
        Ok(Self { layout, base, head, ring, in_flight: vec![false; layout.depth as usize] })
    }

    /// Guest address of a slot's buffer.
    pub fn buffer(&self, slot: u32) -> u64 {
        self.base + self.layout.buffer(slot)
    }

    /// Adds a request; the device sees it after [`FrontQueue::publish`]. The caller has checked it ([`Io::check`]).
    ///
    /// # Errors
    /// The slot is in flight, or the memory is gone.
    #[inline]
    pub fn submit(&mut self, memory: &M, io: &Io) -> Result<(), FrontError> {
        let busy = self.in_flight.get_mut(io.slot as usize).ok_or(FrontError::NotInFlight)?;
        if core::mem::replace(busy, true) {
            return Err(FrontError::NotInFlight);
        }
        let line = self.layout.line(io.slot);
        let sector = io.offset / SECTOR;
        let (kind, data) = match io.kind {
            IoKind::Read => (RequestType::IN, Some((self.buffer(io.slot), io.len, true))),
            IoKind::Write => (RequestType::OUT, Some((self.buffer(io.slot), io.len, false))),
            IoKind::Flush => (RequestType::FLUSH, None),
            IoKind::WriteZeroes => (RequestType::WRITE_ZEROES, Some((self.base + line + RANGE, 16, false))),
            IoKind::Trim => (RequestType::DISCARD, Some((self.base + line + RANGE, 16, false))),
        };
        let at = line as usize;
        let ranged = matches!(io.kind, IoKind::WriteZeroes | IoKind::Trim);
        if ranged {
            memory.store64(&self.head, at + RANGE as usize, sector, Relaxed)?;
            memory.store64(&self.head, at + RANGE as usize + 8, u64::from(io.len) / SECTOR, Relaxed)?;
        }
        memory.store64(&self.head, at, u64::from(kind.0), Relaxed)?;
        memory.store64(&self.head, at + 8, if ranged { 0 } else { sector }, Relaxed)?;
        memory.store16(&self.head, at + STATUS as usize, u16::from(UNWRITTEN), Relaxed)?;
        let header =
            RequestDescriptor { address: self.base + line, len: size_of::<RequestHeader>() as u32, writable: false };
        let status = RequestDescriptor { address: self.base + line + STATUS, len: 1, writable: true };
        match data {
            Some((address, len, writable)) => {
                self.add(memory, io.slot, &[header, RequestDescriptor { address, len, writable }, status])
            }
            None => self.add(memory, io.slot, &[header, status]),
        }
    }

    #[inline]
    fn add(&mut self, memory: &M, slot: u32, pieces: &[RequestDescriptor]) -> Result<(), FrontError> {
        if !self.layout.indirect {
            return Ok(self.ring.add(memory, slot, pieces)?);
        }
        let table = self.layout.table(slot);
        for (i, p) in pieces.iter().enumerate() {
            let more = i + 1 < pieces.len();
            let (low, high) = FrontRing::<M>::table_entry(p, i as u16, more, self.layout.packed);
            memory.store64(&self.head, table as usize + 16 * i, low, Relaxed)?;
            memory.store64(&self.head, table as usize + 16 * i + 8, high, Relaxed)?;
        }
        Ok(self.ring.add_table(memory, slot, self.base + table, 16 * pieces.len() as u32)?)
    }

    /// Makes what was submitted visible; whether the device wants a kick.
    ///
    /// # Errors
    /// The memory is gone.
    #[inline]
    pub fn publish(&mut self, memory: &M) -> Result<bool, FrontError> {
        Ok(self.ring.publish(memory)?)
    }

    /// Appends what the device has completed.
    ///
    /// # Errors
    /// The device does not keep to the protocol.
    #[inline]
    pub fn reap(&mut self, memory: &M, done: &mut Vec<Done>) -> Result<(), FrontError> {
        let Self { layout, head, ring, in_flight, .. } = self;
        let sound = ring.reap(memory, |slot| {
            match in_flight.get_mut(slot as usize) {
                Some(busy) if *busy => *busy = false,
                _ => return false,
            }
            let at = (layout.line(slot) + STATUS) as usize;
            let status = memory.load16(head, at, Relaxed).map_or(UNWRITTEN, |v| v as u8);
            done.push(Done { slot, status: to_nvme(RequestStatus(status)) });
            true
        })?;
        if sound { Ok(()) } else { Err(FrontError::NotInFlight) }
    }
}

/// A virtio status in NVMe's terms, as [`Done`] reports it.
fn to_nvme(status: RequestStatus) -> Status {
    match status {
        RequestStatus::OK => Status::SUCCESS,
        RequestStatus::UNSUPP => Status::INVALID_OPCODE,
        _ => Status::INTERNAL_ERROR,
    }
}
