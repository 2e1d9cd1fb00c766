//! Admin commands (base 2.0, 5): paced per tenant, served before I/O, answered at once.

pub(crate) mod ana;
pub(crate) mod async_events;
pub(crate) mod command;
mod commands;
pub(crate) mod discovery;
pub(crate) mod exactly_once;
pub(crate) mod feature;
pub(crate) mod firmware;
mod format;
mod identify;
mod keep_alive;
pub(crate) mod lba_status;
pub(crate) mod lockdown;
pub(crate) mod log;
mod namespace;
mod namespace_job;
pub(crate) mod persistent;
mod placement;
mod queue;
pub(crate) mod resubmitted;
pub(crate) mod sanitize;
pub(crate) mod self_test;
pub(crate) mod state;
pub(crate) mod telemetry;
mod zoned;

pub(crate) use crate::admin::command::Admin;

use crate::admin::exactly_once::CountedCommand;
use crate::controller::{Transport, UNCLAIMED};
use crate::host::{DataPointer, Host, Tag};
use crate::queues::command::data_pointer;
use crate::queues::queue::{NONE, SqState};
use crate::subsystem::Subsystem;
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::{AdminOpcode, Sqe, Status};
use weir_units::Nanos;

/// What became of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminOutcome {
    /// Complete, with DW0 and DW1.
    Done(Status, u64),
    /// Complete with that error, and the command specific information of its entry in the error log.
    Refused(Status, u64),
    /// It is kept and completed later.
    Parked,
}

impl AdminOutcome {
    pub const fn status(status: Status) -> Self {
        AdminOutcome::Done(status, 0)
    }
}

/// Admin commands served in one `Run` at the most.
const BUDGET: usize = 64;

/// Whether a command changes nothing of any association but that it was heard.
fn is_only_read(opcode: AdminOpcode) -> bool {
    matches!(
        opcode,
        AdminOpcode::IDENTIFY
            | AdminOpcode::GET_LOG_PAGE
            | AdminOpcode::GET_FEATURES
            | AdminOpcode::DIRECTIVE_RECEIVE
            | AdminOpcode::GET_LBA_STATUS
            | AdminOpcode::ASYNC_EVENT_REQUEST
            | AdminOpcode::KEEP_ALIVE
    )
}

impl Subsystem {
    /// An admin capsule waits for its turn.
    pub(crate) fn admin_capsule(&mut self, q: u32, sqe: &Sqe, tag: Tag) {
        let sq = self.sq_mut(q);
        if sq.waiting >= sq.size {
            return self.condemn(q);
        }
        sq.waiting += 1;
        let c = sq.controller;
        if let Some(ctrl) = self.ctrl_mut(c) {
            ctrl.admin.push_back((*sqe, tag.0));
        }
        self.list_admin(c);
    }

    /// The controller has admin commands, or events to report.
    pub(crate) fn list_admin(&mut self, c: u32) {
        // What was resumed is listed when somebody claims it, who can be reached.
        if let Some(ctrl) = self.ctrl_mut(c).filter(|ctrl| ctrl.owner != UNCLAIMED) {
            if !core::mem::replace(&mut ctrl.admin_listed, true) {
                self.admin.ready.push_back(c);
            }
        }
    }

    /// Serves admin commands, one of each controller in turn, as far as its tenant's rate allows.
    pub(crate) fn serve_admin<H: Host>(&mut self, now: Nanos, host: &mut H) {
        if !self.admin.held.is_empty() {
            let held = core::mem::take(&mut self.admin.held);
            self.admin.ready.extend(held);
        }
        for _ in 0..BUDGET {
            let Some(c) = self.admin.ready.pop_front() else { return };
            self.report_events(c, host);
            if !self.has_admin(c) {
                if let Some(ctrl) = self.ctrl_mut(c) {
                    ctrl.admin_listed = false;
                }
                continue;
            }
            let (tenant, rate) = (self.ctrl(c).map_or(0, |ctrl| ctrl.tenant), self.config.admin_rate);
            self.power.counted = now;
            if self.tenants.list[usize::from(tenant)].admit_admin(now, rate) {
                self.serve_one(now, c, host);
                self.admin.ready.push_back(c);
            } else {
                self.admin.held.push(c);
            }
        }
        self.turn.more = true;
    }

