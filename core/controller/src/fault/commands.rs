//! What rules make of a command.

use crate::admin::{Admin, AdminOutcome};
use crate::event::Op;
use crate::fault::state::{HeldAdmin, HeldCommand, HeldUntil};
use crate::host::Host;
use crate::io::plan;
use crate::io::starting::{Judged, Starting};
use crate::io::timing::Operation;
use crate::namespace::why;
use crate::queues::command::{Command, flag};
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_fault::{FaultDelay, FaultOutcome, FaultVerdict, FaultyCommand};
use weir_spec::nvme::{AdminOpcode, IoOpcode, Status};
use weir_units::Nanos;

/// Command Retry Delay: bits 12:11 of the status field (base 2.0, Figure 93).
const CRD: u16 = 3 << 11;

/// Whether a status is a media and data integrity error of the drive's own.
pub(super) fn is_media_error(status: Status) -> bool {
    status.sct() == Status::WRITE_FAULT.sct() && !status.same_code(Status::COMPARE_FAILURE)
}

impl Subsystem {
    /// Starts a command of the slow path while there are rules.
    #[cold]
    pub(crate) fn start_under_faults<H: Host>(&mut self, now: Nanos, starting: &Starting, host: &mut H) {
        // Of a pair one half cannot fail alone.
        if starting.command.is(flag::FUSED) {
            return self.start_as_planned(now, starting, host);
        }
        // Who may not do it at all is told so, as without rules.
        if self.admit(starting.queue, &starting.command).is_err() {
            return self.start_as_planned(now, starting, host);
        }
        if starting.judged.is_some() {
            return self.start_judged(now, starting, host);
        }
        let verdict = self.judge_command(now, starting);
        let starting = Starting { judged: Some(Judged(verdict.outcome)), ..*starting };
        match self.held_until(now, &verdict) {
            Some(until) => self.hold_command(starting, until),
            None => self.start_judged(now, &starting, host),
        }
    }

    /// For how long a command is kept; `None`: it is not.
    fn held_until(&self, now: Nanos, verdict: &FaultVerdict) -> Option<HeldUntil> {
        if let Some((id, FaultOutcome::Hangs)) = verdict.outcome {
            return Some(HeldUntil::RuleEnds(id));
        }
        let delay = |delay: &FaultDelay| delay.time.saturating_add(self.retry_time(delay.retries));
        let delays: Vec<(u32, Nanos)> = verdict.delays.iter().map(|d| (d.id, delay(d))).collect();
        delays.iter().any(|(_, delay)| delay.0 > 0).then_some(HeldUntil::Delayed(now, delays))
    }

    /// What the rules say of a command, by its first start.
    fn judge_command(&mut self, now: Nanos, starting: &Starting) -> FaultVerdict {
        let command = starting.command.unplaced();
        let sq = self.sq(starting.queue);
        let (tenant, queue) = (sq.tenant, sq.qid);
        let ns = self.namespaces.active(command.nsid).ok().copied();
        let listed = command.opcode == IoOpcode::DATASET_MANAGEMENT.0 && !command.is(flag::RANGE);
        let is_about_blocks = starting.plan.len > 0 && !listed && command.opcode != IoOpcode::COPY.0;
        let blocks = if is_about_blocks { u64::from(command.blocks) } else { 0 };
        let plain = ns.is_some_and(|ns| ns.why & (why::ZONES | why::VENDOR) == 0);
        let seen = FaultyCommand {
            admin: false,
            opcode: command.opcode,
            nsid: command.nsid,
            lba: if is_about_blocks { command.slba } else { 0 },
            blocks,
            tenant,
            queue,
            plain,
        };
        let Self { faults, namespaces, timing, .. } = self;
        let Some(faults) = faults else { return FaultVerdict::default() };
        let place = |lba: u64| {
            let (offset, _) = namespaces.pieces(command.nsid, &ns?, lba, 1).first().copied()?;
            timing.0.as_ref()?.place_of(offset)
        };
        let verdict = faults.plan.decide(now, &seen, place);
        self.note_verdict(&verdict);
        verdict
    }

    /// Conditions that a command has triggered are taken up by the next `Run`, which follows at once.
    fn note_verdict(&mut self, verdict: &FaultVerdict) {
        if let Some(faults) = self.faults.as_mut().filter(|_| verdict.triggered) {
            faults.changed = true;
            self.turn.more = true;
        }
    }

