//! Submission and completion queues, and a command that waits in one.

use crate::event::{Op, Request, SqHandle};
use crate::host::{DataPointer, Owner, Tag};
use crate::io::slow_path::restricted_namespace::Words;
use crate::namespace::Plan;
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_arbiter::QueueKey;
use weir_spec::nvme::zns::ZonedOpcode;
use weir_spec::nvme::{IoOpcode, nvm};
use weir_units::{Class, Nanos};

/// No such queue.
pub(crate) const NONE: u32 = u32::MAX;

/// Bits of [`Command::flags`].
pub(crate) mod flag {
    /// Force unit access.
    pub const FUA: u8 = 1;
    /// Write zeroes may deallocate; dataset management has AD set.
    pub const DEALLOCATE: u8 = 1 << 1;
    /// Part of a fused pair; with `RAGGED`, of one that there is not.
    pub const FUSED: u8 = 1 << 2;
    /// Its data pointer is of a kind that its queue does not take.
    pub const BAD_POINTER: u8 = 1 << 3;
    /// `slba` and `blocks` are the one range of a dataset management command.
    pub const RANGE: u8 = 1 << 4;
    /// It was aborted (and completed) while it waited.
    pub const HOLE: u8 = 1 << 5;
    /// A request that is not made of whole blocks.
    pub const RAGGED: u8 = 1 << 6;
    /// A write with the data placement directive: `blocks` is 0-based in its lower half, its upper half the placement identifier.
    /// Or a copy: `blocks` is its CDW12.
    pub const PLACED: u8 = 1 << 7;
}

/// A parsed I/O command: what is kept of the 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Command {
    pub slba: u64,
    pub nsid: u32,
    /// Blocks, or ranges of dataset management, 1-based; CDW13 of Zone Management Send; [`receive`].
    pub blocks: u32,
    pub tag: u32,
    pub cid: u16,
    pub opcode: u8,
    pub flags: u8,
}

const _: () = assert!(size_of::<Command>() == 24);

impl Command {
    /// Takes an entry apart. Everything is kept as it stands; what it means is checked when the command is served.
    #[inline]
    pub fn parse(entry: &[u64; 8], tag: Tag) -> Self {
        let [cdw0, .., slba, cdw12, _] = *entry;
        let (opcode, nsid, cid) = (cdw0 as u8, (cdw0 >> 32) as u32, (cdw0 >> 16) as u16);
        let cdw12 = cdw12 as u32;
        let mut flags = if cdw12 & nvm::FUA != 0 { flag::FUA } else { 0 };
        let mut blocks = (cdw12 & 0xffff) + 1;
        // Read, write, compare and flush come first.
        if opcode >= IoOpcode::WRITE_ZEROES.0 {
            (blocks, flags) = parse_other(entry, blocks, flags);
        } else if cdw12 & nvm::DTYPE != 0 && opcode == IoOpcode::WRITE.0 {
            (blocks, flags) = parse_directed(entry, blocks, flags);
        }
        if entry_flags(entry) & 3 != 0 {
            flags = parse_fused(entry, flags);
        }
        Self { slba, nsid, blocks, tag: tag.0, cid, opcode, flags }
    }

    /// A request in bytes, for blocks of `1 << shift` bytes.
    pub fn from_request(request: &Request, shift: u32, tag: Tag) -> Self {
        let (mut opcode, mut flags) = (IoOpcode::FLUSH, if request.fua { flag::FUA } else { 0 });
        match request.op {
            Op::Read => opcode = IoOpcode::READ,
            Op::Write => opcode = IoOpcode::WRITE,
            Op::Compare => opcode = IoOpcode::COMPARE,
            Op::Verify => opcode = IoOpcode::VERIFY,
            Op::WriteZeroes { deallocate } => {
                opcode = IoOpcode::WRITE_ZEROES;
                flags |= if deallocate { flag::DEALLOCATE } else { 0 };
            }
            Op::Deallocate => {
                opcode = IoOpcode::DATASET_MANAGEMENT;
                flags |= flag::DEALLOCATE | flag::RANGE;
            }
            Op::Flush => {}
            // Inside the drive only.
            Op::Copy => (opcode, flags) = (IoOpcode::READ, flags | flag::RAGGED),
        }
        let mask = (1u64 << shift) - 1;
        let ragged = (request.offset | u64::from(request.len)) & mask != 0 || request.len == 0;
        if ragged && opcode != IoOpcode::FLUSH {
            flags |= flag::RAGGED;
        }
        let (slba, blocks) = (request.offset >> shift, request.len >> shift);
        Self { slba, nsid: request.nsid, blocks, tag: tag.0, cid: tag.0 as u16, opcode: opcode.0, flags }
    }

