//! Logical to physical and back. The inverse is what the pages' spare areas hold; a unit is valid when both agree.

use super::encoding::{HELD, NONE, TAG, UNITS_MAX};
use super::undo::Undo;
use crate::cells::Cells;
use crate::geometry::{Shape, Unit};
use crate::image::{BAD, FREE, Image, Lender};
use crate::mapped::Mapped;
use alloc::vec;
#[cfg(test)]
use alloc::vec::Vec;
use core::sync::atomic::{Ordering, compiler_fence};

/// What happened to the flash, for the model.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub enum MapEvent {
    /// The unit was programmed with the newest version.
    Program { lpn: u32, unit: u32 },
    /// The unit was read and programmed elsewhere.
    Copy { from: u32, to: u32 },
    /// The block was erased.
    Erase { block: u32 },
}

/// The two maps and what is known of each block. Plain arrays, found by index. What the flash itself holds can be lent ([`Image`]), and
/// so can the controller's memory ([`Mapped`]).
#[derive(Clone, Debug)]
pub struct Map {
    /// How the physical units are numbered.
    pub shape: Shape,
    /// By logical unit: its physical unit, or `TAG | slot`, or [`NONE`]. One word more than there are logical units:
    /// what a unit without contents names, which is never valid.
    pub l2p: Cells<u32>,
    /// By physical unit: its logical unit (the spare area). Means something below `written`.
    pub p2l: Cells<u32>,
    /// By block: valid units, with [`HELD`] unless it is full.
    pub valid: Cells<u16>,
    /// By block: units programmed since it was erased.
    pub written: Cells<u16>,
    /// By block: erases.
    pub erases: Cells<u32>,
    /// By block: the sequence number of its last program (its age).
    pub stamp: Cells<u64>,
    /// By page: the sequence number of its program (spare area). Empty, as the next three, where nothing is rebuilt after
    /// power loss.
    pub sequence: Cells<u64>,
    /// By logical unit: the sequence number that its next program would have had when it was trimmed last.
    pub trimmed: Cells<u64>,
    /// By block: the sequence number that the next program would have had when it was erased last.
    pub erased_at: Cells<u64>,
    /// By block: [`FREE`], [`BAD`], or one more than the kind of write point that opened it.
    pub state: Cells<u32>,
    /// By slot of the write buffer: where the flash has the version before, or [`NONE`].
    pub behind: Cells<u32>,
    /// By slot: whose newest version waits there, or [`NONE`].
    pub waiting: Cells<u32>,
    /// What the step under way has changed.
    pub(crate) undo: Undo,
    /// Brings words of `l2p` nearer.
    pub prefetch: Prefetch,
    /// Who lent the cells.
    pub lender: Lender,
    /// The sequence number of the next program.
    pub clock: u64,
    /// What happened, in order.
    #[cfg(test)]
    pub trace: Vec<MapEvent>,
    /// Where a test wants to cut the power: after every change of what survives it.
    #[cfg(test)]
    pub cuts: Option<Vec<Cut>>,
}

/// What survives, as it was at one moment, and how many events had happened by then.
#[cfg(test)]
#[derive(Clone, Debug)]
pub struct Cut {
    pub events: usize,
    pub p2l: Vec<u32>,
    pub sequence: Vec<u64>,
    pub trimmed: Vec<u64>,
    pub erases: Vec<u32>,
    pub erased_at: Vec<u64>,
    pub state: Vec<u32>,
    pub memory: MapMemory,
}

/// The controller's memory at that moment.
#[cfg(test)]
#[derive(Clone, Debug)]
pub struct MapMemory {
    pub l2p: Vec<u32>,
    pub valid: Vec<u16>,
    pub written: Vec<u16>,
    pub stamp: Vec<u64>,
    pub waiting: Vec<u32>,
    pub behind: Vec<u32>,
    pub undo: Vec<u64>,
}

