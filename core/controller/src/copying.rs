//! Copy (NVM 1.0, 3.2.2): ranges of a namespace, one behind the other, to one place of it.

use crate::event::Op;
use crate::host::{DataPointer, Host};
use crate::locks::{Extent, For};
use crate::namespace::{Namespace, Plan, active, why};
use crate::pointer::check_pointer;
use crate::queue::{Command, flag};
use crate::service::Operation;
use crate::steps::{Piece, Step, Steps};
use crate::subsystem::Subsystem;
use crate::zoned::Begun;
use alloc::vec::Vec;
use weir_spec::nvme::Status;
use weir_spec::nvme::nvm::{CopyDw12, CopyRange, CopyRangeWide};
use weir_units::Nanos;
use zerocopy::FromBytes;

/// Ranges of one command (MSRC + 1).
pub(crate) const RANGES_MAX: u32 = 128;
/// Bytes of one range (MSSRL, in blocks of the namespace).
pub(crate) const RANGE_BYTES: u64 = 4 << 20;
/// Bytes of one command (MCL, in blocks of the namespace).
pub(crate) const COPY_BYTES: u64 = 16 << 20;
/// Bytes that are copied at once.
const PIECE: u64 = 256 << 10;

/// The longest list of ranges, in bytes.
const LIST_MAX: usize = RANGES_MAX as usize * size_of::<CopyRangeWide>();

/// Block ranges: first block, and how many.
type Ranges = Vec<(u64, u64)>;

/// MSSRL and MCL of a namespace with blocks of `1 << shift` bytes.
pub(crate) const fn limits(shift: u32) -> (u16, u32) {
    ((RANGE_BYTES >> shift) as u16, (COPY_BYTES >> shift) as u32)
}

/// What a Copy does, as far as its entry tells.
pub(crate) fn plan(ns: &Namespace, command: &Command) -> Result<Plan, Status> {
    let dw12 = CopyDw12(command.blocks);
    if ns.why & why::VENDOR != 0 {
        return Err(Status::INVALID_OPCODE.dnr());
    }
    // Metadata are not copied.
    if ns.format.metadata != 0 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    // Data placement of copies is not offered, nor is protection information.
    let size = match (dw12.desfmt(), dw12.dtype()) {
        (0, 0) => size_of::<CopyRange>(),
        (1, 0) => size_of::<CopyRangeWide>(),
        _ => return Err(Status::INVALID_FIELD.dnr()),
    };
    if dw12.nr() >= RANGES_MAX {
        return Err(Status::COMMAND_SIZE_LIMIT.dnr());
    }
    let transfer = (dw12.nr() + 1) * size as u32;
    Ok(Plan { op: Op::Copy, offset: ns.start, len: 0, transfer, empty: false, apart: true })
}

impl Subsystem {
    /// The whole length of a copy, for its charge: of a list that is wrong, nothing. The list is read and checked again when the
    /// command starts.
    #[cold]
    pub(crate) fn measure_copy<H: Host>(&mut self, q: u32, command: &Command, data: &DataPointer, host: &mut H) -> u32 {
        let shift = self.block_shift(command.nsid);
        let blocks: u64 = self.copy_list(q, command, data, host).map_or(0, |list| list.iter().map(|(_, n)| n).sum());
        u32::try_from(blocks << shift).unwrap_or(0)
    }

    /// Reads and checks the list of a copy.
    fn copy_list<H: Host>(
        &mut self,
        q: u32,
        command: &Command,
        data: &DataPointer,
        host: &mut H,
    ) -> Result<Ranges, Status> {
        let ns = *active(&self.namespaces, command.nsid)?;
        let bytes = plan(&ns, command)?.transfer as usize;
        check_pointer(data, bytes as u64)?;
        let mut list = [0; LIST_MAX];
        let list = &mut list[..bytes];
        host.read_data(self.sq(q).owner, data, 0, list)?;
        let ranges: Ranges = match CopyDw12(command.blocks).desfmt() {
            0 => parsed::<CopyRange>(list).map(|r| (r.slba.get(), u64::from(r.nlb.get()) + 1)).collect(),
            _ => parsed::<CopyRangeWide>(list).map(|r| (r.slba.get(), u64::from(r.nlb.get()) + 1)).collect(),
        };
        let (longest, most) = limits(ns.shift);
        let total: u64 = ranges.iter().map(|(_, n)| n).sum();
        if total > most.into() || ranges.iter().any(|(_, n)| *n > longest.into()) {
            return Err(Status::COMMAND_SIZE_LIMIT.dnr());
        }
        let outside = Status::LBA_OUT_OF_RANGE.dnr();
        if ns.why & why::ZONES == 0 {
            ns.locate(command.slba, total).ok_or(outside)?;
        }
        let end = command.slba.saturating_add(total);
        for (slba, blocks) in &ranges {
            ns.locate(*slba, *blocks).ok_or(outside)?;
            // What would be copied depends on how far the copy has come.
            if *slba < end && command.slba < slba + blocks {
                return Err(Status::OVERLAPPING_IO_RANGE.dnr());
            }
        }
        Ok(ranges)
    }

