//! Which bytes of a block count: the others are what the block had before, and read as zeroes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Ranges of a block that were written, joined with their neighbours. Bytes, at most a block of 4 MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenRanges(BTreeMap<u32, u32>);

impl WrittenRanges {
    /// A block whose first `len` bytes count.
    pub fn up_to(len: u32) -> Self {
        let mut ranges = Self::default();
        ranges.add(0, len);
        ranges
    }

    /// The bytes from `start` on and before `end` count.
    pub fn add(&mut self, start: u32, end: u32) {
        if start >= end {
            return;
        }
        let (mut from, mut to) = (start, end);
        while let Some((at, behind)) = self.0.range(..=to).next_back().map(|(at, behind)| (*at, *behind)) {
            if behind < from {
                break;
            }
            self.0.remove(&at);
            (from, to) = (from.min(at), to.max(behind));
        }
        self.0.insert(from, to);
    }

    /// The bytes from `start` on count no longer.
    pub fn cut(&mut self, start: u32) {
        let behind = self.0.split_off(&start);
        drop(behind);
        if let Some(mut last) = self.0.last_entry() {
            let end = (*last.get()).min(start);
            last.insert(end);
        }
    }

    /// Whether one of the bytes from `start` on and before `end` counts.
    pub fn has_any(&self, start: u32, end: u32) -> bool {
        start < end && self.0.range(..end).next_back().is_some_and(|(_, behind)| *behind > start)
    }

    /// Whether all of them count.
    pub fn has_all(&self, start: u32, end: u32) -> bool {
        start >= end || self.0.range(..=start).next_back().is_some_and(|(_, behind)| *behind >= end)
    }

    /// The ranges before `end` that do not count, in order.
    pub fn gaps(&self, end: u32) -> Vec<(u32, u32)> {
        let (mut gaps, mut at) = (Vec::new(), 0);
        for (start, behind) in self.0.range(..end) {
            if at < *start {
                gaps.push((at, *start));
            }
            at = *behind;
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against an array.
        #[test]
        fn ranges_are_as_an_array_has_them(
            ops in proptest::collection::vec((0u8..8, 0u32..60, 0u32..20), 1..40),
            (start, len) in (0u32..70, 0u32..20),
        ) {
            let (mut ranges, mut bytes) = (WrittenRanges::default(), [false; 100]);
            for (op, at, len) in ops {
                if op == 0 {
                    ranges.cut(at);
                    bytes[at as usize..].fill(false);
                } else {
                    ranges.add(at, at + len);
                    bytes[at as usize..(at + len) as usize].fill(true);
                }
            }
            let asked = &bytes[start as usize..(start + len) as usize];
            prop_assert_eq!(ranges.has_any(start, start + len), asked.iter().any(|b| *b));
            prop_assert_eq!(ranges.has_all(start, start + len), asked.iter().all(|b| *b));
            let mut filled = bytes;
            let gaps = ranges.gaps(90);
            for (from, to) in &gaps {
                prop_assert!(from < to && !bytes[*from as usize..*to as usize].iter().any(|b| *b));
                filled[*from as usize..*to as usize].fill(true);
            }
            prop_assert!(filled[..90].iter().all(|b| *b));
            prop_assert!(gaps.windows(2).all(|pair| pair[0].1 < pair[1].0), "gaps are as long as they can be");
        }
    }
}
