//! Creating and deleting I/O queues of ring controllers (base 2.0, 5.4 to 5.7 of the PCIe transport's queue model).

use super::{Admin, AdminOutcome};
use crate::config::ClassFrom;
use crate::controller::Shutdown;
use crate::host::Host;
use crate::queues::queue::{Cq, NONE, SqState};
use crate::subsystem::Subsystem;
use weir_spec::nvme::Status;
use weir_spec::nvme::register::{Doorbell, ams};
use weir_units::Class;

/// CDW11 bit 0: physically contiguous. CAP.CQR demands it.
const PC: u32 = 1;
/// CDW11 bit 1 of Create I/O Completion Queue: interrupts enabled.
const IEN: u32 = 2;

/// What both create commands share: QID and size, checked, and the address.
struct Create {
    qid: u16,
    size: u32,
    base: u64,
}

impl Subsystem {
    /// `limit` picks the queues of the one kind that the host was granted, of those of both.
    fn create(&self, admin: &Admin, limit: fn((u16, u16)) -> u16) -> Result<Create, Status> {
        let cdw10 = admin.sqe.cdw10.get();
        let (qid, size) = (cdw10 as u16, (cdw10 >> 16) + 1);
        let ctrl = self.ctrl(admin.c).ok_or(Status::INTERNAL_ERROR)?;
        let granted = ctrl.features.queues.unwrap_or((self.config.max_io_queues, self.config.max_io_queues));
        if qid == 0 || qid > limit(granted) {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        if size < 2 || size > self.config.max_queue_entries {
            return Err(Status::INVALID_QUEUE_SIZE.dnr());
        }
        let base = admin.sqe.dptr[0].get();
        let page = 1u64 << (12 + ctrl.cc.mps());
        if admin.sqe.cdw11.get() & PC == 0 || admin.sqe.psdt() != 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if base % page != 0 {
            return Err(Status::PRP_OFFSET_INVALID.dnr());
        }
        // Entry sizes are required by now (base 2.0, 3.1.3.5), 0 being a host that leaves them to us.
        if !matches!(ctrl.cc.iosqes(), 0 | 6) || !matches!(ctrl.cc.iocqes(), 0 | 4) {
            return Err(Status::INVALID_QUEUE_SIZE.dnr());
        }
        Ok(Create { qid, size, base })
    }

    /// Create I/O Completion Queue.
    pub(crate) fn create_cq<H: Host>(&mut self, admin: &Admin, host: &mut H) -> AdminOutcome {
        let create = match self.create(admin, |(_, cqs)| cqs) {
            Ok(create) => create,
            Err(status) => return AdminOutcome::status(status),
        };
        let cdw11 = admin.sqe.cdw11.get();
        let vector = (cdw11 >> 16) as u16;
        if self.ctrl(admin.c).is_some_and(|ctrl| ctrl.cq(create.qid) != NONE) {
            return AdminOutcome::status(Status::INVALID_QUEUE_ID.dnr());
        }
        // One vector for each queue and one for the admin queue.
        if cdw11 & IEN != 0 && vector > self.config.max_io_queues {
            return AdminOutcome::status(Status::INVALID_INTERRUPT_VECTOR.dnr());
        }
        let vector = (cdw11 & IEN != 0).then_some(vector);
        if let Err(status) = self.clear_shadow(admin.c, Doorbell::CqHead(create.qid), host) {
            return AdminOutcome::status(status);
        }
        self.place_cq(Cq::new(admin.c, create.qid, create.base, create.size, vector));
        self.gate(admin.c, host);
        AdminOutcome::status(Status::SUCCESS)
    }

    /// Create I/O Submission Queue. QPRIO counts inside the controller wherever CC.AMS is not round robin, and as a wish
    /// for a class at the drive.
    pub(crate) fn create_sq<H: Host>(&mut self, admin: &Admin, host: &mut H) -> AdminOutcome {
        let create = match self.create(admin, |(sqs, _)| sqs) {
            Ok(create) => create,
            Err(status) => return AdminOutcome::status(status),
        };
        let cdw11 = admin.sqe.cdw11.get();
        let Some(ctrl) = self.ctrl(admin.c) else { return AdminOutcome::status(Status::INTERNAL_ERROR) };
        let (owner, paused) = (ctrl.owner, ctrl.shutdown != Shutdown::None);
        let (cqid, granted) =
            ((cdw11 >> 16) as u16, ctrl.features.queues.map_or(self.config.max_io_queues, |(_, cqs)| cqs));
        if ctrl.sq(create.qid) != NONE || cqid == 0 || cqid > granted {
            return AdminOutcome::status(Status::INVALID_QUEUE_ID.dnr());
        }
        let cq = ctrl.cq(cqid);
        if cq == NONE {
            return AdminOutcome::status(Status::CQ_INVALID.dnr());
        }
        if let Err(status) = self.clear_shadow(admin.c, Doorbell::SqTail(create.qid), host) {
            return AdminOutcome::status(status);
        }
        let qprio = Class::from_bits((cdw11 >> 1) as u8);
        let by_peer = ctrl.class_from == Some(ClassFrom::Peer);
        let wish = if by_peer { ctrl.wish } else { (ctrl.cc.ams() != ams::RR).then_some(qprio) };
        let q = self.make_sq(admin.c, create.qid, create.size, owner, wish, qprio);
        let sq = self.sq_mut(q);
        (sq.ring, sq.base, sq.cq, sq.paused) = (true, create.base, cq, paused);
        if let Some(cq) = self.queues.cq_mut(cq) {
            cq.users += 1;
        }
        AdminOutcome::status(Status::SUCCESS)
    }

    /// Delete I/O Completion Queue: not before its submission queues.
    pub(crate) fn delete_cq(&mut self, admin: &Admin) -> AdminOutcome {
        let qid = admin.sqe.cdw10.get() as u16;
        let index = self.ctrl(admin.c).map_or(NONE, |ctrl| ctrl.cq(qid));
        if qid == 0 || index == NONE {
            return AdminOutcome::status(Status::INVALID_QUEUE_ID.dnr());
        }
        if self.queues.cqs[index as usize].as_ref().is_some_and(|cq| cq.users > 0) {
            return AdminOutcome::status(Status::INVALID_QUEUE_DELETION.dnr());
        }
        self.queues.cqs[index as usize] = None;
        self.queues.epoch = self.queues.epoch.wrapping_add(1);
        if let Some(ctrl) = self.ctrl_mut(admin.c) {
            ctrl.cqs[usize::from(qid)] = NONE;
        }
        AdminOutcome::status(Status::SUCCESS)
    }

    /// Delete I/O Submission Queue: nothing more is fetched, what is in flight completes, then the deletion does. What
    /// waited in the queue counts as aborted without a completion of its own.
    pub(crate) fn delete_sq(&mut self, admin: &Admin) -> AdminOutcome {
        let qid = admin.sqe.cdw10.get() as u16;
        let q = self.ctrl(admin.c).map_or(NONE, |ctrl| ctrl.sq(qid));
        if qid == 0 || q == NONE || self.sq(q).state == SqState::Deleting {
            return AdminOutcome::status(Status::INVALID_QUEUE_ID.dnr());
        }
        self.drop_held(q);
        let sq = self.sq_mut(q);
        sq.state = SqState::Deleting;
        sq.waiting = 0;
        sq.holes.clear();
        let starved = core::mem::take(&mut sq.starved);
        let (key, cq, idle) = (sq.key, sq.cq, sq.in_flight == 0);
        self.arbiter.withdraw(key);
        if let Some(cq) = self.queues.cq_mut(cq) {
            cq.starved -= u32::from(starved);
        }
        if idle {
            self.free_sq(q);
            return AdminOutcome::status(Status::SUCCESS);
        }
        self.sq_mut(q).deleter = Some(admin.sqe.cid.get());
        AdminOutcome::Parked
    }

    /// The last command of a queue that is being deleted is complete.
    pub(crate) fn finish_deletion<H: Host>(&mut self, q: u32, host: &mut H) {
        let sq = self.sq(q);
        let (c, deleter) = (sq.controller, sq.deleter);
        self.free_sq(q);
        let admin = self.ctrl(c).map_or(NONE, |ctrl| ctrl.sq(0));
        if let (Some(cid), true) = (deleter, admin != NONE) {
            self.finish(admin, cid, 0, Status::SUCCESS, 0, host);
        }
    }
}
