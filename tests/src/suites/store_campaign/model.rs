//! What a client of the campaign knows of its files: what was acknowledged, and what may be.

use std::collections::BTreeMap;

use weir_units::rng::SplitMix64;

use crate::harness::{Outcome, ensure};

/// Where a file's blocks are, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub class: &'static str,
    pub copies: u8,
}

pub const SHAPES: [Shape; 4] = [
    Shape { class: "dram", copies: 1 },
    Shape { class: "dram", copies: 2 },
    Shape { class: "flash", copies: 1 },
    Shape { class: "flash", copies: 2 },
];

/// A file all changes of which were acknowledged.
#[derive(Clone, Debug)]
pub struct Known {
    pub shape: Shape,
    pub bytes: Vec<u8>,
}

/// A file with a change that has failed: each of its bytes, and its size, are as before or as they were to be.
#[derive(Clone, Debug)]
pub struct Doubtful {
    pub before: Vec<u8>,
    pub after: Vec<u8>,
    pub may_be_missing: bool,
    pub why: String,
}

/// All files of one client, by their paths.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub known: BTreeMap<String, Known>,
    pub doubtful: BTreeMap<String, Doubtful>,
}

impl Known {
    /// # Errors
    /// It has other bytes than were acknowledged: where.
    pub fn is(&self, path: &str, found: &[u8]) -> Outcome {
        if self.bytes == found {
            return Ok(());
        }
        let (len, expected) = (found.len(), self.bytes.len());
        let at = self.bytes.iter().zip(found).position(|(one, other)| one != other);
        let zeroes = at.is_some_and(|at| found[at..].iter().take(4096).all(|byte| *byte == 0));
        Err(format!(
            "{path} ({:?}): acknowledged bytes are lost: {len} bytes of {expected}, other ones from {at:?} on{}",
            self.shape,
            if zeroes { ", zeroes" } else { "" }
        ))
    }
}

impl Doubtful {
    /// # Errors
    /// It has bytes that it never had and was not to have: where.
    pub fn may_be(&self, path: &str, found: &[u8]) -> Outcome {
        let size = found.len();
        ensure(size == self.before.len() || size == self.after.len(), || {
            let (before, after) = (self.before.len(), self.after.len());
            format!("{path}: {size} bytes, {before} before, {after} after ({})", self.why)
        })?;
        let is = |at: usize, byte: u8| [&self.before, &self.after].iter().any(|of| of.get(at) == Some(&byte));
        match found.iter().enumerate().find(|(at, byte)| !is(*at, **byte)) {
            None => Ok(()),
            Some((at, byte)) => {
                Err(format!("{path}: byte {at} is {byte}, neither as before nor as after ({})", self.why))
            }
        }
    }
}

/// Bytes that no other write has.
pub fn bytes(of: u64, len: usize) -> Vec<u8> {
    let mut random = SplitMix64::new(of);
    let mut all = Vec::with_capacity(len + 8);
    while all.len() < len {
        all.extend(random.next_u64().to_le_bytes());
    }
    all.truncate(len);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_bytes_are_seen() {
        let known = Known { shape: SHAPES[0], bytes: bytes(1, 9000) };
        assert_eq!(known.is("/a", &known.bytes), Ok(()));
        let mut other = known.bytes.clone();
        other[5000..].fill(0);
        assert!(known.is("/a", &other).unwrap_err().contains("from Some(5000) on, zeroes"));
        assert!(known.is("/a", &known.bytes[..8999]).is_err());
    }

    #[test]
    fn what_failed_is_as_before_or_as_after() {
        let (before, after) = (bytes(1, 5000), bytes(2, 9000));
        let of = Doubtful { before: before.clone(), after: after.clone(), may_be_missing: false, why: "-".into() };
        let mut mixed = after.clone();
        mixed[100..4000].copy_from_slice(&before[100..4000]);
        for right in [&before, &after, &mixed] {
            assert_eq!(of.may_be("/a", right), Ok(()));
        }
        mixed[6000..7000].fill(0);
        assert!(of.may_be("/a", &mixed).is_err() && of.may_be("/a", &after[..7000]).is_err());
    }
}
