//! Commands on namespaces that are not plain: attached to some controllers only, write protected, fragmented, or with metadata.
//!
//! `slow_path/mod.rs` decides which commands come here.

use crate::data_pointer::check_pointer;
use crate::event::{Io, Op, SlotId};
use crate::host::{DataPointer, Host};
use crate::io::starting::Starting;
use crate::io::timing::Operation;
use crate::namespace::metadata::{Format, Metadata, Wish};
use crate::namespace::{Namespace, why};
use crate::queues::command::{Command, CommandWords, MPTR_SGL, MPTR_WRONG, flag};
use crate::queues::queue::NONE;
use crate::subsystem::Subsystem;
use crate::vendor::{FIRST_OPCODE, VendorWork};
use weir_flash::When;
use weir_spec::nvme::entry::SglDescriptor;
use weir_spec::nvme::namespace::write_protect;
use weir_spec::nvme::protection::{ProtectionDw12, ProtectionDw15};
use weir_spec::nvme::zns::ZonedOpcode;
use weir_spec::nvme::{IoOpcode, Status};
use weir_units::Nanos;
use zerocopy::little_endian::{U32, U64};

/// What a command says of protection information: as PRINFO has it, and in CDW2, 3, 14 and 15 (NVM 1.0, Figure 118).
pub(crate) fn wish_of(dw12: ProtectionDw12, [_, dw14, _, dw2]: &CommandWords) -> Wish {
    let space = (dw2 >> 32 & 0xffff) << 32 | dw14 & 0xffff_ffff;
    Wish { dw12, tags: ProtectionDw15((dw14 >> 32) as u32), space }
}

/// Where `len` bytes of a separate metadata buffer are.
fn separate(mptr: u64, len: u32) -> Result<DataPointer, Status> {
    let descriptor = |address: u64, length: u32, kind: u8| {
        let (address, length) = (U64::new(address), U32::new(length));
        DataPointer::sgl(SglDescriptor { address, length, kind, ..SglDescriptor::default() }, len)
    };
    match mptr {
        MPTR_WRONG => Err(Status::INVALID_FIELD.dnr()),
        _ if mptr & MPTR_SGL != 0 => Ok(descriptor(mptr & !MPTR_SGL, 16, SglDescriptor::LAST_SEGMENT)),
        _ => Ok(descriptor(mptr, len, SglDescriptor::DATA_BLOCK)),
    }
}

impl Subsystem {
    /// Completes a command that does nothing, as far as its namespace is there for it.
    #[cold]
    pub(crate) fn dismiss<H: Host>(&mut self, queue: u32, command: &Command, status: Status, host: &mut H) {
        match self.admit(queue, command).err().unwrap_or(status) {
            status if status.is_success() => self.finish(queue, command.cid, command.tag, status, 0, host),
            status => self.refuse(queue, command, status, host),
        }
    }

