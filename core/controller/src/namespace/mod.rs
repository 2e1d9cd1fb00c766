//! Namespaces, and what a command does on one.

pub(crate) mod attachment;
pub(crate) mod metadata;
pub(crate) mod namespace_job;
pub(crate) mod ns_allocator;
pub(crate) mod unreadable;

use crate::config::NamespaceConfig;
use crate::event::Op;
use crate::io::placement::management_bytes;
use crate::io::slow_path::copy;
use crate::io::slow_path::flush_asks;
use crate::namespace::metadata::Format;
use crate::queues::command::{Command, flag, receive};
use crate::reservation;
use crate::vendor::{FIRST_OPCODE, VendorData, VendorOpcode, VendorQueue};
use alloc::vec::Vec;
use weir_spec::nvme::identify::{NSID_ALL, csi};
use weir_spec::nvme::protection::GuardSize;
use weir_spec::nvme::zns::{SendAction, SendDw13, ZonedOpcode};
use weir_spec::nvme::{IoOpcode, Status};

/// Largest NSID.
pub(crate) const NSID_MAX: u32 = 1024;
/// Namespaces of a drive whose hosts make some (NN, MNAN).
pub(crate) const MANAGED: usize = 256;

/// Bits of [`Namespace::why`]. Reasons come and go one by one.
pub(crate) mod why {
    /// It has zones.
    pub const ZONES: u8 = 1;
    /// A vendor's commands claim reads and writes.
    pub const VENDOR: u8 = 1 << 1;
    /// A controller does not reach it well enough (ANA).
    pub const ANA: u8 = 1 << 7;
    /// Its I/O commands are refused for now.
    pub const BARRED: u8 = 1 << 2;
    /// Not everybody may do everything with it, or its blocks are not simply where they seem: see `slow_path/restricted_namespace.rs`.
    pub const GUARDED: u8 = 1 << 3;
    /// Somebody holds a reservation.
    pub const RESERVED: u8 = 1 << 4;
    /// Some of its blocks cannot be read.
    pub const UNREADABLE: u8 = 1 << 5;
    /// A pair of commands holds some of its blocks, or waits for them.
    pub const LOCKED: u8 = 1 << 6;
}

/// A namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Namespace {
    /// Size in blocks.
    pub blocks: u64,
    /// Where it begins on the media, in bytes.
    pub start: u64,
    /// Block size, as a power of two.
    pub shift: u32,
    /// It is of the ZNS command set.
    pub zoned: bool,
    /// Bytes of its zones' descriptor extensions.
    pub extension: u32,
    /// A vendor's commands that it has.
    pub vendor: Option<&'static [VendorOpcode]>,
    /// Its zones want to hear of flushes.
    pub volatile: bool,
    /// Why its reads and writes are decided apart from the common path, a bit for each reason ([`why`]); 0: they are not.
    pub why: u8,
    /// Every I/O command but a flush is refused with this.
    pub barred: Option<Status>,
    /// Its LBA format beside the block size.
    pub format: Format,
    /// It lies in several pieces: [`Subsystem::pieces`](crate::Subsystem::pieces) knows where.
    pub fragmented: bool,
    /// State of its write protection (base 2.0, 8.12).
    pub protect: u8,
    pub uuid: [u8; 16],
}

impl Namespace {
    /// Of no blocks.
    pub const fn empty() -> Self {
        let format = Format {
            index: 0,
            metadata: 0,
            extended: false,
            kind: 0,
            first: false,
            guard: GuardSize::Bits16,
            storage_bits: 0,
        };
        Self {
            blocks: 0,
            start: 0,
            shift: 9,
            zoned: false,
            extension: 0,
            vendor: None,
            volatile: false,
            why: 0,
            barred: None,
            format,
            fragmented: false,
            protect: 0,
            uuid: [0; 16],
        }
    }

    pub fn new(config: &NamespaceConfig) -> Option<Self> {
        let NamespaceConfig { start, size, block_size, uuid, .. } = *config;
        let valid = matches!(block_size, 512 | 4096) && (size | start) % u64::from(block_size) == 0;
        let shift = block_size.trailing_zeros();
        let placed = Self { blocks: size >> shift, start, shift, uuid, ..Self::empty() };
        (valid && start.checked_add(size).is_some()).then_some(placed)
    }

    /// Whether its reads and writes are decided apart from the common path.
    #[inline]
    pub const fn is_slow(&self) -> bool {
        self.why != 0
    }

    /// CSI of its command set.
    pub fn set(&self) -> u8 {
        if self.zoned { csi::ZNS } else { csi::NVM }
    }

    /// The media offset of a range, if it lies inside. Nothing here overflows.
    #[inline]
    pub fn locate(&self, slba: u64, blocks: u64) -> Option<u64> {
        let end = slba.checked_add(blocks)?;
        (end <= self.blocks).then(|| self.start + (slba << self.shift))
    }
}

/// By NSID − 1.
pub(crate) type Namespaces = Vec<Option<Namespace>>;

