//! A virtqueue's journal while the queue runs: Algorithm 1. It only stores; what it must know is in the process.

use crate::JournalMemory;
use crate::layout::{CLOSED, CLOSED_UNSURE, FINISHED, LINE, SEQUENCE, STARTED, head, merge, state};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Relaxed, Release};
use weir_spec::virtqueue::PackedIndex;

/// Which ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// Split: what is in flight still stands in the descriptor table.
    Split,
    /// Packed: used descriptors overwrite those of others in flight where requests are not completed in the ring's order, so
    /// these are kept then.
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
    /// The buffer's length in bytes, or an indirect table's (Virtio 1.2, 2.8.13).
    pub len: u32,
    /// `VIRTQ_DESC_F_*` (Virtio 1.2, 2.8.13).
    pub flags: u16,
}

/// A chain of a packed ring as it was taken: its descriptors stand in the ring, but for the second word of the first, which used
/// descriptors overwrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InRing {
    /// Slot of the first.
    pub at: u16,
    /// Slots, at least 1.
    pub slots: u16,
    /// The first descriptor's address.
    pub address: u64,
    /// Its length.
    pub len: u32,
    /// Its flags, AVAIL and USED apart.
    pub flags: u16,
}

/// No further descriptor.
pub(crate) const END: u16 = u16::MAX;

/// The second word of a packed ring's entry: where a chain's descriptors are.
pub(crate) mod chain {
    use super::InRing;
    use weir_spec::virtqueue::flag;

    /// Word of an entry.
    pub(crate) const AT: usize = 1;
    /// The next: the first descriptor's address.
    pub(crate) const ADDRESS: usize = 2;
    /// Most entries of a queue that the word has bits for.
    pub(crate) const MOST: u16 = 1 << 14;
    const LOW: u16 = MOST - 1;
    /// Slot in the ring of the first descriptor or, with [`KEPT`], the place where it is kept.
    const WHERE: u32 = 32;
    /// Slots, less one.
    const SLOTS: u32 = 46;
    /// WRITE and INDIRECT of the first descriptor, as they stand beside each other in its flags.
    const FLAGS: u32 = 60;
    const FLAGS_FROM: u32 = flag::WRITE.trailing_zeros();
    /// The descriptors are kept in the region.
    pub(crate) const KEPT: u64 = 1 << 63;
    const UNUSED: u64 = 1 << 62;

    const _: () = assert!(flag::INDIRECT == flag::WRITE << 1 && flag::NEXT == 1);

    pub(crate) const fn word(chain: InRing) -> u64 {
        let (slots, flags) = (chain.slots.wrapping_sub(1) & LOW, chain.flags >> FLAGS_FROM & 3);
        chain.len as u64 | ((chain.at & LOW) as u64) << WHERE | (slots as u64) << SLOTS | (flags as u64) << FLAGS
    }

    pub(crate) const fn kept(word: u64, place: u16) -> u64 {
        word & !((LOW as u64) << WHERE) | (place as u64) << WHERE | KEPT
    }

    pub(crate) const fn is_sound(word: u64) -> bool {
        word & UNUSED == 0
    }

    pub(crate) const fn place(word: u64) -> u16 {
        (word >> WHERE) as u16 & LOW
    }

    pub(crate) const fn slots(word: u64) -> u16 {
        ((word >> SLOTS) as u16 & LOW) + 1
    }

    /// Whether the chain stands in the ring from that slot on.
    pub(crate) const fn begins_at(word: u64, slot: u16) -> bool {
        (word >> WHERE) & (KEPT >> WHERE | LOW as u64) == slot as u64
    }

    pub(crate) const fn in_ring(word: u64, address: u64) -> InRing {
        let (slots, flags) = (slots(word), ((word >> FLAGS) as u16 & 3) << FLAGS_FROM);
        let next = if slots > 1 { flag::NEXT } else { 0 };
        InRing { at: place(word), slots, address, len: word as u32, flags: flags | next }
    }
}

/// The upper half of the used word: where the batch began.
pub(crate) const fn batch_at(used: u16) -> u64 {
    (used as u64) << 16
}

/// As [`PackedIndex::advance`], of its bits: sizes up to [`chain::MOST`] leave one free below the wrap counter.
#[inline]
const fn advance(bits: u16, slots: u16, size: u16) -> u16 {
    let next = bits.wrapping_add(slots);
    if next & !WRAP >= size { next.wrapping_sub(size) ^ WRAP } else { next }
}

const WRAP: u16 = 1 << 15;

/// What the process knows of the request of a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Its sequence number, for the entry's other states; DONE in the state's bits once it is that, or nothing yet.
    pub(crate) entry: u64,
    /// As the entry's second word, in a packed ring.
    pub(crate) chain: u64,
}

impl Known {
    pub(crate) const NOTHING: Self = Self { entry: state::DONE, chain: 0 };

