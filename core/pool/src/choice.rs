//! Which of two copies counts where a crash, or the absence of a drive, may have left them different.

use crate::extent::{ChunkRun, common, union, without};
use crate::volume::Volume;
use alloc::vec::Vec;

/// A drive with a copy of a volume, when the pool is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyDrive {
    /// Its number in the pool.
    pub drive: u16,
    /// It is there.
    pub is_here: bool,
    /// Since which opening it has been away, and missed what was written; `u64::MAX`: it was not.
    pub away_since: u64,
}

impl Volume {
    /// What crashes and absences have left of two copies: of each written region the copy counts that was there longest, of two such the one on
    /// the drive with the lower number; the others are stale. One that is not there now makes those stale that went before it.
    pub(crate) fn choose_copies(&mut self, mut drives: Vec<CopyDrive>) {
        drives.sort_by_key(|d| (core::cmp::Reverse(d.away_since), d.drive));
        for at in (0..drives.len()).filter(|at| drives[*at].is_here) {
            let missed = self.missed(&drives[at], &drives[..at], &self.written);
            self.add_stale(drives[at].drive, missed);
        }
    }

    /// What a drive has missed of these chunks, which may have been written: those of which it has a copy, and another drive one that counts more.
    pub(crate) fn missed(&self, of: &CopyDrive, others: &[CopyDrive], written: &[ChunkRun]) -> Vec<ChunkRun> {
        let counts = |d: &&CopyDrive| d.drive != of.drive && (d.is_here || d.away_since > of.away_since);
        let fresher = others.iter().filter(counts).flat_map(|d| self.sound_on(d.drive)).collect();
        common(&common(&self.sound_on(of.drive), written), &union(fresher))
    }

    /// These chunks of a drive are stale too.
    pub(crate) fn add_stale(&mut self, drive: u16, runs: Vec<ChunkRun>) {
        let stale = self.stale.remove(&drive).unwrap_or_default();
        self.stale.insert(drive, union(stale.into_iter().chain(runs).collect()));
        self.stale.retain(|_, runs| !runs.is_empty());
    }

    /// Chunks that a drive has, and that are not stale.
    fn sound_on(&self, drive: u16) -> Vec<ChunkRun> {
        without(&union(self.runs_on(drive)), &union(self.stale.get(&drive).cloned().unwrap_or_default()))
    }
}
