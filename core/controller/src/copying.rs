//! Copy (NVM 1.0, 3.2.2): ranges of a namespace, one behind the other, to one place of it, with their metadata.
//!
//! Protection information is checked where it is read (PRINFOR and each range's tags) and checked or made anew where it is written
//! (PRINFOW and the command's tags). What the standard's text leaves to a figure that was not at hand is as QEMU's `nvme_copy` has
//! it: PRACT is the same in both, and 16-bit guards want descriptor format 0h.

use crate::event::Op;
use crate::host::{DataPointer, Host};
use crate::locks::{Extent, For};
use crate::metadata::{Metadata, Wish};
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
use weir_spec::nvme::protection::{ProtectionDw12, ProtectionDw15};
use weir_units::Nanos;
use zerocopy::FromBytes;

/// Ranges of one command (MSRC + 1).
pub(crate) const RANGES_MAX: u32 = 128;
/// Bytes of one range (MSSRL, in blocks of the namespace).
pub(crate) const RANGE_BYTES: u64 = 4 << 20;
/// Bytes of one command (MCL, in blocks of the namespace).
pub(crate) const COPY_BYTES: u64 = 16 << 20;
/// PRACT in PRINFOR and PRINFOW.
const PRACT: u32 = 1 << 3;
/// Bytes that are copied at once.
const PIECE: u64 = 256 << 10;

/// The longest list of ranges, in bytes.
const LIST_MAX: usize = RANGES_MAX as usize * size_of::<CopyRangeWide>();

/// Block ranges: first block, and how many.
type Ranges = Vec<(u64, u64)>;

/// Metadata of what is read and of what is written.
type Checks = (Option<Metadata>, Option<Metadata>);

/// What is read and how it is checked, range by range.
struct Sources {
    ranges: Ranges,
    wishes: Vec<Wish>,
}

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
    if ns.format.kind != 0 {
        if dw12.desfmt() == 1 {
            return Err(Status::INVALID_FORMAT.dnr());
        }
        if (dw12.prinfor() ^ dw12.prinfow()) & PRACT != 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
    }
    // Data placement of copies is not offered.
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
        let blocks: u64 =
            self.copy_list(q, command, data, host).map_or(0, |list| list.ranges.iter().map(|(_, n)| n).sum());
        u32::try_from(blocks << shift).unwrap_or(0)
    }

    /// Reads and checks the list of a copy.
    fn copy_list<H: Host>(
        &mut self,
        q: u32,
        command: &Command,
        data: &DataPointer,
        host: &mut H,
    ) -> Result<Sources, Status> {
        let ns = *active(&self.namespaces, command.nsid)?;
        let bytes = plan(&ns, command)?.transfer as usize;
        check_pointer(data, bytes as u64)?;
        let mut list = [0; LIST_MAX];
        let list = &mut list[..bytes];
        host.read_data(self.sq(q).owner, data, 0, list)?;
        let dw12 = CopyDw12(command.blocks);
        let (ranges, wishes): (Ranges, Vec<Wish>) = match dw12.desfmt() {
            0 => parsed::<CopyRange>(list)
                .map(|r| {
                    let tags = ProtectionDw15(u32::from(r.elbat.get()) | u32::from(r.elbatm.get()) << 16);
                    let wish = Wish { dw12: asked(dw12.prinfor()), tags, reference: r.eilbrt.get() };
                    ((r.slba.get(), u64::from(r.nlb.get()) + 1), wish)
                })
                .unzip(),
            // Tags are those of larger guards.
            _ => parsed::<CopyRangeWide>(list)
                .map(|r| ((r.slba.get(), u64::from(r.nlb.get()) + 1), Wish::default()))
                .unzip(),
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
        Ok(Sources { ranges, wishes })
    }

    /// Starts a copy.
    pub(crate) fn start_copy<H: Host>(&mut self, now: Nanos, begun: Begun<'_>, host: &mut H) {
        let (queue, command, _, data) = begun;
        let sources = match self.copy_list(queue, command, &data, host) {
            Ok(sources) => sources,
            Err(status) => return self.refuse(queue, command, status, host),
        };
        let ranges = &sources.ranges;
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
        match self.copy_steps(now, queue, command, &sources) {
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
        list: &Sources,
    ) -> Result<(Steps, Option<crate::zoned::ZonedOp>), Status> {
        let ns = *active(&self.namespaces, command.nsid)?;
        let ranges = &list.ranges;
        let total: u64 = ranges.iter().map(|(_, n)| n).sum();
        let pieces = |(slba, blocks): &(u64, u64)| self.pieces(command.nsid, &ns, *slba, *blocks);
        let checks = self.copy_checks(&ns, command, list)?;
        let mut sources = Vec::new();
        for (range, (read, _)) in ranges.iter().zip(&checks) {
            let mut blocks = 0;
            for (offset, len) in pieces(range) {
                sources.push((offset, len, read.map(|read| read.behind(blocks))));
                blocks += len >> ns.shift;
            }
        }
        let targets = pieces(&(command.slba, total));
        let write = checks.first().and_then(|(_, write)| *write);
        let mut written = 0;
        let (mut due, mut owed) = (now, None);
        let mut targets: alloc::collections::VecDeque<(u64, u64)> = targets.into();
        let zones = ns.why & why::ZONES != 0;
        if zones {
            let placed = self.copy_on_zones(now, queue, command, (ranges, total as u32))?;
            targets = [(placed.0, total << ns.shift)].into();
            (due, owed) = (placed.1, placed.2);
        } else if self.inside.0.is_some() {
            for (offset, len, _) in &sources {
                let (offset, len) = (*offset, *len as u32);
                due = due.max(self.complete_at(now, Operation { op: Op::Read, offset, len, fua: false, placement: 0 }));
            }
        }
        let mut todo = alloc::vec![Step::Until(due)];
        for (mut from, mut left, mut read) in sources {
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
                    metadata: write.map(|write| write.behind(written >> ns.shift)),
                    source: read,
                }));
                read = read.map(|read| read.behind(len >> ns.shift));
                written += len;
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

impl Subsystem {
    /// How the metadata of each range is read, and how that of all of it is written.
    ///
    /// # Errors
    /// Invalid Protection Information.
    fn copy_checks(&self, ns: &Namespace, command: &Command, list: &Sources) -> Result<Vec<Checks>, Status> {
        if ns.format.metadata == 0 {
            return Ok(alloc::vec![(None, None); list.ranges.len()]);
        }
        let (format, shift, [_, dw14, _]) = (ns.format, ns.shift, self.words);
        let wish = Wish {
            dw12: asked(CopyDw12(command.blocks).prinfow()),
            tags: ProtectionDw15((dw14 >> 32) as u32),
            reference: dw14 as u32,
        };
        let write = Metadata::without_data(format, shift, command.slba, wish)?;
        let both = list.ranges.iter().zip(&list.wishes);
        both.map(|((slba, _), wish)| {
            Metadata::without_data(format, shift, *slba, *wish).map(|read| (Some(read), Some(write)))
        })
        .collect()
    }
}

/// PRINFOR or PRINFOW as other commands have PRINFO.
fn asked(prinfo: u32) -> ProtectionDw12 {
    ProtectionDw12(prinfo << 26)
}

fn parsed<T: FromBytes + Copy>(list: &[u8]) -> impl Iterator<Item = T> + '_ {
    list.chunks_exact(size_of::<T>()).filter_map(|bytes| T::read_from_bytes(bytes).ok())
}
