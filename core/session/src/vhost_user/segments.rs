//! Where the segments of requests in flight are kept: a few in the request itself, longer lists in blocks of a pool that
//! is allocated when the queue starts.

use super::chain::{GuestSegment, MAX_CHAIN};
use alloc::vec;
use alloc::vec::Vec;

/// Segments kept in the request itself.
pub(super) const INLINE: usize = 4;
const BLOCK: usize = 15;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    segments: [GuestSegment; BLOCK],
    next: u32,
}

/// Blocks that the longest request takes.
const WORST: usize = MAX_CHAIN.div_ceil(BLOCK);

/// A list of segments; the blocks belong to the [`SegmentPool`] that made it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentList {
    inline: [GuestSegment; INLINE],
    count: u16,
    first: u32,
}

impl SegmentList {
    pub(super) const EMPTY: SegmentList =
        SegmentList { inline: [GuestSegment { address: 0, len: 0 }; INLINE], count: 0, first: NONE };

    /// The only segment, where there is but one.
    #[inline]
    pub(super) fn single(&self) -> Option<GuestSegment> {
        if self.count == 1 { Some(self.inline[0]) } else { None }
    }
}

#[derive(Debug)]
pub(super) struct SegmentPool {
    blocks: Vec<Block>,
    free: u32,
    free_count: usize,
}

impl SegmentPool {
    /// Blocks for a queue of that size: at least four of the longest requests, and two blocks (30 segments) for each.
    pub(super) fn new(size: u16) -> Self {
        let count = (4 * WORST).max(2 * usize::from(size));
        let mut blocks = vec![Block { segments: [GuestSegment::default(); BLOCK], next: NONE }; count];
        for (i, b) in blocks.iter_mut().enumerate() {
            b.next = if i + 1 < count { i as u32 + 1 } else { NONE };
        }
        Self { blocks, free: 0, free_count: count }
    }

    /// Whether any request fits.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.free_count >= WORST
    }

    /// Keeps `segments` in an empty list; [`SegmentPool::has_room`] was asked before.
    #[inline]
    pub(super) fn keep(&mut self, list: &mut SegmentList, segments: &[GuestSegment]) {
        (list.count, list.first) = (segments.len() as u16, NONE);
        if segments.len() <= INLINE {
            for (to, from) in list.inline.iter_mut().zip(segments) {
                *to = *from;
            }
        } else {
            list.first = self.keep_blocks(segments);
        }
    }

    fn keep_blocks(&mut self, segments: &[GuestSegment]) -> u32 {
        let first = self.free;
        let mut last = NONE;
        for part in segments.chunks(BLOCK) {
            let at = self.free;
            let block = &mut self.blocks[at as usize];
            block.segments[..part.len()].copy_from_slice(part);
            self.free = block.next;
            self.free_count -= 1;
            last = at;
        }
        self.blocks[last as usize].next = NONE;
        first
    }

    /// Gives the blocks back.
    #[inline]
    pub(super) fn release(&mut self, list: &mut SegmentList) {
        let mut at = core::mem::replace(&mut list.first, NONE);
        list.count = 0;
        while at != NONE {
            let next = self.blocks[at as usize].next;
            self.blocks[at as usize].next = self.free;
            self.free = at;
            self.free_count += 1;
            at = next;
        }
    }

    /// Calls `f` with the pieces of `list` that cover `len` bytes from `offset`; false if they are fewer.
    #[inline]
    pub(super) fn cover<E>(
        &self,
        list: &SegmentList,
        offset: u64,
        len: usize,
        mut f: impl FnMut(u64, usize, usize) -> Result<(), E>,
    ) -> Result<bool, E> {
        let (mut skip, mut done) = (offset, 0);
        let mut visit = |s: &GuestSegment| -> Result<bool, E> {
            let size = u64::from(s.len);
            if skip >= size {
                skip -= size;
                return Ok(done == len);
            }
            let n = ((size - skip) as usize).min(len - done);
            f(s.address + skip, done, n)?;
            skip = 0;
            done += n;
            Ok(done == len)
        };
        let count = usize::from(list.count);
        if count <= INLINE {
            for s in &list.inline[..count] {
                if visit(s)? {
                    return Ok(true);
                }
            }
            return Ok(len == 0);
        }
        let (mut at, mut left) = (list.first, count);
        while at != NONE && left > 0 {
            let block = &self.blocks[at as usize];
            for s in &block.segments[..left.min(BLOCK)] {
                if visit(s)? {
                    return Ok(true);
                }
            }
            left = left.saturating_sub(BLOCK);
            at = block.next;
        }
        Ok(len == 0)
    }

    #[cfg(test)]
    pub(super) fn free_count(&self) -> usize {
        self.free_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the obvious: a byte's address found by walking a flat list.
        #[test]
        fn cover_finds_every_byte(lens in proptest::collection::vec(1u32..20, 1..MAX_CHAIN), from in 0u64..600, want in 0usize..600) {
            let mut pool = SegmentPool::new(4);
            let segments: Vec<_> =
                lens.iter().enumerate().map(|(i, l)| GuestSegment { address: 1000 * i as u64, len: *l }).collect();
            let flat: Vec<u64> = segments.iter().flat_map(|s| (0..u64::from(s.len)).map(|i| s.address + i)).collect();
            let free = pool.free_count();
            let mut list = SegmentList::EMPTY;
            pool.keep(&mut list, &segments);
            let mut got = Vec::new();
            let whole = pool.cover(&list, from, want, |a, at, n| {
                assert_eq!(at, got.len());
                got.extend((0..n as u64).map(|i| a + i));
                Ok::<_, ()>(())
            }).unwrap();
            let expect: Vec<u64> = flat.iter().copied().skip(from as usize).take(want).collect();
            prop_assert_eq!(whole, expect.len() == want);
            prop_assert_eq!(got, expect);
            pool.release(&mut list);
            prop_assert_eq!(pool.free_count(), free);
        }
    }

    #[test]
    fn blocks_come_back_in_any_order() {
        let mut pool = SegmentPool::new(1);
        let all = [GuestSegment { address: 1, len: 1 }; MAX_CHAIN];
        let start = pool.free_count();
        for _ in 0..10 {
            let [mut a, mut b, mut c] = [SegmentList::EMPTY; 3];
            pool.keep(&mut a, &all[..100]);
            pool.keep(&mut b, &all);
            pool.keep(&mut c, &all[..5]);
            pool.release(&mut b);
            pool.release(&mut a);
            pool.release(&mut c);
            assert_eq!(pool.free_count(), start);
        }
    }
}