/// The namespace of an NSID that must be active (base 2.0, 3.2.1.5): 0, the broadcast value and what is above NN are
/// invalid, what is below and absent is inactive.
#[inline]
pub(crate) fn active(namespaces: &Namespaces, nsid: u32) -> Result<&Namespace, Status> {
    match namespaces.get(nsid.wrapping_sub(1) as usize) {
        Some(Some(ns)) => Ok(ns),
        Some(None) => Err(Status::INVALID_FIELD.dnr()),
        None => Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr()),
    }
}

/// What a valid command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub op: Op,
    pub offset: u64,
    /// Bytes of media touched; for dataset management those of its ranges come later.
    pub len: u32,
    /// Bytes that move between host and drive.
    pub transfer: u32,
    /// It has nothing to do.
    pub empty: bool,
    /// It goes the slow path: by zones, by a vendor's commands, as I/O management, or as its namespace asks for.
    pub slow: bool,
}

/// Checks a command and says what it does. `mdts` is in bytes.
#[inline]
pub(crate) fn plan(namespaces: &Namespaces, command: &Command, mdts: u64) -> Result<Plan, Status> {
    let opcode = IoOpcode(command.opcode);
    if command.flags & (flag::FUSED | flag::RAGGED) != 0 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let (op, moves) = match opcode {
        IoOpcode::READ => (Op::Read, true),
        IoOpcode::WRITE => (Op::Write, true),
        IoOpcode::COMPARE => (Op::Compare, true),
        IoOpcode::WRITE_ZEROES => (Op::WriteZeroes { deallocate: command.is(flag::DEALLOCATE) }, false),
        IoOpcode::DATASET_MANAGEMENT => return plan_dataset(namespaces, command),
        IoOpcode::FLUSH => return plan_flush(namespaces, command),
        IoOpcode::IO_MANAGEMENT_RECEIVE | IoOpcode::IO_MANAGEMENT_SEND => {
            return plan_management(namespaces, command, mdts);
        }
        _ => return plan_zones(namespaces, command, mdts),
    };
    let ns = active(namespaces, command.nsid)?;
    let len = u64::from(command.blocks) << ns.shift;
    if moves && len > mdts {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let offset = ns.locate(command.slba, command.blocks.into()).ok_or(Status::LBA_OUT_OF_RANGE.dnr())?;
    let len = u32::try_from(len).map_err(|_| Status::INVALID_FIELD.dnr())?;
    Ok(Plan { op, offset, len, transfer: if moves { len } else { 0 }, empty: false, slow: ns.is_slow() })
}

fn plan_flush(namespaces: &Namespaces, command: &Command) -> Result<Plan, Status> {
    let flush = Plan { op: Op::Flush, offset: 0, len: 0, transfer: 0, empty: false, slow: false };
    if command.nsid == NSID_ALL {
        let slow = flush_asks(namespaces.iter().flatten().map(|ns| ns.why), NSID_ALL)
            || namespaces.iter().flatten().any(|ns| ns.volatile);
        return Ok(Plan { slow, ..flush });
    }
    let ns = active(namespaces, command.nsid)?;
    let slow = ns.volatile || ns.is_slow() && flush_asks(core::iter::once(ns.why), command.nsid);
    Ok(Plan { offset: ns.start, slow, ..flush })
}

fn plan_dataset(namespaces: &Namespaces, command: &Command) -> Result<Plan, Status> {
    let ns = active(namespaces, command.nsid)?;
    let mut plan = Plan { op: Op::Deallocate, offset: ns.start, len: 0, transfer: 0, empty: false, slow: ns.is_slow() };
    ns.barred.map_or(Ok(()), Err)?;
    if ns.zoned {
        // A hint that is not followed: only a reset makes room in a zone.
        plan.empty = true;
    } else if command.is(flag::RANGE) {
        plan.offset = ns.locate(command.slba, command.blocks.into()).ok_or(Status::LBA_OUT_OF_RANGE.dnr())?;
        plan.len = u32::try_from(u64::from(command.blocks) << ns.shift).map_err(|_| Status::INVALID_FIELD.dnr())?;
    } else if command.is(flag::DEALLOCATE) {
        // The ranges are read when the command starts.
        plan.transfer = command.blocks * 16;
    } else {
        // Hints about access patterns: taken note of, and nothing follows from them.
        plan.empty = true;
    }
    Ok(plan)
}

/// I/O management: whether the drive has it is seen when it starts.
#[cold]
fn plan_management(namespaces: &Namespaces, command: &Command, mdts: u64) -> Result<Plan, Status> {
    let ns = active(namespaces, command.nsid)?;
    ns.barred.map_or(Ok(()), Err)?;
    let bytes = management_bytes(command)?;
    let transfer = u32::try_from(bytes).ok().filter(|b| u64::from(*b) <= mdts);
    let transfer = transfer.ok_or(Status::INVALID_FIELD.dnr())?;
    Ok(Plan { op: Op::Flush, offset: ns.start, len: 0, transfer, empty: false, slow: true })
}

/// Verify, Write Uncorrectable, Copy and the commands of reservations; `None`: it is none of them.
fn plan_rare(namespaces: &Namespaces, command: &Command, mdts: u64) -> Option<Result<Plan, Status>> {
    let opcode = IoOpcode(command.opcode);
    let invalid = Status::INVALID_FIELD.dnr();
    let blocks = || {
        let ns = active(namespaces, command.nsid)?;
        let marks = opcode == IoOpcode::WRITE_UNCORRECTABLE;
        // The set's own reads are its own affair, and a zone has no unreadable blocks.
        if ns.why & why::VENDOR != 0 || marks && ns.zoned {
            return Err(Status::INVALID_OPCODE.dnr());
        }
        let offset = ns.locate(command.slba, command.blocks.into()).ok_or(Status::LBA_OUT_OF_RANGE.dnr())?;
        let len = u64::from(command.blocks) << ns.shift;
        let (op, len) = match marks {
            // VSL is what MDTS is.
            false if len > mdts => return Err(invalid),
            false => (Op::Verify, u32::try_from(len).map_err(|_| invalid)?),
            true => (Op::Flush, 0),
        };
        Ok(Plan { op, offset, len, transfer: 0, empty: false, slow: true })
    };
    Some(match opcode {
        IoOpcode::VERIFY | IoOpcode::WRITE_UNCORRECTABLE => blocks(),
        IoOpcode::COPY => active(namespaces, command.nsid).and_then(|ns| copy::plan(ns, command)),
        _ => {
            let bytes = reservation::transfer(opcode, command.slba as u32)?;
            active(namespaces, command.nsid).and_then(|ns| {
                let transfer = u32::try_from(bytes).ok().filter(|b| u64::from(*b) <= mdts).ok_or(invalid)?;
                Ok(Plan { op: Op::Flush, offset: ns.start, len: 0, transfer, empty: false, slow: true })
            })
        }
    })
}

/// Zone management and append, a vendor's commands, and those that are rare; no other opcode is known here.
#[cold]
fn plan_zones(namespaces: &Namespaces, command: &Command, mdts: u64) -> Result<Plan, Status> {
    if command.opcode >= FIRST_OPCODE {
        return plan_vendor(namespaces, command, mdts);
    }
    if let Some(plan) = plan_rare(namespaces, command, mdts) {
        return plan;
    }
    let known = ZonedOpcode(command.opcode).name().is_some();
    let ns = active(namespaces, command.nsid).ok().filter(|ns| known && ns.zoned);
    let Some(ns) = ns else {
        let inactive = if known { active(namespaces, command.nsid).err() } else { None };
        return Err(inactive.unwrap_or(Status::INVALID_OPCODE.dnr()));
    };
    ns.barred.map_or(Ok(()), Err)?;
    let invalid = Status::INVALID_FIELD.dnr();
    let mut plan = Plan { op: Op::Write, offset: ns.start, len: 0, transfer: 0, empty: false, slow: true };
    match ZonedOpcode(command.opcode) {
        ZonedOpcode::ZONE_APPEND => {
            plan.len = u32::try_from(u64::from(command.blocks) << ns.shift).map_err(|_| invalid)?;
            plan.transfer = plan.len;
        }
        ZonedOpcode::ZONE_MANAGEMENT_RECEIVE => {
            plan.op = Op::Read;
            plan.transfer = receive::bytes(command.blocks);
            if !receive::is_plain(command.blocks) && ns.extension == 0 {
                return Err(invalid);
            }
        }
        _ => {
            plan.op = Op::Deallocate;
            if SendDw13(command.blocks).zsa() == SendAction::SET_DESCRIPTOR_EXTENSION.0.into() {
                plan.transfer = ns.extension;
            }
        }
    }
    if u64::from(plan.transfer) > mdts { Err(invalid) } else { Ok(plan) }
}

/// A command of the namespace's own set.
fn plan_vendor(namespaces: &Namespaces, command: &Command, mdts: u64) -> Result<Plan, Status> {
    let of = |set: &&'static [VendorOpcode]| {
        set.iter().find(|c| c.queue == VendorQueue::Io && c.opcode == command.opcode).copied()
    };
    let known = namespaces.iter().flatten().find_map(|ns| ns.vendor.as_ref().and_then(of));
    let known = known.ok_or(Status::INVALID_OPCODE.dnr())?;
    let ns = active(namespaces, command.nsid)?;
    if ns.vendor.as_ref().and_then(of).is_none() {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let transfer = match known.data {
        VendorData::None => 0,
        VendorData::Bytes(bytes) => bytes.into(),
        VendorData::Each(bytes) => u64::from(bytes) * u64::from(command.blocks),
    };
    if transfer > mdts {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let transfer = u32::try_from(transfer).map_err(|_| Status::INVALID_FIELD.dnr())?;
    let op = if known.changes { Op::Write } else { Op::Read };
    let len = transfer.max(known.charge.saturating_mul(command.blocks));
    Ok(Plan { op, offset: ns.start, len, transfer, empty: false, slow: true })
}
