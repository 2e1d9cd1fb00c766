//! Runs of chunks.

use alloc::vec::Vec;

/// Bytes of a chunk, the smallest piece of a drive that a volume has.
pub const CHUNK: u64 = 1 << 20;

/// A run of chunks of a drive or of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkRun {
    /// The first chunk.
    pub start: u32,
    /// How many.
    pub len: u32,
}

impl ChunkRun {
    /// The chunk behind the last; as wide as no sum overflows.
    pub fn end(self) -> u64 {
        u64::from(self.start) + u64::from(self.len)
    }
}

/// A run of chunks of one drive that a volume has, and where it lies in the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Chunk of the volume.
    pub logical: u32,
    /// Chunks of the drive.
    pub run: ChunkRun,
}

/// A run of chunks of a volume that lie one behind the other on one drive, and, of a volume with two copies, on a second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSegment {
    /// First chunk of the volume.
    pub logical: u32,
    /// Place of the drive in the list that the pool was set up with. Of two copies it is the one to read from.
    pub drive: usize,
    /// First chunk of the drive.
    pub start: u32,
    /// Chunks.
    pub len: u32,
    /// What is asked of them fails: the drive is lost (`drive` is none of the list then), or they are not what was written last. Of two copies
    /// neither is readable then.
    pub lost: bool,
    /// Other volumes have the same chunks, of a volume with two copies at least one of each two: they are not written before this one has its
    /// [own](crate::PoolRequest::Unshare).
    pub shared: bool,
    /// The other copy of a volume that has two.
    pub second: Option<SegmentCopy>,
}

/// The copy of a segment that is not read from while the first one is readable. Writes go to it too, unless its drive is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentCopy {
    /// Place of the drive in the list that the pool was set up with; of a lost one none of it.
    pub drive: usize,
    /// First chunk of the drive.
    pub start: u32,
    /// Whether it has what was written last.
    pub state: CopyState,
}

/// What a copy of some chunks is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyState {
    /// It has what was written last.
    Good,
    /// It may not have what was written last, and is to be rebuilt.
    Stale,
    /// Its drive is lost.
    Lost,
}

impl VolumeSegment {
    /// Chunks of it from one on.
    #[must_use]
    pub fn part(&self, skip: u32, len: u32) -> VolumeSegment {
        let second = self.second.map(|second| SegmentCopy { start: second.start + skip, ..second });
        VolumeSegment { logical: self.logical + skip, start: self.start + skip, len, second, ..*self }
    }

    /// The chunks of each copy that is there, and the place of its drive.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, ChunkRun)> + use<> {
        let second = self.second.map(|second| (second.drive, second.start));
        let (first, len) = ((self.drive, self.start), self.len);
        let all = [Some(first), second].into_iter().flatten().filter(|(drive, _)| *drive != usize::MAX);
        all.map(move |(drive, start)| (drive, ChunkRun { start, len }))
    }
}

/// Runs of which some overlap or touch, in order and each chunk once.
pub(crate) fn union(mut runs: Vec<ChunkRun>) -> Vec<ChunkRun> {
    runs.retain(|run| run.len > 0);
    runs.sort_unstable();
    let mut all: Vec<ChunkRun> = Vec::new();
    for run in runs {
        match all.last_mut() {
            Some(last) if last.end() >= u64::from(run.start) => {
                last.len = (last.end().max(run.end()) - u64::from(last.start)) as u32;
            }
            _ => all.push(run),
        }
    }
    all
}

/// What is left of `runs` without `others`; both in order, and of `others` no two overlap.
pub(crate) fn without(runs: &[ChunkRun], others: &[ChunkRun]) -> Vec<ChunkRun> {
    let mut left = Vec::new();
    for run in runs {
        let mut at = u64::from(run.start);
        let first = others.partition_point(|other| other.end() <= at);
        for other in others[first..].iter().take_while(|o| u64::from(o.start) < run.end()) {
            let to = u64::from(other.start).max(at);
            left.push(ChunkRun { start: at as u32, len: (to - at) as u32 });
            at = other.end().min(run.end()).max(to);
        }
        left.push(ChunkRun { start: at as u32, len: (run.end() - at) as u32 });
    }
    left.retain(|run| run.len > 0);
    left
}

/// What of `runs` is also of `others`; both in order.
pub(crate) fn common(runs: &[ChunkRun], others: &[ChunkRun]) -> Vec<ChunkRun> {
    without(runs, &without(runs, others))
}

/// Which chunks of a drive are marked.
#[derive(Clone, Debug)]
pub(crate) struct Chunks(Vec<u64>);

impl Chunks {
    pub fn new(chunks: u32) -> Self {
        Self(alloc::vec![0; chunks.div_ceil(64) as usize])
    }

    pub fn has(&self, chunk: u32) -> bool {
        self.0[(chunk / 64) as usize] >> (chunk % 64) & 1 != 0
    }

    /// Marks a run that the drive has; `false` if one of it was marked.
    #[must_use]
    pub fn mark(&mut self, run: ChunkRun) -> bool {
        let mut fresh = true;
        for chunk in run.start..run.start + run.len {
            let (word, bit) = (&mut self.0[(chunk / 64) as usize], 1 << (chunk % 64));
            fresh &= *word & bit == 0;
            *word |= bit;
        }
        fresh
    }

    /// The runs of chunks below `end` that are marked, or of those that are not.
    pub fn runs(&self, end: u32, marked: bool) -> Vec<ChunkRun> {
        let mut runs: Vec<ChunkRun> = Vec::new();
        for chunk in (0..end).filter(|c| self.has(*c) == marked) {
            match runs.last_mut() {
                Some(run) if run.end() == u64::from(chunk) => run.len += 1,
                _ => runs.push(ChunkRun { start: chunk, len: 1 }),
            }
        }
        runs
    }
}

/// Marks the chunks that a volume has of a drive. `false`: it has one of them twice, or, unless volumes may `share` them, another one has it.
pub(crate) fn mark_part(taken: &mut Chunks, extents: &[Extent], chunks: u32, share: bool) -> bool {
    if !share {
        return extents.iter().all(|e| taken.mark(e.run));
    }
    let mut own = Chunks::new(chunks);
    let is_once = extents.iter().all(|e| own.mark(e.run));
    extents.iter().for_each(|e| _ = taken.mark(e.run));
    is_once
}