    const fn is_in_flight(self) -> bool {
        self.entry & state::MASK == 0
    }
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
    /// Heads that are DONE, and where their batch began: in the used word's place, and so wide because it is read so.
    pub(crate) batch: Vec<u16>,
    pub(crate) began: u64,
    /// Nothing has been taken that tells where the ring begins, whose base was 0.
    pub(crate) unsure: bool,
    /// By head.
    pub(crate) known: Vec<Known>,
    /// By slot of a packed ring: whose chain of several slots begins there, or has begun.
    pub(crate) owners: Vec<u16>,
    /// Chains of several slots have been seen.
    pub(crate) long: bool,
    /// How many chains are kept.
    pub(crate) kept: u16,
    /// Places for the descriptors of kept chains.
    pub(crate) free: Vec<u16>,
    /// By place: the next of its chain. The region's own links are for the successor only.
    pub(crate) nexts: Vec<u16>,
}

impl<W: JournalMemory> RingJournal<W> {
    #[inline]
    fn put(&self, at: usize, value: u64) {
        self.words.store(self.part + at, value, Release);
    }

    #[inline]
    pub(crate) const fn entry(&self, head: u16) -> usize {
        LINE + head as usize * self.kind.entry()
    }

    pub(crate) fn place(size: u16, at: u16) -> usize {
        LINE + RingKind::Packed.entry() * usize::from(size) + 2 * usize::from(at)
    }

    /// A request has been taken off a split ring, which is below the queue's size and not in flight; `last_idx` is the
    /// available index that comes next. Steps 2 to 7.
    #[inline]
    pub fn take(&mut self, head: u16, last_idx: u16) {
        let entry = self.next() << state::BITS;
        self.known[usize::from(head)].entry = entry;
        self.words.store_each(self.part, Self::marks(LINE + usize::from(head), entry, head, last_idx));
    }

    /// Steps 5 to 7.
    #[inline]
    const fn marks(at: usize, entry: u64, head: u16, last_idx: u16) -> [(usize, u64); 3] {
        [
            // After all else that the entry holds: from here on the request counts as taken and as in flight. Its sequence number
            // comes with the next store: until then it is the newest, which recovery gives the highest.
            (head::MERGE, merge(STARTED, head, last_idx)),
            // After the merge word: an entry in flight that no index covers would be taken twice.
            (at, entry | state::INFLIGHT),
            // After the entry: the next merge may replace the head only once the entry says the same.
            (head::MERGE, merge(FINISHED, head, last_idx)),
        ]
    }

    /// The same for a packed ring, of whose chain is noted where it stands.
    #[inline]
    pub fn take_packed(&mut self, head: u16, last_idx: PackedIndex, chain: InRing) {
        let (entry, word) = (self.next() << state::BITS, chain::word(chain));
        let at = LINE + usize::from(head) * RingKind::Packed.entry();
        self.known[usize::from(head)] = Known { entry, chain: word };
        if chain.slots > 1 {
            self.owners[usize::from(chain.at)] = head;
            self.long = true;
        }
        let [merged, marked, finished] = Self::marks(at, entry, head, last_idx.bits());
        // Before the merge word, from which on they count. The entry says NONE: of what it held nobody asks.
        let noted = [(at + chain::AT, word), (at + chain::ADDRESS, chain.address)];
        self.words.store_each(self.part, [noted[0], noted[1], merged, marked, finished]);
    }

    /// Whether a request's completion overwrites no descriptor but its own, and those that the entries have: [`RingJournal::done`] may
    /// follow. Otherwise what [`RingJournal::endangered`] says is to be kept before.
    #[inline]
    pub fn is_in_order(&self, head: u16) -> bool {
        // No chain of a split ring is.
        !self.long || chain::begins_at(self.known[usize::from(head)].chain, PackedIndex::from_bits(self.used).offset)
    }

    /// The chains whose descriptors are lost once `head` is put to the used ring, of whose slots it takes `slots`: into `out`.
    ///
    /// Used descriptors go over the ring from slot to slot, so what a chain has to fear begins when they reach its first one. Of one slot
    /// the entry has all. One of several that is in flight then is kept. One that is done, but may be found not to have been published, loses the second word of its
    /// first descriptor, which the entry has; unless it goes on behind these slots, where the next one of the batch is put.
    pub fn endangered(&self, head: u16, slots: u16, out: &mut Vec<(u16, InRing)>) {
        out.clear();
        let from = PackedIndex::from_bits(self.used);
        for i in 0..slots.min(self.size) {
            let slot = from.advance(i, self.size).offset;
            let owner = self.owners[usize::from(slot)];
            let known = self.known[usize::from(owner)];
            if !chain::begins_at(known.chain, slot) || chain::slots(known.chain) == 1 {
                continue;
            }
            let goes_on = i + chain::slots(known.chain) > slots;
            let in_doubt = || owner == head || self.batch.contains(&owner);
            if known.is_in_flight() && owner != head || goes_on && in_doubt() {
                let address = self.words.load(self.part + self.entry(owner) + chain::ADDRESS, Relaxed);
                out.push((owner, chain::in_ring(known.chain, address)));
            }
        }
    }

