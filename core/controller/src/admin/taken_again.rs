//! Admin commands of rings that come again after a crash: those that are done already are answered as they were.

use crate::admin::exactly_once::{Executed, Kept, MOST};
use crate::admin::{Admin, Outcome};
use crate::event::ControllerHandle;
use crate::saved::codec::{Damaged, Reader, Writer};
use crate::saved::section::Section;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_spec::nvme::identify::NSID_ALL;
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::namespace::management;
use weir_spec::nvme::{AdminOpcode, Status};

/// Section 7 of [`crate::saved::nonvolatile`]: each 90 bytes: life 8, number 8, the entry 64, status field 2, result 8.
pub(crate) const SECTION: Section = Section { id: 7, version: 1, save, restore };

pub(crate) fn save(drive: &Subsystem, to: &mut Writer) {
    for done in &drive.admin.executed {
        to.u64(done.life);
        to.u64(done.number);
        done.words.iter().for_each(|word| to.u64(*word));
        to.u16(done.status.field());
        to.u64(done.result);
    }
}

pub(crate) fn restore(drive: &mut Subsystem, from: &mut Reader<'_>, _: u16) -> Result<(), Damaged> {
    while !from.is_empty() {
        let (life, number) = (from.u64()?, from.u64()?);
        let mut words = [0; 8];
        for word in &mut words {
            *word = from.u64()?;
        }
        let status = Status::from_field(from.u16()?);
        let done = Executed { life, number, words, status, result: from.u64()? };
        if life == 0 || number == 0 || drive.admin.executed.len() == MOST {
            return Err(Damaged);
        }
        drive.admin.executed.push_back(done);
    }
    Ok(())
}

/// Whether a command of that opcode must not be carried out twice.
pub(crate) fn counts_once(opcode: u8) -> bool {
    matches!(
        AdminOpcode(opcode),
        AdminOpcode::NAMESPACE_MANAGEMENT
            | AdminOpcode::NAMESPACE_ATTACHMENT
            | AdminOpcode::FORMAT_NVM
            | AdminOpcode::FIRMWARE_COMMIT
            | AdminOpcode::DEVICE_SELF_TEST
            | AdminOpcode::SANITIZE
    )
}

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
            self.admin.executed.retain(|done| done.life != life || done.number > taken);
        }
    }

    /// This controller does not outlive the process: nothing of it comes again.
    pub fn ends_with_process(&mut self, controller: ControllerHandle) {
        let Some(ctrl) = self.resolve(controller).and_then(|c| self.ctrl_mut(c)) else { return };
        let life = core::mem::take(&mut ctrl.life);
        self.forget_executed(life);
    }

    /// Every controller that comes from another process is here: of the others nothing comes again.
    pub fn forget_absent(&mut self) {
        let lives: Vec<u64> = self.controllers.list.iter().flatten().map(|ctrl| ctrl.life).collect();
        self.admin.executed.retain(|done| lives.contains(&done.life));
    }

    /// Nobody asks for those of that life any more.
    #[inline]
    pub(crate) fn forget_executed(&mut self, life: u64) {
        if !self.admin.executed.is_empty() {
            self.admin.executed.retain(|done| done.life != life);
        }
    }

    /// A ring controller is reset: what its host asks for after that is something else, though it may look the same.
    pub(crate) fn begin_again(&mut self, c: u32) {
        let Some(ctrl) = self.ctrl_mut(c).filter(|ctrl| ctrl.life != 0) else { return };
        // No number of before comes again, not even from a state of the drive that was written then.
        ctrl.taken = (ctrl.taken | 0xffff) + 1;
        let life = ctrl.life;
        self.forget_executed(life);
    }

    /// What an admin command was answered before a crash, if it was executed then.
    pub(crate) fn was_executed(&mut self, admin: &Admin) -> Option<Outcome> {
        if self.admin.executed.is_empty() || admin.number == 0 {
            return None;
        }
        let life = self.ctrl(admin.c)?.life;
        let done = *self.admin.executed.iter().find(|done| (done.life, done.number) == (life, admin.number))?;
        if done.words != admin.sqe.words() {
            // Its host has gone another way since.
            self.forget_executed(life);
            return None;
        }
        if done.status.is_success() {
            self.tell_again(admin);
        }
        Some(Outcome::Done(done.status, done.result))
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

    /// An admin command of a ring controller is done, and has changed what the drive remembers.
    #[cold]
    pub(crate) fn note_executed(&mut self, life: u64, kept: Kept, status: Status, result: u64) {
        if life == 0 || kept.number == 0 || !counts_once(kept.sqe.opcode) {
            return;
        }
        if self.admin.executed.len() == MOST {
            self.admin.executed.pop_front();
        }
        let (number, words) = (kept.number, kept.sqe.words());
        self.admin.executed.push_back(Executed { life, number, words, status, result });
    }
}
