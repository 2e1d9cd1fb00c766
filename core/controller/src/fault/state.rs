//! The rules of a drive, and what they keep from going on.

use crate::admin::command::Admin;
use crate::host::{DataPointer, Owner};
use crate::io::starting::{Judged, Starting};
use alloc::vec::Vec;
use weir_fault::{FaultEffect, FaultOutcome, FaultPlan};
use weir_units::Nanos;

/// For how long something is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeldUntil {
    /// Until rules have delayed it since then for so long, each as long as it is there.
    Delayed(Nanos, Vec<(u32, Nanos)>),
    /// The rule of that number holds no more.
    RuleEnds(u32),
}

impl HeldUntil {
    /// When time alone ends it.
    pub fn due(&self, plan: &FaultPlan) -> Nanos {
        match self {
            Self::Delayed(since, delays) => {
                let there = delays.iter().filter(|(id, _)| plan.has(*id));
                there.fold(*since, |at, (_, delay)| at.saturating_add(*delay))
            }
            Self::RuleEnds(_) => Nanos::NEVER,
        }
    }

    /// Whether what is held may go on.
    pub fn is_over(&self, plan: &FaultPlan, now: Nanos) -> bool {
        match self {
            Self::Delayed(..) => self.due(plan) <= now,
            Self::RuleEnds(id) => !plan.holds(*id, now),
        }
    }
}

/// An I/O command that has left its queue and is kept from starting; what becomes of it then goes with it.
#[derive(Clone, Debug)]
pub(crate) struct HeldCommand {
    pub starting: Starting,
    pub until: HeldUntil,
}

/// An admin command that was taken from its queue and is kept from being carried out.
#[derive(Clone, Debug)]
pub(crate) struct HeldAdmin {
    pub admin: Admin,
    pub until: HeldUntil,
    pub judged: Judged,
}

/// A command in a slot whose bytes are flipped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpoiledSlot {
    pub slot: u32,
    pub queue: u32,
    pub owner: Owner,
    pub data: DataPointer,
}

/// A condition that the drive has been put in.
#[derive(Clone, Debug)]
pub(crate) struct HeldCondition {
    /// Its rule.
    pub id: u32,
    pub effect: FaultEffect,
    pub tenant: Option<u16>,
    pub nsid: Option<u32>,
    pub queue: Option<u16>,
    pub channel: Option<u32>,
    pub die: Option<u32>,
    pub since: Nanos,
    /// Media errors that have come by it so far.
    pub drifted: u64,
}

/// A condition that had begun in a process before this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BegunBefore {
    /// Its rule.
    pub id: u32,
    /// Media errors that had come by it.
    pub drifted: u64,
}

/// A controller whose CSTS.RDY does not follow CC.EN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldReset {
    pub controller: u32,
    /// The rule that keeps it.
    pub rule: u32,
    pub until: Nanos,
}

/// See the [module](self). A drive without rules has none of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub plan: FaultPlan,
    pub held: Vec<HeldCommand>,
    pub admin: Vec<HeldAdmin>,
    pub spoiled: Vec<SpoiledSlot>,
    pub conditions: Vec<HeldCondition>,
    pub resets: Vec<HeldReset>,
    /// Conditions that need no beginning, until they are looked at.
    pub begun_before: Vec<BegunBefore>,
    /// Times that a condition began, ended, or brought media errors.
    pub condition_changes: u64,
    /// When a condition begins or ends, or somebody who is held goes on.
    pub next: Nanos,
    /// Until when the time of delayed commands is counted.
    pub counted_until: Nanos,
    /// Rules have changed, or a command has triggered a condition.
    pub changed: bool,
}

impl Faults {
    /// What becomes of a command that has been judged, unless the rule that decided it is gone.
    pub fn outcome_of(&self, judged: Judged) -> Option<FaultOutcome> {
        judged.0.filter(|(id, _)| self.plan.has(*id)).map(|(_, outcome)| outcome)
    }

    /// Takes out the first command that may go on. One at a time: what it brings about may be the end of others.
    pub fn release_command(&mut self, now: Nanos) -> Option<HeldCommand> {
        let at = self.held.iter().position(|held| held.until.is_over(&self.plan, now))?;
        Some(self.held.remove(at))
    }

    /// I/O commands that are kept from starting for a time.
    pub fn delayed(&self) -> u64 {
        self.held.iter().filter(|held| matches!(held.until, HeldUntil::Delayed(..))).count() as u64
    }

    /// The same of admin commands.
    pub fn release_admin(&mut self, now: Nanos) -> Option<HeldAdmin> {
        let at = self.admin.iter().position(|held| held.until.is_over(&self.plan, now))?;
        Some(self.admin.remove(at))
    }

    /// When something changes by itself next.
    pub fn next_due(&self, now: Nanos) -> Nanos {
        let untils = self.held.iter().map(|h| &h.until).chain(self.admin.iter().map(|h| &h.until));
        let held = untils.map(|until| until.due(&self.plan));
        let resets = self.resets.iter().map(|r| r.until);
        held.chain(resets).fold(self.plan.next_change(now), Nanos::min)
    }

    /// The commands of a queue are answered by nobody any more.
    pub fn forget_queue(&mut self, q: u32) {
        self.held.retain(|h| h.starting.queue != q);
        self.admin.retain(|h| h.admin.q != q);
    }

    /// A condition that is about all controllers, or all of a tenant.
    pub fn is_under(&self, is: impl Fn(&FaultEffect) -> bool, tenant: u16) -> bool {
        self.conditions.iter().any(|c| is(&c.effect) && c.tenant.is_none_or(|t| t == tenant))
    }

    /// Whether a controller of that tenant cannot be reached.
    pub fn is_absent(&self, tenant: u16) -> bool {
        self.is_under(|e| matches!(e, FaultEffect::LinkLoss | FaultEffect::Removal { .. }), tenant)
    }

    /// Whether no command of an I/O queue is fetched.
    pub fn is_stuck(&self, tenant: u16, qid: u16) -> bool {
        self.conditions.iter().any(|c| {
            c.effect == FaultEffect::StuckQueue
                && c.tenant.is_none_or(|t| t == tenant)
                && c.queue.is_none_or(|queue| queue == qid)
        })
    }

    /// Panics unless the invariants hold.
    pub fn check(&self) {
        self.plan.check();
        assert!(
            self.conditions.windows(2).all(|pair| pair[0].id < pair[1].id),
            "conditions are in the order of their rules"
        );
        assert!(self.held.iter().all(|held| held.starting.judged.is_some()), "what is held has been judged");
    }
}