/// Brings the words of a map at these places nearer to the processor, without waiting for them: a hint. The instruction for
/// it is out of reach here, so that whoever has it lends it.
pub type Prefetch = fn(map: &[u32], at: &[u32]);

impl Map {
    /// Nothing mapped. `logical` units are offered, the buffer has `slots`; `spare` keeps page sequence numbers.
    pub fn new(shape: Shape, logical: u32, slots: u32, spare: bool) -> Self {
        let own = |len: u32| Cells::Own(vec![0; if spare { len as usize } else { 0 }]);
        let blocks = shape.blocks();
        Map {
            p2l: Cells::Own(vec![0; shape.units() as usize]),
            erases: Cells::Own(vec![0; blocks as usize]),
            sequence: own(blocks * shape.pages_per_block()),
            trimmed: own(logical),
            erased_at: own(blocks),
            state: Cells::Own(vec![FREE; if spare { blocks as usize } else { 0 }]),
            ..Map::on(shape, logical, slots, Image::default())
        }
    }

    /// The same on arrays that are lent: all zero, or as another drive of this configuration has left them.
    pub fn on(shape: Shape, logical: u32, slots: u32, image: Image) -> Self {
        let Image { p2l, sequence, trimmed, erases, erased_at, state, lender, mapped } = image;
        let lent = |mapped: Mapped| Map {
            l2p: Cells::Lent(mapped.l2p),
            valid: Cells::Lent(mapped.valid),
            written: Cells::Lent(mapped.written),
            stamp: Cells::Lent(mapped.stamp),
            waiting: Cells::Lent(mapped.waiting),
            behind: Cells::Lent(mapped.behind),
            undo: Undo::new(Cells::Lent(mapped.undo)),
            ..Map::bare(shape, 0, 0, 0)
        };
        Map {
            p2l: Cells::Lent(p2l),
            erases: Cells::Lent(erases),
            sequence: Cells::Lent(sequence),
            trimmed: Cells::Lent(trimmed),
            erased_at: Cells::Lent(erased_at),
            state: Cells::Lent(state),
            lender,
            ..mapped
                .map_or_else(|| Map::bare(shape, logical as usize + 1, slots as usize, shape.blocks() as usize), lent)
        }
    }

    /// The controller's memory alone, its own.
    fn bare(shape: Shape, words: usize, slots: usize, blocks: usize) -> Self {
        let mut map = Map {
            shape,
            l2p: Cells::Own(vec![NONE; words]),
            p2l: Cells::Own(vec![]),
            valid: Cells::Own(vec![HELD; blocks]),
            written: Cells::Own(vec![0; blocks]),
            erases: Cells::Own(vec![]),
            stamp: Cells::Own(vec![0; blocks]),
            sequence: Cells::Own(vec![]),
            trimmed: Cells::Own(vec![]),
            erased_at: Cells::Own(vec![]),
            state: Cells::Own(vec![]),
            behind: Cells::Own(vec![NONE; slots]),
            waiting: Cells::Own(vec![NONE; slots]),
            undo: Undo::own(0),
            prefetch: |_, _| {},
            lender: Lender::default(),
            clock: 1,
            #[cfg(test)]
            trace: Vec::new(),
            #[cfg(test)]
            cuts: None,
        };
        map.end_words();
        map
    }

    /// A copy of its own, in the memory of another map that nobody needs.
    pub(crate) fn copied_into(&self, used: Map) -> Map {
        Map {
            shape: self.shape,
            l2p: self.l2p.copied_into(used.l2p),
            p2l: self.p2l.copied_into(used.p2l),
            valid: self.valid.copied_into(used.valid),
            written: self.written.copied_into(used.written),
            erases: self.erases.copied_into(used.erases),
            stamp: self.stamp.copied_into(used.stamp),
            sequence: self.sequence.copied_into(used.sequence),
            trimmed: self.trimmed.copied_into(used.trimmed),
            erased_at: self.erased_at.copied_into(used.erased_at),
            state: self.state.copied_into(used.state),
            behind: self.behind.copied_into(used.behind),
            waiting: self.waiting.copied_into(used.waiting),
            undo: self.undo.clone(),
            prefetch: self.prefetch,
            lender: self.lender.clone(),
            clock: self.clock,
            #[cfg(test)]
            trace: self.trace.clone(),
            #[cfg(test)]
            cuts: self.cuts.clone(),
        }
    }

