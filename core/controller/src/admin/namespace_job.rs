//! Creating, deleting, formatting and write protecting namespaces: from the command that asks for it to the end of the work.

use crate::admin::Admin;
use crate::admin::exactly_once::CountedCommand;
use crate::event::Op;
use crate::host::Host;
use crate::maintenance::job::{Drain, Job, JobKind, NO_DATA};
use crate::namespace::metadata::Format;
use crate::namespace::namespace_job::{NamespaceJob, Task};
use crate::queues::command::flag;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_spec::nvme::Status;
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::maintenance::self_test_result;
use weir_spec::nvme::namespace::write_protect;
use weir_units::Nanos;

/// Bytes that one step erases.
pub(crate) const PIECE: u32 = 64 << 20;

impl Subsystem {
    /// Begins work for an admin command, which is kept until it is done. `ranges` of the media are zeroes then.
    pub(crate) fn start_namespace_job(
        &mut self,
        task: Task,
        nsids: &[u32],
        ranges: Vec<(u64, u64)>,
        (admin, result): (&Admin, u64),
    ) {
        let id = self.namespaces.next_job;
        self.namespaces.next_job = id.wrapping_add(1);
        for nsid in nsids {
            match task {
                Task::Create { .. } => {}
                Task::Delete => self.hide_namespace(*nsid),
                Task::Format { .. } => self.bar(*nsid, Some(Status::FORMAT_IN_PROGRESS)),
                Task::Protect { state } => self.protect(*nsid, state),
            }
        }
        let drain = match (task, nsids) {
            (Task::Create { .. }, _) => Drain::Nothing,
            (_, [nsid]) => Drain::Namespace(*nsid),
            _ => Drain::All,
        };
        let flushes = matches!(task, Task::Protect { .. });
        let (op, ranges) =
            if flushes { (Op::Flush, alloc::vec![(0, 1)]) } else { (Op::WriteZeroes { deallocate: true }, ranges) };
        let waiter = Some((admin.q, admin.sqe.cid.get(), admin.tag));
        let (asked, cdw10) = (admin.sqe.nsid.get(), admin.sqe.cdw10.get());
        let life = self.ctrl(admin.c).map_or(0, |ctrl| ctrl.life);
        let by = (life, CountedCommand { number: admin.number, sqe: admin.sqe });
        let job = NamespaceJob { id, task, nsids: nsids.to_vec(), waiter, by, result, asked, cdw10 };
        if matches!(task, Task::Format { .. }) {
            self.end_self_test(self.power.counted, self_test_result::ABORTED_BY_FORMAT);
            self.record_format(self.power.counted, admin.c, &job);
        }
        self.namespaces.jobs.push(job);
        self.start_job(Job { kind: JobKind::Namespaces(id), op, data: NO_DATA, ranges, piece: PIECE, drain });
    }

    /// Nobody has it attached any more.
    pub(crate) fn hide_namespace(&mut self, nsid: u32) {
        let attached: Vec<u32> = self.attached_to(nsid).collect();
        for c in attached {
            if let Some(ctrl) = self.ctrl_mut(c) {
                ctrl.namespaces.set(nsid, false);
            }
            self.note_event_of(c, AsyncEvent::NAMESPACE_ATTRIBUTE, nsid);
        }
        self.refresh_guard(nsid);
    }

    /// The job of a job has ended.
    pub(crate) fn namespace_job_done<H: Host>(&mut self, now: Nanos, id: u32, status: Status, host: &mut H) {
        let Some(at) = self.namespaces.jobs.iter().position(|job| job.id == id) else { return };
        let left = if status.is_success() { 0 } else { percent_left(self.maintenance.background.reached) };
        let job = self.namespaces.jobs.remove(at);
        if job.task == Task::Delete {
            self.record_namespace_job(now, &job, (status, left));
        }
        for nsid in &job.nsids {
            match job.task {
                Task::Create { format, shift } if status.is_success() => self.place_namespace(*nsid, format, shift),
                Task::Create { .. } | Task::Delete => self.remove_namespace(*nsid),
                Task::Format { format, shift } => {
                    self.bar(*nsid, None);
                    if status.is_success() {
                        self.reformat(*nsid, format, shift);
                    }
                }
                Task::Protect { .. } if status.is_success() => {}
                Task::Protect { .. } => self.protect(*nsid, write_protect::NONE as u8),
            }
        }
        if job.task != Task::Delete {
            self.record_namespace_job(now, &job, (status, left));
        }
        self.relaid_now();
        let result = if status.is_success() { job.result } else { 0 };
        self.admin.executed.note(job.by.0, job.by.1, status, result);
        if let Some((q, cid, tag)) = job.waiter {
            if !status.is_success() {
                self.log_error(q, cid, status, (0, job.nsids.first().copied().unwrap_or(0)));
            }
            self.finish(q, cid, tag, status, result, host);
        }
    }

