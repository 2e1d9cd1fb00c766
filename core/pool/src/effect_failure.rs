//! What becomes of a request of which an effect has failed.

use crate::change_plan::ChangeStep;
use crate::error::PoolError;
use crate::event::{PoolAnswer, PoolEffect};
use crate::pool::{Pool, PoolState, Retreat};
use alloc::string::String;

/// So many writes of an opening fail on a drive before the pool is opened without it.
const WRITE_ATTEMPTS: u32 = 3;

impl Pool {
    pub(crate) fn fall_back(&mut self, why: String) -> PoolEffect {
        match core::mem::take(&mut self.retreat) {
            Retreat::None => match self.empties.take() {
                // They stay nobody's, and are unmapped at the next opening: nobody gets them before.
                Some(drive) => {
                    let is = |step: &ChangeStep| {
                        use ChangeStep::{Flush, ForgetEmptied, Free, Unmap};
                        matches!(step, Unmap(d, _) | Flush(d) | Free(d, _) | ForgetEmptied(d) if *d == drive)
                    };
                    while self.work.front().is_some_and(is) {
                        self.work.pop_front();
                    }
                    self.go_on()
                }
                None if matches!(self.answer, Some(PoolAnswer::Open { fresh: false, .. })) => self.open_again(why),
                None => self.fail(PoolError::Broken(why)),
            },
            Retreat::Uncopied(copying) => {
                self.copy_failed(copying, why);
                self.go_on()
            }
            Retreat::Back(index, before) => {
                let index = usize::from(index);
                let (position, uuid) = (self.books.drives[index].position, self.books.drives[index].member.uuid);
                self.books = *before;
                self.work.clear();
                (self.answer, self.writes) = (None, None);
                let name = self.setup.drives[position].name.clone();
                let returns = self.books.drives.get(index).is_some_and(|d| d.member.uuid == uuid);
                let not_written = if returns { PoolError::StaysLost } else { PoolError::NotWritten };
                PoolEffect::Finished(Err(not_written(name, why)))
            }
            Retreat::On => {
                self.work.clear();
                self.go_on()
            }
            Retreat::AsItWas(drive, before) => {
                self.books = *before;
                self.work.clear();
                (self.answer, self.uncommitted) = (None, None);
                PoolEffect::Finished(Err(PoolError::NotEmptied(
                    self.books.drives[usize::from(drive)].name.clone(),
                    why,
                )))
            }
        }
    }

    /// A drive does not write, or not flush, while the pool is opened. A write is tried again: the opening begins anew, as after a crash. What is
    /// read then has to be durable, so the drive is flushed first; one whose flush fails may have lost anything.
    fn open_again(&mut self, why: String) -> PoolEffect {
        let failures = self.write_failures.entry(self.at).or_default();
        *failures += 1;
        if !self.at_write || *failures >= WRITE_ATTEMPTS {
            return self.open_without(why);
        }
        self.state = PoolState::Retrying(why);
        PoolEffect::Flush { drive: self.at }
    }

    /// A drive cannot be written while the pool is opened: the opening begins anew without it, if it may.
    pub(crate) fn open_without(&mut self, why: String) -> PoolEffect {
        if self.setup.whole || self.unwritable.insert(self.at, why.clone()).is_some() {
            return self.fail(PoolError::Broken(why));
        }
        self.begin_anew()
    }

    pub(crate) fn begin_anew(&mut self) -> PoolEffect {
        self.work.clear();
        (self.answer, self.writes, self.empties, self.state) = (None, None, None, PoolState::New);
        self.open()
    }

    pub(crate) fn fail(&mut self, why: PoolError) -> PoolEffect {
        self.state = PoolState::Broken(why.clone());
        self.work.clear();
        self.answer = None;
        self.torn.extend(self.writes.take());
        self.books.drives.iter_mut().for_each(|d| d.reach = d.durable);
        self.refusal = None;
        if let Some(change) = self.uncommitted.take() {
            self.books.undo_taken(&change);
        }
        PoolEffect::Finished(Err(why))
    }
}