    /// Without any words: in the place of one whose memory another takes over.
    pub(crate) fn empty(shape: Shape) -> Map {
        Map::bare(shape, 0, 0, 0)
    }

    /// Whether nobody lends any of it.
    pub(crate) fn is_own(&self) -> bool {
        matches!((&self.l2p, &self.p2l), (Cells::Own(_), Cells::Own(_)))
    }

    /// The word behind the last unit's: what a unit without contents names, which is never valid.
    pub(super) fn end_words(&mut self) {
        if let Some(last) = self.l2p.last_mut() {
            *last = UNITS_MAX;
        }
    }

    /// Nothing is mapped, nothing written.
    pub(crate) fn clear(&mut self) {
        self.l2p.fill(NONE);
        self.end_words();
        self.valid.fill(HELD);
        self.written.fill(0);
        self.stamp.fill(0);
        self.waiting.fill(NONE);
    }

    /// Notes what steps change, in memory of its own: where a test looks at every store.
    #[cfg(test)]
    pub fn keep_undo(&mut self) {
        self.undo = Undo::own(super::undo_words(self.shape.units_per_page()));
        self.is_sound();
    }

    /// Logical units, those of the map itself included; also what a unit without contents names.
    #[inline]
    pub fn logical(&self) -> u32 {
        self.l2p.len() as u32 - 1
    }

    /// Where the flash has the unit's newest version, [`NONE`] where it has none. The buffer may have a newer one.
    #[inline]
    pub fn unit(&self, lpn: u32) -> u32 {
        let at = self.l2p[lpn as usize];
        if at & TAG == 0 { at } else { self.under(at) }
    }

    #[cold]
    fn under(&self, at: u32) -> u32 {
        if at == NONE { NONE } else { self.behind[(at & !TAG) as usize] }
    }

    /// The slot of the buffer that has the unit's newest version.
    #[inline]
    pub fn slot(&self, lpn: u32) -> Option<u32> {
        let at = self.l2p[lpn as usize];
        (at & TAG != 0 && at != NONE).then_some(at & !TAG)
    }

    /// The newest version waits in `slot` from now on.
    #[inline]
    pub fn buffer(&mut self, lpn: u32, slot: u32) {
        self.behind[slot as usize] = self.l2p[lpn as usize];
        self.waiting[slot as usize] = lpn;
        self.stored();
        self.l2p[lpn as usize] = TAG | slot;
        self.stored();
    }

    /// A word of `l2p` has been replaced: nobody waits in the slot that it named.
    #[inline]
    fn leave(&mut self, word: u32) {
        if word & TAG != 0 && word != NONE {
            self.waiting[(word & !TAG) as usize] = NONE;
        }
    }

    /// Valid units of a block.
    #[inline]
    pub fn valid_of(&self, block: u32) -> u32 {
        u32::from(self.valid[block as usize] & !HELD)
    }

    /// What was at `unit` is stale.
    #[inline]
    pub fn invalidate(&mut self, unit: u32) {
        let (block, _) = self.shape.block_of(Unit(unit));
        self.valid[block as usize] -= 1;
    }

    /// So many units more of a block are written, `valid` of them with contents.
    #[inline]
    pub(crate) fn count(&mut self, block: u32, valid: u32, units: u32) {
        self.valid[block as usize] += valid as u16;
        self.stored();
        self.written[block as usize] += units as u16;
        self.stored();
    }

