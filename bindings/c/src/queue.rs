//! A queue as C sees it: requests in any memory, each with a pointer of the caller's, over a queue pair whose slots have
//! buffers of their own.
//!
//! ```text
//!   slot:  Free ──submit──► Busy ──done──► Free        a request in the caller's memory: copied once, through the slot's buffer
//!          Free ──alloc───► Mine ──submit─► Busy ──done──► Mine ──free──► Free     in a buffer that is the slot's: not copied
//! ```

use crate::abi::{Callback, Completion, QueueInfo};
use crate::error::{Code, Error};
use crate::target::{Target, class_number};
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use weir_driver::{Done, Io, IoKind, QueuePair, TransportError};
use weir_node::host::{HostQueue, QueueClass};
use weir_spec::nvme::Status;

/// Who asked.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// What is called at the end.
    pub callback: Callback,
    /// What it is called with.
    pub user: *mut c_void,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    asker: Asker,
    /// Where a read's bytes go, if not into the slot's buffer.
    copy: Option<(*mut u8, u32)>,
    /// The slot's buffer is the caller's.
    mine: bool,
}

#[derive(Clone, Copy, Debug)]
enum Slot {
    Free,
    Mine,
    Busy(Flight),
}

/// A request that has ended and was not reported yet.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Who asked.
    pub asker: Asker,
    /// How it ended.
    pub completion: Completion,
}

/// See the [module](self).
pub struct Queue {
    target: Arc<Target>,
    /// Present until the drop gives it back.
    pair: Option<HostQueue>,
    depth: u32,
    block: u32,
    max_io: u32,
    capacity: u64,
    /// The slots' buffers, which stay where they are as long as the pair.
    memory: Vec<*mut u8>,
    /// Slots by the addresses of their buffers, in order.
    by_address: Vec<(usize, u32)>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    in_flight: u32,
    buffers: u32,
    done: Vec<Done>,
    ended: VecDeque<Ended>,
    broken: Option<Error>,
}

impl Queue {
    /// Creates a queue of that class.
    ///
    /// # Errors
    /// The target gives none; the text says why.
    pub fn new(target: Arc<Target>, class: QueueClass) -> Result<Self, Error> {
        let mut pair = target.connect(class)?;
        let slots = pair.depth();
        let memory: Vec<*mut u8> = (0..slots).map(|slot| pair.buffer(slot).as_mut_ptr()).collect();
        let mut by_address: Vec<(usize, u32)> = memory.iter().zip(0..).map(|(p, slot)| (p.addr(), slot)).collect();
        by_address.sort_unstable();
        let depth = target.depth().min(slots);
        Ok(Self {
            depth,
            block: pair.block_size(),
            max_io: pair.max_io(),
            capacity: pair.capacity(),
            memory,
            by_address,
            slots: vec![Slot::Free; slots as usize],
            free: (0..slots).rev().collect(),
            in_flight: 0,
            buffers: 0,
            done: Vec::with_capacity(slots as usize),
            ended: VecDeque::with_capacity(slots as usize),
            broken: None,
            pair: Some(pair),
            target,
        })
    }

    /// The target, whose thread may be the only one allowed.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// How it stands.
    pub fn info(&self) -> QueueInfo {
        QueueInfo {
            size: size_of::<QueueInfo>(),
            depth: self.depth,
            max_io: self.max_io,
            io_class: class_number(self.pair.as_ref().and_then(HostQueue::class)),
            in_flight: self.in_flight,
            buffers: self.buffers,
            reserved: 0,
        }
    }

    /// Why it is of no use any more.
    pub fn broken(&self) -> Option<&Error> {
        self.broken.as_ref()
    }

    /// A slot's buffer for the caller. One slot stays for requests that bring their own memory or none.
    pub fn alloc(&mut self) -> Option<*mut u8> {
        if self.free.len() < 2 || self.buffers == self.depth {
            return None;
        }
        let slot = self.free.pop()?;
        self.slots[slot as usize] = Slot::Mine;
        self.buffers += 1;
        Some(self.memory[slot as usize])
    }

    /// Takes a buffer back.
    ///
    /// # Errors
    /// It is none of ours, or a request is in flight with it.
    pub fn release(&mut self, buffer: *mut u8) -> Result<(), Code> {
        let slot = self.slot_of(buffer.addr()).ok_or(Code::Usage)?;
        match self.slots[slot as usize] {
            Slot::Mine => {
                self.slots[slot as usize] = Slot::Free;
                self.free.push(slot);
                self.buffers -= 1;
                Ok(())
            }
            Slot::Busy(flight) if flight.mine => Err(Code::Busy),
            _ => Err(Code::Usage),
        }
    }

    #[inline]
    fn slot_of(&self, address: usize) -> Option<u32> {
        let at = self.by_address.binary_search_by_key(&address, |(a, _)| *a).ok()?;
        Some(self.by_address[at].1)
    }

