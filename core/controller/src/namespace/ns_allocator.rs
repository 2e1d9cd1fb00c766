//! Where the namespaces of a drive lie: its capacity in granules, and which namespace has which.
//!
//! ```text
//!  media │ 0 │ 1 │ 2 │ 3 │ 4 │ 5 │ …   granules: a power of two, 1 MiB at the least, 4096 of them at the most; the last may be shorter
//!          1   1   2   1   –   –       owners, by NSID
//!  namespace 1: granules 0, 1, 3       its bytes in this order: two extents, the namespace is fragmented
//! ```
//! Only the last granule of a namespace may be the short one: lists are made ascending, and what follows it is refused.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Most granules of a drive.
const GRANULES_MAX: u64 = 4096;
/// Smallest granule, as a power of two.
const SHIFT_MIN: u32 = 20;

/// The granule of a drive of so many bytes, in bytes.
pub fn granule(capacity: u64) -> u64 {
    1 << shift(capacity)
}

fn shift(capacity: u64) -> u32 {
    let mut shift = SHIFT_MIN;
    while capacity.div_ceil(1 << shift) > GRANULES_MAX {
        shift += 1;
    }
    shift
}

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allocator {
    shift: u32,
    capacity: u64,
    /// NSID by granule; 0 is free.
    owners: Vec<u32>,
    /// Granules by NSID, in the order of the namespace's bytes.
    lists: BTreeMap<u32, Vec<u32>>,
}

impl Allocator {
    /// All of it free.
    pub fn new(capacity: u64) -> Self {
        let shift = shift(capacity);
        let granules = capacity.div_ceil(1 << shift) as usize;
        Self { shift, capacity, owners: alloc::vec![0; granules], lists: BTreeMap::new() }
    }

    /// Bytes of the drive.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes of a granule.
    pub fn granule(&self) -> u64 {
        1 << self.shift
    }

    fn size(&self, granule: u32) -> u64 {
        self.granule().min(self.capacity - (u64::from(granule) << self.shift))
    }

    fn bytes(&self, granules: &[u32]) -> u64 {
        granules.iter().map(|g| self.size(*g)).sum()
    }

    /// Bytes that belong to nobody.
    pub fn free(&self) -> u64 {
        let free = self.owners.iter().enumerate().filter(|(_, owner)| **owner == 0);
        free.map(|(g, _)| self.size(g as u32)).sum()
    }

    /// Bytes that a namespace has, whole granules.
    pub fn allocated(&self, nsid: u32) -> u64 {
        self.lists.get(&nsid).map_or(0, |list| self.bytes(list))
    }

    /// The granules of a namespace, for whoever saves them.
    pub fn list(&self, nsid: u32) -> &[u32] {
        self.lists.get(&nsid).map_or(&[], Vec::as_slice)
    }

    /// Gives a namespace these granules; `false`, and nothing has changed, if they are not there or somebody has one.
    pub fn claim(&mut self, nsid: u32, granules: &[u32]) -> bool {
        let is_free = |g: &u32| self.owners.get(*g as usize) == Some(&0);
        let short_ends = granules.iter().rev().skip(1).all(|g| is_free(g) && self.size(*g) == self.granule());
        let distinct = (1..granules.len()).all(|i| !granules[..i].contains(&granules[i])) || granules.is_sorted();
        if !short_ends || !distinct || !granules.iter().all(is_free) || self.lists.contains_key(&nsid) {
            return false;
        }
        if granules.windows(2).any(|w| w[0] == w[1]) {
            return false;
        }
        granules.iter().for_each(|g| self.owners[*g as usize] = nsid);
        self.lists.insert(nsid, granules.to_vec());
        true
    }

    /// Gives a namespace that has nothing the granules that a range of the media touches.
    pub fn claim_range(&mut self, nsid: u32, start: u64, len: u64) -> bool {
        let whole =
            start % self.granule() == 0 && len > 0 && start.checked_add(len).is_some_and(|e| e <= self.capacity);
        let granules: Vec<u32> = if whole {
            ((start >> self.shift) as u32..(start + len).div_ceil(self.granule()) as u32).collect()
        } else {
            Vec::new()
        };
        whole && self.claim(nsid, &granules)
    }

