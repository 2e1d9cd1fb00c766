//! Command and feature lockdown (base 2.0, 5.19 and 8.4): prohibitions last until they are lifted or the power goes.

use super::commands::ADMIN;
use super::feature::FEATURES;
use super::{Admin, AdminOutcome};
use crate::subsystem::Subsystem;
use alloc::collections::BTreeSet;
use weir_spec::nvme::maintenance::{LockdownDw10, LockdownLog, lockdown};
use weir_spec::nvme::{AdminOpcode, Status};

impl Subsystem {
    /// Lockdown.
    pub(super) fn lockdown(&mut self, admin: &Admin) -> AdminOutcome {
        AdminOutcome::status(self.lock(LockdownDw10(admin.sqe.cdw10.get())).err().unwrap_or(Status::SUCCESS))
    }

    fn lock(&mut self, dw10: LockdownDw10) -> Result<(), Status> {
        // There is no management endpoint.
        if dw10.ifc() > 1 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let id = dw10.ofi() as u8;
        if !can_prohibit(dw10.scp()).ok_or(Status::INVALID_FIELD.dnr())?.contains(&id) {
            return Err(Status::LOCKDOWN_NOT_SUPPORTED.dnr());
        }
        let list = if dw10.scp() == lockdown::ADMIN {
            &mut self.maintenance.prohibited.opcodes
        } else {
            &mut self.maintenance.prohibited.features
        };
        if dw10.prhbt() == 1 {
            list.insert(id)
        } else {
            list.remove(&id)
        };
        Ok(())
    }

    /// Whether a command is not prohibited.
    pub(super) fn admits_lockdown(&self, admin: &Admin) -> Result<(), Status> {
        let feature = admin.sqe.opcode == AdminOpcode::SET_FEATURES.0;
        let prohibited = self.maintenance.prohibited.opcodes.contains(&admin.sqe.opcode)
            || feature && self.maintenance.prohibited.features.contains(&(admin.sqe.cdw10.get() as u8));
        if prohibited { Err(Status::PROHIBITED_BY_LOCKDOWN.dnr()) } else { Ok(()) }
    }

    /// The lockdown log page of a scope (LSP bits 3:0) and contents (5:4).
    pub(super) fn lockdown_log(&self, lsp: u8) -> Result<LockdownLog, Status> {
        let (scope, contents) = (u32::from(lsp & 0xf), lsp >> 4 & 3);
        let supported = can_prohibit(scope).ok_or(Status::INVALID_FIELD.dnr())?;
        let list = match (contents, scope) {
            (lockdown::SUPPORTED, _) => supported,
            (lockdown::PROHIBITED, lockdown::ADMIN) => self.maintenance.prohibited.opcodes.clone(),
            (lockdown::PROHIBITED, _) => self.maintenance.prohibited.features.clone(),
            (lockdown::OUT_OF_BAND, _) => BTreeSet::new(),
            _ => return Err(Status::INVALID_FIELD.dnr()),
        };
        let mut page = LockdownLog { attributes: lsp & 0x3f, length: list.len() as u8, ..Default::default() };
        page.list.iter_mut().zip(&list).for_each(|(to, id)| *to = *id);
        Ok(page)
    }
}

/// What can be prohibited in a scope; `None`: there is no such scope here.
fn can_prohibit(scope: u32) -> Option<BTreeSet<u8>> {
    match scope {
        lockdown::ADMIN => Some(ADMIN.iter().filter(|e| e.lockable).map(|e| e.opcode.0).collect()),
        lockdown::FEATURE => Some(FEATURES.iter().map(|e| e.fid).collect()),
        _ => None,
    }
}
