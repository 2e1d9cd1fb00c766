//! Sanitize (base 2.0, 5.24): the command, its passes, and what is refused meanwhile.

use crate::admin::{Admin, AdminOutcome};
use crate::event::Op;
use crate::host::DataPointer;
use crate::maintenance::job::{Drain, Job, JobKind, NO_DATA};
use crate::maintenance::sanitize::{CAPABILITIES, Sanitize, SanitizeState};
use crate::namespace::why;
use crate::queues::queue::NONE;
use crate::saved::section::Section;
use crate::subsystem::Subsystem;
use alloc::vec;
use alloc::vec::Vec;
use weir_codec::{Damaged, Reader, Writer};
use weir_flash::{Selection, ZoneAction};
use weir_spec::nvme::identify::NSID_ALL;
use weir_spec::nvme::log::{AsyncEvent, SanitizeStatus, lid, sanitize_status};
use weir_spec::nvme::maintenance::{persistent, self_test_result};
use weir_spec::nvme::sanitize::{SanitizeDw10, action};
use weir_spec::nvme::{AdminOpcode, Status};
use weir_units::Nanos;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

/// Bytes of an overwriting piece, and of one that deallocates: what a drive does between two commands of its hosts.
pub(crate) const OVERWRITE_PIECE: u32 = 256 << 10;

pub(crate) const ERASE_PIECE: u32 = 2 << 20;

/// Log pages that are answered during an operation (base 2.0, Figure 268).
pub(crate) const PAGES: [u8; 5] = [lid::ERROR, lid::SMART, lid::CHANGED_NAMESPACES, lid::RESERVATION, lid::SANITIZE];

impl Subsystem {
    /// Whether the drive can be sanitized: the addresses of one with a vendor's commands are not its media's.
    pub(crate) fn can_sanitize(&self) -> bool {
        self.vendor.0.is_none()
    }

    /// Whether an admin command is served while an operation is under way or has failed.
    pub(crate) fn admits_beside_sanitize(&self, admin: &Admin, sanitizing: bool) -> Result<(), Status> {
        let Some(status) = self.maintenance.sanitize.bar() else { return Ok(()) };
        let opcode = AdminOpcode(admin.sqe.opcode);
        let page = opcode != AdminOpcode::GET_LOG_PAGE || PAGES.contains(&(admin.sqe.cdw10.get() as u8));
        if sanitizing && page { Ok(()) } else { Err(status) }
    }

    /// Sanitize.
    pub(crate) fn sanitize(&mut self, now: Nanos, admin: &Admin) -> AdminOutcome {
        AdminOutcome::status(self.begin_sanitize(now, admin).err().unwrap_or(Status::SUCCESS))
    }

