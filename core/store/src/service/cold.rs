//! What demotion remembers: when files were open, and how far the pass over each class is.

use super::passes::{MoveEnd, PassCounts};
use crate::class::ClassId;
use crate::id::{InodeId, NamespaceId, RegionId};
use crate::protocol::DemotionInfo;
use crate::space::MappedExtent;
use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;
use weir_units::Nanos;

/// Files whose last opening is remembered at the most.
const OPENED_MAX: usize = 1 << 18;

/// Blocks that are looked at before the coldest of them go.
const WINDOW: usize = 4096;

/// Blocks of cold files that are remembered at the most, the coldest.
const COLD_MAX: usize = 512;

/// Between two passes over a class.
const PASS_MIN: Nanos = Nanos::from_secs(1);
const PASS_MAX: Nanos = Nanos::from_secs(60);

/// When files were open last, as far as it is remembered; of all others it is known that they were not after some time.
#[derive(Debug, Default)]
pub(super) struct Opened {
    at: BTreeMap<InodeId, Nanos>,
    order: BTreeSet<(Nanos, InodeId)>,
    others: Nanos,
}

impl Opened {
    /// A file is opened, or closed.
    pub fn note(&mut self, file: InodeId, now: Nanos) {
        if let Some(before) = self.at.insert(file, now) {
            self.order.remove(&(before, file));
        }
        self.order.insert((now, file));
        if self.at.len() > OPENED_MAX {
            if let Some((at, oldest)) = self.order.pop_first() {
                self.at.remove(&oldest);
                self.others = self.others.max(at);
            }
        }
    }

    /// After that nobody had the file open, if nobody has it now.
    pub fn last(&self, file: InodeId) -> Nanos {
        self.at.get(&file).copied().unwrap_or(self.others)
    }
}

/// What becomes of a file's blocks of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warmth {
    /// Nobody has used the file for so long.
    Cold(Nanos),
    /// It is cold after so long, if nobody uses it meanwhile.
    Hot(Nanos),
    /// It is not to be demoted.
    Kept,
    /// Its list has no class behind this one.
    NoNext,
    /// It is no more, or has no blocks.
    Gone,
}

/// A block that is looked at: its file's inode is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub id: u64,
    pub class: ClassId,
    pub copy: MappedExtent,
}

/// The pass over a class.
#[derive(Debug, Default)]
pub(super) struct ClassPass {
    /// The class was over its high watermark, and is not at its low one yet.
    pub is_over: bool,
    /// What is looked at next; nothing at the end of a pass, and between two.
    pub at: Option<(NamespaceId, RegionId, u64)>,
    /// Blocks that are still looked at before the coldest of them go.
    pub window: usize,
    /// Blocks of cold files, the coldest first.
    cold: BTreeMap<(Reverse<Nanos>, NamespaceId, u64), MappedExtent>,
    is_begun: bool,
    /// There were more of them than are remembered.
    has_more: bool,
    /// When the first hot file may be cold.
    soonest: Nanos,
    next: Nanos,
    found: PassCounts,
    last: PassCounts,
    moved: u64,
    moved_bytes: u64,
}

impl ClassPass {
    /// Begins a pass, if one is due.
    pub fn begin(&mut self, now: Nanos) {
        if !self.is_begun && self.next <= now {
            (self.is_begun, self.at, self.window) = (true, Some(Default::default()), WINDOW);
            (self.found, self.soonest, self.has_more) = (PassCounts::default(), PASS_MAX, false);
        }
    }

    /// Enough was found: the class is at its low watermark.
    pub fn stop(&mut self) {
        (self.is_begun, self.at, self.next) = (false, None, Nanos(0));
        self.cold.clear();
    }

    /// Whether blocks are still looked at before any go.
    pub fn looks(&self) -> bool {
        self.at.is_some() && self.window > 0
    }

    /// A block was looked at.
    pub fn judged(&mut self, copy: MappedExtent, warmth: Warmth) {
        self.window = self.window.saturating_sub(1);
        match warmth {
            Warmth::Cold(idle) => {
                self.cold.insert((Reverse(idle), copy.extent.namespace, copy.extent.offset.get()), copy);
                if self.cold.len() > COLD_MAX {
                    self.cold.pop_last();
                    self.has_more = true;
                }
            }
            Warmth::Hot(left) => {
                self.soonest = self.soonest.min(left);
                self.found.count(MoveEnd::Hot);
            }
            Warmth::Kept => self.found.count(MoveEnd::Kept),
            Warmth::NoNext => self.found.count(MoveEnd::NoNext),
            Warmth::Gone => {}
        }
    }

    /// The coldest block.
    pub fn coldest(&mut self) -> Option<MappedExtent> {
        self.cold.pop_first().map(|(_, copy)| copy)
    }

    /// A block was moved, or not.
    pub fn ended(&mut self, end: MoveEnd, bytes: u64) {
        if end == MoveEnd::Moved {
            (self.moved, self.moved_bytes) = (self.moved + 1, self.moved_bytes + bytes);
        }
        self.found.count(end);
    }

    /// What was found is moved: what is behind it is looked at, or the pass is over.
    pub fn go_on(&mut self, now: Nanos) {
        if !self.is_begun || !self.cold.is_empty() {
            return;
        }
        self.window = WINDOW;
        if self.at.is_none() {
            self.is_begun = false;
            self.last = core::mem::take(&mut self.found);
            let wait = if self.has_more { Nanos(0) } else { self.soonest.max(PASS_MIN).min(PASS_MAX) };
            let wait = if self.last.is_moving() { wait.min(PASS_MIN) } else { wait };
            self.next = now.saturating_add(wait);
        }
    }

    /// For operators.
    pub fn info(&self, class: ClassId, (bytes, used): (u64, u64)) -> DemotionInfo {
        // Of a pass that has only begun, the one before says more.
        let found = if self.is_over { self.last.clone() } else { PassCounts::default() };
        DemotionInfo {
            class,
            bytes,
            used,
            is_over: self.is_over,
            moved_blocks: self.moved,
            moved_bytes: self.moved_bytes,
            hot: found.hot,
            kept: found.kept,
            no_next: found.no_next,
            has_writer: found.has_writer,
            unsettled: found.unsettled,
            no_copy: found.no_copy,
            no_room: found.no_room,
            no_node: found.no_node,
            failed: found.failed,
            why: found.why.unwrap_or_default(),
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Demotion {
    pub opened: Opened,
    pub classes: BTreeMap<ClassId, ClassPass>,
    pub look: Option<Look>,
    /// Of the file that was looked at last, until the next tick: blocks that lie one behind the other are mostly of one file.
    pub seen: Option<(InodeId, ClassId, Warmth)>,
    pub looks: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_forgotten_count_as_opened_when_the_last_of_them_was() {
        let mut opened = Opened::default();
        for file in 0..OPENED_MAX as u64 + 10 {
            opened.note(InodeId(file), Nanos(100 + file));
        }
        opened.note(InodeId(20), Nanos(1 << 40));
        assert_eq!((opened.at.len(), opened.order.len()), (OPENED_MAX, OPENED_MAX));
        assert_eq!([5, 1 << 50].map(|file| opened.last(InodeId(file))), [Nanos(109); 2]);
        assert_eq!([10, 20].map(|file| opened.last(InodeId(file))), [Nanos(110), Nanos(1 << 40)]);
    }
}
