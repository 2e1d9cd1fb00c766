//! What a rule has done, apart from the rule: a drive that goes on in another process goes on with it, so that what is over does not come again.

use crate::plan::{FaultPlan, PlannedFault};
use crate::rule::FaultRule;
use alloc::format;
use weir_units::Nanos;
use weir_units::rng::SplitMix64;

/// The state of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlannedState {
    /// Which rule's it is: [`fingerprint`] of it.
    pub fingerprint: u64,
    /// Commands that it was about.
    pub matched: u64,
    /// How often it applied.
    pub applied: u64,
    /// When it began, or will; `None` while it waits for a command.
    pub begins: Option<Nanos>,
    /// Where its draws are.
    pub random: u64,
}

/// A number by which a rule's state finds its rule again: FNV-1a of its text.
pub fn fingerprint(rule: &FaultRule) -> u64 {
    let fnv = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{rule}").bytes().fold(0xcbf2_9ce4_8422_2325, fnv)
}

impl PlannedFault {
    /// What it has done.
    pub fn state(&self) -> PlannedState {
        PlannedState {
            fingerprint: self.fingerprint,
            matched: self.matched,
            applied: self.applied,
            begins: self.begins(),
            random: self.random.state(),
        }
    }
}

impl FaultPlan {
    /// A rule that was just added goes on from there; false where there is none of that number, or it is another rule's state, or one that the rule
    /// cannot have.
    pub fn resume(&mut self, id: u32, state: &PlannedState) -> bool {
        let Some(planned) = self.rules.iter_mut().find(|planned| planned.id == id) else { return false };
        let PlannedState { fingerprint, matched, applied, begins, random } = *state;
        let most = planned.rule.schedule.count.unwrap_or(u64::MAX);
        let is_counted = applied <= matched || planned.rule.effect.is_condition();
        if fingerprint != planned.fingerprint || applied > most || !is_counted {
            return false;
        }
        // One that has begun stays begun; a time that is not known is that of a command that has not come.
        (planned.matched, planned.applied, planned.begins) = (matched, applied, begins);
        planned.random = SplitMix64::at(random);
        true
    }
}
