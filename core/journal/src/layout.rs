//! Where everything lies in a region, and what is checked before anything of it is believed.

use crate::JournalMemory;
use crate::nvme::{self, FoundNvme};
use crate::recover::{self, FoundRing};
use crate::ring::{RingKind, chain};
use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Release};

/// The first eight bytes of a region: `WEIRJRNL`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"WEIRJRNL");
/// Version of the layout.
pub const VERSION: u32 = 2;
/// Bytes before the queues.
pub const HEADER_BYTES: u64 = 64;

/// Words of a cache line: the header, the head of a queue's part, and every part is a multiple.
pub(crate) const LINE: usize = 8;

/// Words of the header.
mod header {
    pub(super) const MAGIC: usize = 0;
    /// Version in bits 31:0, kind in 39:32.
    pub(super) const VERSION: usize = 1;
    /// Bytes of the region.
    pub(super) const LENGTH: usize = 2;
    /// Queues in bits 15:0, their size in 31:16.
    pub(super) const QUEUES: usize = 3;
    /// The medium that the requests are for; 0: any.
    pub(super) const MEDIUM: usize = 4;
    pub(super) const WORDS: usize = 5;
    /// Of NVMe queues: [`JournalRegion::noted`](super::JournalRegion::noted); 0 before that word was there.
    pub(super) const NOTED: usize = 5;
}

/// Words of the head of a queue's part.
pub(crate) mod head {
    /// State in bits 15:0, head of the newest request in 31:16, `last_idx` in 47:32.
    pub(crate) const MERGE: usize = 0;
    /// `used_idx` in bits 15:0; in 31:16 where the batch began that it ends. NVMe: a count of 64 bits.
    pub(crate) const USED: usize = 1;
    /// What the part is used for in bits 7:0, 0 for nothing; [`UNSURE`]; the queue's size in 31:16; NVMe: the queue's generation in 63:32. Stored
    /// last when a queue begins.
    pub(crate) const START: usize = 2;
    /// Where the queue was stopped in order: [`CLOSED`](super::CLOSED) and its base in bits 31:0. 0 of one that has begun.
    pub(crate) const CLOSED: usize = 3;
    /// Bit of the start word: a packed ring's base was 0, which may mean a new ring, and nothing has been taken that tells.
    pub(crate) const UNSURE: u64 = 1 << 8;
}

/// Bit of the closed word that says that there is a base.
pub(crate) const CLOSED: u64 = 1 << 32;
/// Bit of the closed word: the ring was stopped before it was known where it begins.
pub(crate) const CLOSED_UNSURE: u64 = 1 << 33;

/// States of an entry, in bits 1:0 of its first word; the sequence number is in the others.
pub(crate) mod state {
    pub(crate) const NONE: u64 = 0;
    pub(crate) const INFLIGHT: u64 = 1;
    pub(crate) const DONE: u64 = 2;
    /// NVMe only.
    pub(crate) const DECIDED: u64 = 3;
    pub(crate) const MASK: u64 = 3;
    pub(crate) const BITS: u32 = 2;
}

/// States of the merge word. FINISHED is 0, so that a region that nobody has touched has no request of head 0 to redo.
pub(crate) const FINISHED: u64 = 0;
pub(crate) const STARTED: u64 = 1;

pub(crate) const fn merge(state: u64, head: u16, last_idx: u16) -> u64 {
    state | (head as u64) << 16 | (last_idx as u64) << 32
}

/// The sequence number's bits.
pub(crate) const SEQUENCE: u64 = u64::MAX >> state::BITS;

/// What the queues of a region are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Virtqueues, split or packed: each says which when it begins.
    Virtio,
    /// NVMe submission queues.
    Nvme,
}

impl QueueKind {
    const fn code(self) -> u64 {
        match self {
            QueueKind::Virtio => 1,
            QueueKind::Nvme => 2,
        }
    }
}

/// A region's proportions; with the version they are the whole layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalShape {
    /// What the queues are.
    pub kind: QueueKind,
    /// How many.
    pub queues: u16,
    /// Most entries of each.
    pub size: u16,
}

impl JournalShape {
    /// Words of a queue's part.
    pub(crate) const fn stride(&self) -> usize {
        let size = self.size as usize;
        let words = match self.kind {
            // Packed rings need most: an entry of four words, and two for every descriptor that is kept.
            QueueKind::Virtio => 6 * size,
            QueueKind::Nvme => nvme::ENTRY * size,
        };
        LINE + words.next_multiple_of(LINE)
    }

