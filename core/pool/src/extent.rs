//! Runs of chunks.

use alloc::vec::Vec;

/// Bytes of a chunk, the smallest piece of a drive that a volume has.
pub const CHUNK: u64 = 1 << 20;

/// A run of chunks of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkRun {
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

/// A run of chunks of a volume that lie one behind the other on one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSegment {
    /// First chunk of the volume.
    pub logical: u32,
    /// Place of the drive in the list that the pool was set up with.
    pub drive: usize,
    /// First chunk of the drive.
    pub start: u32,
    /// Chunks.
    pub len: u32,
    /// What is asked of them fails: the drive is lost (`drive` is none of the list then), or they are not what was written last.
    pub lost: bool,
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