    fn begin_sanitize(&mut self, now: Nanos, admin: &Admin) -> Result<(), Status> {
        let dw10 = SanitizeDw10(admin.sqe.cdw10.get());
        self.check_unreserved(admin.c, NSID_ALL)?;
        let failed = self.maintenance.sanitize.state == SanitizeState::Failed;
        // A restricted operation that failed is only left by one that is restricted as well and succeeds.
        let restricted = failed && SanitizeDw10(self.maintenance.sanitize.dw10).ause() == 0;
        if self.maintenance.sanitize.state == SanitizeState::Running {
            return Err(Status::SANITIZE_IN_PROGRESS);
        }
        match dw10.sanact() {
            action::EXIT_FAILURE if restricted => return Err(Status::SANITIZE_FAILED.dnr()),
            action::EXIT_FAILURE => {
                if failed {
                    self.maintenance.sanitize.state = SanitizeState::Never;
                    self.bar_all();
                    self.touch();
                }
                return Ok(());
            }
            action::BLOCK_ERASE | action::OVERWRITE | action::CRYPTO_ERASE => {}
            _ => return Err(Status::INVALID_FIELD.dnr()),
        }
        if restricted && dw10.ause() == 1 {
            return Err(Status::SANITIZE_FAILED.dnr());
        }
        if self.namespaces.list.iter().flatten().any(|ns| ns.protect != 0) {
            return Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
        }
        if !self.namespaces.jobs.is_empty() {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        if self.maintenance.firmware.is_pending() {
            return Err(Status::FIRMWARE_NEEDS_CONTROLLER_RESET.dnr());
        }
        self.end_self_test(now, self_test_result::ABORTED_BY_SANITIZE);
        let pattern = admin.sqe.cdw11.get();
        let event: Vec<u8> = [CAPABILITIES, dw10.0, pattern].into_iter().flat_map(u32::to_le_bytes).collect();
        self.record(now, Some(admin.c), persistent::SANITIZE_START, &event);
        self.maintenance.sanitize =
            Sanitize { state: SanitizeState::Running, dw10: dw10.0, pattern, passes: 0, written: None };
        self.touch();
        self.next_pass();
        Ok(())
    }

    /// Begins the pass that is due; I/O is refused from now on.
    fn next_pass(&mut self) {
        self.bar_all();
        let Sanitize { dw10, pattern, passes, .. } = self.maintenance.sanitize;
        let dw10 = SanitizeDw10(dw10);
        let overwrites = dw10.sanact() == action::OVERWRITE && passes < dw10.passes();
        let inverted = dw10.oipbp() == 1 && passes % 2 == 1;
        let (op, data, piece) = if overwrites {
            (Op::Write, DataPointer::pattern(if inverted { !pattern } else { pattern }), OVERWRITE_PIECE)
        } else if dw10.ndas() == 1 {
            (Op::WriteZeroes { deallocate: false }, NO_DATA, OVERWRITE_PIECE)
        } else {
            (Op::Deallocate, NO_DATA, ERASE_PIECE)
        };
        let ranges = vec![(0, self.media_end())];
        self.start_job(Job { kind: JobKind::Sanitize, op, data, ranges, piece, drain: Drain::All });
    }

    /// A pass has ended.
    pub(crate) fn sanitize_pass_done(&mut self, now: Nanos, status: Status) {
        if !status.is_success() {
            self.maintenance.sanitize.state = SanitizeState::Failed;
        } else {
            self.maintenance.sanitize.passes += 1;
            if self.maintenance.sanitize.passes < self.maintenance.sanitize.all_passes() {
                self.touch();
                return self.next_pass();
            }
            self.empty_zones(now);
            (1..=self.namespaces.list.len() as u32).for_each(|nsid| self.make_readable(nsid));
            self.maintenance.sanitize.state = SanitizeState::Done;
            self.maintenance.sanitize.written = Some(self.total_work().write_bytes);
        }
        self.bar_all();
        let status = self.sanitize_status();
        let mut event = [0; 8];
        event[..2].copy_from_slice(status.sprog.as_bytes());
        event[2..4].copy_from_slice(status.sstat.as_bytes());
        self.record(now, None, persistent::SANITIZE_END, &event);
        self.note_event(AsyncEvent::SANITIZE_COMPLETED, None);
    }

    /// Zones are empty, and nothing of what hosts said of them is left (ZNS 1.1, 5.2).
    fn empty_zones(&mut self, now: Nanos) {
        for space in &mut self.zoned {
            // Zones that are read only or offline stay so.
            let _ = space.engine.manage(now, ZoneAction::Reset, Selection::All);
            space.zones_mut().clear_extensions();
        }
    }

    /// Namespaces are barred as the state of the sanitize operation demands.
    fn bar_all(&mut self) {
        let status = self.maintenance.sanitize.bar();
        for nsid in 1..=self.namespaces.list.len() as u32 {
            self.bar(nsid, status);
        }
    }

    /// Refuses every I/O command of a namespace but Flush with that status from now on, also of those that wait for a slot.
    pub(crate) fn bar(&mut self, nsid: u32, status: Option<Status>) {
        if let Some(ns) = self.namespaces.list.get_mut(nsid.wrapping_sub(1) as usize).and_then(Option::as_mut) {
            ns.barred = status;
            ns.why = if status.is_some() { ns.why | why::BARRED } else { ns.why & !why::BARRED };
            for f in self.fetched.iter_mut().filter(|f| f.command.nsid == nsid) {
                f.plan.slow |= ns.is_slow();
            }
        }
    }

    /// Everything is restored: an operation that was under way goes on, I/O is refused where it was.
    pub(crate) fn resume_sanitize(&mut self) {
        if self.maintenance.sanitize.state == SanitizeState::Running {
            self.next_pass();
        }
        self.bar_all();
    }

    /// Where the media ends, in bytes: also that which no namespace has.
    fn media_end(&self) -> u64 {
        if let Some(allocator) = &self.namespaces.allocator {
            return allocator.capacity();
        }
        self.namespaces.list.iter().flatten().map(|ns| ns.start + (ns.blocks << ns.shift)).max().unwrap_or(0)
    }

    /// The sanitize status log page.
    pub(crate) fn sanitize_status(&self) -> SanitizeStatus {
        let Sanitize { state, dw10, passes, written, .. } = self.maintenance.sanitize;
        let part = u32::from(self.job_progress(JobKind::Sanitize).unwrap_or(0));
        let progress = (passes * 65536 + part) / self.maintenance.sanitize.all_passes();
        let running = state == SanitizeState::Running;
        let status = match state {
            SanitizeState::Never => sanitize_status::NEVER,
            SanitizeState::Done => sanitize_status::DONE,
            SanitizeState::Running => sanitize_status::IN_PROGRESS,
            SanitizeState::Failed => sanitize_status::FAILED,
        };
        let overwrites = SanitizeDw10(dw10).sanact() == action::OVERWRITE;
        let passes = if overwrites { passes.min(SanitizeDw10(dw10).passes()) as u16 } else { 0 };
        let untouched = written == Some(self.total_work().write_bytes) && state == SanitizeState::Done;
        let unknown = U32::new(NONE);
        SanitizeStatus {
            sprog: U16::new(if running { progress.min(0xfffe) as u16 } else { 0xffff }),
            sstat: U16::new(status | passes << 3 | if untouched { sanitize_status::ERASED } else { 0 }),
            scdw10: U32::new(dw10),
            overwrite_time: unknown,
            block_erase_time: unknown,
            crypto_erase_time: unknown,
            overwrite_time_kept: unknown,
            block_erase_time_kept: unknown,
            crypto_erase_time_kept: unknown,
            ..SanitizeStatus::default()
        }
    }
}

/// What is remembered of it.
pub(crate) const SECTION: Section = Section { id: 4, version: 1, save, restore };

pub(crate) fn save(drive: &Subsystem, to: &mut Writer) {
    let Sanitize { state, dw10, pattern, passes, written } = drive.maintenance.sanitize;
    if state != SanitizeState::Never || dw10 != 0 {
        to.u8(match state {
            SanitizeState::Never => 0,
            SanitizeState::Done => 1,
            SanitizeState::Running => 2,
            SanitizeState::Failed => 3,
        });
        // Whether nothing was written since.
        to.u8(u8::from(written == Some(drive.total_work().write_bytes)));
        to.words([dw10, pattern, passes]);
    }
}

pub(crate) fn restore(drive: &mut Subsystem, from: &mut Reader<'_>, _: u16) -> Result<(), Damaged> {
    let state = match from.u8()? {
        0 => SanitizeState::Never,
        1 => SanitizeState::Done,
        2 => SanitizeState::Running,
        3 => SanitizeState::Failed,
        _ => return Err(Damaged),
    };
    let erased = from.u8()? == 1;
    let (dw10, pattern, passes) = (from.u32()?, from.u32()?, from.u32()?);
    let written = erased.then(|| drive.total_work().write_bytes);
    drive.maintenance.sanitize = Sanitize { state, dw10, pattern, passes, written };
    if state == SanitizeState::Running && passes >= drive.maintenance.sanitize.all_passes() {
        return Err(Damaged);
    }
    Ok(())
}
