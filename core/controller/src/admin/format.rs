//! Format NVM (base 2.0, 5.14; NVM 1.0, 4.1.4) and Namespace Write Protection Config (feature 84h; base 2.0, 8.12).

use super::{Admin, AdminOutcome};
use crate::controller::Transport;
use crate::namespace::namespace_job::Task;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_spec::nvme::Status;
use weir_spec::nvme::feature::FeatureDw10;
use weir_spec::nvme::identify::NSID_ALL;
use weir_spec::nvme::namespace::{FormatDw10, WriteProtect, secure_erase, write_protect};

const INVALID: Status = Status::INVALID_FIELD.dnr();

impl Subsystem {
    /// Format NVM: one namespace, or all that the controller has attached. It is complete when it is done; commands for these
    /// namespaces are refused meanwhile.
    pub(super) fn format_nvm(&mut self, admin: &Admin) -> AdminOutcome {
        self.begin_format(admin).unwrap_or_else(AdminOutcome::status)
    }

    fn begin_format(&mut self, admin: &Admin) -> Result<AdminOutcome, Status> {
        let nsids = self.attached_of(admin)?;
        let dw10 = FormatDw10(admin.sqe.cdw10.get());
        if dw10.ses() > secure_erase::CRYPTO {
            return Err(INVALID);
        }
        let (format, shift) = self.format_of(dw10.format(), dw10.mset() == 1, dw10.pi() as u8, dw10.pil() == 1)?;
        let fabrics = self.ctrl(admin.c).is_some_and(|ctrl| ctrl.transport == Transport::Fabrics);
        if fabrics && format.metadata > 0 && !format.extended {
            return Err(Status::INVALID_FORMAT.dnr());
        }
        let mut ranges = Vec::new();
        for nsid in &nsids {
            let present = self.visible(admin.c, *nsid)?.format;
            if ![format, present].iter().all(|format| self.knows_format(admin.c, format)) {
                return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
            }
            if self.namespaces.is_busy(*nsid) {
                return Err(Status::FORMAT_IN_PROGRESS);
            }
            self.check_unprotected(*nsid)?;
            self.check_unreserved(admin.c, *nsid)?;
            ranges.extend(self.namespaces.allocator.as_ref().map_or(Vec::new(), |allocator| allocator.extents(*nsid)));
        }
        self.start_namespace_job(Task::Format { format, shift }, &nsids, ranges, (admin, 0));
        Ok(AdminOutcome::Parked)
    }

    /// The namespaces that an admin command of a controller is for.
    fn attached_of(&self, admin: &Admin) -> Result<Vec<u32>, Status> {
        match admin.sqe.nsid.get() {
            NSID_ALL => {
                let all = self.namespaces.nsids();
                Ok(all.filter(|nsid| self.is_attached(admin.c, *nsid)).collect())
            }
            nsid => self.visible(admin.c, nsid).map(|_| alloc::vec![nsid]),
        }
    }

    /// The state of a namespace's write protection.
    pub(super) fn write_protection(&self, admin: &Admin, current: bool) -> Result<u32, Status> {
        let nsid = admin.sqe.nsid.get();
        if nsid == NSID_ALL {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
        }
        let ns = self.visible(admin.c, nsid)?;
        Ok(if current { ns.protect.into() } else { write_protect::NONE })
    }

    /// Changes it; what is in the volatile write cache is written first (base 2.0, 8.12.1).
    pub(super) fn set_write_protection(&mut self, admin: &Admin) -> AdminOutcome {
        self.begin_write_protection(admin).unwrap_or_else(AdminOutcome::status)
    }

    fn begin_write_protection(&mut self, admin: &Admin) -> Result<AdminOutcome, Status> {
        if FeatureDw10(admin.sqe.cdw10.get()).sv() == 1 {
            return Err(Status::FEATURE_NOT_SAVEABLE.dnr());
        }
        let state = WriteProtect(admin.sqe.cdw11.get()).state();
        if state > write_protect::PERMANENT {
            return Err(INVALID);
        }
        let nsids = self.attached_of(admin)?;
        let protect = |nsid: &u32| self.visible(admin.c, *nsid).map_or(0, |ns| u32::from(ns.protect));
        // One that lasts cannot be taken back.
        let lasts = |now: u32| now >= write_protect::UNTIL_POWER_CYCLE && now != state;
        if nsids.iter().map(protect).any(lasts) {
            return Err(Status::FEATURE_NOT_CHANGEABLE.dnr());
        }
        if nsids.iter().any(|nsid| self.namespaces.is_busy(*nsid)) {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        if nsids.iter().map(protect).all(|now| now == state) {
            return Ok(AdminOutcome::status(Status::SUCCESS));
        }
        if state == write_protect::NONE {
            nsids.iter().for_each(|nsid| self.protect(*nsid, state as u8));
            return Ok(AdminOutcome::status(Status::SUCCESS));
        }
        self.start_namespace_job(Task::Protect { state: state as u8 }, &nsids, Vec::new(), (admin, 0));
        Ok(AdminOutcome::Parked)
    }

    pub(crate) fn protect(&mut self, nsid: u32, state: u8) {
        if let Some(ns) = self.namespaces.get_mut(nsid) {
            ns.protect = state;
        }
        self.refresh_guard(nsid);
        self.note_event(weir_spec::nvme::log::AsyncEvent::NAMESPACE_ATTRIBUTE, Some(nsid));
        self.relaid_now();
    }
}
