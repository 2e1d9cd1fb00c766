//! The bytes of files in a replay: made from a seed, the path that a file was made by, and where in it they are. So who reads them knows what they have to be.

use super::load::Content;
use std::sync::{Mutex, PoisonError};
use weir_units::rng::SplitMix64;

/// Bytes that are made at once.
const WORD: u64 = 8;

/// Of one content: what was written of it. Ranges in order, apart from one another.
#[derive(Debug, Default)]
pub struct Written(Vec<(u64, u64)>);

impl Written {
    /// These bytes were written.
    pub fn add(&mut self, begin: u64, end: u64) {
        if begin >= end {
            return;
        }
        let first = self.0.partition_point(|(_, to)| *to < begin);
        let behind = self.0.partition_point(|(from, _)| *from <= end);
        let joined = self.0[first..behind].iter().fold((begin, end), |(a, b), (from, to)| (a.min(*from), b.max(*to)));
        self.0.splice(first..behind, [joined]);
    }

    /// Nothing is there from there on.
    pub fn cut(&mut self, size: u64) {
        self.0.retain(|(from, _)| *from < size);
        if let Some((_, to)) = self.0.last_mut() {
            *to = (*to).min(size);
        }
    }

    /// The parts of these bytes that were written.
    pub fn within(&self, begin: u64, end: u64) -> Vec<(u64, u64)> {
        let parts = self.0.iter().map(|(from, to)| ((*from).max(begin), (*to).min(end)));
        parts.filter(|(from, to)| from < to).collect()
    }
}

/// All contents of a replay.
#[derive(Debug)]
pub struct Contents {
    keys: Vec<u64>,
    /// None where nothing is compared.
    written: Vec<Mutex<Written>>,
}

/// What all bytes of a file that was made by this path depend on (FNV-1a).
fn key(seed: u64, path: &[u8]) -> u64 {
    let hash = path
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    SplitMix64::new(seed ^ hash).next_u64()
}

#[inline]
fn word(key: u64, number: u64) -> [u8; WORD as usize] {
    SplitMix64::new(key.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))).next_u64().to_le_bytes()
}

/// Fills memory with the bytes of a file from an offset on.
pub fn fill(seed: u64, path: &[u8], offset: u64, to: &mut [u8]) {
    fill_of(key(seed, path), offset, to);
}

fn fill_of(key: u64, offset: u64, to: &mut [u8]) {
    let (skipped, first) = ((offset % WORD) as usize, offset / WORD);
    let head = if skipped == 0 { 0 } else { (WORD as usize - skipped).min(to.len()) };
    to[..head].copy_from_slice(&word(key, first)[skipped..skipped + head]);
    let mut number = first + u64::from(skipped > 0);
    let mut words = to[head..].chunks_exact_mut(WORD as usize);
    for whole in &mut words {
        whole.copy_from_slice(&word(key, number));
        number += 1;
    }
    let tail = words.into_remainder();
    let last = word(key, number);
    tail.copy_from_slice(&last[..tail.len()]);
}

impl Contents {
    /// With `verify` it is noted what is written.
    pub fn new(contents: &[Content], seed: u64, verify: bool) -> Self {
        let written = |content: &Content| {
            let mut written = Written::default();
            written.add(0, content.prepared);
            Mutex::new(written)
        };
        let keys = contents.iter().map(|content| key(seed, &content.path)).collect();
        Self { keys, written: if verify { contents.iter().map(written).collect() } else { Vec::new() } }
    }

    fn change(&self, content: usize, change: impl FnOnce(&mut Written)) {
        if let Some(written) = self.written.get(content) {
            change(&mut written.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    pub fn fill(&self, content: usize, offset: u64, to: &mut [u8]) {
        fill_of(self.keys[content], offset, to);
    }

    pub fn wrote(&self, content: usize, begin: u64, bytes: u64) {
        self.change(content, |written| written.add(begin, begin + bytes));
    }

    pub fn cut(&self, content: usize, size: u64) {
        self.change(content, |written| written.cut(size));
    }

    /// The parts of these bytes that are known; taken before they are read, since a writer may be at work.
    pub fn known(&self, content: usize, begin: u64, bytes: u64) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        self.change(content, |written| parts = written.within(begin, begin.saturating_add(bytes)));
        parts
    }

    /// Compares what was read from `offset` on: how many bytes were compared.
    ///
    /// # Errors
    /// The first wrong byte.
    pub fn compare(&self, content: usize, offset: u64, read: &[u8], known: &[(u64, u64)]) -> Result<u64, String> {
        let (mut right, mut compared) = (Vec::new(), 0);
        let end = offset + read.len() as u64;
        for (from, to) in known.iter().map(|(from, to)| (*from, (*to).min(end))).filter(|(from, to)| from < to) {
            let found = &read[(from - offset) as usize..(to - offset) as usize];
            right.resize(found.len(), 0);
            self.fill(content, from, &mut right);
            if let Some(at) = found.iter().zip(&right).position(|(a, b)| a != b) {
                let (byte, is, should) = (from + at as u64, found[at], right[at]);
                return Err(format!("byte {byte} is {is:#04x}, and {should:#04x} was written"));
            }
            compared += to - from;
        }
        Ok(compared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_depend_on_seed_path_and_place_alone() {
        let mut whole = vec![0; 100];
        fill(1, b"/a", 1000, &mut whole);
        for (offset, len) in [(0, 100), (3, 20), (8, 8), (99, 1)] {
            let mut part = vec![0; len];
            fill(1, b"/a", 1000 + offset as u64, &mut part);
            assert_eq!(part, whole[offset..offset + len], "{offset} {len}");
        }
        for (seed, path) in [(2, &b"/a"[..]), (1, b"/b")] {
            let mut other = vec![0; 100];
            fill(seed, path, 1000, &mut other);
            assert!(other.iter().zip(&whole).filter(|(a, b)| a == b).count() < 20);
        }
    }

    #[test]
    fn what_was_written_is_kept_in_ranges() {
        let mut written = Written::default();
        for (begin, end) in [(10, 20), (30, 40), (20, 25), (50, 50), (39, 45), (0, 5)] {
            written.add(begin, end);
        }
        assert_eq!(written.0, [(0, 5), (10, 25), (30, 45)]);
        assert_eq!(written.within(4, 35), [(4, 5), (10, 25), (30, 35)]);
        written.add(3, 31);
        assert_eq!(written.0, [(0, 45)]);
        written.cut(12);
        assert_eq!(written.within(0, 100), [(0, 12)]);
    }

    #[test]
    fn a_wrong_byte_is_found_where_something_was_written() {
        let contents = Contents::new(&[Content { path: b"/a".into(), prepared: 0 }], 1, true);
        contents.wrote(0, 100, 50);
        let mut read = vec![0; 200];
        contents.fill(0, 100, &mut read[100..150]);
        let known = contents.known(0, 0, 200);
        assert_eq!(contents.compare(0, 0, &read, &known), Ok(50));
        assert_eq!(contents.compare(0, 0, &read[..120], &known), Ok(20));
        read[149] ^= 1;
        assert!(contents.compare(0, 0, &read, &known).unwrap_err().starts_with("byte 149 is 0x"));
        let unnoted = Contents::new(&[Content::default()], 1, false);
        assert!(unnoted.known(0, 0, 10).is_empty());
    }
}