    /// Bytes of a region of this shape.
    pub const fn bytes(&self) -> u64 {
        HEADER_BYTES + (self.queues as u64) * (self.stride() as u64) * 8
    }

    pub(crate) const fn part(&self, queue: u16) -> usize {
        LINE + queue as usize * self.stride()
    }
}

/// Why a region is not to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// Somebody else's.
    NotAJournal,
    /// Of another version.
    Version {
        /// What it says.
        found: u32,
    },
    /// Shorter than it must be, or says so.
    Length {
        /// Bytes it has, or says it has.
        found: u64,
        /// Bytes of its shape.
        needed: u64,
    },
    /// Made for other queues.
    Shape {
        /// Queues and size it says.
        found: (u16, u16),
        /// Queues and size wanted.
        wanted: (u16, u16),
    },
    /// Made for queues of another kind, or there are no queues.
    Kind,
    /// Made for a medium that is not this one.
    Medium,
    /// The queue is not one of the region, or larger than it was made for.
    Queue {
        /// Which.
        index: u16,
        /// Its size.
        size: u16,
    },
    /// What the queue left is not what any crash leaves.
    Damaged(Damage),
}

/// What is wrong in what a queue left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The queue was of another kind or size.
    Start,
    /// The merge word.
    Merge,
    /// The used word.
    Used,
    /// An entry.
    Entry(u16),
    /// The indices say so many requests (slots, in a packed ring) are in flight, the entries say another number.
    Count {
        /// By the indices.
        indices: u32,
        /// By the entries.
        entries: u32,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Start => f.write_str("the queue was of another kind or size"),
            Damage::Merge => f.write_str("its newest request is none of the queue's"),
            Damage::Used => f.write_str("its used index is none of the queue's"),
            Damage::Entry(head) => write!(f, "entry {head} is malformed"),
            Damage::Count { indices, entries } => {
                write!(f, "the ring's indices have {indices} requests in flight, the entries {entries}")
            }
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::NotAJournal => f.write_str("the in-flight region is not one of Weir's"),
            OpenError::Version { found } => {
                write!(f, "the in-flight region has layout version {found}, this Weir knows version {VERSION}")
            }
            OpenError::Length { found, needed } => {
                write!(f, "the in-flight region has {found} bytes, its queues need {needed}")
            }
            OpenError::Shape { found, wanted } => write!(
                f,
                "the in-flight region is for {} queues of {}, not for {} of {}",
                found.0, found.1, wanted.0, wanted.1
            ),
            OpenError::Kind => f.write_str("the in-flight region is for queues of another kind"),
            OpenError::Medium => f.write_str(
                "the in-flight region is for a drive in memory or a volume that is no more, and what was written to it is lost; start the front end anew, \
                 which then finds the drive empty",
            ),
            OpenError::Queue { index, size } => {
                write!(f, "the in-flight region has no room for queue {index} of {size} entries")
            }
            OpenError::Damaged(damage) => write!(f, "the in-flight region is damaged: {damage}"),
        }
    }
}

impl core::error::Error for OpenError {}

impl From<Damage> for OpenError {
    fn from(damage: Damage) -> Self {
        OpenError::Damaged(damage)
    }
}

/// A connection's journal: one part for each of its queues.
#[derive(Clone, Debug)]
pub struct JournalRegion<W> {
    words: W,
    shape: JournalShape,
    medium: u64,
}

impl<W: JournalMemory + Clone> JournalRegion<W> {
    /// Opens a region for queues of that shape. One of zeroes is new and gets its header.
    ///
    /// # Errors
    /// It is too short, or somebody else's, or of another version or shape. Then nothing in it has been changed.
    pub fn open(words: W, shape: JournalShape) -> Result<Self, OpenError> {
        Self::of_medium(words, shape, 0)
    }

    /// The same for a medium that may be replaced by an empty one, and whoever has a region for the other is to know: `medium` tells the two
    /// apart, and 0 is one that is never replaced. A region that does not say for which one it is, is for this one from now on.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`OpenError::Medium`].
    pub fn of_medium(words: W, shape: JournalShape, medium: u64) -> Result<Self, OpenError> {
        let (found, needed) = (words.count() as u64 * 8, shape.bytes());
        if found < needed {
            return Err(OpenError::Length { found, needed });
        }
        if shape.queues == 0 || shape.size == 0 {
            return Err(OpenError::Kind);
        }
        let region = Self { words, shape, medium };
        // Acquire: what the magic, stored last, stands for.
        let said: [u64; header::WORDS] = core::array::from_fn(|i| region.words.load(i, Acquire));
        if said[header::MAGIC] == 0 {
            region.format();
            return Ok(region);
        }
        region.check(&said)?;
        if said[header::MEDIUM] != medium {
            // Of before that word: from now on it is for this one. Release as all of the header; nobody else stores it.
            region.words.store(header::MEDIUM, medium, Release);
        }
        Ok(region)
    }