    /// Keeps a chain's descriptors, as they were found in the ring; false if there is no room, which there is for a driver
    /// that makes no identifier available twice.
    pub fn keep(&mut self, head: u16, descriptors: &[Descriptor]) -> bool {
        let mut next = END;
        for d in descriptors.iter().rev() {
            let Some(place) = self.free.pop() else { return false };
            let at = Self::place(self.size, place);
            self.put(at, d.address);
            self.put(at + 1, u64::from(d.len) | u64::from(d.flags) << 32 | u64::from(next) << 48);
            self.nexts[usize::from(place)] = next;
            next = place;
        }
        // After the descriptors, and long before those in the ring are overwritten: one of the two is whole.
        let word = chain::kept(self.known[usize::from(head)].chain, next);
        self.known[usize::from(head)].chain = word;
        self.kept += 1;
        self.put(self.entry(head) + chain::AT, word);
        true
    }

    /// Where the next used element goes (packed: with its wrap counter).
    #[inline]
    pub fn used(&self) -> u16 {
        self.used
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
            self.began = batch_at(self.used);
        }
        // Before DONE: whoever finds a DONE finds by the used word whether its batch was published. DONE before the used
        // element, which is the ring's store, and long before the used index.
        let (used, at) = match self.kind {
            RingKind::Split => (self.used.wrapping_add(1), LINE + usize::from(head)),
            RingKind::Packed => {
                (advance(self.used, slots, self.size), LINE + usize::from(head) * RingKind::Packed.entry())
            }
        };
        let entry = self.known[usize::from(head)].entry | state::DONE;
        if slots > 1 {
            // For those only it is asked whether they are in flight.
            self.known[usize::from(head)].entry = entry;
        }
        // Not read back: as one wide load with its neighbour it would wait for the narrow store.
        self.used = used;
        self.words.store_each(self.part, [(head::USED, u64::from(used) | self.began), (at, entry)]);
        self.batch.push(head);
    }

    /// The ring has published all that was done. Step 14, for the batch.
    #[inline]
    pub fn published(&mut self) {
        // After the used index: a request that is NONE and that the driver has not got would be lost. Before the next
        // completion: what is DONE is of one batch. The sequence number means nothing any more.
        let words = self.kind.entry();
        let each = self.batch.iter().map(|head| (usize::from(*head) * words, state::NONE));
        self.words.store_each(self.part + LINE, each);
        if self.kept != 0 {
            self.release();
        }
        self.batch.clear();
    }

    /// Places of the batch's chains may be used again: their entries say NONE.
    fn release(&mut self) {
        for head in &self.batch {
            let known = &mut self.known[usize::from(*head)];
            if known.chain & chain::KEPT == 0 {
                continue;
            }
            let mut place = chain::place(known.chain);
            known.chain = 0;
            self.kept -= 1;
            while place != END {
                self.free.push(place);
                place = self.nexts[usize::from(place)];
            }
        }
    }

    /// The used index was found anew in the ring, with nothing DONE: its memory has been replaced.
    pub fn resume(&mut self, used: u16) {
        if self.batch.is_empty() && self.used != used {
            (self.used, self.began) = (used, batch_at(used));
            self.put(head::USED, u64::from(used) | self.began);
        }
    }

    /// Nothing has been taken yet, and it has turned out that the queue begins where it was said to.
    pub fn is_where_it_was_said(&mut self) {
        self.unsure = false;
        self.put(head::START, self.start());
    }

    /// Nothing has been taken yet, and the queue turned out to begin elsewhere.
    pub fn restart(&mut self, last_idx: u16, used: u16) {
        (self.used, self.began, self.unsure) = (used, batch_at(used), false);
        // In between the queue has not begun, as before.
        self.put(head::START, 0);
        self.put(head::MERGE, merge(FINISHED, 0, last_idx));
        self.put(head::USED, u64::from(used) | self.began);
        self.put(head::START, self.start());
    }

    const fn start(&self) -> u64 {
        self.kind.start(self.size)
    }

    /// The queue has ended with nothing in flight, or its requests have been given up: it begins anew next time. `base` is what
    /// the driver is told: where it stopped.
    pub fn close(&self, base: u32) {
        // Before it counts as stopped: whoever dies before the driver has heard the answer leaves it to its successor.
        let unsure = if self.unsure { CLOSED_UNSURE } else { 0 };
        self.put(head::CLOSED, CLOSED | unsure | u64::from(base));
        self.put(head::START, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_in_bits_goes_on_as_one_in_parts() {
        for size in [1, 2, 3, 7, 128, chain::MOST - 1, chain::MOST] {
            for offset in [0, 1, size / 2, size - 1].into_iter().filter(|o| *o < size) {
                for wrap in [false, true] {
                    for slots in [1, 2, size / 2, size - 1, size].into_iter().filter(|s| *s <= size) {
                        let at = PackedIndex { offset, wrap };
                        assert_eq!(
                            advance(at.bits(), slots, size),
                            at.advance(slots, size).bits(),
                            "{at:?} {slots} {size}"
                        );
                    }
                }
            }
        }
    }
}
