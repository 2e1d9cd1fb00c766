//! The rules of a drive, and what they keep from going on.

use crate::admin::command::Admin;
use crate::host::{DataPointer, Owner};
use crate::io::starting::Starting;
use alloc::vec::Vec;
use weir_fault::{FaultEffect, FaultOutcome, FaultPlan};
use weir_units::Nanos;

/// For how long something is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldUntil {
    /// A time.
    Time(Nanos),
    /// The rule of that number holds no more.
    RuleEnds(u32),
}

/// An I/O command that has left its queue and is kept from starting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldCommand {
    pub starting: Starting,
    pub until: HeldUntil,
    /// What becomes of it then.
    pub outcome: Option<FaultOutcome>,
}

/// An admin command that was taken from its queue and is kept from being carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldAdmin {
    pub admin: Admin,
    pub until: HeldUntil,
    pub outcome: Option<FaultOutcome>,
}

/// A command that has been judged and is about to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    pub queue: u32,
    pub cid: u16,
    pub tag: u32,
    /// Bytes that will be wrong.
    pub spoils: Option<Spoils>,
}

/// Bytes of a command that are to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spoils {
    /// The block that they are in.
    pub lba: u64,
    pub bytes: u32,
    pub seed: u64,
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
    /// What was there before: a size in bytes.
    pub before: u64,
}

/// A controller whose CSTS.RDY does not follow CC.EN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldReset {
    pub controller: u32,
    pub until: Nanos,
}

/// See the [module](self). A drive without rules has none of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub plan: FaultPlan,
    pub held: Vec<HeldCommand>,
    pub admin: Vec<HeldAdmin>,
    pub judged: Vec<Judged>,
    pub spoiled: Vec<SpoiledSlot>,
    pub conditions: Vec<HeldCondition>,
    pub resets: Vec<HeldReset>,
    /// When a condition begins or ends, or somebody who is held goes on.
    pub next: Nanos,
    /// Rules have changed, or a command has triggered a condition.
    pub changed: bool,
}

impl Faults {
    /// Whether something that is held may go on.
    pub fn is_over(&self, until: HeldUntil, now: Nanos) -> bool {
        match until {
            HeldUntil::Time(at) => at <= now,
            HeldUntil::RuleEnds(id) => !self.plan.holds(id, now),
        }
    }

    /// When something changes by itself next.
    pub fn next_due(&self, now: Nanos) -> Nanos {
        let time = |until: &HeldUntil| if let HeldUntil::Time(at) = until { *at } else { Nanos::NEVER };
        let held = self.held.iter().map(|h| time(&h.until)).chain(self.admin.iter().map(|h| time(&h.until)));
        let resets = self.resets.iter().map(|r| r.until);
        held.chain(resets).fold(self.plan.next_change(now), Nanos::min)
    }

    /// The commands of a queue are answered by nobody any more.
    pub fn forget_queue(&mut self, q: u32) {
        self.held.retain(|h| h.starting.queue != q);
        self.admin.retain(|h| h.admin.q != q);
        self.judged.retain(|j| j.queue != q);
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
        for held in &self.held {
            let queue = held.starting.queue;
            assert!(
                !self.judged.iter().any(|j| (j.queue, j.cid) == (queue, held.starting.command.cid)),
                "held or judged"
            );
        }
    }
}
