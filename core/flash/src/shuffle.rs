//! Permutations that need no memory.

use weir_units::rng::{SplitMix64, mix};

/// A permutation of 0..n: four rounds of a Feistel network over the next power of four, walking past what lies outside.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    n: u32,
    half: u32,
    keys: [u64; 4],
}

impl Shuffle {
    /// That of the seed.
    pub fn new(n: u32, seed: u64) -> Self {
        let bits = 32 - n.saturating_sub(1).leading_zeros();
        let mut rng = SplitMix64::new(seed);
        Shuffle { n, half: bits.div_ceil(2).max(1), keys: core::array::from_fn(|_| rng.next_u64()) }
    }

    /// Where `i` goes; `i` below n.
    pub fn get(&self, i: u32) -> u32 {
        let mask = (1u64 << self.half) - 1;
        let mut at = u64::from(i);
        loop {
            let (mut left, mut right) = (at >> self.half, at & mask);
            for key in self.keys {
                (left, right) = (right, left ^ (mix(right ^ key) & mask));
            }
            at = left << self.half | right;
            if at < u64::from(self.n) {
                return at as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn shuffles_are_permutations() {
        for n in [1, 2, 3, 64, 1000, 4097] {
            let shuffle = Shuffle::new(n, 5);
            let mut seen = vec![false; n as usize];
            for i in 0..n {
                assert!(!core::mem::replace(&mut seen[shuffle.get(i) as usize], true));
            }
        }
        let moved = (0..1000).filter(|i| Shuffle::new(1000, 1).get(*i) != *i).count();
        assert!(moved > 950, "{moved}");
    }
}