    /// The unit's newest version is at `unit`, freshly programmed; answers where it was in flash before, or [`NONE`].
    /// The caller counts `unit` as valid.
    #[inline]
    pub fn bind(&mut self, lpn: u32, unit: u32) -> u32 {
        let (word, old) = (self.l2p[lpn as usize], self.unit(lpn));
        self.note_unit(lpn, old);
        if old != NONE {
            self.invalidate(old);
            self.stored();
        }
        self.l2p[lpn as usize] = unit;
        self.stored();
        self.leave(word);
        self.p2l[unit as usize] = lpn;
        #[cfg(test)]
        self.trace.push(MapEvent::Program { lpn, unit });
        self.stored();
        old
    }

    /// Forgets a unit, its buffered version included; answers where the flash had it.
    pub fn unmap(&mut self, lpn: u32) -> u32 {
        let (word, old) = (self.l2p[lpn as usize], self.unit(lpn));
        self.note_unit(lpn, old);
        if old != NONE {
            self.invalidate(old);
            self.stored();
        }
        self.l2p[lpn as usize] = NONE;
        self.stored();
        self.leave(word);
        old
    }

    /// A change of what survives has been made; those before it are made before those after it.
    #[inline(always)]
    pub(super) fn stored(&mut self) {
        compiler_fence(Ordering::SeqCst);
        #[cfg(test)]
        if self.cuts.is_some() {
            let cut = self.cut();
            self.cuts.iter_mut().for_each(|cuts| cuts.push(cut.clone()));
        }
    }

    /// What survives, as it is.
    #[cfg(test)]
    pub fn cut(&self) -> Cut {
        Cut {
            events: self.trace.len(),
            p2l: self.p2l.to_vec(),
            sequence: self.sequence.to_vec(),
            trimmed: self.trimmed.to_vec(),
            erases: self.erases.to_vec(),
            erased_at: self.erased_at.to_vec(),
            state: self.state.to_vec(),
            memory: MapMemory {
                l2p: self.l2p.to_vec(),
                valid: self.valid.to_vec(),
                written: self.written.to_vec(),
                stamp: self.stamp.to_vec(),
                waiting: self.waiting.to_vec(),
                behind: self.behind.to_vec(),
                undo: self.undo.words().to_vec(),
            },
        }
    }

    /// Has that instead, of the controller's memory as well.
    #[cfg(test)]
    pub fn adopt_all(&mut self, cut: &Cut) {
        self.adopt(cut);
        let MapMemory { l2p, valid, written, stamp, waiting, behind, undo } = cut.memory.clone();
        (self.l2p, self.valid, self.written) = (Cells::Own(l2p), Cells::Own(valid), Cells::Own(written));
        (self.stamp, self.waiting, self.behind) = (Cells::Own(stamp), Cells::Own(waiting), Cells::Own(behind));
        self.undo = Undo::new(Cells::Own(undo));
    }

    /// Has that instead.
    #[cfg(test)]
    pub fn adopt(&mut self, cut: &Cut) {
        self.p2l = Cells::Own(cut.p2l.clone());
        self.sequence = Cells::Own(cut.sequence.clone());
        self.trimmed = Cells::Own(cut.trimmed.clone());
        self.erases = Cells::Own(cut.erases.clone());
        self.erased_at = Cells::Own(cut.erased_at.clone());
        self.state = Cells::Own(cut.state.clone());
    }

    /// Whether what the flash itself holds is enough to find the map again.
    #[inline]
    pub fn has_spare(&self) -> bool {
        !self.state.is_empty()
    }

    /// The block is erased.
    pub fn erase(&mut self, block: u32) {
        #[cfg(test)]
        {
            self.trace.push(MapEvent::Erase { block });
            assert!(self.trace.len() < 1_000_000, "collection goes on for ever");
        }
        let block = block as usize;
        self.erases[block] = self.erases[block].saturating_add(1);
        self.stored();
        if self.has_spare() {
            // In this order: a block that is found in between has nothing programmed since its erase.
            self.erased_at[block] = self.clock;
            self.stored();
            self.state[block] = FREE;
            self.stored();
        }
        // An erased block has nothing written, whatever this says.
        self.written[block] = 0;
        self.stored();
    }

