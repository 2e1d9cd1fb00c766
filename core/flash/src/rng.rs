//! splitmix64 (Steele, Lea and Flood, 2014): small, seedable, the same on every machine.

/// A source of pseudo-random numbers for policies. Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng(u64);

/// Spreads a number over all 64 bits; the output function of splitmix64.
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Rng {
    /// The sequence of that seed.
    pub const fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`; 0 for n = 0.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        (((self.next_u64() >> 32) * u64::from(n)) >> 32) as u32
    }

    /// True once in a while: `parts` in a million.
    pub fn per_million(&mut self, parts: u32) -> bool {
        parts > 0 && self.below(1_000_000) < parts
    }
}

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
        let mut rng = Rng::new(seed);
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

    #[test]
    fn below_is_even() {
        let mut rng = Rng::new(3);
        let mut seen = [0u32; 10];
        for _ in 0..100_000 {
            seen[rng.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (9_500..10_500).contains(n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }
}