    /// The same without its placement identifier.
    pub fn unplaced(&self) -> Self {
        if self.is(flag::PLACED) && self.opcode == IoOpcode::WRITE.0 {
            return Self { blocks: (self.blocks & 0xffff) + 1, flags: self.flags & !flag::PLACED, ..*self };
        }
        *self
    }

    /// Whether it is part of a pair, and not aborted.
    pub fn is_fused(&self) -> bool {
        self.flags & (flag::FUSED | flag::HOLE) == flag::FUSED
    }

    pub fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A write with a directive: its blocks with its placement identifier, and flags. There is no other directive.
#[cold]
fn parse_directed(entry: &[u64; 8], blocks: u32, flags: u8) -> (u32, u8) {
    let dwords = entry[6];
    if dwords as u32 & nvm::DTYPE != nvm::DTYPE_DATA_PLACEMENT {
        return (blocks, flags | flag::RAGGED);
    }
    (dwords as u32 & 0xffff | (dwords >> 48 << 16) as u32, flags | flag::PLACED)
}

/// The flags of a command with FUSE: Compare is a first one and Write a second one; there are no other pairs (NVM 1.0, 2.1.4),
/// and none with a directive.
#[cold]
fn parse_fused(entry: &[u64; 8], flags: u8) -> u8 {
    let known = match (IoOpcode(entry[0] as u8), entry_flags(entry) & 3) {
        (IoOpcode::COMPARE, 1) => true,
        (IoOpcode::WRITE, 2) => flags & flag::PLACED == 0,
        _ => false,
    };
    flags | flag::FUSED | if known { 0 } else { flag::RAGGED }
}

/// The same for the opcodes whose fields are others: blocks and flags.
#[cold]
fn parse_other(entry: &[u64; 8], blocks: u32, flags: u8) -> (u32, u8) {
    let [cdw0, .., slba, cdw12, _] = *entry;
    let (cdw12, cdw13) = (cdw12 as u32, (cdw12 >> 32) as u32);
    let deallocate = |yes: bool| if yes { flag::DEALLOCATE } else { 0 };
    match IoOpcode(cdw0 as u8) {
        IoOpcode::WRITE_ZEROES => return (blocks, flags | deallocate(cdw12 & nvm::DEAC != 0)),
        IoOpcode::DATASET_MANAGEMENT => {
            let (cdw10, cdw11) = (slba as u32, (slba >> 32) as u32);
            return ((cdw10 & nvm::DSM_NR) + 1, deallocate(cdw11 & nvm::DSM_AD != 0));
        }
        IoOpcode::COPY => return (cdw12, flags | flag::PLACED),
        _ => {}
    }
    match ZonedOpcode(cdw0 as u8) {
        ZonedOpcode::ZONE_MANAGEMENT_SEND => (cdw13, 0),
        ZonedOpcode::ZONE_MANAGEMENT_RECEIVE => (receive::pack(cdw12, cdw13), 0),
        _ => (blocks, flags),
    }
}

/// Zone Management Receive in the 32 bits of [`Command::blocks`].
pub(crate) mod receive {
    use weir_spec::nvme::zns::{ReceiveAction, ReceiveDw13};

    /// Dwords that fit; nothing so long is ever transferred.
    const DWORDS: u32 = (1 << 26) - 1;
    const EXTENDED: u32 = 1 << 26;
    const PARTIAL: u32 = 1 << 27;
    const FILTER: u32 = 28;

    /// NUMD and CDW13. What the fields cannot hold is invalid anyway, and stays so.
    pub const fn pack(numd: u32, cdw13: u32) -> u32 {
        let cdw13 = ReceiveDw13(cdw13);
        let dwords = if numd < DWORDS { numd } else { DWORDS };
        let plain = cdw13.zra() == ReceiveAction::REPORT.0 as u32;
        let known = plain || cdw13.zra() == ReceiveAction::EXTENDED_REPORT.0 as u32;
        // 15 is reserved, and so is every other action.
        let filter = if known && cdw13.zrasf() < 15 { cdw13.zrasf() } else { 15 };
        dwords | if plain { 0 } else { EXTENDED } | if cdw13.partial() == 1 { PARTIAL } else { 0 } | filter << FILTER
    }

