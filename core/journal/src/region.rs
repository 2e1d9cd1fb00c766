//! A region of queues of one kind: opened or begun, and checked before anything of it is believed.

use crate::JournalMemory;
use crate::error::OpenError;
use crate::layout::{HEADER_BYTES, LINE, MAGIC, VERSION, head, header};
use crate::nvme::{self, FoundNvme};
use crate::recover::{self, FoundRing};
use crate::ring::{RingKind, chain};
use core::sync::atomic::Ordering::{Acquire, Release};

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

    /// It is for that medium from now on, with all that it says; 0: for whichever opens it next.
    pub fn move_to(&mut self, medium: u64) {
        self.medium = medium;
        // Release as all of the header; nobody else stores it.
        self.words.store(header::MEDIUM, medium, Release);
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
