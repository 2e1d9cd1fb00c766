//! A virtqueue's journal beside its ring: what the ring has just read or is about to publish is noted; what was in flight
//! when another process served the queue is found again.

use super::chain::{Chain, Violation, unpack};
use super::ring::{Packed, Ring, RingAddresses, Split};
use crate::memory::{Memory, MemoryFault};
use alloc::vec::Vec;
use core::fmt;
use weir_journal::{
    Descriptor, FoundRing, InRing, JournalMemory, JournalRegion, OpenError, RecoveredRing, RingJournal, RingKind,
};
use weir_spec::virtqueue::PackedIndex;

/// Why a queue cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// Its ring cannot be accessed.
    Ring(MemoryFault),
    /// Its journal is not to be used.
    Journal(OpenError),
    /// The front end asks for a region of so many queues, or of that many entries each, and may have at most so many.
    Region {
        /// Queues and entries of each.
        asked: (u16, u16),
        /// The same, at most.
        most: (u16, u16),
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Ring(fault) => write!(f, "the ring cannot be accessed: {fault}"),
            StartError::Journal(e) => e.fmt(f),
            StartError::Region { asked, most } => write!(
                f,
                "an in-flight region of {} queues with {} entries each: it has {} queues with at most {} entries",
                asked.0, asked.1, most.0, most.1
            ),
        }
    }
}

impl core::error::Error for StartError {}

impl From<MemoryFault> for StartError {
    fn from(fault: MemoryFault) -> Self {
        StartError::Ring(fault)
    }
}

impl From<OpenError> for StartError {
    fn from(e: OpenError) -> Self {
        StartError::Journal(e)
    }
}

/// A packed ring's base, and whether it may mean a new ring.
type Base = (u32, bool);

/// See the [module](self). Without a region it does nothing.
#[derive(Debug)]
pub(super) struct Track<M: Memory> {
    journal: Option<RingJournal<M::Words>>,
    /// Heads that were in flight before, to be submitted again, the first one last.
    replay: Vec<u16>,
    /// At hand: a packed ring's chains whose descriptors are about to be overwritten, and the descriptors of one.
    endangered: Vec<(u16, InRing)>,
    descriptors: Vec<Descriptor>,
}

impl<M: Memory> Track<M> {
    /// A track that keeps nothing.
    /// Whether there is one.
    pub(super) fn is_kept(&self) -> bool {
        self.journal.is_some()
    }

    pub(super) fn none() -> Self {
        Self { journal: None, replay: Vec::new(), endangered: Vec::new(), descriptors: Vec::new() }
    }

    /// Finds the queue's part of the region: one that begins now, or Algorithm 2 on what is left of an earlier life. In that case
    /// the ring goes on where the journal says.
    pub(super) fn of_split(
        ring: &mut Split<M>,
        region: &JournalRegion<M::Words>,
        index: u16,
        size: u16,
    ) -> Result<(Self, Option<RecoveredRing>), OpenError> {
        match region.ring(index, RingKind::Split, size)? {
            FoundRing::Fresh(fresh) => Ok((Self::new(fresh.begin(ring.taken(), ring.used())), None)),
            FoundRing::Left(left) => {
                let published = left.is_published(ring.used())?;
                let (journal, found) = left.recover(published)?;
                ring.continue_at(found.last_idx);
                Ok((Self::again(journal, &found), Some(found)))
            }
        }
    }

    /// As [`Track::of_split`]; `base` is what SET_VRING_BASE said, and whether it may mean a new ring. What counts now is returned.
    pub(super) fn of_packed(
        memory: &M,
        places: &RingAddresses,
        region: &JournalRegion<M::Words>,
        index: u16,
        size: u16,
        (base, unsure): Base,
    ) -> Result<(Self, Option<RecoveredRing>, Base), StartError> {
        match region.ring(index, RingKind::Packed, size)? {
            FoundRing::Fresh(fresh) => {
                let unsure = unsure && !fresh.surely_stopped_at(base);
                let journal = if unsure { fresh.begin_unsure() } else { fresh.begin(base as u16, (base >> 16) as u16) };
                Ok((Self::new(journal), None, (base, unsure)))
            }
            FoundRing::Left(left) => {
                let began = PackedIndex::from_bits(left.began());
                let published = Packed::is_published(memory, places, size, began)?;
                let end = PackedIndex::from_bits(left.used());
                let unsure = left.is_unsure();
                if !published && began != end {
                    // Before the ring is changed: what no crash leaves is refused, and nothing done.
                    left.check(published).map_err(OpenError::from)?;
                    Packed::take_back(memory, places, size, (began, end))?;
                }
                let (journal, found) = left.recover(published).map_err(OpenError::from)?;
                let base = u32::from(found.last_idx) | u32::from(found.used) << 16;
                Ok((Self::again(journal, &found), Some(found), (base, unsure)))
            }
        }
    }

