//! A rule: whom it is about and when it applies.

use crate::effect::FaultEffect;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Blocks of a namespace, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaSpan {
    /// The first block.
    pub first: u64,
    /// The last block, not below `first`.
    pub last: u64,
}

impl LbaSpan {
    /// The first block that the span shares with `blocks` blocks from `lba` on, and the end of what it shares.
    pub fn meets(&self, lba: u64, blocks: u64) -> Option<(u64, u64)> {
        let end = lba.saturating_add(blocks).min(self.last.saturating_add(1));
        let first = lba.max(self.first);
        (first < end).then_some((first, end))
    }

    /// Whether every block of another span is one of this one.
    pub fn covers(&self, other: &LbaSpan) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

/// A page of the flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashPlace {
    /// Channel of the drive.
    pub channel: u32,
    /// Die, drive-wide.
    pub die: u32,
    /// Block of its plane.
    pub block: u32,
    /// Page of its block.
    pub page: u32,
}

/// Which pages; what is `None` is all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceFilter {
    /// Channel of the drive.
    pub channel: Option<u32>,
    /// Die, drive-wide.
    pub die: Option<u32>,
    /// Block of a plane.
    pub block: Option<u32>,
    /// Page of a block.
    pub page: Option<u32>,
}

impl PlaceFilter {
    /// Whether it asks for anything.
    pub fn is_some(&self) -> bool {
        *self != Self::default()
    }

    /// Whether a page is one of them.
    pub fn has(&self, place: &FlashPlace) -> bool {
        let Self { channel, die, block, page } = *self;
        let is = |wanted: Option<u32>, is: u32| wanted.is_none_or(|wanted| wanted == is);
        is(channel, place.channel) && is(die, place.die) && is(block, place.block) && is(page, place.page)
    }

    /// Whether every page of another filter is one of this one's.
    pub fn covers(&self, other: &PlaceFilter) -> bool {
        let pairs =
            [(self.channel, other.channel), (self.die, other.die), (self.block, other.block), (self.page, other.page)];
        pairs.iter().all(|(own, theirs)| own.is_none() || own == theirs)
    }
}

/// Which commands, or which part of the drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultTarget {
    /// Namespace; `None`: every one.
    pub nsid: Option<u32>,
    /// Blocks that a command touches one of.
    pub lba: Option<LbaSpan>,
    /// Opcodes of I/O commands; empty: all that the effect can befall.
    pub io: Vec<u8>,
    /// Opcodes of admin commands; a rule that has some is about no I/O command.
    pub admin: Vec<u8>,
    /// Name of a tenant.
    pub tenant: Option<String>,
    /// I/O queue, by its QID.
    pub queue: Option<u16>,
    /// Pages of the flash.
    pub place: PlaceFilter,
}

impl FaultTarget {
    /// Whether every command of another target is one of this one's, whatever their I/O opcodes are.
    pub(crate) fn covers(&self, other: &FaultTarget) -> bool {
        let lba = match (&self.lba, &other.lba) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(theirs)) => own.covers(theirs),
        };
        // I/O opcodes are also the effect's affair: who asks knows both.
        let admin = self.admin.is_empty() && other.admin.is_empty()
            || !other.admin.is_empty() && other.admin.iter().all(|opcode| self.admin.contains(opcode));
        lba && (self.nsid.is_none() || self.nsid == other.nsid)
            && admin
            && (self.tenant.is_none() || self.tenant == other.tenant)
            && (self.queue.is_none() || self.queue == other.queue)
            && self.place.covers(&other.place)
    }
}

/// When a rule applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSchedule {
    /// To how many of a million commands of its target.
    pub per_million: u32,
    /// What chance and noise are drawn from.
    pub seed: u64,
    /// How often at the most.
    pub count: Option<u64>,
    /// How many commands of its target go before.
    pub after: u64,
    /// How long after the rule was made it begins.
    pub from: Nanos,
    /// How long it lasts from there on; `None`: until it is removed.
    pub lasts: Option<Nanos>,
}

impl Default for FaultSchedule {
    /// Always, from the first command on.
    fn default() -> Self {
        Self { per_million: 1_000_000, seed: 1, count: None, after: 0, from: Nanos(0), lasts: None }
    }
}

impl FaultSchedule {
    /// Whether it applies to every command of its target for ever.
    pub fn is_always(&self) -> bool {
        let Self { per_million, count, after, from, lasts, .. } = self;
        *per_million == 1_000_000 && count.is_none() && *after == 0 && from.0 == 0 && lasts.is_none()
    }
}

/// What goes wrong, where and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// Where.
    pub target: FaultTarget,
    /// When.
    pub schedule: FaultSchedule,
    /// What.
    pub effect: FaultEffect,
}

impl FaultRule {
    /// A rule for everything and always, to be narrowed.
    pub fn new(effect: FaultEffect) -> Self {
        Self { target: FaultTarget::default(), schedule: FaultSchedule::default(), effect }
    }

    /// Whether it is a condition that a command triggers, rather than the time.
    pub(crate) fn is_triggered(&self) -> bool {
        let FaultTarget { lba, io, admin, .. } = &self.target;
        let narrowed = lba.is_some() || !io.is_empty() || !admin.is_empty();
        self.effect.is_condition() && (narrowed || self.schedule.after > 0 || self.schedule.per_million < 1_000_000)
    }
}