    /// Whether an admin command can be fetched.
    fn has_admin(&self, c: u32) -> bool {
        let Some(ctrl) = self.ctrl(c) else { return false };
        let q = ctrl.sq(0);
        if q == NONE {
            return false;
        }
        // A fabrics host reads CSTS.CFS by a command; the rings of a fatal controller are paused.
        let sq = self.sq(q);
        let credit = sq.cq == NONE || self.queues.cqs[sq.cq as usize].as_ref().is_some_and(|cq| cq.credit > 0);
        sq.waiting > 0 && sq.state == SqState::Open && !sq.paused && credit
    }

    fn serve_one<H: Host>(&mut self, now: Nanos, c: u32, host: &mut H) {
        let q = self.ctrl(c).map_or(NONE, |ctrl| ctrl.sq(0));
        let sq = self.sq(q);
        let (owner, ring, cq, address) = (sq.owner, sq.ring, sq.cq, sq.base.wrapping_add(u64::from(sq.head) * 64));
        let page_shift = sq.page_shift;
        let mut bad_pointer = false;
        let (sqe, tag, data) = if ring {
            let Ok(entry) = host.fetch(owner, address) else { return self.fatal(c) };
            if let Some(cq) = self.queues.cq_mut(cq) {
                cq.credit -= 1;
            }
            let sqe = Sqe::from_words(entry);
            // Over PCIe admin commands have PRPs (base 2.0, Figure 87: PSDT).
            bad_pointer = sqe.psdt() != 0;
            let data = data_pointer(&entry, page_shift).unwrap_or(DataPointer::tag(Tag(0)));
            (sqe, 0, data.of(transfer_len(&sqe)))
        } else {
            let next = self.ctrl_mut(c).and_then(|ctrl| ctrl.admin.pop_front());
            let Some((sqe, tag)) = next else { return };
            (sqe, tag, DataPointer::tag(Tag(tag)))
        };
        let sq = self.sq_mut(q);
        sq.advance();
        sq.in_flight += 1;
        self.admin.served += 1;
        let mut number = 0;
        if ring {
            let (qid, head, entry) = (0, self.sq(q).head, sqe.words());
            host.take(owner, qid, &entry, head);
            if let Some(ctrl) = self.ctrl_mut(c) {
                ctrl.taken += 1;
                number = ctrl.taken;
            }
        }
        self.answer(now, &Admin { c, q, owner, sqe, number, tag, data }, bad_pointer, host);
    }

    /// Carries out an admin command that was taken from its queue.
    pub(crate) fn answer<H: Host>(&mut self, now: Nanos, admin: &Admin, bad_pointer: bool, host: &mut H) {
        let outcome = if admin.sqe.fuse() != 0 || bad_pointer {
            AdminOutcome::status(Status::INVALID_FIELD.dnr())
        } else if let Some(outcome) = self.was_executed(admin) {
            outcome
        } else if let Some(outcome) = self.admin_fault(now, admin) {
            outcome
        } else {
            self.execute_admin(now, admin, host)
        };
        self.conclude(admin, outcome, host);
    }

    /// Carries out an admin command, and remembers it where it must not be carried out twice.
    pub(crate) fn execute_admin<H: Host>(&mut self, now: Nanos, admin: &Admin, host: &mut H) -> AdminOutcome {
        let before = self.changes.nonvolatile;
        let outcome = self.admin(now, admin, host);
        if let AdminOutcome::Done(status, result) = outcome {
            if self.changes.nonvolatile != before {
                let life = self.ctrl(admin.c).map_or(0, |ctrl| ctrl.life);
                let counted = CountedCommand { number: admin.number, sqe: admin.sqe };
                self.admin.executed.note(life, counted, status, result);
            }
        }
        outcome
    }

    /// Answers an admin command, unless it is kept.
    pub(crate) fn conclude<H: Host>(&mut self, admin: &Admin, outcome: AdminOutcome, host: &mut H) {
        let Admin { c, q, sqe, number, tag, .. } = *admin;
        let (status, result, specific) = match outcome {
            AdminOutcome::Done(status, result) => (status, result, 0),
            AdminOutcome::Refused(status, specific) => (status, 0, specific),
            AdminOutcome::Parked => {
                if sqe.opcode != AdminOpcode::ASYNC_EVENT_REQUEST.0 {
                    self.keep_admin(c, CountedCommand { number, sqe });
                }
                return;
            }
        };
        if !status.is_success() {
            self.log_specific_error(q, sqe.cid.get(), status, (0, sqe.nsid.get()), specific);
        }
        self.finish(q, sqe.cid.get(), tag, status, result, host);
    }

