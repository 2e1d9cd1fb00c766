//! What a step has changed of the map, so that a process that dies in the middle of one leaves a map that goes on.
//!
//! An entry is written before what it tells of is changed, and all of them count for nothing once the step is over: one store. A block
//! whose contents move stays as it is until it is erased, which is another step, so one word stands for all of its units: those that
//! name a unit that is not written go back to where the block has them.

use super::encoding::{HELD, NONE, TAG};
use super::map::Map;
use super::undo::{ATTEMPTS, BROKEN, ENTRIES, FIRST, OF_UNIT, SOUND, STATE, TRIMMED, VICTIM, split};
use crate::geometry::Unit;

impl Map {
    fn note(&mut self, entry: u64) {
        let count = self.undo.words[ENTRIES];
        self.undo.words[FIRST + count as usize] = entry;
        self.stored();
        self.undo.set(ENTRIES, count + 1);
        self.stored();
    }

    /// What is counted of a block is about to change.
    #[inline]
    pub(crate) fn note_block(&mut self, block: u32) {
        if self.undo.is_on() {
            let (valid, written) = (self.valid[block as usize], self.written[block as usize]);
            self.note(u64::from(block) << 32 | u64::from(valid) << 16 | u64::from(written));
        }
    }

    /// What `l2p` says of a unit is about to change, and what is counted of the block that has it.
    #[inline]
    pub(super) fn note_unit(&mut self, lpn: u32, old: u32) {
        if self.undo.is_on() {
            self.note(OF_UNIT | u64::from(lpn) << 32 | u64::from(self.l2p[lpn as usize]));
            if old != NONE {
                self.note_block(self.shape.block_of(Unit(old)).0);
            }
        }
    }

    /// The contents of a block are about to move.
    pub(crate) fn note_move(&mut self, block: u32) {
        self.undo.set(VICTIM, u64::from(block) + 1);
        self.stored();
        self.note_block(block);
    }

    /// A unit is about to be trimmed. That is not taken back, but done.
    pub(super) fn note_trim(&mut self, lpn: u32) {
        self.undo.set(TRIMMED, u64::from(lpn) + 1);
        self.stored();
    }

    /// The step is over.
    #[inline]
    pub(crate) fn done(&mut self) {
        self.undo.set(ENTRIES, 0);
        self.stored();
    }

    /// The same of a step that has moved a block's contents, or trimmed a unit.
    pub(crate) fn done_as_a_whole(&mut self) {
        self.done();
        // In this order: without its entries the word says nothing.
        self.undo.set(VICTIM, 0);
        self.undo.set(TRIMMED, 0);
        self.stored();
    }

    /// From here on the map is made anew: whoever finds it does so as well.
    pub(crate) fn begin_anew(&mut self) {
        self.undo.set(STATE, BROKEN);
        self.stored();
    }

    /// The map is whole.
    pub(crate) fn is_sound(&mut self) {
        self.done_as_a_whole();
        self.undo.set(STATE, SOUND);
        self.stored();
    }

    /// Whether a process can go on from the map as it is; it begins to.
    pub(crate) fn attempt(&mut self) -> bool {
        let state = self.undo.words.first().copied().unwrap_or(BROKEN);
        let may = (SOUND..SOUND + ATTEMPTS).contains(&state) && self.notes_fit();
        if may {
            self.undo.set(STATE, state + 1);
        }
        may
    }

    /// Whether all that is noted of the step under way names units and blocks that the drive has.
    fn notes_fit(&self) -> bool {
        let words = &self.undo.words;
        let Some(entries) = usize::try_from(words[ENTRIES]).ok().and_then(|count| words[FIRST..].get(..count)) else {
            return false;
        };
        entries.iter().all(|entry| self.entry_fits(*entry))
            && words[VICTIM] <= u64::from(self.shape.blocks())
            && words[TRIMMED] <= u64::from(self.logical())
    }

    fn entry_fits(&self, entry: u64) -> bool {
        let (index, word) = split(entry);
        if entry & OF_UNIT == 0 {
            let counts = [word >> 16 & !u32::from(HELD), word & 0xffff];
            return index < self.shape.blocks() && counts.iter().all(|count| *count <= self.shape.units_per_block());
        }
        let slot_fits = word == NONE || ((word & !TAG) as usize) < self.waiting.len();
        index < self.logical() && if word & TAG == 0 { word < self.shape.units() } else { slot_fits }
    }

