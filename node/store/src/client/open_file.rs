//! An open file as the engine has it: its bytes in the inode, or in blocks.

use std::collections::{BTreeSet, VecDeque};
use weir_store::file::FileIo;
use weir_store::space::Epoch;
use weir_store::{Content, Inode, InodePath};
use weir_units::Nanos;

/// Bytes of a file that lie in its inode.
#[derive(Debug, Default)]
pub(super) struct InlineBytes {
    /// All of them.
    pub bytes: Vec<u8>,
    /// Others do not see them yet.
    pub is_dirty: bool,
    /// They are on their way to the service.
    pub is_flushing: bool,
}

/// Where a file's bytes are.
#[derive(Debug)]
pub(super) enum FileContent {
    /// In its inode.
    Inline(InlineBytes),
    /// In blocks.
    Mapped(Box<FileIo>),
}

/// What is to be done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileWork {
    /// Read so many bytes from there.
    Read(u64, u32),
    /// Write so many bytes there.
    Write(u64, u32),
    /// Publish; at the end the last block is cut.
    Flush(bool),
}

/// Work that waits for its turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedWork {
    pub work: u64,
    pub what: FileWork,
    pub deadline: Nanos,
}

/// See [the module](self).
#[derive(Debug)]
pub(super) struct OpenFile {
    /// As the service knows it; none while it is opened again.
    pub handle: Option<u64>,
    pub at: InodePath,
    pub writes: bool,
    pub block: u32,
    pub content: FileContent,
    /// Work that waits for blocks to be published, or for a truncation.
    pub queue: VecDeque<QueuedWork>,
    /// Nothing of the queue begins: the file is being truncated.
    pub is_held: bool,
    /// Blocks that were granted since the last publication.
    pub fresh: BTreeSet<u64>,
    /// A flush that makes room is under way.
    pub is_making_room: bool,
    /// The write that brings its bytes from the inode into a block, and these until that is done.
    pub moving: Option<(u64, InlineBytes)>,
    /// No caller has it any more.
    pub is_closed: bool,
}

impl OpenFile {
    /// A file as it was opened, if its bytes lie in the inode.
    pub fn inline_of(inode: &Inode, most: u32) -> Option<InlineBytes> {
        match &inode.content {
            Content::Inline(bytes) if inode.size <= u64::from(most) => {
                let mut bytes = bytes.clone();
                bytes.resize(inode.size as usize, 0);
                Some(InlineBytes { bytes, is_dirty: false, is_flushing: false })
            }
            _ => None,
        }
    }

    pub fn size(&self) -> u64 {
        match &self.content {
            FileContent::Inline(inline) => inline.bytes.len() as u64,
            FileContent::Mapped(io) => io.size(),
        }
    }

    pub fn pending(&self) -> usize {
        match &self.content {
            FileContent::Inline(_) => 0,
            FileContent::Mapped(io) => io.pending(),
        }
    }

    /// The epoch of the oldest map that counts here, and of what is in flight under one.
    pub fn oldest(&self) -> Option<Epoch> {
        match &self.content {
            FileContent::Inline(_) => None,
            FileContent::Mapped(io) => io.oldest(),
        }
    }

    /// Blocks that a write may need beside those that it has.
    pub fn wants(&self, offset: u64, len: u32) -> u64 {
        let block = u64::from(self.block);
        let end = offset.saturating_add(len.into());
        let blocks = offset / block..end.div_ceil(block);
        blocks.filter(|number| !self.fresh.contains(number)).count() as u64
    }
}
