//! Admin commands that have changed what the drive remembers, and that no [checkpoint](Subsystem::checkpoint) of their controller knows of yet.
//!
//! ```text
//!   taken from the ring ─► executed ─► noted here ─► the drive's state is written, with both ─► checkpoint ─► checkpointed: forgotten
//!                                                       └─ killed: the successor takes the command from the ring again, and answers as noted
//! ```
//! What a drive remembers is written when it has changed, and a controller's checkpoint after that. A process that is killed in between leaves a
//! controller whose command is still to come, and a drive that has its effect: it would create a second namespace. So the effect and the fact are one
//! write. A command is known by its controller's life, its number among the admin commands of that life, and all of its entry.
//!
//! Only commands that must not be carried out twice are noted. Those that set something are, which is a controller's as well.

use crate::admin::{Admin, Outcome};
use crate::event::ControllerHandle;
use crate::namespace::active;
use crate::nonvolatile::{Damaged, Reader, Section, Writer};
use crate::subsystem::Subsystem;
use weir_spec::nvme::identify::NSID_ALL;
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::namespace::management;
use weir_spec::nvme::{AdminOpcode, Sqe, Status};

/// Section 7 of [`crate::nonvolatile`]: each 90 bytes: life 8, number 8, the entry 64, status field 2, result 8.
pub(crate) const SECTION: Section = Section { id: 7, version: 1, save, restore };

/// More than are executed between two checkpoints of all controllers. The oldest go first: those of clients that have never come back.
const MOST: usize = 1024;

/// An admin command that was taken from a ring: which one of its controller's life, from 1 on; 0: it is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub number: u64,
    pub sqe: Sqe,
}

/// One that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Executed {
    life: u64,
    number: u64,
    words: [u64; 8],
    status: Status,
    result: u64,
}

fn save(drive: &Subsystem, to: &mut Writer) {
    for done in &drive.executed {
        to.u64(done.life);
        to.u64(done.number);
        done.words.iter().for_each(|word| to.u64(*word));
        to.u16(done.status.field());
        to.u64(done.result);
    }
}

fn restore(drive: &mut Subsystem, from: &mut Reader<'_>, _: u16) -> Result<(), Damaged> {
    while !from.is_empty() {
        let (life, number) = (from.u64()?, from.u64()?);
        let mut words = [0; 8];
        for word in &mut words {
            *word = from.u64()?;
        }
        let status = Status::from_field(from.u16()?);
        let done = Executed { life, number, words, status, result: from.u64()? };
        if life == 0 || number == 0 || drive.executed.len() == MOST {
            return Err(Damaged);
        }
        drive.executed.push_back(done);
    }
    Ok(())
}

/// Whether a command of that opcode must not be carried out twice.
fn counts_once(opcode: u8) -> bool {
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
    /// What this controller's commands have changed is in a checkpoint that outlives the process.
    pub fn checkpointed(&mut self, controller: ControllerHandle) {
        let life = self.resolve(controller).and_then(|c| self.ctrl(c)).map_or(0, |ctrl| ctrl.life);
        self.forget_executed(life);
    }

    /// Nobody asks for those of that life any more. What is written of them says nothing then: it goes with the next write.
    #[inline]
    pub(crate) fn forget_executed(&mut self, life: u64) {
        if !self.executed.is_empty() {
            self.executed.retain(|done| done.life != life);
        }
    }

    /// What an admin command was answered before a crash, if it was executed then.
    pub(crate) fn was_executed(&mut self, admin: &Admin) -> Option<Outcome> {
        if self.executed.is_empty() || admin.number == 0 {
            return None;
        }
        let life = self.ctrl(admin.c)?.life;
        let done = *self.executed.iter().find(|done| (done.life, done.number) == (life, admin.number))?;
        if done.words != admin.sqe.words() {
            // Its host has gone another way since, as after a reset.
            self.forget_executed(life);
            return None;
        }
        if done.status.is_success() {
            self.tell_again(&admin.sqe);
        }
        Some(Outcome::Done(done.status, done.result))
    }

    /// Hosts may not have been told of what a command has changed, and are told again.
    fn tell_again(&mut self, sqe: &Sqe) {
        let deletes = match AdminOpcode(sqe.opcode) {
            AdminOpcode::NAMESPACE_MANAGEMENT if sqe.cdw10.get() & 0xf == management::DELETE => true,
            AdminOpcode::NAMESPACE_ATTACHMENT | AdminOpcode::FORMAT_NVM => false,
            _ => return,
        };
        let nsids = match sqe.nsid.get() {
            NSID_ALL => 1..=self.namespaces.len() as u32,
            nsid => nsid..=nsid,
        };
        for nsid in nsids {
            if deletes {
                self.hide_namespace(nsid);
            } else if active(&self.namespaces, nsid).is_ok() {
                let all = 0..self.controllers.len() as u32;
                all.for_each(|c| self.note_event_of(c, AsyncEvent::NAMESPACE_ATTRIBUTE, nsid));
            }
        }
    }

    /// An admin command of a ring controller is done, and has changed what the drive remembers.
    #[cold]
    pub(crate) fn note_executed(&mut self, c: u32, kept: Kept, status: Status, result: u64) {
        let life = self.ctrl(c).map_or(0, |ctrl| ctrl.life);
        if life == 0 || kept.number == 0 || !counts_once(kept.sqe.opcode) {
            return;
        }
        if self.executed.len() == MOST {
            self.executed.pop_front();
        }
        let (number, words) = (kept.number, kept.sqe.words());
        self.executed.push_back(Executed { life, number, words, status, result });
    }

    /// The same of one that was kept until now.
    pub(crate) fn note_kept(&mut self, q: u32, cid: u16, status: Status, result: u64) {
        let c = self.sq(q).controller;
        let kept = self.ctrl(c).and_then(|ctrl| ctrl.kept.iter().find(|kept| kept.sqe.cid.get() == cid));
        if let Some(kept) = kept.copied() {
            self.note_executed(c, kept, status, result);
        }
    }
}
