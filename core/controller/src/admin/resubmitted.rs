//! Admin commands of rings that come again after a crash: those that are done already are answered as they were.

use crate::admin::exactly_once::CountedCommand;
use crate::admin::{Admin, AdminOutcome};
use crate::event::ControllerHandle;
use crate::saved::section::Section;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_spec::nvme::AdminOpcode;
use weir_spec::nvme::identify::NSID_ALL;
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::namespace::management;

/// Those that are done.
pub(crate) const SECTION: Section = Section {
    id: 7,
    version: 1,
    save: |drive, to| drive.admin.executed.save(to),
    restore: |drive, from, _| drive.admin.executed.restore(from),
};

impl Subsystem {
    /// Whether anything is noted here.
    #[inline]
    pub fn has_executed(&self) -> bool {
        !self.admin.executed.is_empty()
    }

    /// What this controller's commands have changed is in a checkpoint that outlives the process: those that it has taken do not come again. What is
    /// written of them says nothing then, and goes with the next write.
    pub fn checkpointed(&mut self, controller: ControllerHandle) {
        if let Some(ctrl) = self.resolve(controller).and_then(|c| self.ctrl(c)) {
            let (life, taken) = (ctrl.life, ctrl.taken);
            self.admin.executed.forget_first(life, taken);
        }
    }

    /// This controller does not outlive the process: nothing of it comes again.
    pub fn ends_with_process(&mut self, controller: ControllerHandle) {
        let Some(ctrl) = self.resolve(controller).and_then(|c| self.ctrl_mut(c)) else { return };
        let life = core::mem::take(&mut ctrl.life);
        self.admin.executed.forget(life);
    }

    /// Every controller that comes from another process is here: of the others nothing comes again.
    pub fn forget_absent(&mut self) {
        let lives: Vec<u64> = self.controllers.list.iter().flatten().map(|ctrl| ctrl.life).collect();
        self.admin.executed.forget_others(&lives);
    }

    /// A ring controller is reset: what its host asks for after that is something else, though it may look the same.
    pub(crate) fn begin_again(&mut self, c: u32) {
        let Some(ctrl) = self.ctrl_mut(c).filter(|ctrl| ctrl.life != 0) else { return };
        // No number of before comes again, not even from a state of the drive that was written then.
        ctrl.taken = (ctrl.taken | 0xffff) + 1;
        let life = ctrl.life;
        self.admin.executed.forget(life);
    }

    /// What an admin command was answered before a crash, if it was executed then.
    pub(crate) fn was_executed(&mut self, admin: &Admin) -> Option<AdminOutcome> {
        if self.admin.executed.is_empty() || admin.number == 0 {
            return None;
        }
        let life = self.ctrl(admin.c)?.life;
        let done = self.admin.executed.find(life, CountedCommand { number: admin.number, sqe: admin.sqe })?;
        if done.status.is_success() {
            self.tell_again(admin);
        }
        Some(AdminOutcome::Done(done.status, done.result))
    }

    /// Hosts may not have been told of what a command has changed, and are told again.
    fn tell_again(&mut self, admin: &Admin) {
        let deletes = match AdminOpcode(admin.sqe.opcode) {
            AdminOpcode::NAMESPACE_MANAGEMENT if admin.sqe.cdw10.get() & 0xf == management::DELETE => true,
            AdminOpcode::NAMESPACE_ATTACHMENT | AdminOpcode::FORMAT_NVM => false,
            _ => return,
        };
        let nsids = match admin.sqe.nsid.get() {
            NSID_ALL => 1..=self.namespaces.list.len() as u32,
            nsid => nsid..=nsid,
        };
        for nsid in nsids {
            match (deletes, self.namespaces.active(nsid).is_ok()) {
                (true, false) => self.hide_namespace(nsid),
                (false, true) => {
                    let sees = |c: &u32| *c == admin.c || self.is_attached(*c, nsid);
                    let told: Vec<u32> = (0..self.controllers.list.len() as u32).filter(sees).collect();
                    told.into_iter().for_each(|c| self.note_event_of(c, AsyncEvent::NAMESPACE_ATTRIBUTE, nsid));
                }
                // There is another one of that identifier by now.
                (true, true) | (false, false) => {}
            }
        }
    }
}
