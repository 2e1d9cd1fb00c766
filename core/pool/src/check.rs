//! What always holds of a pool.

use crate::extent::{ChunkRun, Chunks, mark_part, union};
use crate::pool::{Books, Pool};
use crate::record::Phase;
use crate::volume::Part;

impl Pool {
    /// Panics unless every chunk of every drive is exactly one of metadata, a volume's, dirty or free, and volumes and names agree. One that
    /// several volumes have is shared with a snapshot or a clone.
    pub fn check(&self) {
        let Books { drives, volumes, names, counter, .. } = &self.books;
        assert_eq!(names.len(), volumes.len(), "every volume has a name");
        for volume in volumes.values() {
            assert_eq!(names.get(&volume.name), Some(&volume.id), "a name finds its volume");
            assert!(volume.segments(|d| Some(d.into())).is_some(), "the chunks of {} cover it", volume.name);
            assert!(drives[usize::from(volume.home)].is_here(), "the home of {} is there", volume.name);
            let stale = volume.stale.iter().all(|(d, runs)| volume.parts.contains_key(d) && !runs.is_empty());
            assert!(stale, "what is stale of {} is its own", volume.name);
            let sound = |(d, p): (&u16, &Part)| p.version <= *counter && (!p.extents.is_empty() || *d == volume.home);
            assert!(volume.parts.iter().all(sound), "{}", volume.name);
            let is_once = |drive: &u16| {
                let runs = volume.runs_on(*drive);
                let sum = |runs: &[ChunkRun]| runs.iter().map(|run| u64::from(run.len)).sum::<u64>();
                sum(&runs) == sum(&union(runs.clone()))
            };
            assert!(volume.parts.keys().all(is_once), "both copies of a chunk of {} lie on one drive", volume.name);
        }
        if !self.is_ready() {
            return;
        }
        assert_eq!(self.books.phase, Phase::Open, "what is ready is open");
        for (drive, index) in drives.iter().zip(0u16..).filter(|(d, _)| !d.lost) {
            let mut marked = drive.buddy.check();
            let mut had = Chunks::new(drive.member.chunks);
            for part in volumes.values().filter_map(|v| v.parts.get(&index)) {
                let is_once = mark_part(&mut had, &part.extents, drive.member.chunks, self.books.has_shared);
                assert!(is_once, "a volume has a chunk of drive {index} once");
            }
            for run in had
                .runs(drive.member.chunks, true)
                .into_iter()
                .chain(drive.dirty.iter().copied())
                .chain([ChunkRun { start: 0, len: drive.area }])
            {
                assert!(marked.mark(run), "the chunks from {} on drive {index} are somebody's, once", run.start);
            }
            assert_eq!(marked.runs(drive.member.chunks, false), [], "no chunk of drive {index} is lost");
            assert!(drive.used <= drive.copy_blocks, "the metadata of drive {index} fit");
        }
    }
}
