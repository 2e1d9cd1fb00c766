//! xoshiro256++ (Blackman and Vigna, 2019), seeded by splitmix64: fast, 2^256 - 1 long, the same on every machine.

/// A seedable source of pseudo-random numbers. Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng([u64; 4]);

/// splitmix64's output function: spreads a number over all 64 bits.
pub(crate) const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    /// The sequence of that seed; every seed is good, 0 too.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(core::array::from_fn(|_| {
            state = state.wrapping_add(GOLDEN);
            mix(state)
        }))
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
    fn reference_sequence() {
        // From the authors' C code with the state {1, 2, 3, 4}.
        let mut r = Rng([1, 2, 3, 4]);
        assert_eq!([r.next_u64(), r.next_u64(), r.next_u64()], [41943041, 58720359, 3588806011781223]);
    }

    #[test]
    fn below_is_even() {
        let mut r = Rng::new(7);
        let mut seen = [0u32; 10];
        for _ in 0..100_000 {
            seen[r.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (9_500..10_500).contains(n)), "{seen:?}");
        assert_eq!(r.below(0), 0);
        assert_eq!(Rng::new(3), Rng::new(3));
        assert_ne!(Rng::new(3), Rng::new(4));
    }
}