    /// Whether a namespace is there for a command: attached to its controller and, where the command changes something, not write
    /// protected (base 2.0, 8.12).
    pub(crate) fn is_there_for(&self, queue: u32, ns: &Namespace, command: &Command) -> Result<(), Status> {
        if ns.why & why::GUARDED == 0 {
            return Ok(());
        }
        let (c, front) = (self.sq(queue).controller, self.sq(queue).front);
        if !self.is_attached(c, command.nsid) {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if !front && !self.knows_format(c, &ns.format) {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
        }
        if u32::from(ns.protect) != write_protect::NONE && modifies(ns, command) {
            return Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
        }
        Ok(())
    }

    /// Whether a controller's host has said that it knows of extended protection information formats, if this is one (LBAFEE; NVM 1.0,
    /// 4.1.3.6.1).
    pub(crate) fn knows_format(&self, c: u32, format: &Format) -> bool {
        let enabled = || self.ctrl(c).is_some_and(|ctrl| ctrl.behavior().lbafee == 1);
        !format.is_extended_protection() || enabled()
    }

    /// Metadata of a command's blocks; `None` where its namespace has none.
    pub(crate) fn metadata_for(&self, ns: &Namespace, starting: &Starting) -> Result<Option<Metadata>, Status> {
        let (queue, command, plan) = (starting.queue, starting.command.unplaced(), &starting.plan);
        if ns.format.metadata == 0 || plan.op == Op::Flush {
            return Ok(None);
        }
        let (sq, [dw12, _, mptr, _]) = (self.sq(queue), starting.words);
        if sq.front {
            return Ok(Some(Metadata::hidden(ns.format, ns.shift, command.slba)));
        }
        let wish = wish_of(ProtectionDw12(dw12 as u32), &starting.words);
        let made = match plan.op {
            Op::Read | Op::Write | Op::Compare => {
                // A host on a network has no memory that we could reach beside the command's data (base 2.0, 4.2).
                let size = command.blocks * u32::from(ns.format.metadata);
                let pointer = if sq.ring { separate(mptr, size) } else { Err(Status::INVALID_FIELD) };
                match (Metadata::new(ns.format, ns.shift, command.slba, wish, pointer.ok()), pointer) {
                    (Err(_), Err(status)) if sq.ring => Err(status),
                    (made, _) => made,
                }
            }
            Op::Deallocate => Ok(Metadata::hidden(ns.format, ns.shift, command.slba)),
            _ => Metadata::without_data(ns.format, ns.shift, command.slba, wish),
        };
        made.map(Some)
    }

    /// Gives a command of the NVM command set a slot, which is the answer where it needs one. The caller has seen that it fits, and
    /// that the command may run.
    pub(crate) fn start_pieces<H: Host>(
        &mut self,
        now: Nanos,
        ns: &Namespace,
        starting: &Starting,
        host: &mut H,
    ) -> Result<Option<u32>, Status> {
        let Starting { queue, command: ref placed, ref plan, mut data, .. } = *starting;
        let command = &placed.unplaced();
        let metadata = self.metadata_for(ns, starting)?;
        if let Some(metadata) = metadata.filter(|_| matches!(plan.op, Op::Read | Op::Write | Op::Compare)) {
            let len = metadata.transfer(command.blocks);
            check_pointer(&data, len)?;
            data = data.of(u32::try_from(len).map_err(|_| Status::INVALID_FIELD.dnr())?);
        }
        if plan.op == Op::Deallocate && !command.is(flag::RANGE) {
            return match self.gather(queue, command, &data, host)? {
                Some((index, (offset, len))) => {
                    self.slots.work(index).metadata = metadata;
                    let id = self.occupy_for(starting);
                    self.slots.slots[id as usize].ranges = index;
                    let io = self.io(id, (queue, command), data, (Op::Deallocate, offset, len));
                    self.resume_at(now, id, io);
                    Ok(Some(id))
                }
                None => {
                    self.finish(queue, command.cid, command.tag, Status::SUCCESS, 0, host);
                    Ok(None)
                }
            };
        }
        let pieces = match plan.op {
            Op::Flush => alloc::vec![(ns.start, 0)],
            _ => self.namespaces.pieces(command.nsid, ns, command.slba, command.blocks.into()),
        };
        let Some((offset, len)) = pieces.first().copied() else { return Err(Status::INTERNAL_ERROR) };
        let placement = self.placement_of(now, queue, placed, plan.op);
        let (op, fua) = (plan.op, command.is(flag::FUA));
        let instant = self.is_instant();
        let mut due = When::at(now);
        for (offset, len) in pieces.iter().filter(|_| !instant) {
            let done = self.complete_at(now, Operation { op, offset: *offset, len: *len as u32, fua, placement });
            due = self.later_of(due, done);
        }
        let id = self.occupy_for(starting);
        if pieces.len() > 1 || metadata.is_some() {
            let (index, work) = self.slots.take_work();
            work.metadata = metadata;
            work.vendor = Some(VendorWork::pieces(op, &pieces[1..], len as u32, (data, fua)));
            self.slots.slots[id as usize].ranges = index;
        }
        let io = self.io(id, (queue, command), data, (op, offset, len as u32));
        if instant {
            self.slots.make_ready(id, io)
        } else {
            self.delay(id, io, due)
        }
        Ok(Some(id))
    }

    fn io(&self, id: u32, (queue, command): (u32, &Command), data: DataPointer, what: (Op, u64, u32)) -> Io {
        let (owner, (op, offset, len)) = (self.sq(queue).owner, what);
        let fua = command.is(flag::FUA);
        Io { slot: SlotId(id), owner, data, op, nsid: command.nsid, offset, len, fua, skip: 0 }
    }

    /// The first part of a command of several ranges: its time begins now.
    fn resume_at(&mut self, now: Nanos, id: u32, io: Io) {
        if self.is_instant() {
            return self.slots.make_ready(id, io);
        }
        let Io { op, offset, len, fua, .. } = io;
        let due = self.complete_at(now, Operation { op, offset, len, fua, placement: 0 });
        self.delay(id, io, due);
    }

    /// The metadata of the blocks that an I/O moves, where its namespace has some: the executor moves both.
    #[inline]
    pub fn metadata_of(&self, slot: SlotId) -> Option<&Metadata> {
        let ranges = self.slots.get(slot)?.ranges;
        if ranges == NONE { None } else { self.slots.metadata(ranges) }
    }

    /// The same of the blocks that a copy reads, beside [`metadata_of`](Self::metadata_of) those that it writes.
    pub fn source_of(&self, slot: SlotId) -> Option<&Metadata> {
        let ranges = self.slots.get(slot)?.ranges;
        if ranges == NONE { None } else { self.slots.source(ranges) }
    }
}

/// Whether a command changes what a namespace holds.
fn modifies(ns: &Namespace, command: &Command) -> bool {
    match IoOpcode(command.opcode) {
        IoOpcode::WRITE | IoOpcode::WRITE_UNCORRECTABLE | IoOpcode::WRITE_ZEROES | IoOpcode::COPY => return true,
        IoOpcode::DATASET_MANAGEMENT => return command.is(flag::DEALLOCATE),
        _ => {}
    }
    let zoned = matches!(ZonedOpcode(command.opcode), ZonedOpcode::ZONE_APPEND | ZonedOpcode::ZONE_MANAGEMENT_SEND);
    let vendor = || ns.vendor.into_iter().flatten().any(|c| c.opcode == command.opcode && c.changes);
    zoned || command.opcode >= FIRST_OPCODE && vendor()
}