    /// Starts a copy.
    pub(crate) fn start_copy<H: Host>(&mut self, now: Nanos, begun: Begun<'_>, host: &mut H) {
        let (queue, command, _, data) = begun;
        let ranges = match self.copy_list(queue, command, &data, host) {
            Ok(ranges) => ranges,
            Err(status) => return self.refuse(queue, command, status, host),
        };
        let nsid = command.nsid;
        let from = |(first, n): &(u64, u64)| Extent { nsid, first: *first, end: first + n };
        if ranges.iter().any(|range| self.is_unreadable(&from(range))) {
            return self.refuse(queue, command, Status::UNRECOVERED_READ_ERROR, host);
        }
        let total: u64 = ranges.iter().map(|(_, n)| n).sum();
        let to = Extent { nsid, first: command.slba, end: command.slba.saturating_add(total) };
        if self.is_locked(&to, usize::MAX) {
            return self.wait(begun, None, For::Pairs(to));
        }
        match self.copy_steps(now, queue, command, &ranges) {
            Err(status) => self.refuse(queue, command, status, host),
            Ok((mut steps, owed)) => {
                if self.is_unreadable(&to) {
                    steps.heals.push((to.first, to.end));
                }
                let id = self.occupy_for(queue, command, begun.2.transfer);
                if let Some(op) = owed {
                    self.owe(id, op);
                }
                self.begin_steps(now, id, steps);
            }
        }
    }

    /// What a copy does, one after the other, and what it owes to a zone. The sources are read at once; then each piece is
    /// written.
    fn copy_steps(
        &mut self,
        now: Nanos,
        queue: u32,
        command: &Command,
        ranges: &Ranges,
    ) -> Result<(Steps, Option<crate::zoned::ZonedOp>), Status> {
        let ns = *active(&self.namespaces, command.nsid)?;
        let total: u64 = ranges.iter().map(|(_, n)| n).sum();
        let pieces = |(slba, blocks): &(u64, u64)| self.pieces(command.nsid, &ns, *slba, *blocks);
        let (sources, targets): (Vec<_>, Vec<_>) =
            (ranges.iter().flat_map(pieces).collect(), pieces(&(command.slba, total)));
        let (mut due, mut owed) = (now, None);
        let mut targets: alloc::collections::VecDeque<(u64, u64)> = targets.into();
        let zones = ns.why & why::ZONES != 0;
        if zones {
            let placed = self.copy_on_zones(now, queue, command, (ranges, total as u32))?;
            targets = [(placed.0, total << ns.shift)].into();
            (due, owed) = (placed.1, placed.2);
        } else if self.inside.0.is_some() {
            for (offset, len) in &sources {
                let (offset, len) = (*offset, *len as u32);
                due = due.max(self.complete_at(now, Operation { op: Op::Read, offset, len, fua: false, placement: 0 }));
            }
        }
        let mut todo = alloc::vec![Step::Until(due)];
        for (mut from, mut left) in sources {
            while left > 0 {
                let Some((to, room)) = targets.front_mut() else { return Err(Status::INTERNAL_ERROR) };
                let len = left.min(PIECE).min(*room);
                todo.push(Step::Move(Piece {
                    op: Op::Copy,
                    offset: *to,
                    len: len as u32,
                    data: DataPointer::media(from),
                    skip: 0,
                    fua: command.is(flag::FUA),
                    timed: !zones,
                }));
                (from, left) = (from + len, left - len);
                (*to, *room) = (*to + len, *room - len);
                if *room == 0 {
                    targets.pop_front();
                }
            }
        }
        Ok((Steps { todo, ..Steps::default() }, owed))
    }
}

fn parsed<T: FromBytes + Copy>(list: &[u8]) -> impl Iterator<Item = T> + '_ {
    list.chunks_exact(size_of::<T>()).filter_map(|bytes| T::read_from_bytes(bytes).ok())
}
