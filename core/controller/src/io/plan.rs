//! What an I/O command does, as far as its entry tells: every check that needs neither its data nor the state of other commands.

use crate::event::Op;
use crate::namespace::{Namespace, Namespaces, active, why};
use crate::queues::command::{Command, flag, receive};
use crate::vendor::{FIRST_OPCODE, VendorData, VendorOpcode, VendorQueue};
use weir_spec::nvme::fdp::{self, operation};
use weir_spec::nvme::identify::NSID_ALL;
use weir_spec::nvme::nvm::{CopyDw12, CopyRange, CopyRangeWide};
use weir_spec::nvme::protection::GuardSize;
use weir_spec::nvme::zns::{SendAction, SendDw13, ZonedOpcode};
use weir_spec::nvme::{IoOpcode, Status};

/// What a valid command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommandPlan {
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
pub(crate) fn plan(namespaces: &Namespaces, command: &Command, mdts: u64) -> Result<CommandPlan, Status> {
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
    Ok(CommandPlan { op, offset, len, transfer: if moves { len } else { 0 }, empty: false, slow: ns.is_slow() })
}

pub(crate) fn plan_flush(namespaces: &Namespaces, command: &Command) -> Result<CommandPlan, Status> {
    let flush = CommandPlan { op: Op::Flush, offset: 0, len: 0, transfer: 0, empty: false, slow: false };
    if command.nsid == NSID_ALL {
        let slow = flush_asks(namespaces.iter().flatten().map(|ns| ns.why), NSID_ALL)
            || namespaces.iter().flatten().any(|ns| ns.volatile);
        return Ok(CommandPlan { slow, ..flush });
    }
    let ns = active(namespaces, command.nsid)?;
    let slow = ns.volatile || ns.is_slow() && flush_asks(core::iter::once(ns.why), command.nsid);
    Ok(CommandPlan { offset: ns.start, slow, ..flush })
}

pub(crate) fn plan_dataset(namespaces: &Namespaces, command: &Command) -> Result<CommandPlan, Status> {
    let ns = active(namespaces, command.nsid)?;
    let mut plan =
        CommandPlan { op: Op::Deallocate, offset: ns.start, len: 0, transfer: 0, empty: false, slow: ns.is_slow() };
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
pub(crate) fn plan_management(namespaces: &Namespaces, command: &Command, mdts: u64) -> Result<CommandPlan, Status> {
    let ns = active(namespaces, command.nsid)?;
    ns.barred.map_or(Ok(()), Err)?;
    let bytes = management_bytes(command)?;
    let transfer = u32::try_from(bytes).ok().filter(|b| u64::from(*b) <= mdts);
    let transfer = transfer.ok_or(Status::INVALID_FIELD.dnr())?;
    Ok(CommandPlan { op: Op::Flush, offset: ns.start, len: 0, transfer, empty: false, slow: true })
}

/// Verify, Write Uncorrectable, Copy and the commands of reservations; `None`: it is none of them.
pub(crate) fn plan_rare(namespaces: &Namespaces, command: &Command, mdts: u64) -> Option<Result<CommandPlan, Status>> {
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
        Ok(CommandPlan { op, offset, len, transfer: 0, empty: false, slow: true })
    };
    Some(match opcode {
        IoOpcode::VERIFY | IoOpcode::WRITE_UNCORRECTABLE => blocks(),
        IoOpcode::COPY => active(namespaces, command.nsid).and_then(|ns| plan_copy(ns, command)),
        _ => {
            let bytes = reservation_bytes(opcode, command.slba as u32)?;
            active(namespaces, command.nsid).and_then(|ns| {
                let transfer = u32::try_from(bytes).ok().filter(|b| u64::from(*b) <= mdts).ok_or(invalid)?;
                Ok(CommandPlan { op: Op::Flush, offset: ns.start, len: 0, transfer, empty: false, slow: true })
            })
        }
    })
}

