//! The words in which a step's changes of the map are noted.
//!
//! ```text
//!  step      a page of the host's is programmed | a block's contents move | a unit is trimmed
//!  words     0 state   1 entries   2 victim + 1   3 trimmed unit + 1   4.. entries, oldest first
//!  entry     1 | unit (31 bits) | word of l2p (32)      what l2p said of a logical unit
//!            0 | block (31) | valid (16) | written (16)  what was counted of a block
//! ```

use crate::cells::Cells;
use alloc::vec;
use core::sync::atomic::{Ordering, compiler_fence};

/// Places of the words.
pub(super) const STATE: usize = 0;
pub(super) const ENTRIES: usize = 1;
pub(super) const VICTIM: usize = 2;
pub(super) const TRIMMED: usize = 3;
pub(super) const FIRST: usize = 4;

/// The map has never been whole, or is being made anew.
pub(super) const BROKEN: u64 = 0;
/// It is whole, but for the step under way. More than that: so many processes more have begun to go on from it, and none has got there.
pub(super) const SOUND: u64 = 1;
/// As many of them are not believed any more.
pub(super) const ATTEMPTS: u64 = 4;

/// Told from an entry of a block by its top bit.
pub(super) const OF_UNIT: u64 = 1 << 63;
/// Entries of a step beyond those of a page's units: the victim's, and its targets'.
const FURTHER: u32 = 12;

/// Which unit or block an entry is of, and its other half.
pub(super) const fn split(entry: u64) -> (u32, u32) {
    ((entry >> 32 & !(OF_UNIT >> 32)) as u32, entry as u32)
}

/// The words that such a drive needs.
pub(crate) const fn words(page_units: u32) -> u32 {
    FIRST as u32 + 2 * page_units + FURTHER
}

/// Without words nothing is noted.
#[derive(Clone, Debug)]
pub(crate) struct Undo {
    pub(super) words: Cells<u64>,
}

impl Undo {
    pub(crate) fn new(words: Cells<u64>) -> Undo {
        Undo { words }
    }

    pub(crate) fn own(words: u32) -> Undo {
        Undo::new(Cells::Own(vec![0; words as usize]))
    }

    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        !self.words.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    #[inline]
    pub(super) fn set(&mut self, at: usize, word: u64) {
        if self.is_on() {
            compiler_fence(Ordering::SeqCst);
            self.words[at] = word;
            compiler_fence(Ordering::SeqCst);
        }
    }
}
