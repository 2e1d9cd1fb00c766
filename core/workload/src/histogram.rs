//! A log-linear histogram of fixed size.
//!
//! Values below 256 have a bucket each; above, every octave has 128 of equal width, so that a bucket's middle is within
//! 1/256 (0.4 %) of every value in it:
//!
//! ```text
//!   value   0 … 255 | 256 … 511 | 512 … 1023 | …        shift = max(0, msb(value) - 7)
//!   width      1    |     2     |     4      |          index = shift * 128 + (value >> shift)
//! ```
//!
//! Recording is a shift, two additions and one increment in memory: 1 to 2 ns.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

const SUB_BITS: u32 = 7;
const BUCKETS: usize = ((64 - SUB_BITS as usize - 1) << SUB_BITS) + (1 << (SUB_BITS + 1));

/// Counts of values (nanoseconds, as a rule) with 0.4 % resolution over all of `u64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    sum: u128,
    min: u64,
    max: u64,
}

/// Bytes that are no saved histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHistogram;

impl core::fmt::Display for BadHistogram {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("these bytes are not a saved histogram")
    }
}

impl core::error::Error for BadHistogram {}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

const fn index(value: u64) -> usize {
    let shift = 63 - SUB_BITS - (value | 1 << SUB_BITS).leading_zeros();
    ((shift as usize) << SUB_BITS) + (value >> shift) as usize
}

/// The bucket's lowest value and its width.
const fn range(index: usize) -> (u64, u64) {
    let octave = index >> SUB_BITS;
    if octave < 2 {
        return (index as u64, 1);
    }
    let shift = octave - 1;
    (((index - (shift << SUB_BITS)) as u64) << shift, 1 << shift)
}

impl Histogram {
    /// An empty one; 58 KiB.
    pub fn new() -> Self {
        // A vector first: a boxed array would be built on the stack.
        let counts = match vec![0; BUCKETS].into_boxed_slice().try_into() {
            Ok(array) => array,
            Err(_) => unreachable!("the vector has as many elements"),
        };
        Self { counts, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Counts one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts a value `n` times.
    #[inline]
    pub fn record_n(&mut self, value: u64, n: u64) {
        self.counts[index(value)] += n;
        self.sum += u128::from(value) * u128::from(n);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        for (a, b) in self.counts.iter_mut().zip(other.counts.iter()) {
            *a += b;
        }
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.sum, self.min, self.max) = (0, u64::MAX, 0);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The exact mean; 0 when empty.
    pub fn mean(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            n => self.sum as f64 / n as f64,
        }
    }

    /// The exact largest; 0 when empty.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The exact smallest; 0 when empty.
    pub fn min(&self) -> u64 {
        if self.min > self.max { 0 } else { self.min }
    }

    /// The value at or below which `percent` of the values lie, to 0.4 %; 0 when empty.
    pub fn percentile(&self, percent: f64) -> u64 {
        let total = self.count();
        if total == 0 {
            return 0;
        }
        // Rank of the wanted value, 1-based, rounded up: p50 of two values is the first.
        let exact = total as f64 * percent.clamp(0.0, 100.0) / 100.0;
        let whole = exact as u64;
        let rank = (whole + u64::from(exact > whole as f64)).clamp(1, total);
        let mut seen = 0;
        for (i, n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return self.shown(range(i));
            }
        }
        self.max
    }

    /// How many of the values [`percentile`](Self::percentile) would call more than `value`.
    pub fn above(&self, value: u64) -> u64 {
        self.buckets().filter(|(low, width, _)| self.shown((*low, *width)) > value).map(|(_, _, n)| n).sum()
    }

    /// What stands for the values of a bucket, given as lowest value and width.
    fn shown(&self, (low, width): (u64, u64)) -> u64 {
        (low + width / 2).clamp(self.min, self.max)
    }

