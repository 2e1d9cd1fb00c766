//! Where the bytes of a volume lie: stretches, cut where copies become stale.

use weir_pool::{CHUNK, ChunkRun};

/// Chunks that have something of these bytes.
pub(super) fn chunks(from: u64, to: u64) -> ChunkRun {
    let (start, end) = (from / CHUNK, to.div_ceil(CHUNK));
    ChunkRun { start: start as u32, len: (end - start) as u32 }
}

/// The rest of a stretch from an offset on.
pub(super) fn find(stretches: &[Stretch], end: u64, offset: u64) -> Option<Stretch> {
    let i = stretches.partition_point(|s| s.start <= offset).checked_sub(1)?;
    let s = stretches[i];
    let inside = offset - s.start;
    let len = s.len.min(end.saturating_sub(s.start)).saturating_sub(inside);
    (len > 0).then_some(s.from(inside, len))
}

/// Bytes of a volume that lie together on one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where it begins in the volume.
    pub start: u64,
    /// How long it is.
    pub len: u64,
    /// Place in `Front::ways`; `None`: it is lost, what is asked of it fails.
    pub way: Option<u32>,
    /// Where it begins on the drive.
    pub at: u64,
    /// Other volumes have these bytes too: they are not written here.
    pub shared: bool,
    /// The other copy, of a volume with two.
    pub second: Option<SecondCopy>,
}

/// The copy of a stretch that is written and not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondCopy {
    /// Place in `Front::ways`; `None`: its drive is lost.
    pub way: Option<u32>,
    /// Where it begins on the drive.
    pub at: u64,
    /// It may not have what was written last.
    pub stale: bool,
}

impl Stretch {
    /// A copy of it lies at that way.
    pub(super) fn lies_at(&self, way: u32) -> bool {
        self.way == Some(way) || self.second.is_some_and(|second| second.way == Some(way))
    }

    fn from(self, inside: u64, len: u64) -> Stretch {
        let second = self.second.map(|second| SecondCopy { at: second.at + inside, ..second });
        Stretch { start: self.start + inside, len, at: self.at + inside, second, ..self }
    }

    /// What of it is before and behind another one.
    pub(super) fn without(self, other: &Stretch) -> Vec<Stretch> {
        let (start, end) = (self.start, self.start + self.len);
        let (from, to) = (other.start.clamp(start, end), (other.start + other.len).clamp(start, end));
        let head = self.from(0, from - start);
        let tail = self.from(to - start, end - to);
        [head, tail].into_iter().filter(|s| s.len > 0).collect()
    }

    /// The same in up to three pieces, of which the one with these chunks has a stale copy where that is at such a way.
    pub(super) fn with_stale(self, run: ChunkRun, is: impl Fn(u32) -> bool) -> Vec<Stretch> {
        let first = self.way.is_some_and(&is);
        let concerns = first || self.second.and_then(|second| second.way).is_some_and(&is);
        let (from, to) = (u64::from(run.start) * CHUNK, run.end() * CHUNK);
        let (from, to) = (from.max(self.start), to.min(self.start + self.len));
        if !concerns || from >= to {
            return vec![self];
        }
        let mut middle = self.from(from - self.start, to - from);
        match (first, middle.second) {
            (false, Some(second)) => middle.second = Some(SecondCopy { stale: true, ..second }),
            (true, Some(SecondCopy { way: Some(way), at, stale: false })) => {
                let second = SecondCopy { way: middle.way, at: middle.at, stale: true };
                (middle.way, middle.at, middle.second) = (Some(way), at, Some(second));
            }
            _ => {}
        }
        let head = self.from(0, from - self.start);
        let tail = self.from(to - self.start, self.start + self.len - to);
        [head, middle, tail].into_iter().filter(|s| s.len > 0).collect()
    }
}

/// They have chunks in common.
pub(super) fn overlap(a: ChunkRun, b: ChunkRun) -> bool {
    common(a, b).is_some()
}

/// What of the first the other one has not.
pub(super) fn without(all: ChunkRun, some: ChunkRun) -> Vec<ChunkRun> {
    let Some(both) = common(all, some) else { return vec![all] };
    let head = ChunkRun { start: all.start, len: both.start - all.start };
    let tail = ChunkRun { start: both.end() as u32, len: (all.end() - both.end()) as u32 };
    [head, tail].into_iter().filter(|run| run.len > 0).collect()
}

/// Chunks that both have.
pub(super) fn common(a: ChunkRun, b: ChunkRun) -> Option<ChunkRun> {
    let (start, end) = (a.start.max(b.start), a.end().min(b.end()));
    (u64::from(start) < end).then(|| ChunkRun { start, len: (end - u64::from(start)) as u32 })
}
