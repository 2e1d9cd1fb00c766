//! Free blocks by plane, bad blocks, and the life of a block.

use alloc::vec;
use alloc::vec::Vec;
use weir_units::rng::{SplitMix64, mix};

/// Which blocks of a plane are free. A list for each plane in one array, of fixed size.
#[derive(Clone, Debug)]
pub struct FreeLists {
    blocks: Vec<u32>,
    count: Vec<u32>,
    each: u32,
}

impl FreeLists {
    /// Empty lists for so many planes, of at most `each` blocks.
    pub fn new(planes: u32, each: u32) -> Self {
        FreeLists { blocks: vec![0; (planes * each) as usize], count: vec![0; planes as usize], each }
    }

    /// Free blocks of the plane.
    #[inline]
    pub fn count(&self, plane: u32) -> u32 {
        self.count[plane as usize]
    }

    /// The plane's free blocks, in no particular order.
    pub fn of(&self, plane: u32) -> &[u32] {
        &self.blocks[(plane * self.each) as usize..][..self.count(plane) as usize]
    }

    /// A block was erased.
    pub fn put(&mut self, plane: u32, block: u32) {
        let count = &mut self.count[plane as usize];
        self.blocks[(plane * self.each + *count) as usize] = block;
        *count += 1;
    }

    /// Takes the block at place `at` of the plane's list.
    pub fn take(&mut self, plane: u32, at: usize) -> u32 {
        let count = &mut self.count[plane as usize];
        *count -= 1;
        let list = &mut self.blocks[(plane * self.each) as usize..][..=*count as usize];
        let last = list.len() - 1;
        list.swap(at, last);
        list[last]
    }

    /// Nothing is free.
    pub fn clear(&mut self) {
        self.count.fill(0);
    }
}

/// When blocks fail.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    seed: u64,
    /// Erases that a block endures; 0 for ever.
    pub endurance: u32,
    /// Chance that an erase fails before that, in a million.
    pub failures: u32,
}

impl Lifetimes {
    /// Of that seed.
    pub const fn new(seed: u64, endurance: u32, failures: u32) -> Self {
        Lifetimes { seed, endurance, failures }
    }

    /// Whether the block fails at this erase of its life. Blocks differ by up to a fifth in what they endure.
    pub fn fails(&self, block: u32, erases: u32, rng: &mut SplitMix64) -> bool {
        if self.endurance > 0 {
            let fifth = u64::from(self.endurance / 5);
            let more = mix(self.seed ^ u64::from(block)) % (2 * fifth + 1);
            if u64::from(erases) + fifth >= u64::from(self.endurance) + more {
                return true;
            }
        }
        rng.per_million(self.failures)
    }
}

/// The blocks that are bad when the drive leaves the factory, one bit each: so many in a million, from the seed.
pub fn factory_bad(blocks: u32, seed: u64, per_million: u32) -> Vec<bool> {
    if per_million == 0 {
        // Of a large drive these are hundreds of thousands of draws, at each start.
        return vec![false; blocks as usize];
    }
    let mut rng = SplitMix64::new(mix(seed ^ 0xbad));
    (0..blocks).map(|_| rng.per_million(per_million)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_give_back_what_they_got() {
        let mut free = FreeLists::new(2, 3);
        for b in [3, 4, 5] {
            free.put(1, b);
        }
        assert_eq!((free.count(0), free.of(1)), (0, &[3, 4, 5][..]));
        assert_eq!(free.take(1, 0), 3);
        assert_eq!(free.of(1), [5, 4]);
        assert_eq!((free.take(1, 1), free.take(1, 0), free.count(1)), (4, 5, 0));
    }

    #[test]
    fn blocks_last_about_as_long_as_promised() {
        let life = Lifetimes::new(7, 1000, 0);
        let mut rng = SplitMix64::new(1);
        let mut sum = 0;
        for block in 0..1000 {
            let ends = (0..2000).find(|e| life.fails(block, *e, &mut rng)).unwrap();
            assert!((800..=1200).contains(&ends), "{ends}");
            sum += ends;
        }
        assert!((970_000..1_030_000).contains(&sum), "{sum}");
        assert!(!Lifetimes::new(7, 0, 0).fails(0, u32::MAX, &mut rng));
    }
}