    /// One admin command.
    fn admin<H: Host>(&mut self, now: Nanos, admin: &Admin, host: &mut H) -> AdminOutcome {
        let Some(ctrl) = self.ctrl_mut(admin.c) else { return AdminOutcome::status(Status::INTERNAL_ERROR) };
        if ctrl.kato == 0 && ctrl.idle_limit != Nanos::NEVER {
            ctrl.keep_alive(now);
        }
        let Some(ctrl) = self.ctrl(admin.c) else { return AdminOutcome::status(Status::INTERNAL_ERROR) };
        let fabrics = ctrl.transport == Transport::Fabrics;
        // From the begin of a shutdown on, only fabrics commands are processed (base 2.0, 3.6.2).
        let ready = if fabrics { ctrl.serves() } else { ctrl.csts.rdy() == 1 };
        let opcode = AdminOpcode(admin.sqe.opcode);
        if opcode == AdminOpcode::FABRICS && fabrics {
            self.associate();
            return self.fabrics_admin(now, admin.c, &admin.sqe, host);
        }
        if !ready {
            return AdminOutcome::status(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        if let Err(status) = self.admits(admin, ctrl) {
            return AdminOutcome::status(status);
        }
        if !is_only_read(opcode) {
            self.associate();
        }
        match opcode {
            AdminOpcode::IDENTIFY => self.identify(admin, host),
            AdminOpcode::GET_LOG_PAGE => self.get_log_page(now, admin, host),
            AdminOpcode::GET_FEATURES => self.get_features(now, admin, host),
            AdminOpcode::SET_FEATURES => self.set_features(now, admin, host),
            AdminOpcode::ASYNC_EVENT_REQUEST => self.async_event_request(admin, host),
            AdminOpcode::KEEP_ALIVE => self.keep_alive(now, admin.c),
            AdminOpcode::DIRECTIVE_RECEIVE => self.directive_receive(admin, host),
            AdminOpcode::DIRECTIVE_SEND => self.directive_send(admin),
            AdminOpcode::ABORT => self.abort(admin, host),
            AdminOpcode::CREATE_IO_CQ => self.create_cq(admin, host),
            AdminOpcode::CREATE_IO_SQ => self.create_sq(admin, host),
            AdminOpcode::DELETE_IO_CQ => self.delete_cq(admin),
            AdminOpcode::DELETE_IO_SQ => self.delete_sq(admin),
            AdminOpcode::NAMESPACE_MANAGEMENT => self.namespace_management(admin, host),
            AdminOpcode::NAMESPACE_ATTACHMENT => self.namespace_attachment(admin, host),
            AdminOpcode::FORMAT_NVM => self.format_nvm(admin),
            AdminOpcode::DOORBELL_BUFFER_CONFIG => self.doorbell_buffer_config(admin, host),
            AdminOpcode::FIRMWARE_COMMIT => self.commit_firmware(now, admin),
            AdminOpcode::FIRMWARE_DOWNLOAD => {
                AdminOutcome::status(self.download_firmware(admin, host).err().unwrap_or(Status::SUCCESS))
            }
            AdminOpcode::DEVICE_SELF_TEST => self.device_self_test(now, admin),
            AdminOpcode::LOCKDOWN => self.lockdown(admin),
            AdminOpcode::SANITIZE => self.sanitize(now, admin),
            AdminOpcode::GET_LBA_STATUS => self.get_lba_status(admin, host),
            _ => {
                let outcome = self.vendor_admin(now, admin, host);
                outcome.unwrap_or(AdminOutcome::status(Status::INVALID_OPCODE.dnr()))
            }
        }
    }

    /// Asynchronous Event Request (base 2.0, 5.2): kept until something happens.
    fn async_event_request<H: Host>(&mut self, admin: &Admin, host: &mut H) -> AdminOutcome {
        let Some(ctrl) = self.ctrl_mut(admin.c) else { return AdminOutcome::status(Status::INTERNAL_ERROR) };
        if ctrl.aer.waiting.len() >= async_events::LIMIT {
            return AdminOutcome::status(Status::ASYNC_EVENT_LIMIT_EXCEEDED.dnr());
        }
        ctrl.aer.waiting.push(async_events::PendingEventRequest { cid: admin.sqe.cid.get(), tag: admin.tag });
        // A request may wait for ever: it does not keep an entry of the completion queue from others.
        self.return_credit(admin.q);
        self.report_events(admin.c, host);
        AdminOutcome::Parked
    }

    fn return_credit(&mut self, q: u32) {
        let cq = self.sq(q).cq;
        if let Some(cq) = self.queues.cq_mut(cq) {
            cq.credit += 1;
        }
    }

    /// Takes a completion queue entry for a parked request; message queues need none.
    fn take_credit(&mut self, q: u32) -> bool {
        let cq = self.sq(q).cq;
        match self.queues.cqs.get_mut(cq as usize) {
            Some(Some(cq)) if cq.credit == 0 => false,
            Some(Some(cq)) => {
                cq.credit -= 1;
                true
            }
            _ => true,
        }
    }

    /// Something that hosts want to know happened to a controller.
    #[cold]
    pub(crate) fn raise<H: Host>(&mut self, c: u32, event: AsyncEvent, host: &mut H) {
        let q = self.ctrl(c).map_or(NONE, |ctrl| ctrl.sq(0));
        if matches!(event, AsyncEvent::INVALID_DOORBELL_REGISTER | AsyncEvent::INVALID_DOORBELL_VALUE) && q != NONE {
            self.log_error(q, 0xffff, Status::INVALID_FIELD, (0, 0));
        }
        self.associate();
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        ctrl.aer.raise(event, ctrl.features.async_config);
        self.report_events(c, host);
    }

    /// Completes waiting requests with what is pending.
    pub(crate) fn report_events<H: Host>(&mut self, c: u32, host: &mut H) {
        while let Some(ctrl) = self.ctrl(c) {
            let q = ctrl.sq(0);
            let Some(event) = ctrl.aer.reportable() else { return };
            if q == NONE || !ctrl.ready() || !self.take_credit(q) {
                return;
            }
            if let Some(ctrl) = self.ctrl_mut(c) {
                let result = u64::from(event.dw0()) | u64::from(ctrl.event_nsid(event)) << 32;
                let w = ctrl.aer.report(event);
                self.finish(q, w.cid, w.tag, Status::SUCCESS, result, host);
            }
        }
    }

    /// Aborts a command (base 2.0, 5.1). Bit 0 of DW0 says that it was not aborted.
    fn abort<H: Host>(&mut self, admin: &Admin, host: &mut H) -> AdminOutcome {
        let cdw10 = admin.sqe.cdw10.get();
        let (sqid, cid) = (cdw10 as u16, (cdw10 >> 16) as u16);
        let q = self.ctrl(admin.c).map_or(NONE, |ctrl| ctrl.sq(sqid));
        let aborted = match sqid {
            _ if q == NONE => false,
            0 => self.abort_admin(admin.c, q, cid, host),
            _ => self.abort_io(q, cid, host),
        };
        AdminOutcome::Done(Status::SUCCESS, u64::from(!aborted))
    }

    /// Aborts an event request, or an admin command that has not been served.
    fn abort_admin<H: Host>(&mut self, c: u32, q: u32, cid: u16, host: &mut H) -> bool {
        let Some(ctrl) = self.ctrl_mut(c) else { return false };
        if let Some(at) = ctrl.aer.waiting.iter().position(|w| w.cid == cid) {
            if !self.take_credit(q) {
                return false;
            }
            let waiting = self.ctrl_mut(c).map(|ctrl| ctrl.aer.waiting.remove(at));
            if let Some(w) = waiting {
                self.finish(q, cid, w.tag, Status::ABORT_REQUESTED, 0, host);
            }
            return true;
        }
        let Some(ctrl) = self.ctrl_mut(c) else { return false };
        let Some(at) = ctrl.admin.iter().position(|(sqe, _)| sqe.cid.get() == cid) else { return false };
        let tag = ctrl.admin.remove(at).map_or(0, |(_, tag)| tag);
        let sq = self.sq_mut(q);
        sq.advance();
        sq.in_flight += 1;
        self.finish(q, cid, tag, Status::ABORT_REQUESTED, 0, host);
        true
    }
}

/// Bytes that an admin command moves, for its data pointer: NUMD where it has one, else a page or less.
pub(crate) fn transfer_len(sqe: &Sqe) -> u32 {
    let (cdw10, cdw11) = (sqe.cdw10.get(), sqe.cdw11.get());
    let dwords = match AdminOpcode(sqe.opcode) {
        AdminOpcode::GET_LOG_PAGE => cdw10 >> 16 | cdw11 << 16,
        AdminOpcode::FIRMWARE_DOWNLOAD | AdminOpcode::DIRECTIVE_SEND | AdminOpcode::DIRECTIVE_RECEIVE => cdw10,
        AdminOpcode::SECURITY_SEND | AdminOpcode::SECURITY_RECEIVE => cdw11 / 4,
        AdminOpcode::GET_LBA_STATUS => sqe.cdw12.get(),
        _ => 1023,
    };
    dwords.saturating_add(1).saturating_mul(4)
}
