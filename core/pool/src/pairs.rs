//! How stale chunks that several volumes with two copies have are rebuilt: where they lie if each of these volumes has both of the pair, and then
//! once for all of them.

use crate::extent::{ChunkRun, CopyState, VolumeSegment, common, union};
use crate::pool::Pool;
use crate::sharing::{DriveRun, Pair};
use crate::volume::{Volume, VolumeId};
use alloc::vec::Vec;

/// Stale chunks of a volume that have been rebuilt with those of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// The volume.
    pub id: VolumeId,
    /// Place of the drive in the list that the pool was set up with.
    pub drive: usize,
    /// Chunks of the volume.
    pub runs: Vec<ChunkRun>,
}

impl Volume {
    /// Which chunk of the volume each chunk of a drive is, if it is one.
    fn chunks_at(&self, (drive, run): &DriveRun) -> Vec<Option<u32>> {
        let mut chunks = alloc::vec![None; run.len as usize];
        for e in self.parts.get(drive).into_iter().flat_map(|part| &part.extents) {
            for had in common(&[e.run], &[*run]) {
                let at = (had.start - run.start) as usize;
                (0..had.len).for_each(|i| chunks[at + i as usize] = Some(e.logical + (had.start - e.run.start) + i));
            }
        }
        chunks
    }
}

impl Pool {
    /// Whether stale chunks of a volume are written where they lie when they are rebuilt: if each volume that has them too has both of the pair,
    /// and so the same bytes. Else they get a place of their own ([Unshare](PoolRequest::Unshare)). So many from the first on are treated alike.
    pub fn is_rebuilt_in_place(&self, id: VolumeId, segment: &VolumeSegment) -> (bool, u32) {
        let number = |place: usize| (0u16..).zip(&self.books.drives).find(|(_, d)| d.is_here() && d.position == place);
        let places = segment.places().filter_map(|(place, run)| Some((number(place)?.0, run)));
        let places: Vec<DriveRun> = places.collect();
        let ([one, other], true) = (&places[..], self.books.has_shared) else { return (true, segment.len) };
        let mut alike = alloc::vec![true; segment.len as usize];
        for volume in self.books.volumes.values().filter(|v| v.id != id) {
            let pairs = volume.chunks_at(one).into_iter().zip(volume.chunks_at(other));
            alike.iter_mut().zip(pairs).for_each(|(alike, (one, other))| *alike &= one == other);
        }
        let first = alike.first().copied().unwrap_or(true);
        (first, alike.iter().take_while(|alike| **alike == first).count() as u32)
    }

    /// Stale chunks of other volumes that are good since these of a volume were rebuilt: they have both of the pair.
    pub fn rebuilt_with(&self, id: VolumeId, run: ChunkRun) -> Vec<Rebuilt> {
        let Some(volume) = self.books.volumes.get(&id).filter(|_| self.books.has_shared) else { return Vec::new() };
        let pairs = self.books.pairs(volume, &[run]);
        let is_good = |pair: &&Pair| pair.copies.len() == 2 && pair.copies.iter().all(|c| c.2 == CopyState::Good);
        let pairs: Vec<&Pair> = pairs.iter().filter(is_good).collect();
        let mut all = Vec::new();
        for other in self.books.volumes.values().filter(|v| v.id != id && !v.stale.is_empty()) {
            let mut good: Vec<ChunkRun> = Vec::new();
            for pair in &pairs {
                let chunks = |at: usize| {
                    let (drive, start, _) = pair.copies[at];
                    other.chunks_at(&(drive, ChunkRun { start, len: pair.len }))
                };
                let both = chunks(0).into_iter().zip(chunks(1)).filter(|(one, other)| one == other);
                good.extend(both.filter_map(|(one, _)| one).map(|start| ChunkRun { start, len: 1 }));
            }
            let good = union(good);
            for (number, stale) in &other.stale {
                let runs = common(&union(stale.clone()), &good);
                if let (Some(drive), false) = (self.books.position_of(*number), runs.is_empty()) {
                    all.push(Rebuilt { id: other.id, drive, runs });
                }
            }
        }
        all
    }
}