    /// So many more bytes for a namespace, in one piece where there is such a piece; the new extents, or `None` if there is not so
    /// much.
    pub fn allocate(&mut self, nsid: u32, bytes: u64) -> Option<Vec<(u64, u64)>> {
        if bytes == 0 || bytes > self.free() {
            return None;
        }
        let old = self.list(nsid);
        if old.last().is_some_and(|g| self.size(*g) < self.granule()) {
            return None;
        }
        // Behind what it has, if that is free.
        let from = old.last().map(|g| *g as usize + 1);
        let mut granules = from.and_then(|at| self.run(at, bytes)).or_else(|| self.best_run(bytes)).unwrap_or_default();
        if granules.is_empty() {
            let mut left = bytes;
            for g in (0..self.owners.len() as u32).filter(|g| self.owners[*g as usize] == 0) {
                if left == 0 {
                    break;
                }
                left = left.saturating_sub(self.size(g));
                granules.push(g);
            }
        }
        granules.iter().for_each(|g| self.owners[*g as usize] = nsid);
        let extents = self.merged(&granules);
        self.lists.entry(nsid).or_default().extend(granules);
        Some(extents)
    }

    /// Free granules from `at` on that hold so many bytes.
    fn run(&self, at: usize, bytes: u64) -> Option<Vec<u32>> {
        let free = self.owners.get(at..)?.iter().take_while(|owner| **owner == 0).count();
        let mut sum = 0;
        for n in 0..free {
            sum += self.size((at + n) as u32);
            if sum >= bytes {
                return Some((at as u32..=(at + n) as u32).collect());
            }
        }
        None
    }

    /// The beginning of the shortest run of free granules that is long enough.
    fn best_run(&self, bytes: u64) -> Option<Vec<u32>> {
        let (mut at, mut best) = (0, None);
        while at < self.owners.len() {
            let run = self.owners[at..].iter().take_while(|owner| **owner == 0).count();
            if run > 0 && best.is_none_or(|(_, length)| run < length) && self.run(at, bytes).is_some() {
                best = Some((at, run));
            }
            at += run.max(1);
        }
        self.run(best?.0, bytes)
    }

    /// Takes back what a namespace has.
    pub fn release(&mut self, nsid: u32) {
        let list = self.lists.remove(&nsid).unwrap_or_default();
        list.iter().for_each(|g| self.owners[*g as usize] = 0);
    }

    fn merged(&self, granules: &[u32]) -> Vec<(u64, u64)> {
        let mut extents: Vec<(u64, u64)> = Vec::new();
        for g in granules {
            let (at, len) = (u64::from(*g) << self.shift, self.size(*g));
            match extents.last_mut() {
                Some((start, length)) if *start + *length == at => *length += len,
                _ => extents.push((at, len)),
            }
        }
        extents
    }

    /// What a namespace has: offsets and lengths in bytes of the media.
    pub fn extents(&self, nsid: u32) -> Vec<(u64, u64)> {
        self.merged(self.list(nsid))
    }

    /// Where bytes of a namespace lie: offsets and lengths of the media, in order. Nothing where it does not reach so far.
    pub fn pieces(&self, nsid: u32, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let list = self.list(nsid);
        let mut pieces: Vec<(u64, u64)> = Vec::new();
        let (mut at, mut left) = (offset, len);
        while left > 0 {
            let Some(g) = list.get((at >> self.shift) as usize) else { return Vec::new() };
            let inside = at & (self.granule() - 1);
            let take = self.size(*g).saturating_sub(inside).min(left);
            if take == 0 {
                return Vec::new();
            }
            let place = (u64::from(*g) << self.shift) + inside;
            match pieces.last_mut() {
                Some((start, length)) if *start + *length == place => *length += take,
                _ => pieces.push((place, take)),
            }
            (at, left) = (at + take, left - take);
        }
        pieces
    }

