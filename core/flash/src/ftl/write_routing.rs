//! Where a write goes: which planes in turn, and which of the write points that keep hot and cold data apart.

use crate::geometry::Shape;
use crate::name::names;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// Chooses among the user write points of a plane.
pub trait Separation: fmt::Debug + Send {
    /// The stream for a write of `lpn`, below `streams`. `hint` is what the host said (an FDP placement handle, a
    /// directive's stream), 0 when it said nothing.
    fn stream(&mut self, lpn: u32, hint: u8, streams: u8) -> u8;

    /// The stream for a unit of stream `from` that collection moves. Asked only where the drive was configured with a policy
    /// that keeps moved data apart: others have no room for it.
    fn moved(&mut self, lpn: u32, from: u8, streams: u8) -> u8 {
        let _ = (lpn, streams);
        from
    }
}

/// The ways of keeping data apart that a configuration can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Separate {
    /// One stream.
    None,
    /// Units that are written often go to the last stream, others to the first, and collection keeps them apart: a counter for each
    /// unit that sinks all the time (Hsieh, Kuo and Chang, "Efficient Identification of Hot Data for Flash Memory Storage Systems", 2006; Park and Du,
    /// "Hot Data Identification for Flash-Based Storage Systems Using Multiple Bloom Filters", 2011).
    Frequency,
    /// As the host says.
    Hint,
}

names!(Separate, "separation of hot and cold", None = "none", Frequency = "frequency", Hint = "hint");

impl Separate {
    /// Whether collection keeps the streams apart as well.
    pub(crate) fn keeps_moved(self) -> bool {
        self == Separate::Frequency
    }

    /// The policy for a drive of so many units; `None` where there is nothing to ask.
    pub fn build(self, units: u32) -> Option<Box<dyn Separation>> {
        match self {
            Separate::None => None,
            Separate::Frequency => Some(Box::new(Frequency::new(units))),
            Separate::Hint => Some(Box::new(Hint)),
        }
    }
}

#[derive(Debug)]
struct Hint;

impl Separation for Hint {
    fn stream(&mut self, _: u32, hint: u8, streams: u8) -> u8 {
        hint.min(streams - 1)
    }
}

/// Units that are written often. Each has a counter of a byte, 1 byte a unit: a write adds [`WRITE`], and all counters sink in turn, a
/// few with each write. So a unit is hot when two writes of it come close together, and stays so while others do: frequency and recency
/// in one number, as Hsieh, Kuo and Chang (2006) and Park and Du (2011) ask for, but without hashes, so no unit is taken for
/// another.
///
/// It is the log-likelihood of two Poisson rates, clamped so that a change is seen soon (Page, "Continuous inspection schemes",
/// Biometrika, 1954): for rates of h and c a counter of writes has to sink by (h - c) / ln(h / c) in the time that h and c count. For the hot
/// units of 70/30 to 95/5 writes that is 1.1 to 3.2 in the time in which as many writes come as there are units, which
/// is about a straight line over h; and h is measured.
#[derive(Debug)]
struct Frequency {
    counters: Vec<u8>,
    /// Counters that sink with each write, in parts of [`PART`]; those due.
    pace: u32,
    due: u32,
    /// The next one to sink.
    next: usize,
    /// Since the first of them sank last: writes, those of hot units, and hot units met.
    writes: u64,
    hits: u64,
    hot: u64,
}

/// What a write adds to its unit's counter, from where the unit is hot, and where the counter stops: two writes make a unit hot,
/// two and an eighth keep it so for longest.
const WRITE: u8 = 8;
const HOT: u8 = 9;
const FULL: u8 = 17;

/// Parts of a counter.
const PART: u32 = 256;

impl Frequency {
    fn new(units: u32) -> Self {
        let mut made =
            Frequency { counters: vec![0; units as usize], pace: 0, due: 0, next: 0, writes: 0, hits: 0, hot: 0 };
        made.pace = Frequency::pace(4.0);
        made
    }

    /// Counters that have to sink with each write where hot units are written `rate` times as often as the mean unit.
    fn pace(rate: f64) -> u32 {
        let sinks = (0.8 + 0.13 * rate).clamp(1.0, 4.0);
        (sinks * f64::from(WRITE) * f64::from(PART)) as u32
    }

    fn is_hot(&self, lpn: u32) -> bool {
        self.counters[lpn as usize] >= HOT
    }

    /// Some counters sink by one.
    fn sink(&mut self) {
        self.due += self.pace;
        let count = (self.due / PART) as usize;
        self.due %= PART;
        let end = (self.next + count).min(self.counters.len());
        let mut hot = 0;
        for counter in &mut self.counters[self.next..end] {
            hot += u32::from(*counter >= HOT);
            *counter = counter.saturating_sub(1);
        }
        self.hot += u64::from(hot);
        self.next = end;
        if end == self.counters.len() {
            self.measure();
        }
    }

