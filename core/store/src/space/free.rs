//! The free bytes of a region, as extents.

use super::GRAIN;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Free extents, joined with their neighbours, by offset and by length. Offsets and lengths are bytes, multiples of [`GRAIN`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreeExtents {
    by_offset: BTreeMap<u64, u64>,
    /// (length, offset) of the same extents.
    by_len: BTreeSet<(u64, u64)>,
    bytes: u64,
}

impl FreeExtents {
    /// Free bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The length of the longest free extent; 0 if nothing is free.
    #[cfg(test)]
    pub fn longest(&self) -> u64 {
        self.by_len.last().map_or(0, |(len, _)| *len)
    }

    /// How many blocks of `block` bytes fit, each in one piece.
    pub fn blocks(&self, block: u64) -> u64 {
        self.by_len.range((block, 0)..).map(|(len, _)| len / block).sum()
    }

    /// Where the free bytes end that begin at `offset`; there, if that is not free.
    pub fn end_of_free(&self, offset: u64) -> u64 {
        self.by_offset.get(&offset).map_or(offset, |len| offset + len)
    }

    /// Where the free bytes begin that end at `offset`; there, if none do.
    pub fn start_of_free(&self, offset: u64) -> u64 {
        let before = self.by_offset.range(..offset).next_back();
        before.filter(|(start, len)| *start + *len == offset).map_or(offset, |(start, _)| *start)
    }

    /// All free extents as (offset, length), by offset.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_offset.iter().map(|(offset, len)| (*offset, *len))
    }

    fn insert(&mut self, offset: u64, len: u64) {
        self.by_offset.insert(offset, len);
        self.by_len.insert((len, offset));
    }

    fn remove(&mut self, offset: u64, len: u64) {
        self.by_offset.remove(&offset);
        self.by_len.remove(&(len, offset));
    }

    /// Makes bytes free. `false`, and nothing has changed, if one of them was free already or the extent is none.
    #[must_use]
    pub fn give(&mut self, offset: u64, len: u64) -> bool {
        let Some(end) = offset.checked_add(len) else { return false };
        if len == 0 || offset % GRAIN != 0 || len % GRAIN != 0 {
            return false;
        }
        let before = self.by_offset.range(..end).next_back().map(|(o, l)| (*o, *l));
        if before.is_some_and(|(o, l)| o + l > offset) {
            return false;
        }
        let (mut start, mut joined) = (offset, len);
        if let Some((o, l)) = before.filter(|(o, l)| o + l == offset) {
            self.remove(o, l);
            (start, joined) = (o, l + joined);
        }
        if let Some(l) = self.by_offset.get(&end).copied() {
            self.remove(end, l);
            joined += l;
        }
        self.insert(start, joined);
        self.bytes += len;
        true
    }

    /// Up to `count` blocks of `block` bytes in as few extents as there are, `most` of them, each a whole number of blocks. Of extents that hold
    /// all that is wanted the shortest is cut, at its beginning, so that long ones stay long; if there is none, the longest.
    pub fn take(&mut self, block: u64, count: u64, most: usize) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        let mut left = count;
        while left > 0 && block > 0 && taken.len() < most {
            let want = block.saturating_mul(left);
            let found = self.by_len.range((want, 0)..).next().or_else(|| self.by_len.last()).copied();
            let Some((len, offset)) = found.filter(|(len, _)| *len >= block) else { break };
            let cut = want.min(len / block * block);
            self.remove(offset, len);
            if len > cut {
                self.insert(offset + cut, len - cut);
            }
            self.bytes -= cut;
            left -= cut / block;
            taken.push((offset, cut));
        }
        taken
    }

    /// Panics unless the two indexes and the count agree and neighbours are joined.
    #[cfg(test)]
    pub fn check(&self) {
        let mut end = None;
        let mut bytes = 0;
        for (offset, len) in self.iter() {
            assert!(len > 0 && offset % GRAIN == 0 && len % GRAIN == 0, "{offset}+{len} is whole grains");
            assert!(end.is_none_or(|end| end < offset), "the extent before {offset} is apart from it");
            assert!(self.by_len.contains(&(len, offset)), "{offset}+{len} is in both indexes");
            (end, bytes) = (Some(offset + len), bytes + len);
        }
        assert_eq!(
            (self.by_offset.len(), self.bytes),
            (self.by_len.len(), bytes),
            "both indexes, and the bytes are counted"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const G: u64 = GRAIN;

    #[test]
    fn extents_are_cut_from_the_shortest_that_fits_and_joined_again() {
        let mut free = FreeExtents::default();
        assert_eq!((free.take(G, 1, 9), free.longest(), free.blocks(G)), (Vec::new(), 0, 0));
        assert!(free.give(0, 4 * G) && free.give(10 * G, 20 * G));
        assert_eq!(free.clone().take(G, 99, 1), [(10 * G, 20 * G)], "no more extents than fit into a commit");
        assert_eq!(free.take(2 * G, 2, 9), [(0, 4 * G)]);
        assert_eq!(free.take(3 * G, 2, 9), [(10 * G, 6 * G)]);
        assert_eq!((free.blocks(4 * G), free.longest(), free.bytes()), (3, 14 * G, 14 * G));
        assert_eq!(free.take(5 * G, 9, 9), [(16 * G, 10 * G)], "as many as there are");
        assert!(free.give(16 * G, 10 * G) && free.give(10 * G, 6 * G));
        assert_eq!(free.iter().collect::<Vec<_>>(), [(10 * G, 20 * G)]);
    }

    #[test]
    fn what_is_free_or_no_extent_is_refused() {
        let mut free = FreeExtents::default();
        assert!(free.give(4 * G, 4 * G));
        for (offset, len) in [(4, 4), (3, 2), (7, 2), (5, 1), (0, 12), (9, 0)] {
            assert!(!free.give(offset * G, len * G), "{offset}+{len}");
        }
        assert!(!free.give(1, G) && !free.give(0, 1) && !free.give(u64::MAX - G + 1, 2 * G));
        assert_eq!(free.bytes(), 4 * G);
        free.check();
    }

    proptest! {
        /// Against a list of who has which grain.
        #[test]
        fn no_grain_is_given_twice(
            ops in proptest::collection::vec((any::<bool>(), 1u64..9, 1u64..5, any::<u32>()), 1..200),
        ) {
            const GRAINS: u64 = 256;
            let mut free = FreeExtents::default();
            prop_assert!(free.give(0, GRAINS * G));
            let mut owned = alloc::vec![false; GRAINS as usize];
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (take, block, count, pick) in ops {
                if take {
                    let fits = free.blocks(block * G);
                    let got = free.take(block * G, count, usize::MAX);
                    prop_assert_eq!(got.iter().map(|(_, len)| len / (block * G)).sum::<u64>(), fits.min(count));
                    for (offset, len) in got {
                        prop_assert!(len % (block * G) == 0);
                        for grain in offset / G..(offset + len) / G {
                            prop_assert!(!core::mem::replace(&mut owned[grain as usize], true));
                        }
                        held.push((offset, len));
                    }
                } else if !held.is_empty() {
                    let (offset, len) = held.swap_remove(pick as usize % held.len());
                    (offset / G..(offset + len) / G).for_each(|grain| owned[grain as usize] = false);
                    prop_assert!(free.give(offset, len));
                    prop_assert!(!free.give(offset, G));
                }
                free.check();
                let listed: u64 = owned.iter().filter(|o| !**o).count() as u64;
                prop_assert_eq!(free.bytes(), listed * G);
                prop_assert!(free.iter().all(|(o, l)| (o / G..(o + l) / G).all(|grain| !owned[grain as usize])));
            }
        }
    }
}
