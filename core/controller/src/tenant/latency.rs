//! How long commands took, from their arrival at the drive to their completion, counted by fixed bounds.
//!
//! Bounds are 1, 2.5 and 5 in every decade from 1 us to 10 s: no octave has two of them, so that a value's bucket is found by
//! its leading bit and one comparison.

use weir_spec::nvme::IoOpcode;
use weir_units::Nanos;

/// Upper bounds of the buckets, each included in its own; behind them is one more for what took longer.
pub const LATENCY_BOUNDS: [Nanos; BOUNDS] = bounds();

const BOUNDS: usize = 22;

const fn bounds() -> [Nanos; BOUNDS] {
    let mut all = [Nanos(0); BOUNDS];
    let (mut decade, mut i) = (1_000, 0);
    while i < BOUNDS {
        all[i] = Nanos(decade * [2, 5, 10][i % 3] / 2);
        decade *= [1, 1, 10][i % 3];
        i += 1;
    }
    all
}

/// Values with the same leading bit.
#[derive(Clone, Copy)]
struct Octave {
    /// Bounds below all of them.
    below: u8,
    /// The bound among them, or one above all.
    bound: u64,
}

const OCTAVES: [Octave; 64] = octaves();

const fn octaves() -> [Octave; 64] {
    let mut all = [Octave { below: 0, bound: u64::MAX }; 64];
    let mut octave = 0;
    while octave < 64 {
        let mut i = 0;
        while i < BOUNDS {
            let bound = LATENCY_BOUNDS[i].0;
            if bound < 1 << octave {
                all[octave].below += 1;
            } else if bound >> octave == 1 {
                assert!(all[octave].bound == u64::MAX, "one bound in an octave at the most");
                all[octave].bound = bound;
            }
            i += 1;
        }
        octave += 1;
    }
    all
}

/// The bucket of a value.
#[inline]
fn bucket(value: u64) -> usize {
    let octave = OCTAVES[(63 - (value | 1).leading_zeros()) as usize];
    usize::from(octave.below) + usize::from(value > octave.bound)
}

/// Latencies of one kind of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyCounts {
    /// By [`LATENCY_BOUNDS`], those of a bucket alone; the last one has what took longer than all bounds.
    pub counts: [u64; BOUNDS + 1],
    /// Sum of the latencies in nanoseconds.
    pub sum: u128,
}

impl LatencyCounts {
    #[inline]
    fn count(&mut self, latency: Nanos) {
        self.counts[bucket(latency.0)] += 1;
        self.sum += u128::from(latency.0);
    }

    /// Commands counted.
    pub fn commands(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds what was counted elsewhere.
    pub fn merge(&mut self, other: &LatencyCounts) {
        self.counts.iter_mut().zip(other.counts).for_each(|(to, n)| *to += n);
        self.sum += other.sum;
    }
}

/// Latencies of I/O commands, whatever their status, from their arrival at the drive to their completion. A command that never
/// got a slot, because it was refused or had nothing to do, is not among them, nor is one that the drive does not time
/// ([`Event::SubmitUntimed`](crate::Event::SubmitUntimed)); one that was in flight when another process took
/// the drive over counts from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Of reads.
    pub reads: LatencyCounts,
    /// Of writes; zone appends are among them.
    pub writes: LatencyCounts,
    /// Of all others.
    pub others: LatencyCounts,
}

impl Latencies {
    /// A command that came at `arrived` is complete.
    #[inline]
    pub(crate) fn count(&mut self, opcode: u8, arrived: Nanos, now: Nanos) {
        let counts = match IoOpcode(opcode) {
            IoOpcode::READ => &mut self.reads,
            IoOpcode::WRITE => &mut self.writes,
            _ => &mut self.others,
        };
        counts.count(now.saturating_sub(arrived));
    }

    /// Of all commands.
    pub fn all(&self) -> LatencyCounts {
        let Latencies { mut reads, writes, others } = *self;
        reads.merge(&writes);
        reads.merge(&others);
        reads
    }

    /// Adds what was counted elsewhere.
    pub fn merge(&mut self, other: &Latencies) {
        let Latencies { reads, writes, others } = other;
        self.reads.merge(reads);
        self.writes.merge(writes);
        self.others.merge(others);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_are_those_of_the_documentation() {
        let us = |n: usize| LATENCY_BOUNDS[n].0;
        assert_eq!((us(0), us(1), us(2), us(3), us(4)), (1_000, 2_500, 5_000, 10_000, 25_000));
        assert_eq!(us(BOUNDS - 1), 10_000_000_000);
        assert!(LATENCY_BOUNDS.is_sorted());
    }

    #[test]
    fn a_bound_is_in_its_own_bucket() {
        for (i, bound) in LATENCY_BOUNDS.iter().enumerate() {
            assert_eq!((bucket(bound.0 - 1), bucket(bound.0), bucket(bound.0 + 1)), (i, i, i + 1), "{bound:?}");
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BOUNDS));
    }

    proptest! {
        #[test]
        fn the_bucket_is_the_first_bound_that_is_not_below(value in prop_oneof![any::<u64>(), 0u64..20_000_000_000]) {
            let want = LATENCY_BOUNDS.iter().position(|bound| value <= bound.0).unwrap_or(BOUNDS);
            prop_assert_eq!(bucket(value), want);
        }

        #[test]
        fn merging_is_counting_both(a in prop::collection::vec(any::<u64>(), 0..50), b in prop::collection::vec(any::<u64>(), 0..50)) {
            let of = |values: &[u64]| {
                let mut counts = LatencyCounts::default();
                values.iter().for_each(|v| counts.count(Nanos(*v)));
                counts
            };
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, of(&[&a[..], &b].concat()));
            prop_assert_eq!(merged.commands(), (a.len() + b.len()) as u64);
        }
    }
}