    fn retry_time(&self, retries: u32) -> Nanos {
        if retries == 0 {
            return Nanos(0);
        }
        let once = self.timing.0.as_ref().and_then(|inside| inside.retry_time()).unwrap_or_default();
        Nanos(once.0.saturating_mul(retries.into()))
    }

    fn hold_command(&mut self, starting: Starting, until: HeldUntil) {
        if let Some(faults) = &mut self.faults {
            faults.held.push(HeldCommand { starting, until });
        }
        self.arm_faults();
    }

    /// Starts a command that has been judged. The caller has seen that it fits, unless it fails.
    fn start_judged<H: Host>(&mut self, now: Nanos, starting: &Starting, host: &mut H) {
        match self.outcome_of(starting) {
            None | Some(FaultOutcome::Hangs) => self.start_as_planned(now, starting, host),
            Some(FaultOutcome::Fails { status, lba }) => self.fail_command(starting, status, lba, host),
            Some(FaultOutcome::Corrupt { .. }) => {
                self.start_as_planned(now, starting, host);
                self.begin_spoiling(starting, host);
            }
            Some(FaultOutcome::Torn { keep }) => self.start_torn(now, starting, keep, host),
            Some(FaultOutcome::Misdirected { by }) => self.start_misdirected(now, starting, by, host),
            Some(FaultOutcome::Lost) => self.start_lost(now, starting, host),
        }
    }

    /// A status as the host of a queue knows it: with CRD only if it has enabled that (ACRE of Host Behavior Support; base 2.0,
    /// 5.27.1.18).
    fn known_status(&self, q: u32, status: Status) -> Status {
        let delays = self.ctrl(self.sq(q).controller).is_some_and(|ctrl| ctrl.behavior().acre == 1);
        if delays { status } else { Status::from_field(status.field() & !CRD) }
    }

    /// As a drive fails a command whose media or inside has failed: SMART counts it, the error log has its first bad block.
    fn fail_command<H: Host>(&mut self, starting: &Starting, status: Status, lba: u64, host: &mut H) {
        if is_media_error(status) {
            self.health.media_errors += 1;
            let is_read = matches!(starting.plan.op, Op::Read | Op::Compare | Op::Verify);
            self.note_failing(starting.command.nsid, lba, is_read);
        }
        let command = Command { slba: lba, ..starting.command };
        self.refuse(starting.queue, &command, self.known_status(starting.queue, status), host);
    }

    fn start_torn<H: Host>(&mut self, now: Nanos, starting: &Starting, keep: u32, host: &mut H) {
        let command = starting.command.unplaced();
        let blocks = command.blocks.min(keep);
        self.start_anew(now, starting, Command { blocks, ..command }, host);
    }

    /// The blocks that a command goes to, in its namespace whatever the distance.
    fn start_misdirected<H: Host>(&mut self, now: Nanos, starting: &Starting, by: i64, host: &mut H) {
        let command = starting.command.unplaced();
        let blocks = self.namespaces.active(command.nsid).map_or(0, |ns| ns.blocks);
        let places = i128::from(blocks.saturating_sub(u64::from(command.blocks))) + 1;
        let slba = (i128::from(command.slba) + i128::from(by)).rem_euclid(places) as u64;
        self.start_anew(now, starting, Command { slba, ..command }, host);
    }

    /// Starts another command in the place of one, with its data and for its answer.
    fn start_anew<H: Host>(&mut self, now: Nanos, starting: &Starting, command: Command, host: &mut H) {
        let mdts = self.sq(starting.queue).mdts;
        match plan::plan(&self.namespaces.list, &command, mdts) {
            Ok(plan) => self.start_as_planned(now, &Starting { command, plan, ..*starting }, host),
            Err(status) => self.refuse(starting.queue, &command, status, host),
        }
    }

