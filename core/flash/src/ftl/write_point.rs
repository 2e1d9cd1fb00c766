//! Where the next page of each kind of data goes.

use super::encoding::NONE;

/// Where the next page of one kind goes in one plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WritePoint {
    pub(crate) next: u32,
    pub(crate) end: u32,
    pub(crate) block: u32,
}

/// No block is open.
pub(crate) const SHUT: WritePoint = WritePoint { next: 0, end: 0, block: NONE };

impl WritePoint {
    /// Nothing is left to write to.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.end
    }
}

/// The write points of a plane: the host's streams from 0 on, then these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kinds {
    /// What collection moves.
    pub(crate) gc: u32,
    /// Pages of the map itself.
    pub(crate) map: u32,
    /// The host's data on its way through pseudo-SLC blocks.
    pub(crate) slc: u32,
    /// How many there are. Behind `slc`: what collection moves of each persistently isolated handle, or of each stream but
    /// stream 0 where it keeps them apart.
    pub(crate) count: u32,
}

impl Kinds {
    /// The stream whose data a write point takes, where collection keeps streams apart; 0 for all else.
    pub(crate) fn stream(&self, kind: u32) -> u32 {
        match kind {
            host if host < self.gc => host,
            moved if moved > self.slc && moved < self.count => moved - self.slc,
            _ => 0,
        }
    }

    /// The write point for what collection moves of a stream.
    pub(crate) fn moved(&self, stream: u32) -> u32 {
        if stream == 0 { self.gc } else { self.slc + stream }
    }
}
