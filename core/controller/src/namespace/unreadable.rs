//! Blocks that read as Unrecovered Read Error until they are written (NVM 1.0, 3.2.6, Write Uncorrectable): a set of ranges.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Blocks of a namespace that can be unreadable at once: what bounds the memory that hosts can make the set take.
pub(crate) const UNREADABLE_MAX: u64 = 1 << 20;

/// There would be too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// Ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals {
    /// End by start.
    ranges: BTreeMap<u64, u64>,
    blocks: u64,
}

impl Intervals {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Start and end of each, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(start, end)| (*start, *end))
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Start and end of what lies between, ascending.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before = self.ranges.range(..=start).next_back().filter(|(_, e)| **e > start);
        let first = before.map_or(start, |(s, _)| *s);
        self.ranges.range(first..end.max(first)).map(move |(s, e)| ((*s).max(start), (*e).min(end)))
    }

    /// Whether one of the blocks from `start` to before `end` is in the set.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        start < end && self.ranges.range(..end).next_back().is_some_and(|(_, e)| *e > start)
    }

    /// Adds blocks.
    ///
    /// # Errors
    /// There would be more than [`UNREADABLE_MAX`]; nothing is added.
    pub fn insert(&mut self, start: u64, end: u64) -> Result<(), TooMany> {
        if start >= end {
            return Ok(());
        }
        let inside: u64 = self.parts(start, end).iter().map(|(s, e)| e.min(&end) - s.max(&start)).sum();
        let more = end - start - inside;
        if self.blocks + more > UNREADABLE_MAX {
            return Err(TooMany);
        }
        // What touches it becomes one with it.
        let (mut first, mut last) = (start, end);
        for (s, e) in self.parts(start.saturating_sub(1), end.saturating_add(1)) {
            self.ranges.remove(&s);
            (first, last) = (first.min(s), last.max(e));
        }
        self.ranges.insert(first, last);
        self.blocks += more;
        Ok(())
    }

    /// Takes blocks out.
    pub fn remove(&mut self, start: u64, end: u64) {
        let parts = if start < end { self.parts(start, end) } else { Vec::new() };
        for (s, e) in parts {
            self.ranges.remove(&s);
            self.blocks -= e.min(end) - s.max(start);
            if s < start {
                self.ranges.insert(s, start);
            }
            if e > end {
                self.ranges.insert(end, e);
            }
        }
    }

    /// The ranges of which something lies between.
    fn parts(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let before = self.ranges.range(..end).rev().take_while(|(_, e)| **e > start);
        before.map(|(s, e)| (*s, *e)).collect()
    }

    /// The invariants.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        let mut before = None;
        for (start, end) in self.iter() {
            assert!(start < end && before.is_none_or(|b| b < start), "ranges neither overlap nor touch");
            before = Some(end);
        }
        let blocks: u64 = self.iter().map(|(start, end)| end - start).sum();
        assert!(blocks == self.blocks && blocks <= UNREADABLE_MAX, "{blocks} blocks, counted {}", self.blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        /// Against a set of blocks.
        #[test]
        fn ranges_are_what_a_set_of_blocks_says(ops in prop::collection::vec((0u8..3, 0u64..64, 0u64..12), 0..60)) {
            let (mut set, mut model) = (Intervals::default(), BTreeSet::new());
            for (op, start, len) in ops {
                let end = start + len;
                match op {
                    0 => {
                        set.insert(start, end).unwrap();
                        model.extend(start..end);
                    }
                    1 => {
                        set.remove(start, end);
                        model.retain(|b| !(start..end).contains(b));
                    }
                    _ => prop_assert_eq!(set.overlaps(start, end), (start..end).any(|b| model.contains(&b))),
                }
                set.check();
                let parts: Vec<u64> = set.within(start, end).flat_map(|(s, e)| s..e).collect();
                prop_assert!(parts.iter().eq(model.range(start..end)));
                let blocks: Vec<u64> = set.iter().flat_map(|(s, e)| s..e).collect();
                prop_assert!(blocks.iter().eq(model.iter()));
            }
        }
    }

    #[test]
    fn the_set_is_bounded_and_a_refused_range_leaves_it_as_it_was() {
        let mut set = Intervals::default();
        set.insert(0, UNREADABLE_MAX).unwrap();
        assert_eq!(set.insert(UNREADABLE_MAX, UNREADABLE_MAX + 1), Err(TooMany));
        assert_eq!(set.insert(u64::MAX - 1, u64::MAX), Err(TooMany));
        // What is in it already counts once.
        set.insert(5, 10).unwrap();
        set.remove(7, 8);
        set.insert(u64::MAX - 1, u64::MAX).unwrap();
        set.check();
        assert_eq!(set.iter().collect::<Vec<_>>(), [(0, 7), (8, UNREADABLE_MAX), (u64::MAX - 1, u64::MAX)]);
    }
}
