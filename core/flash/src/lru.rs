//! What was used last stays: of anything, and of the units that are written again.

use alloc::collections::{BTreeMap, BTreeSet};
use weir_units::Nanos;

/// The least recently used of something first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lru {
    /// By when it was used last, in uses.
    order: BTreeMap<u64, u32>,
    uses: BTreeMap<u32, u64>,
    clock: u64,
}

impl Lru {
    pub(crate) fn len(&self) -> u32 {
        self.uses.len() as u32
    }

    pub(crate) fn has(&self, what: u32) -> bool {
        self.uses.contains_key(&what)
    }

    /// It is used, for the first time or again.
    pub(crate) fn touch(&mut self, what: u32) {
        self.remove(what);
        self.clock += 1;
        self.order.insert(self.clock, what);
        self.uses.insert(what, self.clock);
    }

    pub(crate) fn remove(&mut self, what: u32) -> bool {
        let Some(used) = self.uses.remove(&what) else { return false };
        self.order.remove(&used);
        true
    }

    pub(crate) fn pop(&mut self) -> Option<u32> {
        let (_, what) = self.order.pop_first()?;
        self.uses.remove(&what);
        Some(what)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.order.values().copied()
    }
}

/// Units of the write buffer that stay in it because they were written again.
#[derive(Clone, Debug)]
pub(crate) struct RewrittenUnits {
    /// Their slots.
    pub(crate) slots: Lru,
    /// Units that may be on their way into the flash.
    pub(crate) pending: u32,
    /// Units written since they were forgotten last.
    seen: BTreeSet<u32>,
    window: u64,
    forget: u64,
}

impl RewrittenUnits {
    pub(crate) fn new(window: Nanos, pending: u32) -> RewrittenUnits {
        RewrittenUnits { slots: Lru::default(), pending, seen: BTreeSet::new(), window: window.0, forget: 0 }
    }

    /// The same with nothing in it.
    pub(crate) fn emptied(&self) -> RewrittenUnits {
        RewrittenUnits::new(Nanos(self.window), self.pending)
    }

    /// A unit is written; whether it was before, since all were forgotten.
    pub(crate) fn again(&mut self, now: Nanos, lpn: u32) -> bool {
        let again = !self.seen.insert(lpn);
        if now.0 > self.forget {
            self.seen.clear();
            self.forget = now.0.saturating_add(self.window);
        }
        again
    }
}
