//! Programs and erases that make room for reads: what was told stays, all work is done, nothing overlaps.

use crate::*;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_units::Nanos;

const READ: u64 = 40;
const PROGRAM: u64 = 700;
const ERASE: u64 = 3_000;
const STOP: u64 = 25;

/// One plane that can suspend, channels of no time.
fn array(limit: u32, registers: Registers, channel: Wire) -> Array {
    let parts = Preset::FemuOc.parts(false);
    let suspend = Suspend { program: Some(Nanos(STOP)), erase: Some(Nanos(STOP)), limit };
    let timing = FlashTiming {
        registers,
        read: uniform(READ),
        program: uniform(PROGRAM),
        erase: Nanos(ERASE),
        channel,
        suspend,
        ..parts.timing
    };
    let shape = Geometry { channels: 1, ways: 2, blocks: 4, pages: 4, ..parts.geometry }.shape().unwrap();
    Array::new(&shape, &timing, &parts.variability)
}

const AT: PageAddress = PageAddress { plane: 0, block: 0, page: 0 };

fn read(a: &mut Array, now: u64) -> u64 {
    a.read(Nanos(now), AT, UNIT).0
}

#[test]
fn a_read_stops_an_open_program_and_the_program_goes_on() {
    let mut a = array(0, Registers::Unbounded, Wire::INSTANT);
    let open = a.program_as(Nanos(0), AT, UNIT, Promise::Open);
    assert_eq!(open.done, Nanos(PROGRAM));
    // FEMU: start = t + tsusp, avail += tR + tsusp.
    assert_eq!(read(&mut a, 100), 100 + STOP + READ);
    assert_eq!(a.plane_free_at(0), Nanos(PROGRAM + STOP + READ));
    // While it is stopped, another read follows at once.
    assert_eq!(read(&mut a, 110), 100 + STOP + 2 * READ);
    assert_eq!(a.plane_free_at(0), Nanos(PROGRAM + STOP + 2 * READ));
    // What is nearly done is not worth stopping.
    let free = a.plane_free_at(0).0;
    assert_eq!(read(&mut a, free - STOP), free + READ);
    // That read was told its end, which was computed from the program's: nothing moves any more.
    assert_eq!(read(&mut a, free - STOP), free + 2 * READ);
}

#[test]
fn a_told_program_and_a_settled_one_stay() {
    let mut a = array(0, Registers::Unbounded, Wire::INSTANT);
    let told = a.program(Nanos(0), AT, UNIT);
    assert_eq!(read(&mut a, 100), told.done.0 + READ);
    let mut a = array(0, Registers::Unbounded, Wire::INSTANT);
    a.erase_as(Nanos(0), 0, 0, Promise::Open);
    assert_eq!(a.settle(0), Nanos(ERASE));
    assert_eq!(read(&mut a, 100), ERASE + READ);
    // Where the chip cannot suspend, open work is like told work.
    let parts = Preset::MqsimDefault.parts(true);
    let mut a = Array::new(&parts.geometry.shape().unwrap(), &parts.timing, &parts.variability);
    let erased = a.erase_as(Nanos(0), 0, 0, Promise::Open);
    assert!(a.read(Nanos(100), AT, UNIT) > erased);
    // MQSim's drive, not its code: a read stops an erase after 700 us.
    let parts = Preset::MqsimDefault.parts(false);
    let mut a = Array::new(&parts.geometry.shape().unwrap(), &parts.timing, &parts.variability);
    a.erase_as(Nanos(0), 0, 0, Promise::Open);
    assert_eq!(a.read(Nanos(1_000), AT, 8192), Nanos(1_000 + 700_095 + 290 + 75_020 + 27_306));
}

#[test]
fn a_read_precedes_open_work_that_has_not_begun() {
    // The data of the program takes 500 to arrive.
    let mut a = array(0, Registers::Unbounded, Wire::proportional(UNIT, 500));
    a.program_as(Nanos(0), AT, UNIT, Promise::Open);
    assert_eq!(a.plane_free_at(0), Nanos(500 + PROGRAM));
    assert_eq!(read(&mut a, 100), 500 + 500, "the array at once, then the channel behind the program's data");
    assert_eq!(a.plane_free_at(0), Nanos(500 + PROGRAM), "and nothing was pushed");
    assert_eq!(read(&mut a, 480), 1_500, "the array from 480 to 520");
    assert_eq!(a.plane_free_at(0), Nanos(520 + PROGRAM));
}