    /// Submits a request.
    ///
    /// # Errors
    /// Nothing was submitted: it does not fit, or not now; or the transport broke, and then the queue is.
    ///
    /// # Safety
    /// For reads and writes `buffer` is null or `len` bytes that stay valid, and that nobody else uses in a conflicting way,
    /// until the request has ended.
    #[inline]
    pub unsafe fn submit(
        &mut self,
        kind: IoKind,
        buffer: *mut u8,
        offset: u64,
        len: u32,
        asker: Asker,
    ) -> Result<(), Code> {
        if let Some(e) = &self.broken {
            return Err(e.code);
        }
        self.check(kind, buffer, offset, len)?;
        if self.in_flight == self.depth {
            return Err(Code::Again);
        }
        let moves = matches!(kind, IoKind::Read | IoKind::Write);
        let own = if moves { self.slot_of(buffer.addr()) } else { None };
        let (slot, mine) = match own {
            Some(slot) if matches!(self.slots[slot as usize], Slot::Mine) => (slot, true),
            _ => (self.free.pop().ok_or(Code::Again)?, false),
        };
        let mut copy = None;
        if moves && !mine {
            let place = self.memory[slot as usize];
            if kind == IoKind::Write {
                // SAFETY: the caller gives `len` readable bytes and the slot's buffer has max_io. They may overlap: the caller
                // may name a buffer that it has given back.
                unsafe { std::ptr::copy(buffer.cast_const(), place, len as usize) };
            } else {
                copy = Some((buffer, len));
            }
        }
        let pair = self.pair.as_mut().ok_or(Code::Internal)?;
        if let Err(e) = pair.submit(Io { kind, offset, len, slot }) {
            return Err(self.not_submitted(slot, mine, e));
        }
        self.slots[slot as usize] = Slot::Busy(Flight { asker, copy, mine });
        self.in_flight += 1;
        Ok(())
    }

    #[inline]
    fn check(&self, kind: IoKind, buffer: *mut u8, offset: u64, len: u32) -> Result<(), Code> {
        if kind == IoKind::Flush {
            return Ok(());
        }
        if matches!(kind, IoKind::Read | IoKind::Write) && buffer.is_null() {
            return Err(Code::Usage);
        }
        let mask = self.block - 1;
        let fits = len != 0
            && len <= self.max_io
            && len & mask == 0
            && offset & u64::from(mask) == 0
            && offset.checked_add(u64::from(len)).is_some_and(|end| end <= self.capacity);
        if fits { Ok(()) } else { Err(Code::Range) }
    }

    #[cold]
    fn not_submitted(&mut self, slot: u32, mine: bool, e: TransportError) -> Code {
        if !mine {
            self.free.push(slot);
        }
        if matches!(e, TransportError::Usage(_)) {
            return Code::Range;
        }
        let e = Error::from(e);
        let code = e.code;
        self.fail(e);
        code
    }

    /// Sends what was submitted and takes what is done.
    ///
    /// # Safety
    /// The memory of the reads in flight is still valid ([`submit`](Self::submit)).
    #[inline]
    pub unsafe fn poll(&mut self) {
        if self.broken.is_some() {
            return;
        }
        let mut done = std::mem::take(&mut self.done);
        let polled = match self.pair.as_mut() {
            Some(pair) => pair.poll(&mut done),
            None => Ok(()),
        };
        for d in done.drain(..) {
            self.finish(d);
        }
        self.done = done;
        if let Err(e) = polled {
            self.fail(e.into());
        }
    }

    #[inline]
    fn finish(&mut self, done: Done) {
        let Some(Slot::Busy(flight)) = self.slots.get(done.slot as usize).copied() else { return };
        let success = done.status.is_success();
        if let Some((to, len)) = flight.copy.filter(|_| success) {
            // SAFETY: the caller gave `len` writable bytes until the end of the request, which is now; the slot's buffer has
            // at least as many. They may overlap, as in `submit`.
            unsafe { std::ptr::copy(self.memory[done.slot as usize].cast_const(), to, len as usize) };
        }
        self.end(done.slot, flight, if success { Code::Ok } else { Code::Io }, done.status);
    }

    #[inline]
    fn end(&mut self, slot: u32, flight: Flight, code: Code, status: Status) {
        self.slots[slot as usize] = if flight.mine { Slot::Mine } else { Slot::Free };
        if !flight.mine {
            self.free.push(slot);
        }
        self.in_flight -= 1;
        let status = if code == Code::Io { status.field() } else { 0 };
        let completion = Completion { user: flight.asker.user, result: code as c_int, status, reserved: 0 };
        self.ended.push_back(Ended { asker: flight.asker, completion });
    }

    /// The transport broke: nothing that is in flight will come back.
    #[cold]
    fn fail(&mut self, e: Error) {
        let code = e.code;
        self.broken = Some(e);
        for slot in 0..self.slots.len() as u32 {
            if let Slot::Busy(flight) = self.slots[slot as usize] {
                self.end(slot, flight, code, Status::SUCCESS);
            }
        }
    }

    /// The next request to be reported.
    #[inline]
    pub fn next_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(pair) = self.pair.take().filter(|_| self.in_flight == 0 && self.broken.is_none()) {
            self.target.take_back(pair);
        }
    }
}
