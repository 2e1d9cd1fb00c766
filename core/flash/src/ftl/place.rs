//! Where a write goes: which planes in turn, and which of the write points that keep hot and cold data apart.

use crate::geometry::Shape;
use crate::name::names;
use crate::rng::mix;
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
}

/// The ways of keeping data apart that a configuration can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Separate {
    /// One stream.
    None,
    /// Two: units that are written often, and the others (Hsieh, Kuo and Chang, 2006: hashed counters that decay).
    Frequency,
    /// As the host says.
    Hint,
}

names!(Separate, "separation of hot and cold", None = "none", Frequency = "frequency", Hint = "hint");

impl Separate {
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

/// Counters of 4 bits at two hashes of the unit; the smaller one counts. All are halved once as many writes have been
/// seen as there are counters, so that what is hot now is told from what was.
#[derive(Debug)]
struct Frequency {
    counters: Vec<u8>,
    writes: u32,
}

/// Writes since about two decays that make a unit hot.
const HOT: u8 = 3;

impl Frequency {
    fn new(units: u32) -> Self {
        // A counter for each unit, or a MiB of them: fewer, and cold units share theirs with hot ones.
        let counters = units.next_power_of_two().clamp(1 << 10, 1 << 20);
        Frequency { counters: vec![0; counters as usize], writes: 0 }
    }
}

impl Separation for Frequency {
    fn stream(&mut self, lpn: u32, _: u8, streams: u8) -> u8 {
        let mask = self.counters.len() - 1;
        let hash = mix(u64::from(lpn) + 1);
        let (a, b) = (hash as usize & mask, (hash >> 32) as usize & mask);
        let count = self.counters[a].min(self.counters[b]);
        for at in [a, b] {
            self.counters[at] = (self.counters[at] + 1).min(15);
        }
        self.writes += 1;
        if self.writes as usize > mask {
            self.writes = 0;
            self.counters.iter_mut().for_each(|c| *c /= 2);
        }
        if count >= HOT { streams - 1 } else { 0 }
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
        let mut wrong = 0;
        for i in 0..100_000u32 {
            // Every second write goes to one of 16 units, the others are spread.
            let (lpn, hot) = if i % 2 == 0 { (i / 2 % 16, 1) } else { (1000 + mix(u64::from(i)) as u32 % 60_000, 0) };
            wrong += u32::from(i > 1000 && policy.stream(lpn, 0, 2) != hot);
        }
        assert!(wrong < 5_000, "{wrong}");
    }

    #[test]
    fn hints_are_bounded() {
        let mut policy = Separate::Hint.build(1).unwrap();
        assert_eq!([policy.stream(0, 0, 4), policy.stream(0, 3, 4), policy.stream(0, 200, 4)], [0, 3, 3]);
    }
}