/// Zone management and append, a vendor's commands, and those that are rare; no other opcode is known here.
#[cold]
pub(crate) fn plan_zones(namespaces: &Namespaces, command: &Command, mdts: u64) -> Result<CommandPlan, Status> {
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
    let mut plan = CommandPlan { op: Op::Write, offset: ns.start, len: 0, transfer: 0, empty: false, slow: true };
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
pub(crate) fn plan_vendor(namespaces: &Namespaces, command: &Command, mdts: u64) -> Result<CommandPlan, Status> {
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
    Ok(CommandPlan { op, offset: ns.start, len, transfer, empty: false, slow: true })
}

/// Whether a flush has to ask somebody first.
pub(crate) fn flush_asks(why: impl Iterator<Item = u16>, nsid: u32) -> bool {
    const ASKS: u16 = !(why::ZONES | why::VENDOR);
    let mut asks = why.map(|why| why & ASKS != 0);
    if nsid == NSID_ALL { asks.any(|asks| asks) } else { asks.next().unwrap_or(false) }
}

/// Bytes that an I/O management command moves; 0: it has nothing to do. CDW10 and CDW11 are where others have their
/// first block.
pub(crate) fn management_bytes(command: &Command) -> Result<u64, Status> {
    let dw10 = fdp::ManagementDw10(command.slba as u32);
    let receive = IoOpcode(command.opcode) == IoOpcode::IO_MANAGEMENT_RECEIVE;
    match (dw10.mo() as u8, receive) {
        (operation::NONE, _) => Ok(0),
        (operation::STATUS, true) => Ok((command.slba >> 32) * 4 + 4),
        (operation::UPDATE, false) => Ok(u64::from(dw10.mos()) * 2 + 2),
        _ => Err(Status::INVALID_FIELD.dnr()),
    }
}

/// What a reservation command moves, by its opcode: NUMD of a report lies where others have their first block.
pub(crate) fn reservation_bytes(opcode: IoOpcode, cdw10: u32) -> Option<u64> {
    Some(match opcode {
        IoOpcode::RESERVATION_REGISTER | IoOpcode::RESERVATION_ACQUIRE => 16,
        IoOpcode::RESERVATION_RELEASE => 8,
        IoOpcode::RESERVATION_REPORT => (u64::from(cdw10) + 1) * 4,
        _ => return None,
    })
}

/// Ranges of one command (MSRC + 1).
pub(crate) const COPY_RANGES_MAX: u32 = 128;

/// Bytes of one range (MSSRL, in blocks of the namespace).
pub(crate) const COPY_RANGE_BYTES: u64 = 4 << 20;

/// Bytes of one command (MCL, in blocks of the namespace).
pub(crate) const COPY_BYTES: u64 = 16 << 20;

/// CDFS: descriptor formats 0h to 3h.
pub(crate) const COPY_FORMATS: u16 = 0b1111;

/// MSSRL and MCL of a namespace with blocks of `1 << shift` bytes.
pub(crate) const fn copy_limits(shift: u32) -> (u16, u32) {
    ((COPY_RANGE_BYTES >> shift) as u16, (COPY_BYTES >> shift) as u32)
}

/// Bytes of one range in a list.
pub(crate) const fn range_len(dw12: CopyDw12) -> u32 {
    if dw12.desfmt() & 1 == 0 { size_of::<CopyRange>() as u32 } else { size_of::<CopyRangeWide>() as u32 }
}

/// What a Copy does, as far as its entry tells.
pub(crate) fn plan_copy(ns: &Namespace, command: &Command) -> Result<CommandPlan, Status> {
    let dw12 = CopyDw12(command.blocks);
    if ns.why & why::VENDOR != 0 {
        return Err(Status::INVALID_OPCODE.dnr());
    }
    // Data placement of copies is not offered.
    if COPY_FORMATS >> dw12.desfmt() & 1 == 0 || dw12.dtype() != 0 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let wide = dw12.desfmt() & 1 == 1;
    if ns.format.kind != 0 && wide != (ns.format.guard != GuardSize::Bits16) {
        return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    }
    if dw12.nr() >= COPY_RANGES_MAX {
        return Err(Status::COMMAND_SIZE_LIMIT.dnr());
    }
    let transfer = (dw12.nr() + 1) * range_len(dw12);
    Ok(CommandPlan { op: Op::Copy, offset: ns.start, len: 0, transfer, empty: false, slow: true })
}
