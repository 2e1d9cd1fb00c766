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
//! Only commands that must not be carried out twice are noted. Those that set something are carried out again: what they set is their controller's as well,
//! whose checkpoint is older.

use alloc::collections::VecDeque;
use weir_codec::{Damaged, Reader, Writer};
use weir_spec::nvme::{AdminOpcode, Sqe, Status};

/// More than are executed between two checkpoints of all controllers. The oldest go first: those of clients that have never come back.
const MOST: usize = 1024;

/// An admin command that was taken from a ring: which one of its controller's life, from 1 on; 0: it is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountedCommand {
    pub number: u64,
    pub sqe: Sqe,
}

/// One that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Executed {
    life: u64,
    number: u64,
    words: [u64; 8],
    pub status: Status,
    pub result: u64,
}

/// Those that may come again after a crash, and are done; the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExactlyOnce(VecDeque<Executed>);

impl ExactlyOnce {
    /// Whether nothing is noted.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A command of that life is done, and has changed what the drive remembers.
    pub fn note(&mut self, life: u64, kept: CountedCommand, status: Status, result: u64) {
        if life == 0 || kept.number == 0 || !counts_once(kept.sqe.opcode) {
            return;
        }
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        let (number, words) = (kept.number, kept.sqe.words());
        self.0.push_back(Executed { life, number, words, status, result });
    }

    /// How a command of that life ended that comes again, if it is done. Where another one has its number, its host has gone another way since,
    /// and nothing of that life counts.
    pub fn find(&mut self, life: u64, again: CountedCommand) -> Option<Executed> {
        let done = *self.0.iter().find(|done| (done.life, done.number) == (life, again.number))?;
        if done.words != again.sqe.words() {
            self.forget(life);
            return None;
        }
        Some(done)
    }

    /// Nobody asks for those of that life any more.
    #[inline]
    pub fn forget(&mut self, life: u64) {
        if !self.0.is_empty() {
            self.0.retain(|done| done.life != life);
        }
    }

    /// The same of its first so many.
    pub fn forget_first(&mut self, life: u64, taken: u64) {
        self.0.retain(|done| done.life != life || done.number > taken);
    }

    /// The same of all but these lives.
    pub fn forget_others(&mut self, lives: &[u64]) {
        self.0.retain(|done| lives.contains(&done.life));
    }

    /// What is remembered of them: each 90 bytes: life 8, number 8, the entry 64, status field 2, result 8.
    pub fn save(&self, to: &mut Writer) {
        for done in &self.0 {
            to.u64(done.life);
            to.u64(done.number);
            done.words.iter().for_each(|word| to.u64(*word));
            to.u16(done.status.field());
            to.u64(done.result);
        }
    }

    /// Takes what [`save`](Self::save) has written.
    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Damaged> {
        while !from.is_empty() {
            let (life, number) = (from.u64()?, from.u64()?);
            let mut words = [0; 8];
            for word in &mut words {
                *word = from.u64()?;
            }
            let status = Status::from_field(from.u16()?);
            let done = Executed { life, number, words, status, result: from.u64()? };
            if life == 0 || number == 0 || self.0.len() == MOST {
                return Err(Damaged);
            }
            self.0.push_back(done);
        }
        Ok(())
    }
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
