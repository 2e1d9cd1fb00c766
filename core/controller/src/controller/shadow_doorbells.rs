//! Serves the shadow doorbells of ring controllers.

use crate::admin::{Admin, AdminOutcome};
use crate::event::ControllerHandle;
use crate::host::Host;
use crate::queues::queue::NONE;
use crate::queues::shadow::{Shadow, ShadowPages};
use crate::subsystem::Subsystem;
use weir_spec::nvme::Status;
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::register::Doorbell;

impl Subsystem {
    /// The shadow doorbells of a ring controller, if its host has set them up.
    pub fn shadow(&self, controller: ControllerHandle) -> Option<Shadow> {
        self.ctrl(self.resolve(controller)?)?.shadow
    }

    /// Takes what the host has written into its shadow doorbells; whether there was anything. To be called each turn that
    /// the door polls, and after every write of a register.
    pub fn poll_shadow(&mut self, controller: ControllerHandle, pages: &mut impl ShadowPages) -> bool {
        let Some(c) = self.resolve(controller) else { return false };
        self.scan_shadow(c, pages)
    }

    /// Asks to be rung for whatever comes, before the door stops polling. `false`: something has come meanwhile, and was
    /// taken; the door goes on.
    pub fn arm_shadow(&mut self, controller: ControllerHandle, pages: &mut impl ShadowPages) -> bool {
        let Some(c) = self.resolve(controller) else { return true };
        let Some(Shadow { queues, .. }) = self.ctrl(c).and_then(|ctrl| ctrl.shadow) else { return true };
        for qid in 1..queues {
            if self.publish(c, qid, pages).is_err() {
                self.fatal(c);
                return true;
            }
        }
        pages.fence();
        !self.scan_shadow(c, pages)
    }

    /// Moves the event indexes of a pair of queues up.
    fn publish(&mut self, c: u32, qid: u16, pages: &mut impl ShadowPages) -> Result<(), Status> {
        let Some(ctrl) = self.ctrl(c) else { return Ok(()) };
        let (q, cq) = (ctrl.sq(qid), ctrl.cq(qid));
        if q != NONE {
            let sq = self.sq_mut(q);
            // The next entry passes it.
            let event = sq.seen;
            if core::mem::replace(&mut sq.event, event) != event {
                pages.store(u32::from(qid) * 2, event)?;
            }
        }
        if let Some(cq) = self.queues.cq_mut(cq) {
            // A head never passes the tail, so an event index there would never be rung for. Where commands wait for room
            // the first entry that is consumed is wanted, else the last one that was written.
            let before = if cq.tail == 0 { cq.size - 1 } else { cq.tail - 1 };
            let event = if cq.starved > 0 { cq.head } else { before };
            if core::mem::replace(&mut cq.event, event) != event {
                pages.store(u32::from(qid) * 2 + 1, event)?;
            }
        }
        Ok(())
    }

    fn scan_shadow(&mut self, c: u32, pages: &mut impl ShadowPages) -> bool {
        let Some(Shadow { queues, .. }) = self.ctrl(c).and_then(|ctrl| ctrl.shadow) else { return false };
        let (mut rang, sqs) = (false, self.ctrl(c).map_or(0, |ctrl| ctrl.sqs.len().max(ctrl.cqs.len())));
        for qid in 1..queues.min(sqs as u16) {
            match self.scan_pair(c, qid, pages) {
                Ok(found) => rang |= found,
                Err(_) => {
                    self.fatal(c);
                    return true;
                }
            }
        }
        self.turn.more |= rang;
        rang
    }

    /// The tail of a submission queue and the head of a completion queue. A value is taken once, right or wrong.
    fn scan_pair(&mut self, c: u32, qid: u16, pages: &mut impl ShadowPages) -> Result<bool, Status> {
        let Some(ctrl) = self.ctrl(c) else { return Ok(false) };
        let (q, cq, mut rang) = (ctrl.sq(qid), ctrl.cq(qid), false);
        // Heads first: what a tail brings may need the room.
        if let Some(cq) = self.queues.cq_mut(cq) {
            let head = pages.load(u32::from(qid) * 2 + 1)?;
            if core::mem::replace(&mut cq.seen, head) != head {
                rang = true;
                let taken = self.take_head(c, qid, head);
                self.note_bad_doorbell(c, taken);
            }
        }
        if q != NONE {
            let tail = pages.load(u32::from(qid) * 2)?;
            if core::mem::replace(&mut self.sq_mut(q).seen, tail) != tail {
                rang = true;
                let taken = self.take_tail(c, qid, tail);
                self.note_bad_doorbell(c, taken);
            }
        }
        Ok(rang)
    }