#[test]
fn reads_cannot_starve_a_program() {
    let mut a = array(3, Registers::Unbounded, Wire::INSTANT);
    a.program_as(Nanos(0), AT, UNIT, Promise::Open);
    for i in 0..3 {
        let now = 100 * (i + 1);
        assert_eq!(read(&mut a, now), now + STOP + READ);
    }
    let free = PROGRAM + 3 * (STOP + READ);
    assert_eq!(read(&mut a, 400), free + READ, "the fourth waits");
    assert_eq!(a.plane_free_at(0), Nanos(free + READ));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Read,
    Program(Promise),
    Erase(Promise),
    CopyBack(Promise),
    Settle,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let promise = || prop_oneof![Just(Promise::Told), Just(Promise::Open)];
    let step = prop_oneof![
        6 => Just(Step::Read),
        3 => promise().prop_map(Step::Program),
        1 => promise().prop_map(Step::Erase),
        1 => promise().prop_map(Step::CopyBack),
        1 => Just(Step::Settle),
    ];
    prop::collection::vec((0u64..900, step), 1..60)
}

/// A plane as a list of what its array does when, each piece with its operation: the obvious way.
#[derive(Default)]
struct Model {
    pieces: Vec<(u64, u64, usize)>,
    /// The operations that may still move are those from this one on, as long as there are such.
    open_from: Option<usize>,
    operations: usize,
    credits: u64,
    resume: u64,
}

impl Model {
    fn end(&self) -> u64 {
        self.pieces.iter().map(|p| p.1).max().unwrap_or(0)
    }

    fn append(&mut self, now: u64, work: u64, promise: Promise, limit: u64) -> u64 {
        let (operation, end) = (self.operations, self.end());
        let start = now.max(end);
        self.operations += 1;
        match promise {
            Promise::Told => self.open_from = None,
            Promise::Open => {
                if self.open_from.is_none() || end <= now {
                    (self.open_from, self.credits) = (Some(operation), 0);
                }
                self.credits += limit;
            }
        }
        self.pieces.push((start, start + work, operation));
        start + work
    }

    /// Everything of open operations from `from` on happens `by` later; a piece under way is cut in two.
    fn shift(&mut self, first_open: usize, from: u64, by: u64) {
        let mut moved = Vec::new();
        for (start, end, operation) in self.pieces.drain(..) {
            if operation < first_open || end <= from {
                moved.push((start, end, operation));
            } else if start >= from {
                moved.push((start + by, end + by, operation));
            } else {
                moved.push((start, from, operation));
                moved.push((from + by, end + by, operation));
            }
        }
        self.pieces = moved;
    }

    fn read(&mut self, now: u64, limit: u64) -> u64 {
        let end = self.end();
        let first = match self.open_from {
            Some(first) if now < end && self.credits > 0 => first,
            _ => return self.append(now, READ, Promise::Told, limit),
        };
        let of_open = self.pieces.iter().filter(|p| p.2 >= first && p.2 != usize::MAX);
        let begins = of_open.map(|p| p.0).min().unwrap_or(end);
        let told =
            self.pieces.iter().filter(|p| p.2 < first || (p.2 == usize::MAX && p.1 <= begins)).map(|p| p.1).max();
        let (start, from) = if now < begins {
            (now.max(told.unwrap_or(0)), begins)
        } else if now < self.resume {
            (self.resume, self.resume)
        } else if end - now > STOP {
            (now + STOP, now)
        } else {
            return self.append(now, READ, Promise::Told, limit);
        };
        let by = (start + READ).saturating_sub(from);
        // Reads that cut in are nobody's open work: they have a number of their own and never move.
        let (cut_in, mut rest): (Vec<_>, Vec<_>) = self.pieces.drain(..).partition(|p| p.2 == usize::MAX);
        core::mem::swap(&mut self.pieces, &mut rest);
        self.shift(first, from, by);
        self.pieces.extend(cut_in);
        self.pieces.push((start, start + READ, usize::MAX));
        self.resume = start + READ;
        self.credits -= u64::from(by > 0);
        start + READ
    }

    /// No two pieces overlap.
    fn check(&self) {
        let mut sorted = self.pieces.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|w| w[0].1 <= w[1].0), "{sorted:?}");
    }

    fn work(&self, operation: usize) -> u64 {
        self.pieces.iter().filter(|p| p.2 == operation).map(|p| p.1 - p.0).sum()
    }
}

