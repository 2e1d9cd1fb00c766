//! What hosts and the operator hear of an outage.

use super::{Remote, Source};
use weir_controller::{SlotId, Subsystem};
use weir_driver::link_recovery::{Admission, LinkNotice};
use weir_spec::nvme::Status;
use weir_units::Nanos;

impl Remote {
    /// What waits fails where it may not wait, and SMART says that it does.
    #[cold]
    pub(super) fn tell_hosts(&mut self, machine: &mut Subsystem, ended: &mut Vec<(SlotId, Status)>) -> bool {
        let fails = self.link.admission() == Admission::Fail;
        if fails && !self.is_noted {
            machine.note_media_fault(false);
        } else if self.is_noted && self.link.is_serving() {
            machine.note_media_restored();
        }
        self.is_noted = fails || self.is_noted && !self.link.is_serving();
        if !fails || self.waiting.is_empty() {
            return false;
        }
        ended.extend(self.waiting.drain(..).map(|transfer| (transfer.io.slot, Status::INTERNAL_PATH_ERROR)));
        true
    }

    /// Ends what waits in vain while nothing is sent: commands of hosts that have gone, which those could not come back before, and commands
    /// that one outage after the other has kept for too long.
    #[cold]
    pub(super) fn give_up(&mut self, now: Nanos, machine: &Subsystem, ended: &mut Vec<(SlotId, Status)>) -> bool {
        if self.may_send() {
            return false;
        }
        let (tmo, before) = (self.origin.source.fast_io_fail_tmo, ended.len());
        let is_late = |since: Nanos| now >= since.saturating_add(tmo);
        self.waiting.retain(|transfer| {
            let status = match machine.is_live(transfer.io.slot) {
                false => Some(Status::ABORT_REQUESTED),
                true => transfer.held_since.is_some_and(is_late).then_some(Status::INTERNAL_PATH_ERROR),
            };
            ended.extend(status.map(|status| (transfer.io.slot, status)));
            status.is_none()
        });
        ended.len() > before
    }

    pub(super) fn tell(&self, now: Nanos, notice: LinkNotice) {
        let Source { drive, target, fast_io_fail_tmo, .. } = &self.origin.source;
        let status = self.link.status(now);
        let why = status.last_cause.unwrap_or_default();
        match notice {
            LinkNotice::Lost if self.origin.identity.is_none() => {
                tracing::error!(drive, "the drive behind this one is gone, and is not connected to again: {why}");
            }
            LinkNotice::Lost => tracing::warn!(
                drive,
                "the drive behind this one is gone: {why}; it is connected to again, and commands wait for up to {fast_io_fail_tmo}"
            ),
            LinkNotice::Inaccessible => tracing::warn!(
                drive,
                "the drive behind this one cannot be accessed: {why}; commands wait for up to {fast_io_fail_tmo}"
            ),
            LinkNotice::Failing => tracing::error!(
                drive,
                "the drive behind this one is not back: {why}; commands fail until it is, and attempts go on"
            ),
            LinkNotice::AnotherDrive => tracing::error!(
                drive,
                "{why}; what was written is not on it, so commands fail until the drive of before is at {target} again"
            ),
            LinkNotice::Restored => {
                tracing::info!(drive, "the drive behind this one is back after {} attempts", status.attempts);
            }
        }
    }
}
