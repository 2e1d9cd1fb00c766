//! Copy (NVM 1.1, 3.3.2): ranges of one or several namespaces, one behind the other, to one place of a namespace, with their metadata.
//!
//! Protection information is checked where it is read (PRINFOR and each range's tags) and checked or made anew where it is written
//! (PRINFOW and the command's tags). Between namespaces it can also be inserted or stripped; their formats are the same otherwise.
//! A copy that is no longer than an atomic write is atomic: nobody reads or writes its blocks meanwhile.

use crate::data_pointer::check_pointer;
use crate::event::Op;
use crate::host::{DataPointer, Host};
use crate::io::plan::{COPY_RANGES_MAX, copy_limits, plan_copy, range_len};
use crate::io::slow_path::restricted_namespace::wish_of;
use crate::io::slow_path::waits::{BlockRange, For, Lock};
use crate::io::starting::Starting;
use crate::io::timing::Operation;
use crate::io::work::{RemainingWork, WorkPiece, WorkStep};
use crate::namespace::metadata::{Format, Metadata, Wish};
use crate::namespace::{Namespace, why};
use crate::queues::command::{Command, CommandWords, flag};
use crate::reservation::state::Group;
use crate::subsystem::Subsystem;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use weir_flash::When;
use weir_spec::nvme::Status;
use weir_spec::nvme::nvm::{CopyDw12, CopyRange, CopyRangeWide};
use weir_spec::nvme::protection::{ProtectionDw12, ProtectionDw15};
use weir_units::Nanos;
use zerocopy::FromBytes;

/// PRACT in PRINFOR and PRINFOW.
const PRACT: u32 = 1 << 3;
/// Bytes that are copied at once.
const PIECE: u64 = 256 << 10;

/// The longest list of ranges, in bytes.
const LIST_MAX: usize = COPY_RANGES_MAX as usize * size_of::<CopyRangeWide>();

/// A range that is read, and how it is checked.
#[derive(Clone, Copy, Debug)]
struct Source {
    nsid: u32,
    slba: u64,
    blocks: u64,
    wish: Wish,
}

impl Source {
    fn extent(&self) -> BlockRange {
        BlockRange { nsid: self.nsid, first: self.slba, end: self.slba.saturating_add(self.blocks) }
    }
}

fn blocks_of(sources: &[Source]) -> u64 {
    sources.iter().map(|source| source.blocks).sum()
}

