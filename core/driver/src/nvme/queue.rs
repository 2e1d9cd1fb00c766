//! An I/O queue pair: requests in, commands on the ring, completions back.

use super::plan::QueueLayout;
use super::{ControllerIdentity, ControllerPlan, PAGE, Port, QueuePairRings, protocol};
use crate::nvme_tcp::command;
use crate::{Done, Io, IoKind, TransportError};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use weir_spec::nvme::entry::SglDescriptor;
use zerocopy::IntoBytes;

/// Places in an entry's words ([`weir_spec::nvme::Sqe::words`]): CID and PSDT in the first, DPTR in the fourth and fifth.
const CID_SHIFT: u32 = 16;
const PSDT_SHIFT: u32 = 14;
const DPTR: usize = 3;

/// Requests to one namespace over one pair of rings. A request's slot is its command identifier and names its buffer.
#[derive(Debug)]
pub struct IoQueue {
    rings: QueuePairRings,
    at: QueueLayout,
    depth: u32,
    nsid: u32,
    shift: u32,
    blocks: u64,
    max_io: u32,
    max_zeroes: u32,
    sgl: bool,
    busy: Vec<bool>,
}

impl IoQueue {
    /// The queue at that place of the plan; writes the PRP lists, which never change.
    pub(crate) fn new<P: Port>(
        plan: &ControllerPlan,
        index: usize,
        identity: &ControllerIdentity,
        port: &mut P,
    ) -> Self {
        let (at, depth) = (plan.queue(index), plan.queues[index].depth);
        // Without SGLs a transfer is one page, two, or one page and a page of list.
        let reach = if identity.sgl { u32::MAX } else { (PAGE / 8 * PAGE) as u32 };
        let max_io = plan.buffer.min(identity.max_transfer).min(reach) >> identity.block_shift << identity.block_shift;
        let queue = IoQueue {
            rings: match identity.shadow_doorbells {
                true => QueuePairRings::new(index as u16 + 1, depth + 1, at.sq, at.cq).shadowed(plan.shadow()),
                false => QueuePairRings::new(index as u16 + 1, depth + 1, at.sq, at.cq),
            },
            at,
            depth,
            nsid: plan.nsid,
            shift: identity.block_shift,
            blocks: identity.blocks,
            max_io,
            max_zeroes: identity.max_zeroes >> identity.block_shift << identity.block_shift,
            sgl: identity.sgl,
            busy: vec![false; depth as usize],
        };
        if !queue.sgl && at.stride > 2 * PAGE {
            for slot in 0..depth {
                queue.write_list(port, slot);
            }
        }
        queue
    }

    fn write_list<P: Port>(&self, port: &mut P, slot: u32) {
        let pages = (self.at.stride / PAGE).min(PAGE / 8 + 1);
        for page in 1..pages {
            let entry = self.buffer(slot) + page * PAGE;
            port.write(self.list(slot) + (page - 1) * 8, &entry.to_le_bytes());
        }
    }

    fn list(&self, slot: u32) -> u64 {
        self.at.lists + u64::from(slot) * PAGE
    }

    /// The address of a slot's buffer.
    pub fn buffer(&self, slot: u32) -> u64 {
        self.at.buffers + u64::from(slot) * self.at.stride
    }

    /// The addresses of its rings, lists and buffers, which are nobody else's.
    pub fn memory(&self) -> Range<u64> {
        self.at.sq..self.at.end
    }

    /// Requests that may be in flight.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        1 << self.shift
    }

    /// Bytes of the namespace.
    pub fn capacity(&self) -> u64 {
        self.blocks << self.shift
    }

    /// Bytes of the longest request.
    pub fn max_io(&self) -> u32 {
        self.max_io
    }

    /// Bytes of the longest request that writes zeroes.
    pub fn max_zeroes(&self) -> u32 {
        self.max_zeroes
    }

    /// The rings.
    pub fn rings(&self) -> &QueuePairRings {
        &self.rings
    }

    /// The submission queue was deleted and created again.
    pub(super) fn restart(&mut self) {
        self.rings.restart();
    }

    /// Puts a request, which [`Io::check`] has seen, on the ring.
    ///
    /// # Errors
    /// The slot is in flight already.
    #[inline]
    pub fn submit<P: Port>(&mut self, port: &mut P, io: Io) -> Result<(), TransportError> {
        let blocks = io.len >> self.shift;
        let mut entry = command::io_words(io.kind, self.nsid, io.offset >> self.shift, blocks);
        entry[0] |= u64::from(io.slot as u16) << CID_SHIFT;
        match io.kind {
            IoKind::Read | IoKind::Write => self.point(&mut entry, io.slot, io.len),
            IoKind::Trim => {
                let range = self.at.ranges + u64::from(io.slot) * 16;
                port.write(range, command::trim_range(io.offset >> self.shift, blocks).as_bytes());
                self.point_at(&mut entry, range, 16);
            }
            IoKind::WriteZeroes | IoKind::Flush => {}
        }
        let busy = match self.busy.get_mut(io.slot as usize) {
            Some(busy) if !*busy => busy,
            _ => return Err(io.refusal()),
        };
        if !self.rings.push(port, &entry) {
            return Err(io.refusal());
        }
        *busy = true;
        Ok(())
    }

    #[inline]
    fn point(&self, entry: &mut [u64; 8], slot: u32, len: u32) {
        let buffer = self.buffer(slot);
        self.point_at(entry, buffer, len);
        if !self.sgl {
            entry[DPTR + 1] = match u64::from(len) {
                0..=PAGE => 0,
                n if n <= 2 * PAGE => buffer + PAGE,
                _ => self.list(slot),
            };
        }
    }

    #[inline]
    fn point_at(&self, entry: &mut [u64; 8], address: u64, len: u32) {
        entry[DPTR] = address;
        if self.sgl {
            // A data block descriptor: its type is 0, and PSDT says that it is one.
            entry[DPTR + 1] = u64::from(len) | u64::from(SglDescriptor::DATA_BLOCK) << 56;
            entry[0] |= 1 << PSDT_SHIFT;
        }
    }

    /// Tells the controller what was submitted.
    #[inline]
    pub fn flush<P: Port>(&mut self, port: &mut P) {
        self.rings.ring_tail(port);
    }

    /// Appends what has finished.
    ///
    /// # Errors
    /// The controller completes what was not asked of it.
    #[inline]
    pub fn reap<P: Port>(&mut self, port: &mut P, done: &mut Vec<Done>) -> Result<(), TransportError> {
        while let Some(cqe) = self.rings.pop(port)? {
            let slot = u32::from(cqe.cid.get());
            match self.busy.get_mut(slot as usize) {
                Some(busy) if *busy => *busy = false,
                _ => return Err(protocol("a completion of a command that was not sent")),
            }
            done.push(Done { slot, status: cqe.status() });
        }
        self.rings.ring_head(port);
        Ok(())
    }
}
