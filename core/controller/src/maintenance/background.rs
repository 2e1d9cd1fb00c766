//! Long work of the drive itself, in steps: sanitizing, formatting, the media check of a self-test.
//!
//! ```text
//!  start_job ─▶ draining (commands in flight end) ─▶ piece ─▶ Done ─▶ pause ─▶ piece … ─▶ job_done
//! ```
//! One piece of one job is in flight at a time, in a slot of the drive's own, and after each the job rests as long as the piece took:
//! whoever shares the drive keeps half of it at least. Jobs wait for one another. They belong to no controller and no queue, so that
//! neither a reset nor a lost connection ends them; who started one forgets it with [`Subsystem::cancel_job`].

use crate::event::{Io, SlotId};
use crate::host::{Host, Owner};
use crate::io::slots::SlotState;
use crate::maintenance::job::{Drain, Job, JobKind, JobProgress};
use crate::subsystem::Subsystem;
use weir_spec::nvme::Status;
use weir_spec::nvme::identify::NSID_ALL;
use weir_units::Nanos;

impl Subsystem {
    /// Begins a job, or has it wait for those before it.
    pub(crate) fn start_job(&mut self, job: Job) {
        debug_assert!(job.piece > 0);
        self.maintenance.background.jobs.push_back(job);
        if self.maintenance.background.jobs.len() == 1 {
            self.begin_job();
        }
        self.turn.more = true;
    }

    fn begin_job(&mut self) {
        let total =
            self.maintenance.background.jobs.front().map_or(0, |job| job.ranges.iter().map(|(_, len)| len).sum());
        self.maintenance.background.at = JobProgress { total, ..JobProgress::default() };
    }

    /// Forgets the jobs of a kind; their end is told to nobody.
    pub(crate) fn cancel_job(&mut self, kind: JobKind) {
        let under_way = self.maintenance.background.at.piece.is_some();
        let mut first = true;
        self.maintenance.background.jobs.retain(|job| {
            let keep = job.kind != kind || core::mem::take(&mut first) && under_way;
            first = false;
            keep
        });
        match self.maintenance.background.jobs.front() {
            Some(job) if job.kind == kind => self.maintenance.background.at.cancelled = true,
            _ if !under_way => self.begin_job(),
            _ => {}
        }
    }

    /// How much of the job of a kind is done, of 65536; `None` where there is none. One that waits is at 0.
    pub(crate) fn job_progress(&self, kind: JobKind) -> Option<u16> {
        let place = self.maintenance.background.jobs.iter().position(|job| job.kind == kind)?;
        let JobProgress { total, done, .. } = self.maintenance.background.at;
        let part = if place == 0 { (u128::from(done) << 16) / u128::from(total.max(1)) } else { 0 };
        Some(part.min(0xffff) as u16)
    }

    /// Goes on with the first job as far as it can at `now`, and has the drive woken when it can go on.
    #[cold]
    pub(crate) fn work_in_background<H: Host>(&mut self, now: Nanos, host: &mut H) {
        let wake = self.advance_jobs(now, host);
        self.maintenance.background.wake = wake;
        self.admin.next_expiry = self.admin.next_expiry.min(wake);
    }

    fn advance_jobs<H: Host>(&mut self, now: Nanos, host: &mut H) -> Nanos {
        while let Some(job) = self.maintenance.background.jobs.front() {
            if self.maintenance.background.at.piece.is_some() {
                return Nanos::NEVER;
            }
            if !self.maintenance.background.at.drained {
                // The end of each command in flight brings another look.
                if !self.is_drained(job.drain) {
                    return Nanos::NEVER;
                }
                self.maintenance.background.at.drained = true;
            }
            if self.maintenance.background.at.rests_until > now {
                return self.maintenance.background.at.rests_until;
            }
            if !self.next_piece(now) {
                let Some(job) = self.maintenance.background.jobs.pop_front() else { break };
                self.begin_job();
                self.job_done(now, job.kind, Status::SUCCESS, host);
            }
        }
        Nanos::NEVER
    }

    fn is_drained(&self, drain: Drain) -> bool {
        let busy = |nsid: u32| {
            let in_slot = self.slots.slots.iter().enumerate().any(|(id, s)| {
                let meets = || nsid == NSID_ALL || s.nsid == nsid || s.nsid == NSID_ALL;
                s.state != SlotState::Free && !s.internal && (meets() || self.slots.copies_from(id as u32, nsid))
            });
            in_slot || self.fetched.iter().any(|f| nsid == NSID_ALL || f.command.nsid == nsid)
        };
        match drain {
            Drain::Nothing => true,
            Drain::Namespace(nsid) => !busy(nsid),
            Drain::All => !busy(NSID_ALL),
        }
    }

    /// Begins the next piece of the first job; `false`: there is none.
    fn next_piece(&mut self, now: Nanos) -> bool {
        let Some(job) = self.maintenance.background.jobs.front_mut() else { return false };
        while job.ranges.first().is_some_and(|(_, len)| *len == 0) {
            job.ranges.remove(0);
        }
        let (op, data) = (job.op, job.data);
        let Some((offset, left)) = job.ranges.first_mut() else { return false };
        let (at, len) = (*offset, (*left).min(job.piece.into()) as u32);
        (*offset, *left) = (*offset + u64::from(len), *left - u64::from(len));
        let slot = self.slots.occupy_internal(crate::queues::queue::NONE);
        self.maintenance.background.at.piece = Some((slot, len, now));
        let (owner, nsid) = (Owner(u32::MAX), NSID_ALL);
        let io = Io { slot: SlotId(slot), owner, data, op, nsid, offset: at, len, fua: false, skip: 0 };
        self.resume(now, slot, io);
        true
    }

    /// A slot of the drive's own is free again: whether it was a job's, and then what follows.
    pub(crate) fn piece_done<H: Host>(&mut self, now: Nanos, id: u32, status: Status, host: &mut H) -> bool {
        if !self.maintenance.background.is_ours(id) {
            return false;
        }
        let Some((_, len, begun)) = self.maintenance.background.at.piece.take() else { return false };
        if status.is_success() {
            self.maintenance.background.at.done += u64::from(len);
        }
        self.maintenance.background.at.rests_until = now.saturating_add(now.saturating_sub(begun));
        let over = self.maintenance.background.at.cancelled || !status.is_success();
        if over {
            let told = !self.maintenance.background.at.cancelled;
            let kind = self.maintenance.background.jobs.front().map(|job| job.kind);
            self.maintenance.background.reached = kind.and_then(|kind| self.job_progress(kind)).unwrap_or(0);
            let Some(job) = self.maintenance.background.jobs.pop_front() else { return true };
            self.begin_job();
            if told {
                self.job_done(now, job.kind, status, host);
            }
        }
        true
    }

    /// A job has ended: whoever it was for goes on.
    fn job_done<H: Host>(&mut self, now: Nanos, kind: JobKind, status: Status, host: &mut H) {
        match kind {
            JobKind::Sanitize => self.sanitize_pass_done(now, status),
            JobKind::Namespaces(id) => self.namespace_job_done(now, id, status, host),
            JobKind::SelfTest => self.media_was_tested(now, status),
        }
    }
}