/// Whether blocks can be copied from each of these formats, and block sizes as powers of two, to another (NVM 1.1, 3.3.2.4). The
/// first one says whether protection information is copied, inserted or stripped.
fn check_formats(sources: &[(Format, u32)], (to, shift): (Format, u32), dw12: CopyDw12) -> Result<(), Status> {
    let Some((first, _)) = sources.first() else { return Ok(()) };
    let (read, write) = (dw12.prinfor() & PRACT != 0, dw12.prinfow() & PRACT != 0);
    let only_protection = |format: &Format| format.kind != 0 && usize::from(format.metadata) == format.guard.bytes();
    let fits = |from: &Format| match (first.kind != 0, to.kind != 0) {
        (false, false) => from.kind == 0 && from.metadata == to.metadata,
        (true, true) => from.is_laid_out_as(&to),
        (false, true) => write && from.metadata == 0 && only_protection(&to),
        (true, false) => read && only_protection(from) && to.metadata == 0,
    };
    if first.kind != 0 && to.kind != 0 && read != write {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let all = sources.iter().all(|(from, size)| *size == shift && fits(from));
    if all { Ok(()) } else { Err(Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT.dnr()) }
}

impl Subsystem {
    /// The whole length of a copy, for its charge: of a list that is wrong, nothing. The list is read and checked again when the
    /// command starts.
    #[cold]
    pub(crate) fn measure_copy<H: Host>(&mut self, q: u32, command: &Command, data: &DataPointer, host: &mut H) -> u32 {
        let shift = self.namespaces.block_shift(command.nsid);
        let blocks = self.copy_list(q, command, data, host).map_or(0, |sources| blocks_of(&sources));
        u32::try_from(blocks << shift).unwrap_or(0)
    }

    /// Reads and checks the list of a copy.
    fn copy_list<H: Host>(
        &mut self,
        q: u32,
        command: &Command,
        data: &DataPointer,
        host: &mut H,
    ) -> Result<Vec<Source>, Status> {
        let ns = *self.namespaces.active(command.nsid)?;
        let bytes = plan_copy(&ns, command)?.transfer as usize;
        let dw12 = CopyDw12(command.blocks);
        // Hosts have to ask for the formats that name a namespace (feature 16h).
        let enabled = self.ctrl(self.sq(q).controller).map_or(0, |ctrl| u16::from_le_bytes(ctrl.behavior().cdfe));
        if dw12.desfmt() >= 2 && enabled >> dw12.desfmt() & 1 == 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        check_pointer(data, bytes as u64)?;
        let mut list = [0; LIST_MAX];
        let list = &mut list[..bytes];
        host.read_data(self.sq(q).owner, data, 0, list)?;
        let sources = parsed(list, command);
        self.check_sources(q, command, &ns, &sources)?;
        Ok(sources)
    }

    fn check_sources(&self, q: u32, command: &Command, ns: &Namespace, sources: &[Source]) -> Result<(), Status> {
        let (longest, most) = copy_limits(ns.shift);
        let total = blocks_of(sources);
        if total > most.into() || sources.iter().any(|source| source.blocks > longest.into()) {
            return Err(Status::COMMAND_SIZE_LIMIT.dnr());
        }
        let outside = Status::LBA_OUT_OF_RANGE.dnr();
        if ns.why & why::ZONES == 0 {
            ns.locate(command.slba, total).ok_or(outside)?;
        }
        let to = BlockRange { nsid: command.nsid, first: command.slba, end: command.slba.saturating_add(total) };
        let mut formats = Vec::with_capacity(sources.len());
        for source in sources {
            let from = self.readable_source(q, command.nsid, source.nsid)?;
            from.locate(source.slba, source.blocks).ok_or(outside)?;
            // What would be copied depends on how far the copy has come.
            if source.extent().meets(&to) {
                return Err(Status::OVERLAPPING_IO_RANGE.dnr());
            }
            formats.push((from.format, from.shift));
        }
        check_formats(&formats, (ns.format, ns.shift), CopyDw12(command.blocks))
    }

    /// A namespace that a controller's copy to another one may read: it is attached to it, and nothing keeps it from being read.
    fn readable_source(&self, q: u32, to: u32, nsid: u32) -> Result<&Namespace, Status> {
        let ns = self.namespaces.active(nsid)?;
        if nsid == to {
            return Ok(ns);
        }
        let c = self.sq(q).controller;
        if !self.is_attached(c, nsid) {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if ns.why & why::VENDOR != 0 || !self.knows_format(c, &ns.format) {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
        }
        // Zones say where they are written, of their own namespace only.
        let zones = |ns: &Namespace| ns.why & why::ZONES != 0;
        if zones(ns) || self.namespaces.active(to).is_ok_and(zones) {
            return Err(Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT.dnr());
        }
        match ns.barred.or_else(|| self.reservation_conflict(c, nsid, Group::Read)) {
            Some(status) => Err(status),
            None => Ok(ns),
        }
    }

    /// Starts a copy.
    pub(crate) fn start_copy<H: Host>(&mut self, now: Nanos, starting: &Starting, host: &mut H) {
        let Starting { queue, ref command, data, .. } = *starting;
        let sources = match self.copy_list(queue, command, &data, host) {
            Ok(sources) => sources,
            Err(status) => return self.refuse(queue, command, status, host),
        };
        if sources.iter().any(|source| self.is_unreadable(&source.extent())) {
            return self.refuse(queue, command, Status::UNRECOVERED_READ_ERROR, host);
        }
        let (nsid, total) = (command.nsid, blocks_of(&sources));
        let to = BlockRange { nsid, first: command.slba, end: command.slba.saturating_add(total) };
        let alone = self.is_atomic(&to) && !self.is_one_piece(nsid, &sources);
        if alone && (self.is_locked(&to, usize::MAX) || self.is_in_use(&to)) {
            return self.wait(starting, None, For::All(to));
        }
        if self.is_locked(&to, usize::MAX) {
            return self.wait(starting, None, For::Pairs(to));
        }
        match self.copy_steps(now, starting, &sources) {
            Err(status) => self.refuse(queue, command, status, host),
            Ok((mut steps, owed)) => {
                if self.is_unreadable(&to) {
                    steps.heals.push((to.first, to.end));
                }
                steps.reads = sources.iter().map(|source| source.nsid).filter(|from| *from != nsid).collect();
                let id = self.occupy_for(starting);
                if let Some(op) = owed {
                    self.owe(id, op);
                }
                let pieces = steps.todo.iter().filter(|step| matches!(step, WorkStep::Move(_))).count();
                if alone && pieces > 1 {
                    steps.alone = true;
                    self.slow_path.locks.push(Lock { slot: id, nsid, extent: to, alone });
                    self.review(nsid);
                }
                self.begin_steps(now, id, steps);
            }
        }
    }

    /// Whether a copy there is as short as a write that is atomic and of more than a block, outside of zones.
    fn is_atomic(&self, to: &BlockRange) -> bool {
        let ns = self.namespaces.active(to.nsid).ok().filter(|ns| ns.why & why::ZONES == 0);
        let blocks = to.end - to.first;
        ns.is_some_and(|ns| blocks > 1 && blocks << ns.shift <= self.atomic_bytes())
    }

    /// Whether a copy is one I/O.
    fn is_one_piece(&self, to: u32, sources: &[Source]) -> bool {
        let whole = |nsid: u32| self.namespaces.active(nsid).is_ok_and(|ns| !ns.fragmented);
        match sources {
            [one] => one.blocks << self.namespaces.block_shift(to) <= PIECE && whole(one.nsid) && whole(to),
            _ => false,
        }
    }

    /// What a copy does, one after the other, and what it owes to a zone. The sources are read at once; then each piece is
    /// written.
    fn copy_steps(
        &mut self,
        now: Nanos,
        starting: &Starting,
        list: &[Source],
    ) -> Result<(RemainingWork, Option<crate::zns::ZonedOp>), Status> {
        let Starting { queue, ref command, ref words, .. } = *starting;
        let ns = *self.namespaces.active(command.nsid)?;
        let total = blocks_of(list);
        let write = written_metadata(&ns, command, words)?;
        let mut sources = Vec::new();
        for source in list {
            let from = *self.namespaces.active(source.nsid)?;
            let (format, shift) = (from.format, from.shift);
            let read = match format.metadata {
                0 => None,
                _ => Some(Metadata::without_data(format, shift, source.slba, source.wish)?),
            };
            let mut blocks = 0;
            for (offset, len) in self.namespaces.pieces(source.nsid, &from, source.slba, source.blocks) {
                sources.push((offset, len, read.map(|read| read.behind(blocks))));
                blocks += len >> shift;
            }
        }
        let mut targets: VecDeque<(u64, u64)> = self.namespaces.pieces(command.nsid, &ns, command.slba, total).into();
        let mut written = 0;
        let (mut due, mut owed) = (When::at(now), None);
        let zones = ns.why & why::ZONES != 0;
        if zones {
            let ranges: Vec<(u64, u64)> = list.iter().map(|source| (source.slba, source.blocks)).collect();
            let placed = self.copy_on_zones(now, queue, command, (&ranges, total as u32))?;
            targets = [(placed.0, total << ns.shift)].into();
            (due, owed) = (When::at(placed.1), placed.2);
        } else if self.timing.0.is_some() {
            for (offset, len, _) in &sources {
                let (offset, len) = (*offset, *len as u32);
                let read = self.complete_at(now, Operation { op: Op::Read, offset, len, fua: false, placement: 0 });
                due = self.later_of(due, read);
            }
        }
        let mut todo = alloc::vec![WorkStep::Until(due)];
        for (mut from, mut left, mut read) in sources {
            while left > 0 {
                let Some((to, room)) = targets.front_mut() else { return Err(Status::INTERNAL_ERROR) };
                let len = left.min(PIECE).min(*room);
                todo.push(WorkStep::Move(WorkPiece {
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
        Ok((RemainingWork { todo, ..RemainingWork::default() }, owed))
    }
}

/// How the metadata of all of it is written.
///
/// # Errors
/// Invalid Protection Information.
fn written_metadata(ns: &Namespace, command: &Command, words: &CommandWords) -> Result<Option<Metadata>, Status> {
    if ns.format.metadata == 0 {
        return Ok(None);
    }
    let dw12 = CopyDw12(command.blocks);
    let wish = wish_of(asked(dw12.prinfow(), dw12.storage_write()), words);
    Metadata::without_data(ns.format, ns.shift, command.slba, wish).map(Some)
}

/// PRINFOR or PRINFOW, and its storage tag check, as other commands have them.
fn asked(prinfo: u32, storage: u32) -> ProtectionDw12 {
    ProtectionDw12(prinfo << 26).with_check_storage(storage)
}

/// The ranges of a list.
fn parsed(list: &[u8], command: &Command) -> Vec<Source> {
    let dw12 = CopyDw12(command.blocks);
    let checks = asked(dw12.prinfor(), dw12.storage_read());
    let source = |snsid: u32, slba: u64, nlb: u16, space: u64, (tag, mask): (u16, u16)| Source {
        nsid: if dw12.desfmt() >= 2 { snsid } else { command.nsid },
        slba,
        blocks: u64::from(nlb) + 1,
        wish: Wish { dw12: checks, tags: ProtectionDw15(u32::from(tag) | u32::from(mask) << 16), space },
    };
    let each = list.chunks_exact(range_len(dw12) as usize);
    let one = |bytes: &[u8]| match CopyRange::read_from_bytes(bytes) {
        Ok(r) => {
            let tags = (r.elbat.get(), r.elbatm.get());
            source(r.snsid.get(), r.slba.get(), r.nlb.get(), r.eilbrt.get().into(), tags)
        }
        Err(_) => {
            let r = CopyRangeWide::read_from_bytes(bytes).unwrap_or_default();
            // Of its 80 bits, guards of 64 bits have the lower 48.
            let space = r.elbt[4..].iter().fold(0, |space, b| space << 8 | u64::from(*b));
            source(r.snsid.get(), r.slba.get(), r.nlb.get(), space, (r.elbat.get(), r.elbatm.get()))
        }
    };
    each.map(one).collect()
}