    /// All have sunk once: how often hot units are written, beside the mean unit, sets the pace.
    fn measure(&mut self) {
        let units = self.counters.len() as f64;
        let hot = (self.hot as f64 / units).max(0.01);
        let rate = self.hits as f64 / self.writes.max(1) as f64 / hot;
        self.pace = (self.pace * 9 + Frequency::pace(rate)) / 10;
        (self.next, self.writes, self.hits, self.hot) = (0, 0, 0, 0);
    }
}

impl Separation for Frequency {
    fn stream(&mut self, lpn: u32, _: u8, streams: u8) -> u8 {
        self.sink();
        self.writes += 1;
        self.hits += u64::from(self.is_hot(lpn));
        let counter = &mut self.counters[lpn as usize];
        *counter = (*counter + WRITE).min(FULL);
        if self.is_hot(lpn) { streams - 1 } else { 0 }
    }

    fn moved(&mut self, lpn: u32, _: u8, streams: u8) -> u8 {
        if self.is_hot(lpn) { streams - 1 } else { 0 }
    }
}

/// Planes in turn: over all dies (and so over the channels) first, then over the planes of the dies.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    next: u32,
    /// The first plane, and the one behind the last.
    first: u32,
    end: u32,
    step: u32,
    width: u32,
}

impl Route {
    /// Plane by plane; with `whole_dies` only the first plane of each die is named.
    pub fn new(shape: &Shape, whole_dies: bool) -> Self {
        Route::of(shape, whole_dies, 0..shape.planes())
    }

    /// The same over some of the planes: those of consecutive dies.
    pub fn of(shape: &Shape, whole_dies: bool, planes: Range<u32>) -> Self {
        let step = shape.planes_per_die();
        let Range { start: first, end } = planes;
        Route { next: first, first, end, step, width: if whole_dies { 1 } else { step } }
    }

    /// The planes.
    pub fn planes(&self) -> Range<u32> {
        self.first..self.end
    }

    /// The next plane.
    #[inline]
    pub fn next(&mut self) -> u32 {
        let plane = self.next;
        self.next += self.step;
        if self.next >= self.end {
            self.wrap();
        }
        plane
    }

    #[cold]
    fn wrap(&mut self) {
        // Dies are `step` apart, so what is left over is the plane of the die.
        self.next = self.next % self.step + 1;
        if self.next == self.width {
            self.next = 0;
        }
        self.next += self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CellType, Geometry, PageMap};
    use weir_units::rng::mix;

    fn shape(channels: u32, planes: u32) -> Shape {
        let (cell, page_map) = (CellType::Slc, PageMap::Modulo);
        let geometry = Geometry {
            channels,
            ways: 1,
            planes,
            blocks: 1,
            pages: 1,
            page_bytes: 4096,
            spare_bytes: 64,
            cell,
            page_map,
        };
        geometry.shape().unwrap()
    }

    #[test]
    fn planes_in_turn() {
        let mut route = Route::new(&shape(3, 2), false);
        let seen: Vec<u32> = (0..8).map(|_| route.next()).collect();
        assert_eq!(seen, [0, 2, 4, 1, 3, 5, 0, 2]);
        let mut route = Route::new(&shape(3, 2), true);
        let seen: Vec<u32> = (0..4).map(|_| route.next()).collect();
        assert_eq!(seen, [0, 2, 4, 0]);
        let mut route = Route::new(&shape(3, 1), false);
        let seen: Vec<u32> = (0..4).map(|_| route.next()).collect();
        assert_eq!(seen, [0, 1, 2, 0]);
    }

    #[test]
    fn frequent_units_are_told_apart() {
        let mut policy = Separate::Frequency.build(1 << 16).unwrap();
        let (mut missed, mut wrong) = (0, 0);
        for i in 0..100_000u32 {
            // Every second write goes to one of 16 units, the others are spread.
            let (lpn, hot) = if i % 2 == 0 { (i / 2 % 16, 1) } else { (1000 + mix(u64::from(i)) as u32 % 60_000, 0) };
            let stream = policy.stream(lpn, 0, 2);
            missed += u32::from(i > 1000 && stream < hot);
            wrong += u32::from(stream > hot);
        }
        assert!(missed == 0 && wrong < 8_000, "{missed} missed, {wrong} of 50000 wrong");
    }

    #[test]
    fn hints_are_bounded() {
        let mut policy = Separate::Hint.build(1).unwrap();
        assert_eq!([policy.stream(0, 0, 4), policy.stream(0, 3, 4), policy.stream(0, 200, 4)], [0, 3, 3]);
    }
}