    /// The buckets in use, as lowest value, width and count, in order.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, n)| **n != 0).map(|(i, n)| {
            let (low, width) = range(i);
            (low, width, *n)
        })
    }

    /// As bytes: `sum` (16), `min` (8), `max` (8), total count (8), then bucket number (4) and count (8) of each bucket in
    /// use, little endian.
    pub fn save(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.sum.to_le_bytes());
        out.extend_from_slice(&self.min.to_le_bytes());
        out.extend_from_slice(&self.max.to_le_bytes());
        out.extend_from_slice(&self.count().to_le_bytes());
        for (i, n) in self.counts.iter().enumerate().filter(|(_, n)| **n != 0) {
            out.extend_from_slice(&(i as u32).to_le_bytes());
            out.extend_from_slice(&n.to_le_bytes());
        }
        out
    }

    /// From [`save`](Self::save)'s bytes.
    ///
    /// # Errors
    /// The bytes are cut, name a bucket that does not exist, the buckets are not in order or do not add up.
    pub fn load(bytes: &[u8]) -> Result<Self, BadHistogram> {
        let word = |at: usize| -> Result<u64, BadHistogram> {
            let b = bytes.get(at..at + 8).ok_or(BadHistogram)?;
            b.try_into().map(u64::from_le_bytes).map_err(|_| BadHistogram)
        };
        let mut h = Self::new();
        h.sum = u128::from(word(0)?) | u128::from(word(8)?) << 64;
        (h.min, h.max) = (word(16)?, word(24)?);
        let pairs = bytes.get(40..).ok_or(BadHistogram)?;
        if pairs.len() % 12 != 0 {
            return Err(BadHistogram);
        }
        let (mut next, mut total) = (0, 0u64);
        for pair in pairs.chunks_exact(12) {
            let i = u32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]]) as usize;
            let n = pair[4..].try_into().map(u64::from_le_bytes).map_err(|_| BadHistogram)?;
            if i < next || i >= BUCKETS {
                return Err(BadHistogram);
            }
            h.counts[i] = n;
            next = i + 1;
            total = total.checked_add(n).ok_or(BadHistogram)?;
        }
        if total == word(32)? { Ok(h) } else { Err(BadHistogram) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_lies_above_a_percentile_says_the_same(values in prop::collection::vec(0u64..3_000, 1..200), bound in 0u64..3_100) {
            let mut h = Histogram::new();
            values.iter().for_each(|v| h.record(*v));
            for percent in [50.0, 99.0, 99.9] {
                let may = values.len() as f64 * (100.0 - percent) / 100.0;
                let kept = h.above(bound) as f64 <= may + 1e-9;
                prop_assert_eq!(h.percentile(percent) <= bound, kept, "{} of {:?}", percent, values);
            }
        }
    }

    #[test]
    fn buckets_tile_all_values() {
        let mut next = 0u64;
        for i in 0..BUCKETS {
            let (low, width) = range(i);
            assert_eq!(low, next, "bucket {i}");
            assert_eq!(index(low), i);
            assert_eq!(index(low + (width - 1)), i);
            next = low.wrapping_add(width);
        }
        assert_eq!(next, 0, "the last bucket ends at 2^64");
    }

    #[test]
    fn empty() {
        let h = Histogram::new();
        assert_eq!((h.count(), h.min(), h.max(), h.percentile(99.0)), (0, 0, 0, 0));
        assert_eq!(h.mean(), 0.0);
    }

    fn oracle(sorted: &[u64], percent: f64) -> u64 {
        let rank = (sorted.len() as f64 * percent / 100.0).ceil().max(1.0) as usize;
        sorted[rank.min(sorted.len()) - 1]
    }

    proptest! {
        #[test]
        fn within_one_percent_of_the_exact_percentile(
            mut values in prop::collection::vec(prop_oneof![0u64..300, 0u64..1_000_000, any::<u64>()], 1..400),
            percent in prop_oneof![Just(50.0), Just(99.0), Just(99.9), 0.0..100.0f64],
        ) {
            let mut h = Histogram::new();
            for v in &values {
                h.record(*v);
            }
            values.sort_unstable();
            let (want, got) = (oracle(&values, percent), h.percentile(percent));
            prop_assert!(want.abs_diff(got) as f64 <= want as f64 * 0.01, "{want} {got}");
            prop_assert_eq!((h.min(), h.max()), (values[0], values[values.len() - 1]));
            prop_assert_eq!(h.count(), values.len() as u64);
            let mean = values.iter().map(|v| *v as f64).sum::<f64>() / values.len() as f64;
            prop_assert!((h.mean() - mean).abs() <= mean * 1e-9);
        }

        #[test]
        fn merging_is_recording_both(a in prop::collection::vec(any::<u64>(), 0..50), b in prop::collection::vec(any::<u64>(), 0..50)) {
            let of = |values: &[u64]| {
                let mut h = Histogram::new();
                values.iter().for_each(|v| h.record(*v));
                h
            };
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let both = of(&[a, b].concat());
            prop_assert_eq!(&merged, &both);
            prop_assert_eq!(Histogram::load(&merged.save()), Ok(both));
        }

        #[test]
        fn loading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Histogram::load(&bytes);
        }
    }

    #[test]
    fn cut_or_false_bytes_are_refused() {
        let mut h = Histogram::new();
        h.record(5);
        let good = h.save();
        for len in 0..good.len() {
            assert_eq!(Histogram::load(&good[..len]), Err(BadHistogram), "{len}");
        }
        let mut bad = good.clone();
        bad[40..44].copy_from_slice(&(BUCKETS as u32).to_le_bytes());
        assert_eq!(Histogram::load(&bad), Err(BadHistogram));
        let twice = [good.clone(), good[40..].to_vec()].concat();
        assert_eq!(Histogram::load(&twice), Err(BadHistogram));
    }

    #[test]
    fn clear_forgets() {
        let mut h = Histogram::new();
        h.record_n(9, 4);
        h.clear();
        assert_eq!(h, Histogram::new());
    }
}
