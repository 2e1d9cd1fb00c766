//! The path of a vendor's command, beside the one of all others.

use super::{Vendor, VendorAnswer, VendorCommand, VendorData, VendorPort, VendorQueue, VendorRequest, VendorWork};
use crate::admin::{Admin, AdminOutcome};
use crate::error::ManagementError;
use crate::event::{Io, Op, SlotId};
use crate::host::{DataPointer, Host, Owner};
use crate::io::starting::Starting;
use crate::namespace::why;
use crate::queues::command::{Command, flag};
use crate::queues::queue::NONE;
use crate::subsystem::Subsystem;
use alloc::boxed::Box;
use weir_spec::nvme::{IoOpcode, Status, nvm};
use weir_units::Nanos;

impl Subsystem {
    /// Gives a namespace a vendor's commands, before hosts come. A drive has one such set, and a namespace that has it is not
    /// zoned.
    ///
    /// # Errors
    /// There is no such namespace, it is zoned, or the drive has a set already.
    pub fn set_vendor(&mut self, nsid: u32, set: Box<dyn VendorCommand>) -> Result<(), ManagementError> {
        let ns = self.namespaces.list.get_mut(nsid.wrapping_sub(1) as usize).and_then(Option::as_mut);
        let ns = ns.filter(|ns| !ns.zoned && self.vendor.0.is_none()).ok_or(ManagementError::NoNamespace)?;
        ns.vendor = Some(set.commands());
        ns.why |= if set.claims() { why::VENDOR } else { 0 };
        self.vendor = Vendor(Some(set));
        Ok(())
    }

    /// The vendor's commands of this drive.
    pub fn vendor(&self) -> Option<&dyn VendorCommand> {
        self.vendor.0.as_deref()
    }

    /// The same, to change what survives it.
    pub fn vendor_mut(&mut self) -> Option<&mut (dyn VendorCommand + 'static)> {
        self.vendor.0.as_deref_mut()
    }

    /// Tells the set which of its commands are over.
    pub(crate) fn settle_vendor(&mut self) {
        let Some(set) = &mut self.vendor.0 else { return };
        self.slots.settled.drain(..).for_each(|ticket| set.settled(ticket));
    }

    /// Serves an I/O command of the set, or one that it claims. The caller has seen that it fits.
    pub(crate) fn start_vendor<H: Host>(&mut self, now: Nanos, starting: &Starting, host: &mut H) {
        let Starting { queue, ref command, ref plan, data, words, .. } = *starting;
        let command = &command.unplaced();
        let owner = self.sq(queue).owner;
        if command.is(flag::RANGE) {
            // A request of a door that speaks no NVMe: its addresses are not these.
            return self.refuse(queue, command, Status::INVALID_FIELD.dnr(), host);
        }
        let Some(set) = &mut self.vendor.0 else {
            return self.refuse(queue, command, Status::INVALID_OPCODE.dnr(), host);
        };
        let mut port = VendorPort::new(host, owner, data);
        let request = request(command, [words[0], words[1]]);
        match set.serve(now, &request, &mut port) {
            Err(refusal) => {
                drop(port);
                let (status, result) = (refusal.status, refusal.result);
                let tenant = usize::from(self.sq(queue).tenant);
                self.tenants.list[tenant].work.errors += 1;
                self.log_error(queue, command.cid, status, (command.slba, command.nsid));
                self.finish(queue, command.cid, command.tag, status, result, host);
            }
            Ok(answer) => {
                let (mut moves, ticket) = port.into_parts();
                moves.reverse();
                let at = answer.at.max(now.saturating_add(self.config.latency));
                if !answer.status.is_success() {
                    moves.clear();
                }
                let id = self.occupy_for(starting);
                let slot = &mut self.slots.slots[id as usize];
                // By what they do to the data, for the statistics.
                slot.opcode = match command.opcode & 3 {
                    1 if command.opcode >= super::FIRST_OPCODE && plan.transfer > 0 => IoOpcode::WRITE.0,
                    2 if command.opcode >= super::FIRST_OPCODE && plan.transfer > 0 => IoOpcode::READ.0,
                    _ => command.opcode,
                };
                let (index, work) = self.slots.take_work();
                work.vendor = Some(VendorWork { moves, answer, data, fua: false, ticket });
                self.slots.slots[id as usize].ranges = index;
                match self.next_move(id) {
                    Some(io) => self.slots.delay(now, id, io, at),
                    None => self.slots.delay_done(id, at),
                }
            }
        }
    }