    /// Bytes to transfer.
    pub const fn bytes(packed: u32) -> u32 {
        ((packed & DWORDS) + 1) * 4
    }

    /// Whether it is a report without descriptor extensions.
    pub const fn is_plain(packed: u32) -> bool {
        packed & EXTENDED == 0
    }

    /// ZRASF, and whether the report is partial.
    pub const fn filter(packed: u32) -> (u8, bool) {
        ((packed >> FILTER) as u8, packed & PARTIAL != 0)
    }
}

/// Byte 1 of CDW0: FUSE in bits 1:0, PSDT in bits 7:6.
#[inline]
fn entry_flags(entry: &[u64; 8]) -> u8 {
    (entry[0] >> 8) as u8
}

/// Where the data of a ring's entry is (base 2.0, Figure 87: PSDT). `None` for a reserved PSDT.
#[inline]
pub(crate) fn data_pointer(entry: &[u64; 8], page_shift: u8) -> Option<DataPointer> {
    let psdt = entry_flags(entry) >> 6;
    (psdt != 3).then(|| DataPointer::from_dptr(psdt, [entry[3], entry[4]], page_shift))
}

/// A ring's entry taken apart, and where its data is.
#[inline(always)]
pub(crate) fn of_ring(entry: &[u64; 8], page_shift: u8) -> (Command, DataPointer) {
    let mut command = Command::parse(entry, Tag(0));
    let data = data_pointer(entry, page_shift).unwrap_or_else(|| {
        command.flags |= flag::BAD_POINTER;
        DataPointer::tag(Tag(0))
    });
    (command, data)
}

/// What state a submission queue is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqState {
    /// Serves.
    Open,
    /// Delete I/O Submission Queue waits for what is in flight.
    Deleting,
    /// Its connection is to be closed; nothing is served or answered any more.
    Condemned,
}

/// A command that left its queue and has no slot yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetched {
    pub queue: u32,
    pub command: Command,
    pub plan: Plan,
    pub data: DataPointer,
    /// What else is kept of it.
    pub words: Words,
    /// Its stamp.
    pub arrived: Nanos,
    /// DW0 and DW1 of its completion, where they were decided before a crash.
    pub decided: Option<u64>,
    /// When it was due in the process before, which had begun it.
    pub due: Option<Nanos>,
}

impl Fetched {
    /// One that comes for the first time.
    pub fn new(queue: u32, (command, plan, data): (Command, Plan, DataPointer), words: Words, arrived: Nanos) -> Self {
        Self { queue, command, plan, data, words, arrived, decided: None, due: None }
    }
}

/// A submission queue, admin or I/O, ring or message. Its index in `Subsystem::queues` is that of its arbiter key.
#[derive(Clone, Debug)]
pub(crate) struct Sq {
    pub key: QueueKey,
    pub owner: Owner,
    pub controller: u32,
    /// Entries.
    pub size: u32,
    /// The next entry to consume.
    pub head: u32,
    /// Entries that wait, holes included.
    pub waiting: u32,
    /// Consumed and not completed.
    pub in_flight: u32,
    /// The completion queue's index; `NONE` for message queues.
    pub cq: u32,
    /// Rings: address of entry 0.
    pub base: u64,
    /// The largest transfer in bytes.
    pub mdts: u64,
    /// A front controller's queue.
    pub front: bool,
    /// Message I/O queues: the entries.
    pub pending: Box<[Command]>,
    /// What else is kept of them, by the same place; empty while nothing was.
    pub words: Vec<Words>,
    /// When they arrived, by the same place; empty while the tenant was promised nothing.
    pub arrived: Box<[Nanos]>,
    pub qid: u16,
    pub tenant: u16,
    pub generation: u8,
    pub state: SqState,
    pub ring: bool,
    /// Rings: host memory pages have `1 << page_shift` bytes.
    pub page_shift: u8,
    /// Its controller shuts down: nothing is fetched.
    pub paused: bool,
    /// The host takes no SQHD.
    pub flow_off: bool,
    /// Waits for room in its completion queue.
    pub starved: bool,
    /// Its head is the first command of a pair whose second has not come.
    pub awaits: bool,
    /// Class at the drive, and inside its controller.
    pub class: Class,
    pub local: Class,
    /// What QPRIO, CATTR or the peer asked for.
    pub wish: Option<Class>,
    /// Rings: entries that were aborted while they waited.
    pub holes: Vec<u32>,
    /// The admin command that deletes it.
    pub deleter: Option<u16>,
    /// The tail in its shadow doorbell, as it was seen last, and its event index.
    pub seen: u32,
    pub event: u32,
    /// Tells it from others that its controller had or will have.
    pub made: u32,
}

