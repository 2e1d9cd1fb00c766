//! A volume, and how it may be called.

use crate::extent::{ChunkRun, Extent, VolumeSegment};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Characters of a name at the most.
pub const NAME_MAX: usize = 64;

/// Sixteen bytes that name a pool, a drive or a volume for good (RFC 9562).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// A volume of a pool: never given to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u64);

/// What a drive has of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Of the record on that drive.
    pub version: u64,
    /// In the order of the volume.
    pub extents: Vec<Extent>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Of the pool.
    pub id: VolumeId,
    /// What it is called, once in the pool.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// Its own, for hosts.
    pub uuid: Uuid,
    /// Its size.
    pub chunks: u32,
    /// The drive that has its first chunk and its record, by its number in the pool.
    /// It may have none, if the drive that had the first chunk was lost.
    pub(crate) home: u16,
    /// The parts of lost drives too.
    pub(crate) parts: BTreeMap<u16, Part>,
    /// By drive: chunks of the volume, in its order, whose bytes there are not what was written last.
    pub(crate) stale: BTreeMap<u16, Vec<ChunkRun>>,
}

impl Volume {
    /// Where its chunks lie, in its order; `position` turns a drive's number in the pool into its place in the list, and has none for a
    /// drive that is lost. `None` unless every chunk is somewhere, once.
    pub(crate) fn segments(&self, position: impl Fn(u16) -> Option<usize>) -> Option<Vec<VolumeSegment>> {
        let mut all: Vec<VolumeSegment> = Vec::new();
        for (drive, part) in &self.parts {
            let (place, stale) = (position(*drive), self.stale.get(drive).map_or(&[][..], Vec::as_slice));
            for (e, is_stale) in part.extents.iter().flat_map(|e| cut(e, stale)) {
                let Extent { logical, run: ChunkRun { start, len } } = e;
                let (drive, lost) = (place.unwrap_or(usize::MAX), is_stale || place.is_none());
                all.push(VolumeSegment { logical, drive, start, len, lost });
            }
        }
        all.sort_by_key(|s| s.logical);
        let mut at = 0u64;
        let mut merged: Vec<VolumeSegment> = Vec::new();
        for s in all {
            if u64::from(s.logical) != at || s.len == 0 {
                return None;
            }
            at += u64::from(s.len);
            if at > u64::from(self.chunks) {
                return None;
            }
            let follows = |m: &VolumeSegment| u64::from(m.start) + u64::from(m.len) == u64::from(s.start);
            match merged.last_mut() {
                Some(m) if (m.drive, m.lost) == (s.drive, s.lost) && follows(m) => m.len += s.len,
                _ => merged.push(s),
            }
        }
        (at == u64::from(self.chunks) && at > 0).then_some(merged)
    }

    /// Runs of its chunks on a drive, in its order.
    pub(crate) fn runs_on(&self, drive: u16) -> Vec<ChunkRun> {
        let extents = self.parts.get(&drive).into_iter().flat_map(|p| &p.extents);
        let mut runs: Vec<ChunkRun> = extents.map(|e| ChunkRun { start: e.logical, len: e.run.len }).collect();
        runs.sort_unstable();
        runs
    }
}

/// An extent in pieces, each with whether its chunks are among the stale ones.
fn cut(extent: &Extent, stale: &[ChunkRun]) -> Vec<(Extent, bool)> {
    let (mut pieces, mut at) = (Vec::new(), u64::from(extent.logical));
    let end = at + u64::from(extent.run.len);
    let mut push = |from: u64, to: u64, is_stale| {
        if from < to {
            let skip = (from - u64::from(extent.logical)) as u32;
            let run = ChunkRun { start: extent.run.start + skip, len: (to - from) as u32 };
            pieces.push((Extent { logical: from as u32, run }, is_stale));
        }
    };
    for run in stale.iter().filter(|run| run.end() > u64::from(extent.logical) && u64::from(run.start) < end) {
        let from = u64::from(run.start).max(at);
        push(at, from, false);
        at = run.end().min(end).max(from);
        push(from, at, true);
    }
    push(at, end, false);
    pieces
}

/// Whether a volume or a pool may be called so.
///
/// # Errors
/// Why not.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() {
        return Err("a name has at least one character");
    }
    if name.len() > NAME_MAX {
        return Err("a name has 64 characters at the most");
    }
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(plain) {
        return Err("a name begins with a letter or a digit and goes on with these, '.', '_' or '-'");
    }
    Ok(())
}