    /// A value that cannot be is an error and an event, which the next turn reports.
    fn note_bad_doorbell(&mut self, c: u32, taken: Result<(), AsyncEvent>) {
        let Err(event) = taken else { return };
        let q = self.ctrl(c).map_or(NONE, |ctrl| ctrl.sq(0));
        if q != NONE {
            self.log_error(q, 0xffff, Status::INVALID_FIELD, (0, 0));
        }
        if let Some(ctrl) = self.ctrl_mut(c) {
            ctrl.aer.raise(event, ctrl.features.async_config);
        }
        self.list_admin(c);
    }

    /// Whether a queue is rung through the shadow page, so that its registers only wake the door.
    pub(crate) fn is_shadowed(&self, c: u32, qid: u16) -> bool {
        self.ctrl(c).and_then(|ctrl| ctrl.shadow).is_some_and(|shadow| qid != 0 && qid < shadow.queues)
    }

    /// Doorbell Buffer Config (base 2.0, 5.8). The current doorbells are copied into the pages, which hold anything.
    pub(crate) fn doorbell_buffer_config<H: Host>(&mut self, admin: &Admin, host: &mut H) -> AdminOutcome {
        let Some(ctrl) = self.ctrl(admin.c) else { return AdminOutcome::status(Status::INTERNAL_ERROR) };
        let page = 1u64 << (12 + ctrl.cc.mps());
        let [doorbells, event_indexes] = admin.sqe.dptr.map(|prp| prp.get());
        if doorbells % page != 0 || event_indexes % page != 0 || doorbells == event_indexes {
            return AdminOutcome::status(Status::INVALID_FIELD.dnr());
        }
        let (most, queues) = (self.config.max_io_queues.saturating_add(1), (page / 8).min(0xffff) as u16);
        let shadow = Shadow { doorbells, event_indexes, queues: queues.min(most) };
        let last = ctrl.sqs.len().max(ctrl.cqs.len()).min(shadow.queues.into()) as u16;
        for qid in 0..last {
            if let Err(status) = self.mirror(admin.c, qid, &shadow, host) {
                return AdminOutcome::status(status);
            }
        }
        if let Some(ctrl) = self.ctrl_mut(admin.c) {
            ctrl.shadow = Some(shadow);
        }
        AdminOutcome::status(Status::SUCCESS)
    }

    /// Writes where the doorbells of a pair of queues stand into both pages.
    fn mirror<H: Host>(&mut self, c: u32, qid: u16, shadow: &Shadow, host: &mut H) -> Result<(), Status> {
        let Some(ctrl) = self.ctrl(c) else { return Ok(()) };
        let (owner, q, cq) = (ctrl.owner, ctrl.sq(qid), ctrl.cq(qid));
        if q != NONE {
            let sq = self.sq_mut(q);
            (sq.seen, sq.event) = (sq.tail(), sq.tail());
            shadow.put(Doorbell::SqTail(qid), sq.seen, owner, host)?;
        }
        if let Some(cq) = self.queues.cq_mut(cq) {
            (cq.seen, cq.event) = (cq.head, cq.head);
            shadow.put(Doorbell::CqHead(qid), cq.seen, owner, host)?;
        }
        Ok(())
    }

    /// The shadow doorbell and event index of a queue that is about to be made are zero, whatever old drivers left there.
    pub(crate) fn clear_shadow<H: Host>(&self, c: u32, doorbell: Doorbell, host: &mut H) -> Result<(), Status> {
        let Some(ctrl) = self.ctrl(c) else { return Ok(()) };
        let (Doorbell::SqTail(qid) | Doorbell::CqHead(qid)) = doorbell;
        match ctrl.shadow {
            Some(shadow) if qid < shadow.queues => shadow.put(doorbell, 0, ctrl.owner, host),
            _ => Ok(()),
        }
    }
}