    /// The next of a command's moves.
    fn next_move(&mut self, id: u32) -> Option<Io> {
        let slot = self.slots.slots[id as usize];
        let owner = if slot.queue == NONE { Owner(u32::MAX) } else { self.sq(slot.queue).owner };
        let work = self.slots.work(slot.ranges).vendor.as_mut()?;
        let (next, fua) = (work.moves.pop()?, work.fua);
        let data = if next.op == Op::Copy { DataPointer::media(next.from) } else { work.data };
        let (op, nsid, offset, len, skip) = (next.op, slot.nsid, next.offset, next.len, next.skip);
        Some(Io { slot: SlotId(id), owner, data, op, nsid, offset, len, fua, skip })
    }

    /// One move is done: goes on with the next, if there is one and somebody waits for it.
    pub(crate) fn go_on(&mut self, id: u32) -> bool {
        let slot = self.slots.slots[id as usize];
        if slot.ranges == NONE || slot.queue == NONE {
            return false;
        }
        match self.next_move(id) {
            Some(io) => {
                self.slots.make_ready(id, io);
                true
            }
            None => false,
        }
    }

    /// How a vendor's command ends, if it is one and nothing went wrong.
    pub(crate) fn vendor_answer(&mut self, id: u32) -> Option<VendorAnswer> {
        let ranges = self.slots.slots[id as usize].ranges;
        if ranges == NONE { None } else { self.slots.work(ranges).vendor.as_ref().map(|work| work.answer) }
    }

    /// An admin command of the set; `None`: it has none of this opcode.
    pub(crate) fn vendor_admin<H: Host>(&mut self, now: Nanos, admin: &Admin, host: &mut H) -> Option<AdminOutcome> {
        let set = self.vendor.0.as_mut()?;
        let opcode = admin.sqe.opcode;
        let command = set.commands().iter().find(|c| c.queue == VendorQueue::Admin && c.opcode == opcode)?;
        let data = if let VendorData::Bytes(len) = command.data { admin.data.of(len) } else { admin.data };
        let sqe = &admin.sqe;
        let nsid = sqe.nsid.get();
        if let Err(status) = self.namespaces.active(nsid).and_then(|ns| match ns.vendor {
            Some(_) => Ok(()),
            None => Err(Status::INVALID_FIELD.dnr()),
        }) {
            return Some(AdminOutcome::status(status));
        }
        let words = [sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15];
        let request = VendorRequest { queue: VendorQueue::Admin, opcode, nsid, cdw: words.map(|w| w.get()) };
        let mut port = VendorPort::new(host, admin.owner, data);
        Some(match set.serve(now, &request, &mut port) {
            Ok(answer) => AdminOutcome::Done(answer.status, answer.result),
            Err(refusal) => AdminOutcome::Done(refusal.status, refusal.result),
        })
    }
}

/// The command's fields again: of an ordinary one as its parsed form says, of a vendor's own as they came.
fn request(command: &Command, words: [u64; 2]) -> VendorRequest {
    let own = command.opcode >= super::FIRST_OPCODE;
    let (cdw12, cdw14) = if own { (words[0], words[1]) } else { (standard(command), 0) };
    let halves = |w: u64| [w as u32, (w >> 32) as u32];
    let ([a, b], [c, d], [e, f]) = (halves(command.slba), halves(cdw12), halves(cdw14));
    VendorRequest { queue: VendorQueue::Io, opcode: command.opcode, nsid: command.nsid, cdw: [a, b, c, d, e, f] }
}

fn standard(command: &Command) -> u64 {
    let deallocate = if command.is(flag::DEALLOCATE) { nvm::DEAC } else { 0 };
    u64::from((command.blocks - 1) & 0xffff | deallocate)
}