    /// Panics unless owners and lists agree.
    pub fn check(&self) {
        let mut owners = alloc::vec![0; self.owners.len()];
        for (nsid, list) in &self.lists {
            assert!(*nsid != 0 && !list.is_empty(), "namespace {nsid} has something");
            for (i, g) in list.iter().enumerate() {
                assert_eq!(core::mem::replace(&mut owners[*g as usize], *nsid), 0, "granule {g} belongs to one");
                assert!(i + 1 == list.len() || self.size(*g) == self.granule(), "a short granule comes last");
            }
        }
        assert_eq!(owners, self.owners);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn granules_stay_few() {
        assert_eq!(granule(1), MIB);
        assert_eq!(granule(4096 * MIB), MIB);
        assert_eq!(granule(4096 * MIB + 1), 2 * MIB);
        assert_eq!(granule(1 << 40), 256 * MIB);
    }

    #[test]
    fn space_is_given_in_one_piece_where_there_is_one() {
        let mut allocator = Allocator::new(10 * MIB + 512);
        assert_eq!((allocator.free(), allocator.capacity()), (10 * MIB + 512, 10 * MIB + 512));
        assert_eq!(allocator.allocate(1, 2 * MIB), Some(alloc::vec![(0, 2 * MIB)]));
        assert_eq!(allocator.allocate(2, MIB + 1), Some(alloc::vec![(2 * MIB, 2 * MIB)]));
        assert_eq!(allocator.allocate(3, 4 * MIB), Some(alloc::vec![(4 * MIB, 4 * MIB)]));
        allocator.release(1);
        // The shorter hole is taken before the longer one is begun.
        assert_eq!(allocator.allocate(4, MIB), Some(alloc::vec![(0, MIB)]));
        allocator.release(4);
        // Fragments: two and a half of them, the short one last.
        assert_eq!(allocator.allocate(5, 4 * MIB + 512), Some(alloc::vec![(0, 2 * MIB), (8 * MIB, 2 * MIB + 512)]));
        allocator.check();
        assert_eq!((allocator.free(), allocator.allocated(5)), (0, 4 * MIB + 512));
        assert_eq!(allocator.allocate(6, 1), None);
        assert_eq!(allocator.pieces(5, MIB, 2 * MIB), [(MIB, MIB), (8 * MIB, MIB)]);
        assert_eq!(allocator.pieces(5, 4 * MIB, 512), [(10 * MIB, 512)]);
        assert_eq!(allocator.pieces(5, 4 * MIB, 513), []);
        assert_eq!(allocator.pieces(7, 0, 1), []);
        assert_eq!(allocator.allocate(5, 1), None, "nothing comes behind the short granule");
        allocator.release(3);
        // Growing goes on behind what there is, or in another place.
        assert_eq!(allocator.allocate(2, MIB), Some(alloc::vec![(4 * MIB, MIB)]));
        assert_eq!(allocator.extents(2), [(2 * MIB, 3 * MIB)]);
        allocator.check();
    }

    #[test]
    fn claims_are_checked() {
        let mut allocator = Allocator::new(4 * MIB + 4096);
        assert!(allocator.claim_range(1, 0, 2 * MIB));
        for (start, len) in
            [(0, MIB), (MIB, MIB), (512, MIB), (3 * MIB, 2 * MIB), (2 * MIB, 0), (u64::MAX - MIB + 1, MIB)]
        {
            assert!(!allocator.claim_range(2, start, len), "{start} {len}");
        }
        for wrong in [&[2, 2][..], &[5], &[4, 3], &[1], &[2, 3, 2]] {
            assert!(!allocator.claim(2, wrong), "{wrong:?}");
        }
        assert!(allocator.claim(2, &[3, 2, 4]));
        assert!(!allocator.claim(2, &[]));
        allocator.check();
        assert_eq!(allocator.extents(2), [(3 * MIB, MIB), (2 * MIB, MIB), (4 * MIB, 4096)]);
    }

    /// Against the obvious: every byte of every namespace is at one place, and no place is two namespaces'.
    #[test]
    fn nothing_overlaps() {
        let mut seed = 7u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let mut allocator = Allocator::new(40 * MIB + 8192);
        for _ in 0..2000 {
            let nsid = next(6) as u32 + 1;
            let before = allocator.free();
            match next(3) {
                0 => allocator.release(nsid),
                _ => {
                    let bytes = next(12 * MIB) + 1;
                    let held = allocator.allocated(nsid);
                    let given = allocator.allocate(nsid, bytes);
                    match &given {
                        Some(extents) => {
                            let sum: u64 = extents.iter().map(|e| e.1).sum();
                            assert!(sum >= bytes && sum < bytes + MIB && allocator.allocated(nsid) == held + sum);
                        }
                        None => assert_eq!(allocator.free(), before),
                    }
                }
            }
            allocator.check();
            let all = allocator.allocated(nsid);
            let mut at = 0;
            for (place, len) in allocator.pieces(nsid, 0, all) {
                // The same a piece at a time, from any place on.
                let from = next(len);
                assert_eq!(allocator.pieces(nsid, at + from, 1), [(place + from, 1)]);
                at += len;
            }
            assert_eq!(at, all);
        }
    }
}
