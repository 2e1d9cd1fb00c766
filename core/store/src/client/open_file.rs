//! An open file: its bytes in the inode, or in blocks; what waits for its turn; and what goes on with the file as a whole.

use super::event::{ClientFailure, MemoryId, WorkId};
use super::requests::Unanswered;
use crate::file::FileIo;
use crate::inode::{Content, Inode};
use crate::space::Epoch;
use crate::tree::InodePath;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Bytes of a file that lie in its inode.
#[derive(Clone, Debug, Default)]
pub(super) struct InlineBytes {
    /// Those that are there; behind them, up to the size, are zeroes.
    pub bytes: Vec<u8>,
    /// The file's size.
    pub size: u64,
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

/// How the service knows the file.
#[derive(Clone, Debug)]
pub(super) enum Handle {
    /// By this number.
    Open(u64),
    /// It has forgotten the number, and is being asked for another one.
    Reopening,
    /// It does not open the file again: why. Nothing more is done to the file.
    Lost(ClientFailure),
}

/// What goes on with a file as a whole, while nothing else of it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The work has it cut, or lengthened, to that size.
    Truncate(WorkId, u64),
    /// The work has it closed.
    Close(WorkId),
    /// Its bytes move from the inode to a block: a write needs that.
    Move(WorkId),
}

impl Goal {
    /// The work that wants it.
    pub fn work(&self) -> WorkId {
        match self {
            Goal::Truncate(work, _) | Goal::Close(work) | Goal::Move(work) => *work,
        }
    }
}

/// How far it is.
///
/// ```text
///   Truncate  Drain ─► Flush ─► Zero ─► FlushZeroes ─► Cut          in blocks
///             Drain ─► FlushInline                                  in the inode, also then
///             Drain ─► Move ─► Flush ─► …                           in the inode, and too large for that then
///   Close     Drain ─► Flush, FlushInline ─► Close
///   Move      Drain ─► Move
/// ```
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// What had begun comes to its end.
    Drain,
    /// The bytes of the inode, these, are written to a block.
    Move(InlineBytes),
    /// The bytes of the inode are on their way to the service.
    FlushInline,
    /// What was written to blocks is published.
    Flush,
    /// The rest of the block in which the file is to end is made zero: what is written behind it later must not show what was there.
    Zero,
    /// That is published.
    FlushZeroes,
    /// The commit of the new size was sent. Until its outcome is known nothing newer is published: it may be carried out late.
    Cut,
    /// The file is being closed at the service.
    Close,
}

/// A goal, and how far it is.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub goal: Goal,
    pub step: Step,
    pub deadline: Nanos,
}

/// See [the module](self).
#[derive(Debug)]
pub(super) struct OpenFile {
    pub at: InodePath,
    pub writes: bool,
    pub block: u32,
    pub copies: u8,
    pub handle: Handle,
    /// How often that was since something was done under a handle.
    pub reopens: u32,
    /// Requests that wait for another handle.
    pub waiting: Vec<Unanswered>,
    pub content: FileContent,
    pub memory: MemoryId,
    /// Work that waits for its turn.
    pub queue: VecDeque<WorkId>,
    /// Reads that are tried again then.
    pub again: Vec<(Nanos, WorkId)>,
    pub sequence: Option<Sequence>,
    /// A flush that makes room is under way; what the file had ahead when it began, or nothing if writes go on beside it.
    pub making_room: Option<Option<u64>>,
    /// A flush to make room has published nothing: not again before the next look.
    pub is_room_vain: bool,
    /// The service has no room for a block of it, and will have some.
    pub waits_for_room: bool,
    /// No caller has it any more.
    pub is_forgotten: bool,
    /// What the service has said of it last that cannot be.
    pub violation: Option<String>,
}

impl OpenFile {
    /// The bytes of a file that lie in its inode.
    pub fn inline_of(inode: &Inode) -> Option<InlineBytes> {
        match &inode.content {
            Content::Inline(bytes) => {
                Some(InlineBytes { bytes: bytes.clone(), size: inode.size, ..Default::default() })
            }
            _ => None,
        }
    }

    pub fn size(&self) -> u64 {
        match &self.content {
            FileContent::Inline(inline) => inline.size,
            FileContent::Mapped(io) => io.size(),
        }
    }

    /// The machine of its blocks.
    pub fn io(&self) -> Option<&FileIo> {
        match &self.content {
            FileContent::Inline(_) => None,
            FileContent::Mapped(io) => Some(io),
        }
    }

    /// The bytes in its inode.
    pub fn inline(&mut self) -> Option<&mut InlineBytes> {
        match &mut self.content {
            FileContent::Inline(inline) => Some(inline),
            FileContent::Mapped(_) => None,
        }
    }

    /// Whether nothing of it is under way at drives, or on its way to the service.
    pub fn is_quiet(&self) -> bool {
        match &self.content {
            FileContent::Inline(inline) => !inline.is_flushing,
            FileContent::Mapped(io) => io.pending() == 0,
        }
    }

    /// Whether it is being closed, or will be when what it has under way is over.
    pub fn is_ending(&self) -> bool {
        self.is_forgotten || matches!(self.sequence, Some(Sequence { goal: Goal::Close(_), .. }))
    }

    /// Bytes of it that the session has ahead of what is published, or may have before long.
    pub fn ahead(&self) -> u64 {
        self.io().map_or(0, |io| self.bytes_of(io.ahead()))
    }

    /// Bytes of so many blocks, with all copies.
    pub fn bytes_of(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(u64::from(self.block) * u64::from(self.copies))
    }

    /// The epoch of the oldest map that counts here, and of what is in flight under one.
    pub fn oldest(&self) -> Option<Epoch> {
        self.io().and_then(FileIo::oldest)
    }
}
