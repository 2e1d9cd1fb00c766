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
        for at in 0..drives.len() {
            let CopyDrive { drive, away_since, .. } = drives[at];
            if !drives[at].is_here {
                continue;
            }
            let counts = |d: &&CopyDrive| d.is_here || d.away_since > away_since;
            let fresher = drives[..at].iter().filter(counts).flat_map(|d| self.sound_on(d.drive)).collect();
            let late = common(&common(&self.sound_on(drive), &self.written), &union(fresher));
            let stale = self.stale.remove(&drive).unwrap_or_default();
            self.stale.insert(drive, union(stale.into_iter().chain(late).collect()));
        }
        self.stale.retain(|_, runs| !runs.is_empty());
    }

    /// Chunks that a drive has, and that are not stale.
    fn sound_on(&self, drive: u16) -> Vec<ChunkRun> {
        without(&union(self.runs_on(drive)), &union(self.stale.get(&drive).cloned().unwrap_or_default()))
    }
}
