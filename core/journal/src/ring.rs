//! A virtqueue's journal while the queue runs: Algorithm 1. It only stores; what it must know is in the process.

use crate::Words;
use crate::layout::{CLOSED, FINISHED, LINE, SEQUENCE, STARTED, head, merge, state};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Release;
use weir_spec::virtqueue::PackedIndex;

/// Which ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// Split: what is in flight still stands in the descriptor table.
    Split,
    /// Packed: used descriptors overwrite those in flight, so these are kept.
    Packed,
}

impl RingKind {
    /// The start word of a queue.
    pub(crate) const fn start(self, size: u16) -> u64 {
        let code = match self {
            RingKind::Split => 1,
            RingKind::Packed => 2,
        };
        code | (size as u64) << 16
    }

    /// Words of an entry. A split ring's are close together, so that a few lines hold all that are in turn.
    pub(crate) const fn entry(self) -> usize {
        match self {
            RingKind::Split => 1,
            RingKind::Packed => 4,
        }
    }
}

/// A descriptor of a packed ring, as the driver wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Guest address.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Flags.
    pub flags: u16,
}

/// No further descriptor.
pub(crate) const END: u16 = u16::MAX;

/// Words of a packed entry after the first.
pub(crate) mod packed {
    /// Slots in bits 15:0, the place of the second descriptor in 31:16.
    pub(crate) const SLOTS: usize = 1;
    /// The first descriptor: its address, then length in 31:0 and flags in 47:32.
    pub(crate) const FIRST: usize = 2;
}

/// See the [module](self).
#[derive(Debug)]
pub struct RingJournal<W> {
    pub(crate) words: W,
    /// First word of the queue's part.
    pub(crate) part: usize,
    pub(crate) kind: RingKind,
    pub(crate) size: u16,
    /// Next sequence number.
    pub(crate) sequence: u64,
    /// Where the next used element goes (packed: with its wrap counter), published or not.
    pub(crate) used: u16,
    /// Heads that are DONE, and where their batch began.
    pub(crate) batch: Vec<u16>,
    pub(crate) began: u16,
    /// Places for further descriptors, of packed rings.
    pub(crate) free: Vec<u16>,
    /// The place of each head's second descriptor, of packed rings.
    pub(crate) seconds: Vec<u16>,
    /// By place: the next of its chain. The region's own links are for the successor only.
    pub(crate) nexts: Vec<u16>,
    /// Sequence numbers of the heads in flight, which go into their entries' other states.
    pub(crate) sequences: Vec<u64>,
}

impl<W: Words> RingJournal<W> {
    #[inline]
    fn put(&self, at: usize, value: u64) {
        self.words.store(self.part + at, value, Release);
    }

    #[inline]
    const fn entry(&self, head: u16) -> usize {
        LINE + head as usize * self.kind.entry()
    }

    #[inline]
    pub(crate) fn more(size: u16, at: u16) -> usize {
        LINE + RingKind::Packed.entry() * usize::from(size) + 2 * usize::from(at)
    }

    /// A request has been taken off a split ring, which is below the queue's size and not in flight; `last_idx` is the
    /// available index that comes next. Steps 2 to 7.
    #[inline]
    pub fn take(&mut self, head: u16, last_idx: u16) {
        let entry = self.next() << state::BITS;
        self.sequences[usize::from(head)] = entry;
        self.mark(LINE + usize::from(head), entry, head, last_idx);
    }

    /// Steps 5 to 7.
    #[inline]
    fn mark(&mut self, at: usize, entry: u64, head: u16, last_idx: u16) {
        // After all else that the entry holds: from here on the request counts as taken and as in flight. Its sequence number
        // comes with the next store: until then it is the newest, which recovery gives the highest.
        self.put(head::MERGE, merge(STARTED, head, last_idx));
        // After the merge word: an entry in flight that no index covers would be taken twice.
        self.put(at, entry | state::INFLIGHT);
        // After the entry: the next merge may replace the head only once the entry says the same.
        self.put(head::MERGE, merge(FINISHED, head, last_idx));
    }

