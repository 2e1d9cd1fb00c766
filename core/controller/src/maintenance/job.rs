//! Long work of the drive itself, and how far the first of it is.

use crate::event::Op;
use crate::host::{DataPointer, Tag};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use weir_units::Nanos;

/// What long work is for, and who is told of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// A pass of a sanitize operation.
    Sanitize,
    /// Work on namespaces.
    Namespaces(u32),
    /// The media check of a self-test.
    SelfTest,
}

/// Whose commands in flight have to end before the first piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code)]
pub(crate) enum Drain {
    /// Nobody's.
    Nothing,
    /// Those of a namespace. Its new ones are refused or held by whoever started the job.
    Namespace(u32),
    /// All.
    All,
}

/// Long work: the same operation on ranges of the media.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub kind: JobKind,
    pub op: Op,
    /// Of a write: [`DataPointer::pattern`].
    pub data: DataPointer,
    /// Ranges of the media, in bytes: offset and length.
    pub ranges: Vec<(u64, u64)>,
    /// Bytes of a piece at the most.
    pub piece: u32,
    pub drain: Drain,
}

/// How far the first job is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JobProgress {
    pub total: u64,
    pub done: u64,
    /// The piece in flight: its slot, its length and when it began.
    pub piece: Option<(u32, u32, Nanos)>,
    /// No piece begins before this.
    pub rests_until: Nanos,
    /// Whoever had to end has ended.
    pub drained: bool,
    /// Nobody wants it any more; the piece in flight has to end.
    pub cancelled: bool,
}

/// Jobs of a drive: the first one is under way.
#[derive(Clone, Debug)]
pub(crate) struct Background {
    pub jobs: VecDeque<Job>,
    pub at: JobProgress,
    /// When the first job is to be looked at again.
    pub wake: Nanos,
    /// How far the job has come that has failed last, of 65536.
    pub reached: u16,
}

impl Default for Background {
    /// Nothing to do.
    fn default() -> Self {
        let at =
            JobProgress { total: 0, done: 0, piece: None, rests_until: Nanos(0), drained: false, cancelled: false };
        Self { jobs: VecDeque::new(), at, wake: Nanos::NEVER, reached: 0 }
    }
}

impl Background {
    /// Whether there is nothing to do.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub fn is_ours(&self, id: u32) -> bool {
        self.at.piece.is_some_and(|(slot, ..)| slot == id)
    }
}

/// Data of a command that has none.
pub(crate) const NO_DATA: DataPointer = DataPointer::tag(Tag(u32::MAX));
