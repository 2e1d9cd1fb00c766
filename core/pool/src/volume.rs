//! A volume, and how it may be called.

use crate::extent::{ChunkRun, CopyState, Extent, SegmentCopy, VolumeSegment, union};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Between the name of a volume and that of its snapshot: `VOLUME@SNAPSHOT` is what the snapshot is called. No other name has it.
pub const SNAPSHOT_MARK: char = '@';
/// Characters of a name at the most; of a snapshot's the two names each.
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
    /// How many drives have each chunk: 1 or 2.
    pub copies: u8,
    /// The drive that has its first chunk and its record, by its number in the pool.
    /// It may have none, if the drive that had the first chunk was lost.
    pub(crate) home: u16,
    /// The parts of lost drives too.
    pub(crate) parts: BTreeMap<u16, Part>,
    /// By drive: chunks of the volume, in its order, whose bytes there are not what was written last.
    pub(crate) stale: BTreeMap<u16, Vec<ChunkRun>>,
    /// Of a volume with two copies: chunks that may have been written since the copies were known to be the same, whole regions.
    pub(crate) written: Vec<ChunkRun>,
}

impl Volume {
    /// Where its chunks lie, in its order; `position` turns a drive's number in the pool into its place in the list, and has none for a
    /// drive that is lost. `None` unless every chunk is somewhere, as often as the volume has copies.
    pub(crate) fn segments(&self, position: impl Fn(u16) -> Option<usize>) -> Option<Vec<VolumeSegment>> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (drive, part) in &self.parts {
            let (place, stale) = (position(*drive), self.stale.get(drive).map_or(&[][..], Vec::as_slice));
            for (Extent { logical, run }, is_stale) in part.extents.iter().flat_map(|e| cut(e, stale)) {
                let state = match place {
                    None => CopyState::Lost,
                    Some(_) if is_stale => CopyState::Stale,
                    Some(_) => CopyState::Good,
                };
                pieces.push(Piece { logical, run, drive: place.unwrap_or(usize::MAX), state });
            }
        }
        pieces.sort_by_key(|piece| piece.logical);
        let mut ends: Vec<u64> = pieces.iter().flat_map(|p| [p.logical.into(), p.end()]).collect();
        ends.sort_unstable();
        ends.dedup();
        let (mut merged, mut there, mut next) =
            (Vec::<VolumeSegment>::new(), Vec::<Piece>::new(), pieces.iter().peekable());
        for ends in ends.windows(2) {
            let (from, to) = (ends[0], ends[1]);
            there.retain(|piece| piece.end() > from);
            while let Some(piece) = next.next_if(|piece| u64::from(piece.logical) <= from) {
                there.push(*piece);
            }
            let segment = self.segment(from as u32, (to - from) as u32, &there)?;
            match merged.last_mut() {
                Some(last) if last.goes_on_with(&segment) => last.len += segment.len,
                _ => merged.push(segment),
            }
        }
        let covers = ends.first() == Some(&0) && ends.last() == Some(&self.chunks.into());
        covers.then_some(merged)
    }

    /// Chunks of the volume that these pieces all have; `None` if they are not as many as it has copies.
    fn segment(&self, logical: u32, len: u32, pieces: &[Piece]) -> Option<VolumeSegment> {
        let copy = |piece: &Piece| SegmentCopy {
            drive: piece.drive,
            start: piece.run.start + (logical - piece.logical),
            state: piece.state,
        };
        let (first, second) = match (self.copies, pieces) {
            (1, [one]) => (copy(one), None),
            (2, [one, other]) => {
                let (one, other) = (copy(one), copy(other));
                // Readers of the volumes of two drives are spread over both.
                let turned = (one.drive < other.drive) == (self.id.0 % 2 == 1);
                let (first, second) = if turned { (other, one) } else { (one, other) };
                match second.state < first.state {
                    true => (second, Some(first)),
                    false => (first, Some(second)),
                }
            }
            _ => return None,
        };
        let lost = first.state != CopyState::Good;
        let shared = false;
        Some(VolumeSegment { logical, drive: first.drive, start: first.start, len, lost, shared, second })
    }

    /// What this is a snapshot of; `None`: it is none.
    pub fn origin(&self) -> Option<&str> {
        self.name.split_once(SNAPSHOT_MARK).map(|(origin, _)| origin)
    }

    /// Of a volume with two copies: chunks that may have been written since the copies were known to be the same.
    pub fn written(&self) -> &[ChunkRun] {
        &self.written
    }

    /// Runs of its chunks on a drive, in its order.
    pub(crate) fn runs_on(&self, drive: u16) -> Vec<ChunkRun> {
        let extents = self.parts.get(&drive).into_iter().flat_map(|p| &p.extents);
        let mut runs: Vec<ChunkRun> = extents.map(|e| ChunkRun { start: e.logical, len: e.run.len }).collect();
        runs.sort_unstable();
        runs
    }
}

/// A part of an extent whose chunks are in one state.
#[derive(Clone, Copy)]
struct Piece {
    logical: u32,
    run: ChunkRun,
    drive: usize,
    state: CopyState,
}

impl Piece {
    fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.run.len)
    }
}

impl VolumeSegment {
    /// The other one lies behind it on both drives.
    fn goes_on_with(&self, next: &VolumeSegment) -> bool {
        let follows = |start: u32, next: u32| u64::from(start) + u64::from(self.len) == u64::from(next);
        let second = match (&self.second, &next.second) {
            (None, None) => true,
            (Some(a), Some(b)) => (a.drive, a.state) == (b.drive, b.state) && follows(a.start, b.start),
            _ => false,
        };
        (self.drive, self.lost) == (next.drive, next.lost) && follows(self.start, next.start) && second
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

/// Whether a chunk of these volumes may be had by two of them.
pub(crate) fn is_any_shared<'a>(volumes: impl Iterator<Item = &'a Volume>) -> bool {
    let volumes: Vec<&Volume> = volumes.collect();
    let drives: BTreeSet<u16> = volumes.iter().flat_map(|v| v.parts.keys().copied()).collect();
    let mut parts = drives.iter().map(|drive| volumes.iter().filter_map(|v| v.parts.get(drive)).collect::<Vec<_>>());
    volumes.iter().any(|v| v.origin().is_some())
        || parts.any(|parts| {
            let runs: Vec<ChunkRun> = parts.iter().flat_map(|p| &p.extents).map(|e| e.run).collect();
            let sum: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
            union(runs).iter().map(|run| u64::from(run.len)).sum::<u64>() < sum
        })
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
