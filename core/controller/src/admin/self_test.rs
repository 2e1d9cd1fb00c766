//! Device Self-test (base 2.0, 5.9): the command, its segments, and its log page.

use crate::admin::{Admin, AdminOutcome};
use crate::event::Op;
use crate::maintenance::job::{Drain, Job, JobKind, NO_DATA};
use crate::maintenance::self_test::{RESULTS, RunningTest};
use crate::saved::section::Section;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_codec::{Damaged, Reader, Writer};
use weir_spec::nvme::Status;
use weir_spec::nvme::identify::NSID_ALL;
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::maintenance::{SelfTestLog, SelfTestResult, self_test, self_test_result};
use weir_units::Nanos;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes read at a time, and samples of a short test in each namespace.
pub(crate) const PIECE: u32 = 128 << 10;

pub(crate) const SAMPLES: u64 = 16;

/// Segments.
pub(crate) const SMART: u8 = 2;

pub(crate) const NONVOLATILE: u8 = 3;

pub(crate) const DATA: u8 = 6;

impl Subsystem {
    /// EDSTT: the minutes that an extended test takes, at half of 1 GiB/s.
    pub(crate) fn extended_test_minutes(&self) -> u16 {
        let bytes: u64 = self.namespaces.list.iter().flatten().map(|ns| ns.blocks << ns.shift).sum();
        (bytes / (30 << 30) + 1).min(0xffff) as u16
    }

    /// Device Self-test.
    pub(crate) fn device_self_test(&mut self, now: Nanos, admin: &Admin) -> AdminOutcome {
        let code = admin.sqe.cdw10.get() as u8 & 0xf;
        AdminOutcome::status(self.begin_self_test(now, admin, code).err().unwrap_or(Status::SUCCESS))
    }

    fn begin_self_test(&mut self, now: Nanos, admin: &Admin, code: u8) -> Result<(), Status> {
        let nsid = admin.sqe.nsid.get();
        match code {
            self_test::ABORT => {
                self.end_self_test(now, self_test_result::ABORTED);
                return Ok(());
            }
            self_test::SHORT | self_test::EXTENDED => {}
            _ => return Err(Status::INVALID_FIELD.dnr()),
        }
        if !matches!(nsid, 0 | NSID_ALL) {
            self.namespaces.active(nsid)?;
        }
        if self.maintenance.self_test.running.is_some() {
            return Err(Status::SELF_TEST_IN_PROGRESS);
        }
        let by = self.ctrl(admin.c).map(|ctrl| (admin.c, ctrl.generation));
        self.run_self_test(now, RunningTest { code, nsid, by });
        Ok(())
    }

    fn run_self_test(&mut self, now: Nanos, running: RunningTest) {
        self.maintenance.self_test.running = Some(running);
        self.touch();
        // The quick segments; the media in steps.
        if self.critical_warning() != 0 {
            return self.finish_self_test(now, Some((SMART, Status::SUCCESS)));
        }
        if self.save().len() < size_of::<u64>() {
            return self.finish_self_test(now, Some((NONVOLATILE, Status::SUCCESS)));
        }
        let tested = |n: usize| running.nsid == NSID_ALL || running.nsid == n as u32 + 1;
        let mut ranges = Vec::new();
        for (n, ns) in self.namespaces.list.iter().enumerate().filter(|(n, _)| tested(*n)) {
            let Some(ns) = ns else { continue };
            let (nsid, bytes) = (n as u32 + 1, ns.blocks << ns.shift);
            if running.code == self_test::EXTENDED {
                ranges.extend(self.namespaces.pieces(nsid, ns, 0, ns.blocks));
            } else {
                let stride = (bytes / SAMPLES) >> ns.shift << ns.shift;
                let blocks = u64::from(PIECE).min(stride) >> ns.shift;
                let sample = |i: u64| self.namespaces.pieces(nsid, ns, (i * stride) >> ns.shift, blocks);
                ranges.extend((0..SAMPLES).flat_map(sample));
            }
        }
        let (kind, drain) = (JobKind::SelfTest, Drain::Nothing);
        self.start_job(Job { kind, op: Op::Verify, data: NO_DATA, ranges, piece: PIECE, drain });
    }

    /// Everything is restored: an extended test that was under way begins anew, a short one was ended by the power.
    pub(crate) fn resume_self_test(&mut self) {
        match self.maintenance.self_test.running {
            Some(running) if running.code == self_test::EXTENDED => self.run_self_test(self.power.on_since, running),
            _ => self.end_self_test(self.power.on_since, self_test_result::ABORTED_BY_RESET),
        }
    }