    /// Takes back what the step under way had changed. Can itself be left off anywhere, and begun again. Answers the unit that was being
    /// trimmed: it is to be trimmed, once the clock is known.
    pub(crate) fn roll_back(&mut self) -> Option<u32> {
        let count = self.undo.words[ENTRIES] as usize;
        for at in (FIRST..FIRST + count).rev() {
            self.restore(self.undo.words[at]);
            self.stored();
        }
        for at in FIRST..FIRST + count {
            let entry = self.undo.words[at];
            if entry & OF_UNIT == 0 {
                self.clear_unwritten((entry >> 32) as u32);
            }
        }
        if let Some(victim) = self.undo.words[VICTIM].checked_sub(1) {
            self.move_back(victim as u32);
        }
        self.done();
        self.undo.set(VICTIM, 0);
        self.stored();
        self.undo.words[TRIMMED].checked_sub(1).map(|lpn| lpn as u32)
    }

    fn restore(&mut self, entry: u64) {
        let (index, word) = split(entry);
        if entry & OF_UNIT == 0 {
            self.valid[index as usize] = (word >> 16) as u16;
            self.written[index as usize] = word as u16;
            return;
        }
        if word & TAG != 0 && word != NONE {
            self.waiting[(word & !TAG) as usize] = index;
        }
        self.l2p[index as usize] = word;
    }

    /// What lies behind the written part of a block was never programmed.
    fn clear_unwritten(&mut self, block: u32) {
        let (units, page_units) = (self.shape.units_per_block(), self.shape.units_per_page());
        let (first, written) = (block * units, u32::from(self.written[block as usize]));
        let none = self.logical();
        let page = self.shape.page_of(first + written.next_multiple_of(page_units).min(units)) as usize;
        let end = ((block + 1) * self.shape.pages_per_block()) as usize;
        if page < end {
            self.sequence[page..end].fill(0);
        }
        self.stored();
        self.p2l[(first + written) as usize..(first + units) as usize].fill(none);
        self.stored();
    }

    /// What was moved out of the block is where it was: it may hold several copies of a unit, of which the last was the valid one.
    fn move_back(&mut self, block: u32) {
        let first = block * self.shape.units_per_block();
        for unit in (first..first + u32::from(self.written[block as usize])).rev() {
            let lpn = self.p2l[unit as usize];
            if lpn >= self.logical() || !self.is_nowhere(self.unit(lpn)) {
                continue;
            }
            match self.slot(lpn) {
                None => self.l2p[lpn as usize] = unit,
                Some(slot) => self.behind[slot as usize] = unit,
            }
            self.stored();
        }
    }

    /// Whether a word of the map names a unit that is not written.
    fn is_nowhere(&self, unit: u32) -> bool {
        if unit == NONE {
            return false;
        }
        let (block, offset) = self.shape.block_of(Unit(unit));
        offset >= u32::from(self.written[block as usize])
    }

    /// The write buffer is gone: the flash has the newest version of every unit.
    pub(crate) fn empty_slots(&mut self) {
        for slot in 0..self.waiting.len() {
            let lpn = self.waiting[slot];
            if lpn < self.logical() && self.l2p[lpn as usize] == TAG | slot as u32 {
                self.l2p[lpn as usize] = self.behind[slot];
                self.stored();
            }
            if lpn != NONE {
                self.waiting[slot] = NONE;
            }
        }
    }

    /// What is known of a block by its words, without looking at its pages. Answers the sequence number that the next program has after all
    /// that was done to it.
    pub(crate) fn adopt_block(&mut self, block: u32, idle: bool) -> u64 {
        let index = block as usize;
        if idle {
            if self.written[index] != 0 || self.valid[index] != HELD {
                (self.written[index], self.valid[index]) = (0, HELD);
            }
            return self.stamp[index].max(self.erased_at[index]);
        }
        let page_units = self.shape.units_per_page();
        // A page that the controller had not filled up yet is programmed as it is.
        let written = u32::from(self.written[index]).next_multiple_of(page_units).min(self.shape.units_per_block());
        self.written[index] = written as u16;
        self.valid[index] |= HELD;
        let newest = if written == 0 || written == self.shape.units_per_block() {
            0
        } else {
            self.sequence[(self.shape.page_of(block * self.shape.units_per_block() + written) - 1) as usize]
                .saturating_add(1)
        };
        self.stamp[index].max(self.erased_at[index]).max(newest)
    }
}
