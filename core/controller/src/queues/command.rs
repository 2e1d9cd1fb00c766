//! A command that waits in a queue: what is kept of the 64 bytes of its entry.

use crate::event::{BlockRequest, Op};
use crate::host::{DataPointer, Tag};
use weir_spec::nvme::zns::ZonedOpcode;
use weir_spec::nvme::{IoOpcode, nvm};

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
    pub fn from_request(request: &BlockRequest, shift: u32, tag: Tag) -> Self {
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
            // Timing the drive only.
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

/// CDW12 and 13, CDW14 and 15, MPTR, and CDW2 and 3 of a command.
pub(crate) type CommandWords = [u64; 4];

/// [`CommandWords`]' third: MPTR is the address of an SGL segment with one descriptor (PSDT 10b).
pub(crate) const MPTR_SGL: u64 = 1;
/// [`CommandWords`]' third: an MPTR that is no address of a buffer.
pub(crate) const MPTR_WRONG: u64 = u64::MAX;

/// What [`CommandWords`] keeps of a ring's entry (base 2.0, Figure 87).
#[inline]
pub(crate) fn words_of(entry: &[u64; 8]) -> CommandWords {
    let mptr = match (entry[0] >> 14 & 3, entry[2] & 3) {
        (_, 1..) => MPTR_WRONG,
        (2, _) => entry[2] | MPTR_SGL,
        _ => entry[2],
    };
    [entry[6], entry[7], mptr, entry[1]]
}