    fn written(&self) -> [u64; header::WORDS] {
        let JournalShape { kind, queues, size } = self.shape;
        let mut words = [0; header::WORDS];
        words[header::MAGIC] = MAGIC;
        words[header::VERSION] = u64::from(VERSION) | kind.code() << 32;
        words[header::LENGTH] = self.shape.bytes();
        words[header::QUEUES] = u64::from(queues) | u64::from(size) << 16;
        words[header::MEDIUM] = self.medium;
        words
    }

    fn format(&self) {
        // A front end may have left anything behind a magic of 0: no queue has begun in a new region.
        for queue in 0..self.shape.queues {
            self.words.store(self.shape.part(queue) + head::START, 0, Release);
        }
        // The magic last: a region with a magic has a whole header.
        for (at, word) in self.written().into_iter().enumerate().rev() {
            self.words.store(at, word, Release);
        }
    }

    fn check(&self, said: &[u64; header::WORDS]) -> Result<(), OpenError> {
        let ours = self.written();
        let low = |word: u64| (word as u16, (word >> 16) as u16);
        if said[header::MAGIC] != MAGIC {
            Err(OpenError::NotAJournal)
        } else if said[header::VERSION] as u32 != VERSION {
            Err(OpenError::Version { found: said[header::VERSION] as u32 })
        } else if said[header::VERSION] != ours[header::VERSION] {
            Err(OpenError::Kind)
        } else if said[header::QUEUES] != ours[header::QUEUES] {
            let (found, wanted) = (low(said[header::QUEUES]), low(ours[header::QUEUES]));
            Err(OpenError::Shape { found, wanted })
        } else if said[header::LENGTH] != ours[header::LENGTH] {
            Err(OpenError::Length { found: said[header::LENGTH], needed: ours[header::LENGTH] })
        } else if ![0, self.medium].contains(&said[header::MEDIUM]) {
            Err(OpenError::Medium)
        } else {
            Ok(())
        }
    }

    /// The number of the last message that its owner need not hear again: 0 at first.
    pub fn noted(&self) -> u64 {
        self.words.load(header::NOTED, Acquire)
    }

    /// Stores that number, after what the message has said is stored: Release.
    pub fn note(&self, number: u64) {
        self.words.store(header::NOTED, number, Release);
    }

    /// What it was made for.
    pub fn shape(&self) -> JournalShape {
        self.shape
    }

    /// The memory.
    pub fn words(&self) -> &W {
        &self.words
    }

    /// The part of a virtqueue of `size` entries: new, or left by whoever served it before.
    ///
    /// # Errors
    /// The region has no room for it, or is damaged.
    pub fn ring(&self, index: u16, kind: RingKind, size: u16) -> Result<FoundRing<W>, OpenError> {
        self.room(QueueKind::Virtio, index, size)?;
        if kind == RingKind::Packed && size > chain::MOST {
            return Err(OpenError::Queue { index, size });
        }
        Ok(recover::find(self.words.clone(), self.shape.part(index), kind, size)?)
    }

    /// The part of an NVMe submission queue whose commands in flight are `size` at the most. Queues of one identifier that were made one
    /// after the other have different generations: what another one has left is not this one's.
    ///
    /// # Errors
    /// As [`JournalRegion::ring`].
    pub fn nvme(&self, index: u16, size: u16, generation: u32) -> Result<FoundNvme<W>, OpenError> {
        self.room(QueueKind::Nvme, index, size)?;
        Ok(nvme::find(self.words.clone(), self.shape.part(index), size, generation)?)
    }

    fn room(&self, kind: QueueKind, index: u16, size: u16) -> Result<(), OpenError> {
        if self.shape.kind != kind {
            return Err(OpenError::Kind);
        }
        if index >= self.shape.queues || size == 0 || size > self.shape.size {
            return Err(OpenError::Queue { index, size });
        }
        Ok(())
    }
}
