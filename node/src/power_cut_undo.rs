//! What a power cut puts back: the media's old bytes under writes that only a volatile buffer holds.
//!
//! Bytes reach the media when a command completes, although the modelled drive may still have them in its buffer. Before
//! a unit is written, its old bytes are kept here; they are forgotten when a flush has covered the write (writes that came
//! after the flush had begun belong to the next generation), when the unit is written with FUA or deallocated, and when the
//! flash says that its program is done. So what is kept is bounded by the buffer, and of every unit there are the bytes that
//! the last flush has promised, or newer ones.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use weir_flash::UNIT;

/// Bytes of a unit; `None` for zeroes.
pub type Old = Option<Box<[u8]>>;

/// See the [module](self). Units are named by their numbers.
#[derive(Debug)]
pub struct Undo {
    /// By generation, ascending: how many flushes had begun.
    kept: VecDeque<(u64, HashMap<u32, Old>)>,
    /// The number of the last flush that is done.
    ended: u64,
    entries: usize,
    /// More entries than that, and the flash is asked which of them are still needed.
    sweep_at: usize,
    limit: usize,
    /// Whether Write Zeroes writes data as far as the flash is concerned.
    pub zeroes_are_data: bool,
}

/// The units that these bytes touch.
pub fn units(offset: u64, len: u32) -> Range<u32> {
    let unit = u64::from(UNIT);
    (offset / unit) as u32..(offset + u64::from(len)).div_ceil(unit) as u32
}

impl Undo {
    /// For a buffer of so many units.
    pub fn new(buffer: u32, zeroes_are_data: bool) -> Self {
        let limit = (buffer as usize * 3).max(64);
        Undo { kept: VecDeque::new(), ended: 0, entries: 0, sweep_at: limit, limit, zeroes_are_data }
    }

    /// Whether the unit's bytes must be kept before it is written, after so many flushes have begun.
    #[inline]
    pub fn wants(&self, begun: u64, unit: u32) -> bool {
        !self.kept.back().is_some_and(|(generation, kept)| *generation == begun && kept.contains_key(&unit))
    }

    /// Keeps a unit's bytes, unless it has some of this generation.
    pub fn keep(&mut self, begun: u64, unit: u32, bytes: &[u8]) {
        if !self.wants(begun, unit) {
            return;
        }
        if self.kept.back().is_none_or(|(generation, _)| *generation < begun) {
            self.kept.push_back((begun, HashMap::new()));
        }
        let old = bytes.iter().any(|b| *b != 0).then(|| bytes.into());
        if let Some((_, kept)) = self.kept.back_mut() {
            self.entries += usize::from(kept.insert(unit, old).is_none());
        }
    }

    /// The flush of that number is done, and all before it. To be told before the host is, or it would be put back what was
    /// promised to it.
    pub fn flushed(&mut self, number: u64) {
        self.ended = self.ended.max(number);
        while let Some((generation, kept)) = self.kept.front() {
            if *generation >= self.ended {
                return;
            }
            self.entries -= kept.len();
            self.kept.pop_front();
        }
    }

    /// These units are durable as they are on the media now.
    pub fn settle(&mut self, units: Range<u32>) {
        for (_, kept) in &mut self.kept {
            let before = kept.len();
            if units.len() <= before {
                units.clone().for_each(|unit| drop(kept.remove(&unit)));
            } else {
                kept.retain(|unit, _| !units.contains(unit));
            }
            self.entries -= before - kept.len();
        }
    }

    /// These bytes read as zeroes from now on, durably: whole units are settled, parts of units change in what is kept.
    pub fn zeroed(&mut self, offset: u64, len: u32) {
        let unit = u64::from(UNIT);
        let end = offset + u64::from(len);
        let whole = offset.div_ceil(unit) as u32..(end / unit) as u32;
        for edge in units(offset, len).filter(|u| !whole.contains(u)) {
            let first = u64::from(edge) * unit;
            let part = offset.saturating_sub(first) as usize..(end - first).min(unit) as usize;
            for old in self.kept.iter_mut().filter_map(|(_, kept)| kept.get_mut(&edge)?.as_mut()) {
                old[part.clone()].fill(0);
            }
        }
        if whole.start < whole.end {
            self.settle(whole);
        }
    }