    /// The same for a packed ring, whose descriptors are kept; there is one at least, and with those in flight they are no
    /// more than the queue's size.
    #[inline]
    pub fn take_packed(&mut self, head: u16, last_idx: PackedIndex, descriptors: &[Descriptor]) {
        let sequence = self.next();
        let (at, entry) = (self.entry(head), sequence << state::BITS);
        self.sequences[usize::from(head)] = entry;
        let first = descriptors.first().copied().unwrap_or_default();
        let second = if descriptors.len() > 1 { self.keep(&descriptors[1..]) } else { END };
        self.seconds[usize::from(head)] = second;
        self.put(at + packed::SLOTS, descriptors.len() as u64 | u64::from(second) << 16);
        self.put(at + packed::FIRST, first.address);
        self.put(at + packed::FIRST + 1, u64::from(first.len) | u64::from(first.flags) << 32);
        self.mark(at, entry, head, last_idx.bits());
    }

    /// Keeps descriptors in the order of the chain; the place of the first.
    fn keep(&mut self, descriptors: &[Descriptor]) -> u16 {
        let mut next = END;
        for d in descriptors.iter().rev() {
            let Some(place) = self.free.pop() else { return next };
            let at = Self::more(self.size, place);
            self.put(at, d.address);
            self.put(at + 1, u64::from(d.len) | u64::from(d.flags) << 32 | u64::from(next) << 48);
            self.nexts[usize::from(place)] = next;
            next = place;
        }
        next
    }

    #[inline]
    fn next(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence = (sequence + 1) & SEQUENCE;
        sequence
    }

    /// A request is done and about to be put to the used ring, of whose slots it takes `slots` (1 in a split ring). Steps 10
    /// and 11.
    #[inline]
    pub fn done(&mut self, head: u16, slots: u16) {
        if self.batch.is_empty() {
            self.began = self.used;
        }
        // Before DONE: whoever finds a DONE finds by the used word whether its batch was published. DONE before the used
        // element, which is the ring's store, and long before the used index.
        let (used, at) = match self.kind {
            RingKind::Split => (self.used.wrapping_add(1), LINE + usize::from(head)),
            RingKind::Packed => (PackedIndex::from_bits(self.used).advance(slots, self.size).bits(), self.entry(head)),
        };
        // Not read back: as one wide load with its neighbour it would wait for the narrow store.
        self.used = used;
        self.put(head::USED, u64::from(used) | u64::from(self.began) << 16);
        self.put(at, self.sequences[usize::from(head)] | state::DONE);
        self.batch.push(head);
    }

    /// The ring has published all that was done. Step 14, for the batch.
    #[inline]
    pub fn published(&mut self) {
        // After the used index: a request that is NONE and that the driver has not got would be lost. Before the next
        // completion: what is DONE is of one batch. The sequence number means nothing any more.
        match self.kind {
            RingKind::Split => {
                self.batch.iter().for_each(|head| self.put(LINE + usize::from(*head), state::NONE));
            }
            RingKind::Packed => {
                for i in 0..self.batch.len() {
                    let head = self.batch[i];
                    self.put(self.entry(head), state::NONE);
                    self.release(head);
                }
            }
        }
        self.batch.clear();
    }

    /// Places that belonged to `head` may be used again: its entry says NONE.
    #[inline]
    fn release(&mut self, head: u16) {
        let mut place = core::mem::replace(&mut self.seconds[usize::from(head)], END);
        while place != END {
            self.free.push(place);
            place = self.nexts[usize::from(place)];
        }
    }

    /// The used index was found anew in the ring, with nothing DONE: its memory has been replaced.
    pub fn resume(&mut self, used: u16) {
        if self.batch.is_empty() && self.used != used {
            (self.used, self.began) = (used, used);
            self.put(head::USED, u64::from(used) | u64::from(used) << 16);
        }
    }

    /// Nothing has been taken yet, and the queue turned out to begin elsewhere.
    pub fn restart(&mut self, last_idx: u16, used: u16) {
        (self.used, self.began) = (used, used);
        // In between the queue has not begun, as before.
        self.put(head::START, 0);
        self.put(head::MERGE, merge(FINISHED, 0, last_idx));
        self.put(head::USED, u64::from(used) | u64::from(used) << 16);
        self.put(head::START, self.start());
    }

    const fn start(&self) -> u64 {
        self.kind.start(self.size)
    }

    /// The queue has ended with nothing in flight, or its requests have been given up: it begins anew next time. `base` is what
    /// the driver is told: where it stopped.
    pub fn close(&self, base: u32) {
        // Before it counts as stopped: whoever dies before the driver has heard the answer leaves it to its successor.
        self.put(head::CLOSED, CLOSED | u64::from(base));
        self.put(head::START, 0);
    }
}