    fn new(journal: RingJournal<M::Words>) -> Self {
        Self { journal: Some(journal), ..Self::none() }
    }

    fn again(journal: RingJournal<M::Words>, found: &RecoveredRing) -> Self {
        let replay = found.heads.iter().rev().copied().collect();
        Self { journal: Some(journal), replay, ..Self::none() }
    }

    /// How many requests wait to be submitted again.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.replay.len()
    }

    /// They are not submitted: the queue is broken. The journal has them.
    pub(super) fn give_up(&mut self) {
        self.replay.clear();
    }

    /// Reads the next chain that is to be submitted again.
    #[cold]
    pub(super) fn next(&mut self, memory: &M, ring: &Ring<M>, chain: &mut Chain) -> Result<(), Violation> {
        let Some(head) = self.replay.pop() else { return Ok(()) };
        match (ring, &self.journal) {
            (Ring::Split(r), _) => r.again(memory, head, chain),
            (Ring::Packed(r), Some(journal)) => {
                if let Some(chain) = journal.chain(head, &mut self.descriptors) {
                    r.descriptors(memory, chain, &mut self.descriptors)?;
                }
                r.again(memory, head, &self.descriptors, chain)
            }
            (Ring::Packed(_), None) => Err(Violation::OutOfRange),
        }
    }

    /// A chain has been read off the ring, whose head is not in flight.
    #[inline]
    pub(super) fn take(&mut self, ring: &Ring<M>, chain: &Chain) {
        let Some(journal) = &mut self.journal else { return };
        match ring {
            Ring::Split(r) => journal.take(chain.head, r.taken()),
            Ring::Packed(r) => {
                if chain.is_proof {
                    restart_where_it_begins(journal, r.next_used());
                }
                let (address, len, _, flags) = unpack(chain.first.0, chain.first.1);
                let at = InRing { at: chain.at, slots: chain.slots, address, len, flags };
                journal.take_packed(chain.head, PackedIndex::from_bits(chain.next), at);
            }
        }
    }

    /// A request is about to be put to the used ring.
    ///
    /// # Errors
    /// The ring is not where it was, or the driver has made a request available again while it was in flight.
    #[inline]
    pub(super) fn done(&mut self, memory: &M, ring: &Ring<M>, head: u16, slots: u16) -> Result<(), Violation> {
        if let Some(journal) = &mut self.journal {
            if !journal.is_in_order(head) {
                let Self { endangered, descriptors, .. } = self;
                keep_others(memory, ring, journal, (head, slots), (endangered, descriptors))?;
            }
            journal.done(head, slots);
        }
        Ok(())
    }

    /// The ring has published what was done.
    #[inline]
    pub(super) fn published(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.published();
        }
    }

    /// The ring was found anew, and its used index with it.
    pub(super) fn resume(&mut self, ring: &Ring<M>) {
        if let (Some(journal), Ring::Split(r)) = (&mut self.journal, ring) {
            journal.resume(r.used());
        }
    }

    /// The queue has ended in order, at `base`.
    pub(super) fn close(&self, base: u32) {
        if let Some(journal) = &self.journal {
            journal.close(base);
        }
    }
}

/// Keeps the descriptors of the requests in flight that are overwritten once `head` is put to the used ring.
#[inline(never)]
fn keep_others<M: Memory>(
    memory: &M,
    ring: &Ring<M>,
    journal: &mut RingJournal<M::Words>,
    (head, slots): (u16, u16),
    (endangered, descriptors): (&mut Vec<(u16, InRing)>, &mut Vec<Descriptor>),
) -> Result<(), Violation> {
    let Ring::Packed(ring) = ring else { return Ok(()) };
    journal.endangered(head, slots, endangered);
    for (endangered, chain) in endangered {
        ring.descriptors(memory, *chain, descriptors)?;
        if !journal.keep(*endangered, descriptors) {
            return Err(Violation::InFlight);
        }
    }
    Ok(())
}

/// Only now it is known where the ring begins. A ring that has gone round and stands at 0 does not begin: to say that it has not, even for a
/// moment, would leave its successor to what SET_VRING_BASE once said.
#[cold]
fn restart_where_it_begins<W: JournalMemory>(journal: &mut RingJournal<W>, begins: PackedIndex) {
    if journal.used() != begins.bits() {
        journal.restart(begins.bits(), begins.bits());
    } else {
        journal.is_where_it_was_said();
    }
}

/// The base at which a queue was stopped whose server died before the front end had heard of it: what the answer would have been.
pub(super) fn closed_at<W: JournalMemory + Clone>(
    region: &JournalRegion<W>,
    index: u16,
    packed: bool,
    size: u16,
) -> Option<u32> {
    let kind = if packed { RingKind::Packed } else { RingKind::Split };
    match region.ring(index, kind, size) {
        Ok(FoundRing::Fresh(fresh)) => fresh.closed(),
        Ok(FoundRing::Left(_)) | Err(_) => None,
    }
}
