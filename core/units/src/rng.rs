//! Seedable pseudo-random numbers, the same on every machine: for policies, workloads and tests, not for secrets.
//!
//! [`SplitMix64`] is small, and a number's hash as well ([`mix`]); [`Xoshiro256`] is the one for long sequences.

/// Spreads a number over all 64 bits: the output function of splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
/// Generators", 2014). 0 stays 0.
#[inline]
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What splitmix64 adds at each step: 2^64 over the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// splitmix64: one word of state, a period of 2^64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of that seed; every seed is good.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Where the sequence is: [`at`](Self::at) goes on there.
    pub const fn state(&self) -> u64 {
        self.0
    }

    /// A sequence that goes on from its [`state`](Self::state).
    pub const fn at(state: u64) -> Self {
        Self(state)
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `n`; 0 for n = 0. The bias is below n / 2^32.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        (((self.next_u64() >> 32) * u64::from(n)) >> 32) as u32
    }

    /// True with a probability of `parts` in a million; never for 0, and without a draw then.
    pub fn per_million(&mut self, parts: u32) -> bool {
        parts > 0 && self.below(1_000_000) < parts
    }
}

/// xoshiro256++ (Blackman and Vigna, "Scrambled Linear Pseudorandom Number Generators", 2021), seeded by splitmix64: a period of
/// 2^256 - 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xoshiro256([u64; 4]);

impl Xoshiro256 {
    /// The sequence of that seed; every seed is good, 0 too.
    pub fn new(seed: u64) -> Self {
        let mut words = SplitMix64::new(seed);
        Self(core::array::from_fn(|_| words.next_u64()))
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// A number below `n` (0 for n = 0), by multiplication: the bias is below n / 2^64.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authors_sequences() {
        // splitmix64.c with the seed 1234567, and xoshiro256plusplus.c with the state {1, 2, 3, 4}.
        let mut r = SplitMix64::new(1_234_567);
        assert_eq!([r.next_u64(), r.next_u64()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        let mut r = Xoshiro256([1, 2, 3, 4]);
        assert_eq!([r.next_u64(), r.next_u64(), r.next_u64()], [41_943_041, 58_720_359, 3_588_806_011_781_223]);
    }

    #[test]
    fn below_is_even() {
        let (mut short, mut long) = (SplitMix64::new(3), Xoshiro256::new(7));
        let mut seen = [[0u32; 10]; 2];
        for _ in 0..100_000 {
            seen[0][short.below(10) as usize] += 1;
            seen[1][long.below(10) as usize] += 1;
        }
        assert!(seen.iter().flatten().all(|n| (9_500..10_500).contains(n)), "{seen:?}");
        assert_eq!((short.below(0), long.below(0)), (0, 0));
        assert_eq!(Xoshiro256::new(3), Xoshiro256::new(3));
        assert_ne!(Xoshiro256::new(3), Xoshiro256::new(4));
    }

    #[test]
    fn so_many_in_a_million() {
        let mut r = SplitMix64::new(5);
        let hits = (0..100_000).filter(|_| r.per_million(250_000)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert!(!(0..1000).any(|_| r.per_million(0)));
        assert!((0..1000).all(|_| r.per_million(1_000_000)));
    }
}