impl Sq {
    pub fn handle(&self) -> SqHandle {
        SqHandle::new(self.key.index() as u32, self.generation)
    }

    /// The tail, as an index.
    pub fn tail(&self) -> u32 {
        let t = self.head + self.waiting;
        if t >= self.size { t - self.size } else { t }
    }

    /// Consumes the head entry; answers its index.
    #[inline]
    pub fn advance(&mut self) -> u32 {
        let at = self.head;
        self.head = if at + 1 == self.size { 0 } else { at + 1 };
        self.waiting -= 1;
        at
    }

    /// The index of the `n`th waiting entry.
    pub fn nth(&self, n: u32) -> u32 {
        let at = self.head + n;
        if at >= self.size { at - self.size } else { at }
    }

    /// Puts a command at the tail of a message queue; `false` if the host overran it.
    #[inline]
    pub fn push(&mut self, command: Command) -> bool {
        if self.waiting >= self.size || self.pending.is_empty() {
            return false;
        }
        let at = self.tail() as usize;
        self.pending[at] = command;
        self.waiting += 1;
        true
    }

    /// Everything that waits arrives now, as far as promises go.
    #[cold]
    pub fn arrive_again(&mut self, now: Nanos) {
        for n in 0..self.waiting {
            let at = self.nth(n) as usize;
            self.arrived[at] = now;
        }
    }

    /// SQHD of a completion now.
    #[inline]
    pub fn sqhd(&self) -> u16 {
        if self.flow_off { 0 } else { self.head as u16 }
    }
}

/// A completion queue of a ring controller.
#[derive(Clone, Debug)]
pub(crate) struct Cq {
    pub controller: u32,
    pub base: u64,
    pub size: u32,
    /// Where the next entry goes.
    pub tail: u32,
    /// What the host has consumed up to.
    pub head: u32,
    /// Entries neither written nor reserved for a fetched command.
    pub credit: u32,
    pub phase: bool,
    /// How often the tail has wrapped; of one that was taken over whether it was odd.
    pub laps: u64,
    /// Tells it from others that its controller had or will have.
    pub made: u32,
    pub qid: u16,
    /// Interrupt vector, where enabled.
    pub vector: Option<u16>,
    /// The vector may be masked or coalesced: not every completion signals it.
    pub gated: bool,
    /// The head in its shadow doorbell, as it was seen last, and its event index.
    pub seen: u32,
    pub event: u32,
    /// Submission queues that use it; it cannot be deleted before them.
    pub users: u32,
    /// How many of them are starved.
    pub starved: u32,
}

impl Cq {
    pub fn new(controller: u32, qid: u16, base: u64, size: u32, vector: Option<u16>) -> Self {
        let credit = size - 1;
        Self {
            controller,
            base,
            size,
            tail: 0,
            head: 0,
            credit,
            phase: true,
            laps: 0,
            made: 0,
            qid,
            vector,
            gated: false,
            seen: 0,
            event: 0,
            users: 0,
            starved: 0,
        }
    }

    /// Entries written and not consumed.
    pub fn used(&self) -> u32 {
        if self.tail >= self.head { self.tail - self.head } else { self.tail + self.size - self.head }
    }

    /// The host's new head; `false` for one that consumes what was never written.
    pub fn consume(&mut self, head: u32) -> bool {
        if head >= self.size {
            return false;
        }
        let n = if head >= self.head { head - self.head } else { head + self.size - self.head };
        if n > self.used() {
            return false;
        }
        self.head = head;
        self.credit += n;
        true
    }

    /// How many entries there were before the next one.
    #[inline]
    pub fn place(&self) -> u64 {
        self.laps.wrapping_mul(self.size.into()).wrapping_add(self.tail.into())
    }

    /// Where the next entry goes and with which phase; the phase flips at the wrap.
    #[inline]
    pub fn produce(&mut self) -> (u64, bool) {
        let (at, phase) = (self.base.wrapping_add(u64::from(self.tail) * 16), self.phase);
        self.tail += 1;
        if self.tail == self.size {
            self.tail = 0;
            self.phase = !phase;
            self.laps += 1;
        }
        (at, phase)
    }
}
