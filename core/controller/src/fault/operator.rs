//! Rules come and go while the drive runs.

use crate::fault::state::{BegunBefore, Faults};
use crate::namespace::why;
use crate::stats::ServiceTimes;
use crate::subsystem::Subsystem;
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_fault::{DriveFacts, FaultPlan, FaultRule, NamespaceFacts, PlannedFault, PlannedState, RuleError};
use weir_units::Nanos;

/// What a rule of a drive has done, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleState {
    /// The rule's own.
    pub planned: PlannedState,
    /// It is a condition that holds: hosts have been told, and what happens once at its beginning has happened.
    pub has_begun: bool,
    /// Media errors that have come by it so far.
    pub drifted: u64,
}

impl Subsystem {
    /// What commands have taken until the newest event.
    pub fn service_times(&self) -> ServiceTimes {
        self.service_clock.times()
    }

    /// By the number of commands in slots, from none on: how long there were so many until the newest event, as sums that wrap around.
    pub fn depth_times(&self) -> &[Nanos] {
        &self.service_clock.at_depth
    }

    /// Counts the time until `now` for the commands in slots.
    #[inline(never)]
    pub(crate) fn count_service(&mut self, now: Nanos) {
        let passed = now.0.saturating_sub(self.turn.now.0);
        if let Some(time) = self.service_clock.at_depth.get_mut(self.slots.used as usize) {
            time.0 = time.0.wrapping_add(passed);
        }
    }

    /// Counts the time until `now` for the commands that rules have delayed since this was called last, before any of them goes on.
    pub(super) fn count_delays(&mut self, now: Nanos) {
        let Some(faults) = &mut self.faults else { return };
        let passed = now.0.saturating_sub(faults.counted_until.0);
        faults.counted_until = now;
        let delayed = &mut self.service_clock.delayed;
        delayed.0 = delayed.0.wrapping_add(passed.wrapping_mul(faults.delayed()));
    }

    /// What rules of this drive are held against.
    pub fn fault_facts(&self) -> DriveFacts {
        let fact = |(nsid, ns): (u32, &Option<crate::namespace::Namespace>)| {
            let ns = ns.as_ref()?;
            let plain = ns.why & (why::ZONES | why::VENDOR) == 0;
            Some(NamespaceFacts { nsid, blocks: self.own_blocks(nsid).unwrap_or(ns.blocks), plain })
        };
        DriveFacts {
            namespaces: (1u32..).zip(&self.namespaces.list).filter_map(fact).collect(),
            tenants: self.tenants.list.iter().map(|t| t.config.name.clone()).collect(),
            queues: self.config.max_io_queues,
            flash: self.timing.0.as_ref().and_then(|inside| inside.flash_shape()),
        }
    }

    /// One more rule, from `now` on; its number. What follows from it happens in the next `Run`.
    ///
    /// # Errors
    /// It can never apply to this drive, or contradicts another rule; nothing has changed.
    pub fn add_fault(&mut self, now: Nanos, rule: FaultRule) -> Result<u32, RuleError> {
        let facts = self.fault_facts();
        let had_none = self.faults.is_none();
        let first = self.changes.faults;
        let made = || Box::new(Faults { plan: FaultPlan::after(first), ..Faults::default() });
        let added = self.faults.get_or_insert_with(made).plan.add(now, rule, &facts);
        match added {
            Ok(id) => {
                self.changes.faults = id;
                self.faults_changed();
            }
            Err(_) if had_none => self.faults = None,
            Err(_) => {}
        }
        added
    }

    /// Takes a rule out: what it held goes on, and conditions end, in the next `Run`. What it was, if it was there.
    pub fn remove_fault(&mut self, id: u32) -> Option<PlannedFault> {
        let removed = self.faults.as_mut()?.plan.remove(id)?;
        self.faults_changed();
        Some(removed)
    }

    /// The rules, in the order of their numbers.
    pub fn faults(&self) -> &[PlannedFault] {
        self.faults.as_ref().map_or(&[], |faults| faults.plan.rules())
    }

    /// What its rules have done, in the order of their numbers, for the process that goes on with the drive.
    pub fn fault_states(&self) -> Vec<RuleState> {
        let Some(faults) = &self.faults else { return Vec::new() };
        let state = |planned: &PlannedFault| {
            let held = faults.conditions.iter().find(|condition| condition.id == planned.id);
            RuleState {
                planned: planned.state(),
                has_begun: held.is_some(),
                drifted: held.map_or(0, |held| held.drifted),
            }
        };
        faults.plan.rules().iter().map(state).collect()
    }

    /// Raised with every change of what [`fault_states`](Self::fault_states) gives; 0 of a drive that has no rules.
    #[inline]
    pub fn fault_changes(&self) -> u64 {
        self.faults.as_ref().map_or(0, |faults| faults.plan.changes() + faults.condition_changes)
    }

    /// The rules that were just added go on from there: each with the first state that is its own and is not another one's. How many have found one.
    pub fn resume_faults(&mut self, states: &[RuleState]) -> usize {
        let Some(faults) = &mut self.faults else { return 0 };
        let mut left: Vec<&RuleState> = states.iter().collect();
        let ids: Vec<u32> = faults.plan.rules().iter().map(|planned| planned.id).collect();
        let mut found = 0;
        for id in ids {
            let Some(at) = left.iter().position(|state| faults.plan.resume(id, &state.planned)) else { continue };
            let state = left.remove(at);
            if state.has_begun {
                faults.begun_before.push(BegunBefore { id, drifted: state.drifted });
            }
            found += 1;
        }
        self.faults_changed();
        found
    }

    fn faults_changed(&mut self) {
        if let Some(faults) = &mut self.faults {
            faults.changed = true;
        }
        self.mark_faulty_namespaces();
        self.turn.more = true;
    }

    /// The invariants of rules and of what they hold.
    pub(crate) fn check_faults(&self) {
        let Some(faults) = &self.faults else {
            let marked = self.namespaces.list.iter().flatten().any(|ns| ns.why & why::FAULTS != 0);
            assert!(!marked, "without rules no command is looked at");
            return;
        };
        faults.check();
        let queues: Vec<u32> = faults.held.iter().map(|held| held.starting.queue).collect();
        let lives = |q: &u32| self.queues.sqs[*q as usize].is_some();
        assert!(queues.iter().all(lives), "what is held belongs to a live queue");
    }
}