proptest! {
    /// The array and the list of pieces agree on every answer; told ends stay, open work loses nothing.
    #[test]
    fn it_is_the_model(steps in steps(), limit in 1u32..5) {
        let mut a = array(limit, Registers::Unbounded, Wire::INSTANT);
        let (mut model, mut now, limit) = (Model::default(), 0, u64::from(limit));
        let mut told: Vec<(usize, u64, u64)> = Vec::new();
        let mut works: Vec<u64> = Vec::new();
        let mut open: Vec<(usize, OpenEnd)> = Vec::new();
        for (pause, step) in steps {
            now += pause;
            let t = Nanos(now);
            let before = model.operations;
            let (ours, theirs) = match step {
                Step::Read => (read(&mut a, now), model.read(now, limit)),
                Step::Program(p) => (a.program_as(t, AT, UNIT, p).done.0, model.append(now, PROGRAM, p, limit)),
                Step::Erase(p) => (a.erase_as(t, 0, 0, p).0, model.append(now, ERASE, p, limit)),
                Step::CopyBack(p) => {
                    (a.copy_back(t, AT, PageAddress { page: 1, ..AT }, p).0, model.append(now, READ + PROGRAM, p, limit))
                }
                Step::Settle => {
                    model.open_from = None;
                    (a.settle(0).0, model.end())
                }
            };
            prop_assert_eq!(ours, theirs, "{:?} at {}", step, now);
            prop_assert_eq!(a.plane_free_at(0), Nanos(model.end()));
            if model.operations > before {
                works.push(model.work(before));
                if model.open_from.is_none() {
                    told.push((before, theirs, works[before]));
                }
            }
            if model.open_from.is_some() && model.operations > before {
                open.push((before, a.open_end(0, Nanos(ours))));
            }
            // Nobody relies on an open end too early, and while the work can still move its end is known exactly.
            for (operation, end) in &open {
                let over = model.pieces.iter().filter(|p| p.2 == *operation).map(|p| p.1).max().unwrap_or(0);
                prop_assert!(a.latest(end).0 >= over);
                let movable = over > now && model.open_from.is_some_and(|first| first <= *operation);
                prop_assert!(!movable || a.latest(end).0 == over);
            }
            a.check();
            model.check();
        }
        for (operation, end) in &open {
            let told = a.tell(end);
            prop_assert!(model.pieces.iter().all(|p| p.2 != *operation || p.1 <= told.0));
        }
        for (operation, work) in works.iter().enumerate() {
            prop_assert_eq!(model.work(operation), *work);
        }
        for (operation, end, work) in told {
            let whole = model.pieces.iter().filter(|p| p.2 == operation).copied().collect::<Vec<_>>();
            prop_assert_eq!(whole, alloc::vec![(end - work, end, operation)]);
        }
    }

    /// With any registers and a channel in between: nothing is earlier than it can be, answers never overtake what the
    /// plane still has to do, and the sum of all work fits.
    #[test]
    fn work_is_conserved(steps in steps(), limit in 0u32..5, registers in 0usize..3, transfer in 0u64..200) {
        let mut a = array(limit, Registers::ALL[registers], Wire::proportional(UNIT, transfer));
        let (mut now, mut work, mut last_told) = (0, 0, 0);
        for (pause, step) in steps {
            now += pause;
            let t = Nanos(now);
            let free = a.plane_free_at(0).0;
            let (end, least, told) = match step {
                Step::Read => (read(&mut a, now), READ, true),
                Step::Program(p) => (a.program_as(t, AT, UNIT, p).done.0, PROGRAM, p == Promise::Told),
                Step::Erase(p) => (a.erase_as(t, 0, 0, p).0, ERASE, p == Promise::Told),
                Step::CopyBack(p) => (a.copy_back(t, AT, PageAddress { page: 1, ..AT }, p).0, READ + PROGRAM, p == Promise::Told),
                Step::Settle => (a.settle(0).0, 0, true),
            };
            work += least;
            prop_assert!(end >= now.min(free) && end >= least);
            prop_assert!(a.plane_free_at(0).0 >= free, "the plane got earlier");
            if told && !matches!(step, Step::Read) {
                prop_assert!(end >= last_told, "{step:?} at {now} ends at {end}, before {last_told}");
                last_told = end;
            }
            a.check();
        }
        prop_assert!(a.settle(0).0 >= work, "{work} of work");
    }
}
