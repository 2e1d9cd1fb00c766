//! Firmware Image Download and Firmware Commit (base 2.0, 5.12 and 5.13).

use crate::admin::{Admin, AdminOutcome};
use crate::data_pointer::check_pointer;
use crate::host::Host;
use crate::saved::section::Section;
use crate::subsystem::Subsystem;
use weir_spec::nvme::Status;
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::maintenance::{CommitDw10, persistent};
use weir_units::Nanos;

impl Subsystem {
    /// Firmware Image Download. Pieces may come in any order, and do not overlap.
    pub(crate) fn download_firmware<H: Host>(&mut self, admin: &Admin, host: &mut H) -> Result<(), Status> {
        let bytes = |dwords: u32| usize::try_from(u64::from(dwords) * 4).unwrap_or(usize::MAX);
        let (length, offset) = (bytes(admin.sqe.cdw10.get()).saturating_add(4), bytes(admin.sqe.cdw11.get()));
        self.maintenance.firmware.expect(offset, length)?;
        let mut piece = alloc::vec![0; length];
        check_pointer(&admin.data, length as u64)?;
        host.read_data(admin.owner, &admin.data, 0, &mut piece)?;
        self.maintenance.firmware.put(offset, piece);
        Ok(())
    }

    /// Firmware Commit.
    pub(crate) fn commit_firmware(&mut self, now: Nanos, admin: &Admin) -> AdminOutcome {
        let dw10 = CommitDw10(admin.sqe.cdw10.get());
        let before = self.maintenance.firmware.running();
        let committed = self.maintenance.firmware.commit(dw10);
        if committed == Ok(true) {
            self.note_event(AsyncEvent::FIRMWARE_STARTING, None);
            self.activate_firmware();
        }
        if committed.is_ok() {
            self.touch();
        }
        let status = committed.err().unwrap_or(Status::SUCCESS);
        let (action, slot) = (dw10.ca() as u8, dw10.fs() as u8);
        let after = self.maintenance.firmware.revision(slot).unwrap_or_default();
        let tail = [action, slot, status.sct(), status.sc(), 0, 0];
        self.record(now, Some(admin.c), persistent::FIRMWARE, &[&before[..], &after, &tail].concat());
        AdminOutcome::status(status)
    }

    /// A reset, or the power, is there: what was committed runs from now on.
    pub(crate) fn activate_firmware(&mut self) {
        if self.maintenance.firmware.activate() {
            self.touch();
        }
    }
}

/// The slots.
pub(crate) const SECTION: Section = Section {
    id: 3,
    version: 1,
    save: |drive, to| drive.maintenance.firmware.save(to),
    restore: |drive, from, _| drive.maintenance.firmware.restore(from),
};