    /// The erased block will be written by a write point of that kind. Its spare area is as an erase leaves it.
    pub fn begin(&mut self, block: u32, kind: u32) {
        if self.has_spare() {
            let (none, units) = (self.logical(), self.shape.units_per_block());
            self.p2l[(block * units) as usize..][..units as usize].fill(none);
            self.stored();
            self.state[block as usize] = kind + 1;
            self.stored();
        }
    }

    /// The block is used no more.
    pub fn retire(&mut self, block: u32) {
        if self.has_spare() {
            self.state[block as usize] = BAD;
            self.stored();
        }
    }

    /// The unit has no contents from now on, and none of the copies that the flash has counts.
    pub fn trim(&mut self, lpn: u32) {
        self.note_trim(lpn);
        if let Some(trimmed) = self.trimmed.get_mut(lpn as usize) {
            *trimmed = self.clock;
            self.stored();
        }
        self.unmap(lpn);
        self.done_as_a_whole();
    }

    /// Buffered versions of these units are given up: what flash has counts again.
    pub fn take_back(&mut self, lpns: &[u32]) {
        for &lpn in lpns {
            let word = self.l2p[lpn as usize];
            self.l2p[lpn as usize] = self.unit(lpn);
            self.stored();
            self.leave(word);
        }
    }

    /// Sequence numbers for the pages from that of `unit` on.
    #[inline]
    pub fn stamp_pages(&mut self, unit: u32, pages: u32) {
        if !self.sequence.is_empty() {
            let first = self.shape.page_of(unit) as usize;
            for (page, clock) in self.sequence[first..first + pages as usize].iter_mut().zip(self.clock..) {
                *page = clock;
            }
        }
        self.clock += u64::from(pages);
        self.stored();
    }

    /// `block` will be gathered soon.
    pub fn expect(&self, block: u32) {
        let first = block * self.shape.units_per_block();
        (self.prefetch)(&self.l2p, &self.p2l[first as usize..][..usize::from(self.written[block as usize])]);
    }

    /// Collects the logical units that are valid in `block` into `lpns`, in their order, and counts the pages that hold
    /// them: `(units, pages)`.
    pub fn gather(&self, block: u32, lpns: &mut [u32]) -> (usize, u32) {
        let first = block * self.shape.units_per_block();
        let held = &self.p2l[first as usize..][..usize::from(self.written[block as usize])];
        let mut found = 0;
        // No branch on validity: the processor keeps many of these scattered loads under way at once.
        for (unit, &lpn) in (first..).zip(held) {
            lpns[found] = lpn;
            found += usize::from(self.unit(lpn) == unit);
        }
        let pages = if self.shape.units_per_page() == 1 { found as u32 } else { self.pages(&lpns[..found]) };
        (found, pages)
    }

    /// Pages that hold these units, which lie in ascending order.
    fn pages(&self, lpns: &[u32]) -> u32 {
        let mut last = NONE;
        let mut pages = 0;
        for &lpn in lpns {
            let page = self.shape.page_of(self.unit(lpn));
            pages += u32::from(page != last);
            last = page;
        }
        pages
    }

    /// The units were copied to `unit` and those after it.
    pub fn moved(&mut self, lpns: &[u32], unit: u32) {
        #[cfg(test)]
        for (to, &lpn) in (unit..).zip(lpns) {
            self.trace.push(MapEvent::Copy { from: self.unit(lpn), to });
        }
        self.p2l[unit as usize..][..lpns.len()].copy_from_slice(lpns);
        self.stored();
        for (to, &lpn) in (unit..).zip(lpns) {
            let at = self.l2p[lpn as usize];
            if at & TAG == 0 {
                self.l2p[lpn as usize] = to;
            } else {
                self.behind[(at & !TAG) as usize] = to;
            }
            #[cfg(test)]
            self.stored();
        }
        self.stored();
    }
}