    /// Nothing of a write is carried out, and it takes the time of one.
    fn start_lost<H: Host>(&mut self, now: Nanos, starting: &Starting, host: &mut H) {
        let Starting { queue, ref command, ref plan, .. } = *starting;
        if self.is_instant() {
            return self.finish(queue, command.cid, command.tag, Status::SUCCESS, 0, host);
        }
        let (op, offset, len, fua) = (plan.op, plan.offset, plan.len, command.is(flag::FUA));
        let id = self.occupy_for(starting);
        let due = self.complete_command_at(now, starting, Operation { op, offset, len, fua, placement: 0 });
        self.delay_done(id, due);
    }

    /// A submission queue is being deleted: those of its commands that rules hold are dropped, and never completed.
    pub(crate) fn drop_held(&mut self, q: u32) {
        let Some(faults) = &mut self.faults else { return };
        let before = faults.held.len();
        faults.held.retain(|held| held.starting.queue != q);
        let dropped = (before - faults.held.len()) as u32;
        let sq = self.sq_mut(q);
        sq.in_flight -= dropped;
        let index = sq.cq;
        let Some(cq) = self.queues.cq_mut(index).filter(|_| dropped > 0) else { return };
        cq.credit += dropped;
        self.feed(index);
    }

    /// What becomes of a command that has been judged; `None`: nothing, or its rule is gone.
    pub(super) fn outcome_of(&self, starting: &Starting) -> Option<FaultOutcome> {
        self.faults.as_ref()?.outcome_of(starting.judged?)
    }

    /// Lets go of the commands whose time has come.
    pub(super) fn release_commands<H: Host>(&mut self, now: Nanos, host: &mut H) {
        while let Some(held) = self.faults.as_mut().and_then(|faults| faults.release_command(now)) {
            let starting = held.starting;
            match self.outcome_of(&starting) {
                Some(FaultOutcome::Fails { .. }) => self.start_under_faults(now, &starting, host),
                // It starts when there is a slot for it, as others that have left their queue.
                _ => self.fetched.push_back(starting),
            }
            self.turn.more = true;
        }
    }

    /// What the rules make of an admin command; `None`: it is carried out.
    #[inline]
    pub(crate) fn admin_fault(&mut self, now: Nanos, admin: &Admin) -> Option<AdminOutcome> {
        if self.faults.is_none() { None } else { self.judge_admin(now, admin) }
    }

    #[cold]
    fn judge_admin(&mut self, now: Nanos, admin: &Admin) -> Option<AdminOutcome> {
        let sq = self.sq(admin.q);
        let seen = FaultyCommand {
            admin: true,
            opcode: admin.sqe.opcode,
            nsid: admin.sqe.nsid.get(),
            lba: 0,
            blocks: 0,
            tenant: sq.tenant,
            queue: sq.qid,
            plain: false,
        };
        // An event request waits by its nature.
        let waits = admin.sqe.opcode == AdminOpcode::ASYNC_EVENT_REQUEST.0;
        let faults = self.faults.as_mut().filter(|_| !waits)?;
        let verdict = faults.plan.decide(now, &seen, |_| None);
        self.note_verdict(&verdict);
        let Some(until) = self.held_until(now, &verdict) else {
            return match verdict.outcome {
                Some((_, FaultOutcome::Fails { status, .. })) => {
                    Some(AdminOutcome::status(self.known_status(admin.q, status)))
                }
                _ => None,
            };
        };
        let held = HeldAdmin { admin: *admin, until, judged: Judged(verdict.outcome) };
        self.faults.as_mut()?.admin.push(held);
        self.arm_faults();
        Some(AdminOutcome::Parked)
    }

    /// Carries out the admin commands whose time has come.
    pub(super) fn release_admin<H: Host>(&mut self, now: Nanos, host: &mut H) {
        while let Some(held) = self.faults.as_mut().and_then(|faults| faults.release_admin(now)) {
            let HeldAdmin { admin, judged, .. } = held;
            let outcome = match self.faults.as_ref().and_then(|faults| faults.outcome_of(judged)) {
                Some(FaultOutcome::Fails { status, .. }) => AdminOutcome::status(self.known_status(admin.q, status)),
                _ => self.execute_admin(now, &admin, host),
            };
            self.conclude(&admin, outcome, host);
        }
    }

    /// Admin commands of a queue that rules hold.
    pub(crate) fn held_admin_of(&self, q: u32) -> usize {
        self.faults.as_ref().map_or(0, |faults| faults.admin.iter().filter(|held| held.admin.q == q).count())
    }
}
