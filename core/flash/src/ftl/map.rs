//! Logical to physical and back. The inverse is what the pages' spare areas hold; a unit is valid when both agree.

use crate::geometry::{Shape, Unit};
use alloc::vec;
use alloc::vec::Vec;

/// No place: never written, or trimmed.
pub const NONE: u32 = u32::MAX;

/// Set in a word of `l2p` whose newest version waits in a slot of the write buffer; [`NONE`] has it too.
pub const TAG: u32 = 1 << 31;

/// The largest number of physical units: a place is told from a tag by its top bit, and one number stays unused.
pub const UNITS_MAX: u32 = TAG - 1;

/// Set in the valid count of a block that is no candidate for collection (free, being written, bad), so that one look
/// at one array finds a victim. Decrementing works either way.
pub const HELD: u16 = 1 << 15;

/// The largest number of units of a block: the rest of the valid count's 16 bits.
pub const BLOCK_UNITS_MAX: u32 = HELD as u32 - 1;

/// What happened to the flash, for the model.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// The unit was programmed with the newest version.
    Program { lpn: u32, unit: u32 },
    /// The unit was read and programmed elsewhere.
    Copy { from: u32, to: u32 },
    /// The block was erased.
    Erase { block: u32 },
}

/// The two maps and what is known of each block. Plain arrays, found by index: they can lie in an arena.
#[derive(Clone, Debug)]
pub struct Map {
    /// How the physical units are numbered.
    pub shape: Shape,
    /// By logical unit: its physical unit, or `TAG | slot`, or [`NONE`]. One word more than there are logical units:
    /// what a unit without contents names, which is never valid.
    pub l2p: Vec<u32>,
    /// By physical unit: its logical unit (the spare area).
    pub p2l: Vec<u32>,
    /// By block: valid units, with [`HELD`] unless it is full.
    pub valid: Vec<u16>,
    /// By block: units programmed since it was erased.
    pub written: Vec<u16>,
    /// By block: erases.
    pub erases: Vec<u32>,
    /// By block: the sequence number of its last program (its age).
    pub stamp: Vec<u64>,
    /// By page: the sequence number of its program (spare area). Empty where nothing is rebuilt after power loss.
    pub sequence: Vec<u64>,
    /// By slot of the write buffer: where the flash has the version before, or [`NONE`].
    pub behind: Vec<u32>,
    /// The sequence number of the next program.
    pub clock: u64,
    /// What happened, in order.
    #[cfg(test)]
    pub trace: Vec<Event>,
}

impl Map {
    /// Nothing mapped. `logical` units are offered, the buffer has `slots`; `spare` keeps page sequence numbers.
    pub fn new(shape: Shape, logical: u32, slots: u32, spare: bool) -> Self {
        let mut l2p = vec![NONE; logical as usize + 1];
        l2p[logical as usize] = UNITS_MAX;
        let blocks = shape.blocks() as usize;
        Map {
            shape,
            l2p,
            p2l: vec![logical; shape.units() as usize],
            valid: vec![HELD; blocks],
            written: vec![0; blocks],
            erases: vec![0; blocks],
            stamp: vec![0; blocks],
            sequence: vec![0; if spare { blocks * shape.pages_per_block() as usize } else { 0 }],
            behind: vec![NONE; slots as usize],
            clock: 1,
            #[cfg(test)]
            trace: Vec::new(),
        }
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
        self.l2p[lpn as usize] = TAG | slot;
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

    /// The unit's newest version is at `unit`, freshly programmed; answers where it was in flash before, or [`NONE`].
    /// The caller counts `unit` as valid.
    #[inline]
    pub fn bind(&mut self, lpn: u32, unit: u32) -> u32 {
        let old = self.unit(lpn);
        if old != NONE {
            self.invalidate(old);
        }
        self.l2p[lpn as usize] = unit;
        self.p2l[unit as usize] = lpn;
        #[cfg(test)]
        self.trace.push(Event::Program { lpn, unit });
        old
    }

    /// Forgets a unit, its buffered version included; answers where the flash had it.
    pub fn unmap(&mut self, lpn: u32) -> u32 {
        let old = self.unit(lpn);
        if old != NONE {
            self.invalidate(old);
        }
        self.l2p[lpn as usize] = NONE;
        old
    }

    /// Notes an erase.
    #[cfg(test)]
    pub fn trace_erase(&mut self, block: u32) {
        self.trace.push(Event::Erase { block });
        assert!(self.trace.len() < 1_000_000, "collection goes on for ever");
    }

    /// Buffered versions of these units are given up: what flash has counts again.
    pub fn take_back(&mut self, lpns: &[u32]) {
        for &lpn in lpns {
            self.l2p[lpn as usize] = self.unit(lpn);
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
        self.p2l[unit as usize..][..lpns.len()].copy_from_slice(lpns);
        for (to, &lpn) in (unit..).zip(lpns) {
            #[cfg(test)]
            self.trace.push(Event::Copy { from: self.unit(lpn), to });
            let at = self.l2p[lpn as usize];
            if at & TAG == 0 {
                self.l2p[lpn as usize] = to;
            } else {
                self.behind[(at & !TAG) as usize] = to;
            }
        }
    }
}
