//! The calendar against a model that remembers everything.

use crate::Calendar;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_units::Nanos;

/// All bookings ever made, sorted; the first hole by looking at each.
#[derive(Default)]
struct Model(Vec<(u64, u64)>);

impl Model {
    fn hole(&self, at: u64, length: u64) -> u64 {
        let mut start = at;
        for (from, to) in &self.0 {
            if start + length <= *from {
                break;
            }
            start = start.max(*to);
        }
        start
    }

    fn insert(&mut self, start: u64, end: u64) {
        let i = self.0.partition_point(|(from, _)| *from < start);
        self.0.insert(i, (start, end));
        let disjoint = self.0.windows(2).all(|w| w[0].1 <= w[1].0);
        assert!(disjoint, "[{start}, {end}) overlaps another: {:?}", self.0);
    }
}

fn book(calendar: &mut Calendar, now: u64, at: u64, length: u64) -> u64 {
    calendar.book(Nanos(now), Nanos(at), Nanos(length)).0
}

#[test]
fn holes_are_filled_and_touching_bookings_merge() {
    let mut c = Calendar::new(8, Nanos(0));
    assert_eq!(book(&mut c, 0, 100, 10), 100);
    assert_eq!(book(&mut c, 0, 100, 10), 110, "behind it");
    assert_eq!(book(&mut c, 0, 0, 100), 0, "the hole before, to the last nanosecond");
    assert_eq!(book(&mut c, 0, 0, 1), 120, "no hole is left");
    assert_eq!(book(&mut c, 0, 200, 50), 200);
    assert_eq!(book(&mut c, 0, 50, 80), 250, "the hole of 79 is too short");
    assert_eq!(book(&mut c, 0, 50, 79), 121);
    assert_eq!(c.free_at(), Nanos(330));
    assert_eq!(book(&mut c, 0, 7, 0), 7, "nothing takes no time");
    assert_eq!(c.busy_until(Nanos(60)), Nanos(60));
    assert_eq!(c.busy_until(Nanos(1000)), Nanos(330));
    c.check();
}

#[test]
fn what_is_over_is_forgotten_before_what_lies_ahead() {
    let mut c = Calendar::new(2, Nanos(0));
    book(&mut c, 0, 10, 10);
    book(&mut c, 0, 30, 10);
    assert_eq!(book(&mut c, 25, 50, 10), 50, "the first is over at 25 and goes");
    assert_eq!(book(&mut c, 25, 0, 5), 20, "nothing before its end any more");
    c.check();
    let mut c = Calendar::new(2, Nanos(0));
    book(&mut c, 0, 10, 10);
    book(&mut c, 0, 30, 10);
    book(&mut c, 0, 100, 10);
    assert_eq!(book(&mut c, 0, 0, 10), 0, "all lie ahead: the hole at 20 was closed, the one at 0 is open");
    assert_eq!(book(&mut c, 0, 20, 1), 40);
    c.check();
}

proptest! {
    /// With room for all, every booking is where the model has it; time may run backwards.
    #[test]
    fn it_is_the_model(steps in prop::collection::vec((0u64..400, 0u64..30), 1..100)) {
        let (mut c, mut model) = (Calendar::new(128, Nanos(0)), Model::default());
        for (at, length) in steps {
            let start = book(&mut c, 0, at, length);
            prop_assert_eq!(start, if length == 0 { at } else { model.hole(at, length) });
            if length > 0 {
                model.insert(start, start + length);
            }
            c.check();
        }
    }

    /// With a grain, as long as every booking has at least its length.
    #[test]
    fn a_grain_costs_nothing_that_is_longer(steps in prop::collection::vec((0u64..20_000, 10u64..40), 1..300)) {
        let (mut c, mut model) = (Calendar::new(512, Nanos(10)), Model::default());
        for (at, length) in steps {
            let start = book(&mut c, 0, at, length);
            prop_assert_eq!(start, model.hole(at, length));
            model.insert(start, start + length);
            c.check();
        }
    }

    /// With room for few, time running on: nothing overlaps, nothing begins early, nothing begins later than the end of all.
    #[test]
    fn when_full_it_gives_up_holes_but_never_overlaps(
        most in 2usize..12,
        grain in 0u64..20,
        steps in prop::collection::vec((0u64..40, 0u64..300, 1u64..30), 1..200),
    ) {
        let (mut c, mut model) = (Calendar::new(most, Nanos(grain)), Model::default());
        let (mut now, mut end, mut busy) = (0, 0, 0);
        for (pause, ahead, length) in steps {
            now += pause;
            let at = now + ahead;
            let start = book(&mut c, now, at, length);
            prop_assert!(start >= at && start <= at.max(end), "at {at} got {start}, all ends at {end}");
            prop_assert!(start >= model.hole(at, length));
            model.insert(start, start + length);
            end = end.max(start + length);
            busy += length;
            c.check();
            prop_assert_eq!(c.free_at(), Nanos(end));
        }
        prop_assert_eq!(c.busy_until(Nanos(end)), Nanos(busy));
    }
}