    /// The media was read, or could not be.
    pub(crate) fn media_was_tested(&mut self, now: Nanos, status: Status) {
        let failed = if status.is_success() {
            (self.critical_warning() != 0).then_some((9, Status::SUCCESS))
        } else {
            Some((DATA, status))
        };
        self.finish_self_test(now, failed);
    }

    fn finish_self_test(&mut self, now: Nanos, failed: Option<(u8, Status)>) {
        let mut result = SelfTestResult { status: self_test_result::PASSED, ..Default::default() };
        if let Some((segment, status)) = failed {
            (result.status, result.segment) = (self_test_result::SEGMENT_FAILED, segment);
            if !status.is_success() {
                (result.sct, result.sc, result.valid) = (status.sct(), status.sc(), 0b1100);
            }
            self.note_event(AsyncEvent::DIAGNOSTIC_FAILURE, None);
        }
        self.push_result(now, result);
    }

    /// Ends the test under way, if there is one, for one of the reasons of [`self_test_result`].
    pub(crate) fn end_self_test(&mut self, now: Nanos, reason: u8) {
        if self.maintenance.self_test.running.is_some() {
            self.cancel_job(JobKind::SelfTest);
            self.push_result(now, SelfTestResult { status: reason, ..Default::default() });
        }
    }

    /// A controller is reset, or gone: a short test that it began ends.
    pub(crate) fn reset_ends_self_test(&mut self, now: Nanos, c: u32) {
        let by = self.ctrl(c).map(|ctrl| (c, ctrl.generation));
        let ends = |r: &RunningTest| r.code == self_test::SHORT && r.by.is_some() && r.by == by;
        if self.maintenance.self_test.running.as_ref().is_some_and(ends) {
            self.end_self_test(now, self_test_result::ABORTED_BY_RESET);
        }
    }

    fn push_result(&mut self, now: Nanos, mut result: SelfTestResult) {
        let Some(running) = self.maintenance.self_test.running.take() else { return };
        result.status |= running.code << 4;
        result.poh = U64::new(self.power_on_hours(now));
        if !matches!(running.nsid, 0 | NSID_ALL) {
            (result.nsid, result.valid) = (U32::new(running.nsid), result.valid | 1);
        }
        self.maintenance.self_test.results.truncate(RESULTS - 1);
        self.maintenance.self_test.results.push_front(result);
        self.touch();
    }

    /// The self-test log page.
    pub(crate) fn self_test_log(&self) -> SelfTestLog {
        let mut page = SelfTestLog::default();
        if let Some(running) = self.maintenance.self_test.running {
            page.current = running.code;
            let part = self.job_progress(JobKind::SelfTest).unwrap_or(0);
            page.completion = ((u32::from(part) * 100) >> 16) as u8;
        }
        for (i, to) in page.results.iter_mut().enumerate() {
            let unused = SelfTestResult { status: self_test_result::UNUSED, ..Default::default() };
            *to = self.maintenance.self_test.results.get(i).copied().unwrap_or(unused);
        }
        page
    }
}

/// The results, and an extended test that was under way.
pub(crate) const SECTION: Section = Section { id: 5, version: 1, save, restore };

pub(crate) fn save(drive: &Subsystem, to: &mut Writer) {
    let test = &drive.maintenance.self_test;
    if test.results.is_empty() && test.running.is_none() {
        return;
    }
    let running = test.running.as_ref();
    to.u8(running.map_or(0, |r| r.code));
    to.u32(running.map_or(0, |r| r.nsid));
    to.u8(test.results.len() as u8);
    test.results.iter().for_each(|result| to.array(result.as_bytes()));
}

pub(crate) fn restore(drive: &mut Subsystem, from: &mut Reader<'_>, _: u16) -> Result<(), Damaged> {
    let (code, nsid, count) = (from.u8()?, from.u32()?, from.u8()?);
    if usize::from(count) > RESULTS || code > self_test::EXTENDED {
        return Err(Damaged);
    }
    for _ in 0..count {
        let bytes: [u8; size_of::<SelfTestResult>()] = from.array()?;
        drive.maintenance.self_test.results.push_back(SelfTestResult::read_from_bytes(&bytes).map_err(|_| Damaged)?);
    }
    drive.maintenance.self_test.running = (code != 0).then_some(RunningTest { code, nsid, by: None });
    Ok(())
}