    /// The namespace that a host has created; no controller has it attached.
    fn place_namespace(&mut self, nsid: u32, format: Format, shift: u32) {
        self.namespaces.created += 1;
        let uuid = self.new_uuid(nsid);
        if let Some(ns) = self.namespaces.laid_out(nsid, format, shift, uuid) {
            if let Some(place) = self.namespaces.list.get_mut(nsid as usize - 1) {
                *place = Some(ns);
            }
        }
        self.controllers.list.iter_mut().flatten().for_each(|ctrl| ctrl.namespaces.set(nsid, false));
        self.refresh_guard(nsid);
        self.refresh_ana();
    }

    fn remove_namespace(&mut self, nsid: u32) {
        self.forget_namespace(nsid);
        if let Some(place) = self.namespaces.list.get_mut(nsid as usize - 1) {
            *place = None;
        }
        if let Some(allocator) = &mut self.namespaces.allocator {
            allocator.release(nsid);
        }
        self.namespaces.records.remove(&nsid);
        self.config.namespaces.retain(|ns| ns.nsid != nsid);
    }

    fn reformat(&mut self, nsid: u32, format: Format, shift: u32) {
        let Some(bytes) = self.namespaces.records.get(&nsid).map(|record| record.bytes) else { return };
        self.make_readable(nsid);
        if let Some(ns) = self.namespaces.get_mut(nsid) {
            (ns.format, ns.shift, ns.blocks) = (format, shift, bytes >> shift);
        }
        // Requests of doors that speak no NVMe were counted in the old blocks.
        for command in self.queues.sqs.iter_mut().flatten().filter(|sq| sq.front).flat_map(|sq| sq.pending.iter_mut()) {
            if command.nsid == nsid {
                command.flags |= flag::RAGGED;
            }
        }
        self.refresh_guard(nsid);
        let attached: Vec<u32> = self.attached_to(nsid).collect();
        attached.into_iter().for_each(|c| self.note_event_of(c, AsyncEvent::NAMESPACE_ATTRIBUTE, nsid));
    }

    /// A UUID that no other namespace has: of version 8 (RFC 9562), from the drive's name and a count.
    fn new_uuid(&self, nsid: u32) -> [u8; 16] {
        let salt = [&nsid.to_le_bytes()[..], &self.namespaces.created.to_le_bytes()].concat();
        let bytes = || self.config.subnqn.bytes().chain(salt.iter().copied());
        let hash = |seed: u64| bytes().fold(seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&hash(0xcbf2_9ce4_8422_2325).to_be_bytes());
        uuid[8..].copy_from_slice(&hash(0x8422_2325_cbf2_9ce4).to_be_bytes());
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    }

    /// What the drive remembers of its namespaces has changed.
    pub(crate) fn relaid_now(&mut self) {
        self.namespaces.changed = true;
        self.touch();
    }

    /// How much of a namespace is still to be formatted, in percent; 0 where it is not being formatted.
    pub(crate) fn left_to_format(&self, nsid: u32) -> u8 {
        let formats = |job: &&NamespaceJob| matches!(job.task, Task::Format { .. }) && job.nsids.contains(&nsid);
        let progress =
            self.namespaces.jobs.iter().find(formats).map(|job| self.job_progress(JobKind::Namespaces(job.id)));
        progress.map_or(0, |done| percent_left(done.unwrap_or(0)))
    }

    /// The admin commands of a queue that are kept will not be answered any more.
    pub(crate) fn forget_waiters(&mut self, q: u32) {
        for job in self.namespaces.jobs.iter_mut().filter(|job| job.waiter.is_some_and(|(queue, ..)| queue == q)) {
            job.waiter = None;
        }
    }

    /// Admin commands of a queue that are kept.
    pub(crate) fn kept_for(&self, q: u32) -> usize {
        self.namespaces.jobs.iter().filter(|job| job.waiter.is_some_and(|(queue, ..)| queue == q)).count()
    }
}

/// What is left in percent, of work of which so much of 65536 is done.
pub(crate) fn percent_left(done: u16) -> u8 {
    100 - ((u32::from(done) * 100) >> 16) as u8
}