    /// Whether so much is kept that [`sweep`](Self::sweep) is due.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.entries > self.sweep_at
    }

    /// Forgets all units but these, which power loss could take.
    pub fn sweep(&mut self, at_risk: &[u32]) {
        let at_risk: HashSet<u32> = at_risk.iter().copied().collect();
        self.kept.iter_mut().for_each(|(_, kept)| kept.retain(|unit, _| at_risk.contains(unit)));
        self.kept.retain(|(_, kept)| !kept.is_empty());
        self.entries = self.kept.iter().map(|(_, kept)| kept.len()).sum();
        self.sweep_at = self.limit.max(2 * self.entries);
    }

    /// The oldest bytes of a unit that are kept.
    pub fn oldest(&self, unit: u32) -> Option<&Old> {
        self.kept.iter().find_map(|(_, kept)| kept.get(&unit))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.kept.clear();
        (self.entries, self.sweep_at) = (0, self.limit);
    }

    /// The counts are right, generations ascend, and flushes that have ended left nothing.
    #[cfg(test)]
    fn check(&self) {
        assert_eq!(self.entries, self.kept.iter().map(|(_, kept)| kept.len()).sum::<usize>());
        assert!(self.kept.iter().zip(self.kept.iter().skip(1)).all(|(a, b)| a.0 < b.0));
        assert!(self.kept.front().is_none_or(|(generation, _)| *generation >= self.ended));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(value: u8) -> Vec<u8> {
        vec![value; UNIT as usize]
    }

    fn first(undo: &Undo, unit: u32) -> Option<u8> {
        undo.check();
        undo.oldest(unit).map(|old| old.as_ref().map_or(0, |b| b[0]))
    }

    #[test]
    fn a_flush_covers_what_was_written_before_it_began() {
        let mut undo = Undo::new(16, false);
        undo.keep(0, 1, &bytes(10));
        undo.keep(0, 1, &bytes(11));
        undo.keep(0, 2, &bytes(0));
        assert_eq!((first(&undo, 1), first(&undo, 2), first(&undo, 3)), (Some(10), Some(0), None));
        // A flush begins, and unit 1 is written again before it ends: back to what the flush has promised.
        assert!(undo.wants(1, 1) && !undo.wants(0, 2));
        undo.keep(1, 1, &bytes(12));
        assert_eq!(first(&undo, 1), Some(10), "the flush has not ended");
        undo.flushed(1);
        assert_eq!((first(&undo, 1), first(&undo, 2)), (Some(12), None));
        undo.flushed(2);
        assert_eq!(first(&undo, 1), None);
    }

    #[test]
    fn what_is_durable_is_not_put_back() {
        let mut undo = Undo::new(16, false);
        (0..8).for_each(|unit| undo.keep(0, unit, &bytes(7)));
        undo.settle(2..3);
        undo.settle(5..1000);
        assert_eq!([1, 2, 4, 5].map(|u| first(&undo, u)), [Some(7), None, Some(7), None]);
        // Half of unit 0, all of unit 1, a quarter of unit 3.
        undo.zeroed(2048, 2048 + 4096);
        undo.zeroed(3 * 4096 + 1024, 1024);
        assert_eq!(first(&undo, 1), None);
        let sum = |unit| undo.oldest(unit).unwrap().as_ref().unwrap().iter().map(|b| u32::from(*b)).sum::<u32>();
        assert_eq!((sum(0), sum(3)), (2048 * 7, 3072 * 7));
        assert!(!undo.is_full());
        (100..200).for_each(|unit| undo.keep(3, unit, &bytes(1)));
        assert!(undo.is_full());
        undo.sweep(&[3, 150]);
        assert_eq!([0, 3, 100, 150].map(|u| first(&undo, u)), [None, Some(7), None, Some(1)]);
        undo.clear();
        assert_eq!(first(&undo, 3), None);
    }
}
