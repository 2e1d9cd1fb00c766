//! The buddy system over the chunks of one drive: free blocks of 2^order chunks, each at a multiple of its size, in a bitmap an order.
//! A block that comes back is joined with its buddy, so what is free is always in the largest blocks that there are.

use crate::extent::{ChunkRun, Chunks};
use alloc::vec::Vec;

/// Free blocks of one order.
#[derive(Clone, Debug)]
struct Order {
    bits: Vec<u64>,
    count: u32,
    /// No block is free in words before this one.
    first: usize,
}

impl Order {
    fn new(blocks: u32) -> Self {
        Self { bits: alloc::vec![0; blocks.div_ceil(64) as usize], count: 0, first: 0 }
    }

    fn has(&self, block: u32) -> bool {
        self.bits.get((block / 64) as usize).is_some_and(|word| word >> (block % 64) & 1 != 0)
    }

    fn insert(&mut self, block: u32) {
        let word = (block / 64) as usize;
        self.bits[word] |= 1 << (block % 64);
        self.count += 1;
        self.first = self.first.min(word);
    }

    fn remove(&mut self, block: u32) {
        self.bits[(block / 64) as usize] &= !(1 << (block % 64));
        self.count -= 1;
    }

    /// The lowest free block, which is not free any more.
    fn pop(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let word = (self.first..self.bits.len()).find(|w| self.bits[*w] != 0)?;
        self.first = word;
        let block = word as u32 * 64 + self.bits[word].trailing_zeros();
        self.remove(block);
        Some(block)
    }
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Buddy {
    chunks: u32,
    free: u32,
    orders: Vec<Order>,
}

impl Buddy {
    /// Over so many chunks, none of them free.
    pub fn new(chunks: u32) -> Self {
        let most = chunks.max(1).ilog2();
        let orders = (0..=most).map(|order| Order::new(chunks >> order)).collect();
        Self { chunks, free: 0, orders }
    }

    /// Free chunks.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Chunks of the largest free block.
    pub fn largest(&self) -> u32 {
        let most = (0..self.orders.len()).rev().find(|order| self.orders[*order].count > 0);
        most.map_or(0, |order| 1 << order)
    }

    /// Takes back chunks that are not free.
    pub fn give(&mut self, run: ChunkRun) {
        self.free += run.len;
        let (mut start, end) = (run.start, run.end() as u32);
        while start < end {
            let aligned = if start == 0 { 31 } else { start.trailing_zeros() };
            let order = aligned.min((end - start).ilog2());
            self.join(start >> order, order as usize);
            start += 1 << order;
        }
    }

    fn join(&mut self, mut block: u32, mut order: usize) {
        while order + 1 < self.orders.len() && self.orders[order].has(block ^ 1) {
            self.orders[order].remove(block ^ 1);
            (block, order) = (block / 2, order + 1);
        }
        self.orders[order].insert(block);
    }

    /// A block of 2^order chunks, cut out of the smallest free one that holds it.
    fn take_order(&mut self, order: usize) -> Option<u32> {
        let from = (order..self.orders.len()).find(|o| self.orders[*o].count > 0)?;
        let mut block = self.orders[from].pop()?;
        for o in (order..from).rev() {
            block *= 2;
            self.orders[o].insert(block + 1);
        }
        Some(block << order)
    }

    /// So many chunks in as few runs as there are: the largest powers of two first. `None`, and nothing has changed, if
    /// not so many are free.
    pub fn take(&mut self, chunks: u32) -> Option<Vec<ChunkRun>> {
        if chunks > self.free {
            return None;
        }
        self.free -= chunks;
        let (mut runs, mut left): (Vec<ChunkRun>, u32) = (Vec::new(), chunks);
        while left > 0 {
            let mut order = (left.ilog2() as usize).min(self.orders.len() - 1);
            let start = loop {
                match self.take_order(order) {
                    Some(start) => break start,
                    None => order -= 1,
                }
            };
            left -= 1 << order;
            match runs.last_mut() {
                Some(run) if run.end() == u64::from(start) => run.len += 1 << order,
                _ => runs.push(ChunkRun { start, len: 1 << order }),
            }
        }
        Some(runs)
    }

    /// Panics unless bitmaps, counts and what is joined agree; the free chunks.
    pub fn check(&self) -> Chunks {
        let mut free = Chunks::new(self.chunks);
        let mut sum = 0;
        for (o, order) in self.orders.iter().enumerate() {
            let blocks: Vec<u32> = (0..self.chunks >> o).filter(|b| order.has(*b)).collect();
            assert_eq!(blocks.len(), order.count as usize, "order {o} counts its blocks");
            assert!(order.bits[..order.first].iter().all(|w| *w == 0), "order {o} has nothing before its first");
            for block in blocks {
                let joined = o + 1 == self.orders.len() || !order.has(block ^ 1);
                assert!(joined, "block {block} of order {o} and its buddy are both free");
                assert!(
                    free.mark(ChunkRun { start: block << o, len: 1 << o }),
                    "block {block} of order {o} is free once"
                );
                sum += 1 << o;
            }
        }
        assert_eq!(sum, self.free, "free chunks are counted");
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_are_cut_and_joined() {
        let mut buddy = Buddy::new(11);
        assert_eq!((buddy.take(1), buddy.largest()), (None, 0));
        buddy.give(ChunkRun { start: 1, len: 10 });
        // 1, 2-3, 4-7, 8-9, 10
        assert_eq!((buddy.free(), buddy.largest()), (10, 4));
        assert_eq!(buddy.take(5), Some(alloc::vec![ChunkRun { start: 4, len: 4 }, ChunkRun { start: 1, len: 1 }]));
        assert_eq!(buddy.take(4), Some(alloc::vec![ChunkRun { start: 2, len: 2 }, ChunkRun { start: 8, len: 2 }]));
        assert_eq!((buddy.take(2), buddy.free()), (None, 1));
        for run in [(4, 4), (1, 1), (2, 2), (8, 2)] {
            buddy.give(ChunkRun { start: run.0, len: run.1 });
            buddy.check();
        }
        buddy.give(ChunkRun { start: 0, len: 1 });
        assert_eq!((buddy.free(), buddy.largest()), (11, 8));
        assert_eq!(buddy.take(11), Some(alloc::vec![ChunkRun { start: 0, len: 11 }]));
    }

    proptest! {
        /// Against a list of who has which chunk.
        #[test]
        fn no_chunk_is_given_twice(
            chunks in 1u32..300,
            ops in proptest::collection::vec((any::<bool>(), any::<u32>()), 1..200),
        ) {
            let mut buddy = Buddy::new(chunks);
            buddy.give(ChunkRun { start: 0, len: chunks });
            let mut owned = alloc::vec![false; chunks as usize];
            let mut held: Vec<ChunkRun> = Vec::new();
            for (take, n) in ops {
                if take {
                    let want = n % chunks + 1;
                    let free = owned.iter().filter(|o| !**o).count() as u32;
                    let got = buddy.take(want);
                    prop_assert_eq!(got.is_some(), want <= free);
                    for run in got.unwrap_or_default() {
                        for c in run.start..run.end() as u32 {
                            prop_assert!(!core::mem::replace(&mut owned[c as usize], true));
                        }
                        held.push(run);
                    }
                } else if !held.is_empty() {
                    let run = held.swap_remove(n as usize % held.len());
                    (run.start..run.end() as u32).for_each(|c| owned[c as usize] = false);
                    buddy.give(run);
                }
                let free = buddy.check();
                prop_assert!((0..chunks).all(|c| free.has(c) != owned[c as usize]));
            }
        }
    }
}
