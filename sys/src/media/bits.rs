//! Bitmaps in an arena: little-endian words, bit `i` of the map is bit `i % 8` of byte `i / 8`.

use std::ops::Range;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a bitmap of `bits`, in whole words.
pub(super) const fn bytes_for(bits: u64) -> u64 {
    bits.div_ceil(64) * 8
}

/// Words in place. The length is a multiple of eight, which [`bytes_for`] sees to.
fn words(bytes: &[u8]) -> &[U64] {
    <[U64]>::ref_from_bytes(bytes).expect("bitmaps are whole words")
}

#[inline]
pub(super) fn get(map: &[u8], bit: usize) -> bool {
    map[bit / 8] >> (bit % 8) & 1 != 0
}

#[inline]
pub(super) fn set(map: &mut [u8], bit: usize, value: bool) {
    let byte = &mut map[bit / 8];
    *byte = *byte & !(1 << (bit % 8)) | u8::from(value) << (bit % 8);
}

/// Where the run of equal bits that starts at `range.start` ends, `range.end` at the latest.
pub(super) fn run(map: &[u8], range: Range<usize>) -> usize {
    let flip = if get(map, range.start) { u64::MAX } else { 0 };
    let words = words(map);
    let mut at = range.start;
    while at < range.end {
        let other = (words[at / 64].get() ^ flip) >> (at % 64);
        if other != 0 {
            return (at + other.trailing_zeros() as usize).min(range.end);
        }
        at = (at / 64 + 1) * 64;
    }
    range.end
}

/// Whether all bits of a range that is not empty are 0.
pub(super) fn none(map: &[u8], range: Range<usize>) -> bool {
    !get(map, range.start) && run(map, range.clone()) == range.end
}

/// Sets or clears a range.
pub(super) fn fill(map: &mut [u8], range: Range<usize>, value: bool) {
    let words = <[U64]>::mut_from_bytes(map.as_mut_bytes()).expect("bitmaps are whole words");
    let mut at = range.start;
    while at < range.end {
        let until = ((at / 64 + 1) * 64).min(range.end);
        let mask = u64::MAX >> (64 - (until - at)) << (at % 64);
        let word = &mut words[at / 64];
        word.set(if value { word.get() | mask } else { word.get() & !mask });
        at = until;
    }
}

/// The first set bit from `from` on.
pub(super) fn first_set(map: &[u8], from: usize, end: usize) -> Option<usize> {
    if from >= end {
        return None;
    }
    let at = if get(map, from) { from } else { run(map, from..end) };
    (at < end).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a vector of bools.
        #[test]
        fn like_the_model(fills in prop::collection::vec((0usize..300, 0usize..300, any::<bool>()), 0..20), probe in 0usize..300) {
            let mut map = vec![0; bytes_for(300) as usize];
            let mut model = [false; 300];
            for (a, b, value) in fills {
                let range = a.min(b)..a.max(b);
                fill(&mut map, range.clone(), value);
                model[range].fill(value);
            }
            set(&mut map, probe, !model[probe]);
            model[probe] = !model[probe];
            for (i, bit) in model.iter().enumerate() {
                prop_assert_eq!(get(&map, i), *bit);
            }
            let end = model[probe..].iter().position(|b| *b != model[probe]).map_or(300, |n| probe + n);
            prop_assert_eq!(run(&map, probe..300), end);
            prop_assert_eq!(run(&map, probe..(probe + 5).min(300)), end.min(probe + 5));
            prop_assert_eq!(none(&map, probe..300), model[probe..].iter().all(|b| !b));
            prop_assert_eq!(first_set(&map, probe, 300), model[probe..].iter().position(|b| *b).map(|n| probe + n));
        }
    }
}
