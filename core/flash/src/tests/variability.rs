//! Chips and pages that differ, wear, wrong bits and retries.

use crate::*;
use alloc::format;
use alloc::vec::Vec;
use weir_units::Nanos;

const DAY: Nanos = Nanos::from_secs(86_400);

fn array(variability: Variability) -> (Array, Shape) {
    let parts = Preset::FemuOc.parts(false);
    let shape = Geometry { ways: 16, ..parts.geometry }.shape().unwrap();
    variability.validate().unwrap();
    (Array::new(&shape, &parts.timing, &variability), shape)
}

/// An erase and a lower page's program on each die.
fn times(variability: Variability) -> Vec<(u64, u64)> {
    let (a, shape) = array(variability);
    let of = |plane| (a.on_chip(plane, Nanos(3_000_000)).0, a.on_chip(plane, Nanos(900_000)).0);
    (0..shape.planes()).map(of).collect()
}

#[test]
fn chips_differ_by_the_seed_and_within_their_spread() {
    let v = Variability { seed: 1, chip_spread: 200, ..Variability::default() };
    let drawn = times(v);
    assert_eq!(drawn, times(v));
    assert_ne!(drawn, times(Variability { seed: 2, ..v }));
    assert!(
        drawn.iter().all(|(erase, program)| { (2_400_000..=3_600_000).contains(erase) && erase * 3 == program * 10 })
    );
    let mean = drawn.iter().map(|t| t.0).sum::<u64>() / drawn.len() as u64;
    assert!((2_900_000..3_100_000).contains(&mean), "{mean}");
}

#[test]
fn some_chips_are_bad() {
    let v = Variability { seed: 7, bad_chips: 250, bad_chip_slowdown: 500, ..Variability::default() };
    let slow = times(v).iter().filter(|t| t.0 == 4_500_000).count();
    let fine = times(v).iter().filter(|t| t.0 == 3_000_000).count();
    assert_eq!(slow + fine, 256);
    assert!((40..90).contains(&slow), "a quarter of 256 chips: {slow}");
}

#[test]
fn pages_differ_and_stay_as_they_are() {
    let (mut a, _) = array(Variability { seed: 3, page_spread: 100, ..Variability::default() });
    let at = |block, page| PageAddress { plane: 0, block, page };
    let program = |a: &mut Array, block, page| {
        let p = a.program(a.plane_free_at(0), at(block, page), UNIT);
        p.done.0 - p.loaded.0
    };
    assert_eq!(program(&mut a, 1, 0), program(&mut a, 1, 0));
    let drawn: Vec<u64> = (0..6).map(|page| program(&mut a, 0, page)).collect();
    assert!(drawn.iter().all(|t| (810_000..=990_000).contains(t)) && drawn.windows(2).any(|w| w[0] != w[1]));
    let mut read = |now| a.read(now, at(0, 0), UNIT).0 - now.0;
    let (first, later) = (read(Nanos::from_secs(1)), read(Nanos::from_secs(2)));
    assert_eq!(first, later);
    assert_eq!(a.cycles(0, 0), 0, "wear is not modelled here");
}

/// Retries and failures of a thousand reads of one page, a microsecond apart, from `now` on.
fn retried(a: &mut Array, now: Nanos, page: u32) -> (u32, u32) {
    let read = |i: u64| a.read_outcome(Nanos(now.0 + i * 1000), PageAddress { plane: 0, block: 0, page }, UNIT);
    let outcomes: Vec<_> = (0..1000).map(read).collect();
    (outcomes.iter().map(|o| o.retries).sum(), outcomes.iter().map(|o| u32::from(o.failed)).sum())
}

#[test]
fn worn_blocks_are_read_again_and_upper_pages_more_often() {
    let (mut a, _) = array(Variability { errors: Some(Errors::default()), ..Variability::default() });
    let mut before = 0;
    for (cycles, range) in [(0, 0..=0), (1_500, 0..=0), (3_000, 10..=300), (4_000, 900..=4_000)] {
        a.set_cycles(0, 0, cycles);
        let (retries, failed) = retried(&mut a, Nanos(0), 0);
        assert!(range.contains(&retries) && retries >= before, "{retries} at {cycles} cycles");
        assert_eq!(failed, 0);
        before = retries;
    }
    a.set_cycles(0, 0, 3_000);
    let (lower, upper) = (retried(&mut a, Nanos(0), 0).0, retried(&mut a, Nanos(0), 6).0);
    assert!(upper > 2 * lower, "{upper} against {lower}");
    // Far beyond its life, data is lost; the time of all retries is spent.
    a.set_cycles(0, 0, 100_000);
    let (retries, failed) = retried(&mut a, Nanos(0), 0);
    assert_eq!((retries, failed), (7_000, 1_000));
    assert_eq!(a.failed_reads(), 1_000);
}

#[test]
fn a_retry_costs_another_sense_or_what_is_configured() {
    let errors = Errors { rber: 0.01, correctable: 40, retries: 7, ..Errors::default() };
    for (retry, each) in [(None, 48_000), (Some(Nanos(7_000)), 7_000)] {
        let (mut a, _) = array(Variability { errors: Some(Errors { retry, ..errors }), ..Variability::default() });
        let outcome = a.read_outcome(Nanos(0), PageAddress::default(), UNIT);
        assert!(outcome.retries > 0 && !outcome.failed);
        assert_eq!(outcome.done.0, 48_000 + each * u64::from(outcome.retries) + 13_108);
    }
}

#[test]
fn reads_disturb_until_the_erase() {
    let errors = Errors { read_disturb: Some(1e-6), ..Errors::default() };
    let (mut a, _) = array(Variability { initial_cycles: 2_000, errors: Some(errors), ..Variability::default() });
    assert_eq!(retried(&mut a, Nanos(0), 0).0, 0, "a thousand reads do no harm");
    for i in 0..5 {
        retried(&mut a, Nanos::from_millis(i), 0);
    }
    assert!(retried(&mut a, Nanos(0), 0).0 > 100, "six thousand do");
    a.erase(Nanos(0), 0, 0);
    assert_eq!(a.cycles(0, 0), 2_001);
    assert_eq!(retried(&mut a, Nanos(0), 0).0, 0);
    // Switched off, they do not.
    let (mut a, _) =
        array(Variability { initial_cycles: 2_000, errors: Some(Errors::default()), ..Variability::default() });
    let sum: u32 = (0..10).map(|_| retried(&mut a, Nanos(0), 0).0).sum();
    assert_eq!(sum, 0);
}

#[test]
fn charge_leaks_until_the_block_is_programmed_again() {
    let errors = Errors { retention: Some(1e-4), ..Errors::default() };
    let (mut a, _) = array(Variability { initial_cycles: 2_000, errors: Some(errors), ..Variability::default() });
    let days = |n: u64| Nanos(DAY.0 * n);
    assert_eq!(retried(&mut a, days(1), 0).0, 0);
    assert!(retried(&mut a, days(60), 0).0 > 500);
    a.erase(days(61), 0, 0);
    a.program(days(100), PageAddress::default(), 16384);
    assert_eq!(retried(&mut a, days(101), 0).0, 0);
    a.copy_back(days(102), PageAddress::default(), PageAddress { block: 1, ..PageAddress::default() }, Promise::Told);
    assert!(a.read_outcome(days(103), PageAddress { block: 1, ..PageAddress::default() }, UNIT).retries == 0);
}

#[test]
fn bad_chips_have_more_wrong_bits() {
    let v = Variability {
        seed: 7,
        bad_chips: 250,
        bad_chip_errors: 2.0,
        initial_cycles: 2_500,
        errors: Some(Errors::default()),
        ..Variability::default()
    };
    let (mut a, shape) = array(v);
    let retries: Vec<u32> = (0..shape.planes())
        .map(|plane| {
            (0..50).map(|_| a.read_outcome(Nanos(0), PageAddress { plane, block: 0, page: 0 }, UNIT).retries).sum()
        })
        .collect();
    let many = retries.iter().filter(|r| **r >= 25).count();
    assert!((40..90).contains(&many), "the bad chips are read again and again: {many} of 256");
    assert!(retries.iter().filter(|r| **r < 5).count() > 160);
}

#[test]
fn a_die_is_away_once_in_each_period_and_whoever_comes_waits() {
    let (time, every) = (Nanos(2_000_000), Nanos::from_millis(100));
    let v = Variability { seed: 4, housekeeping: Some(Housekeeping { time, every }), ..Variability::default() };
    let (mut a, _) = array(v);
    let (mut b, _) = array(v);
    let (mut late, mut longest) = (0, 0);
    // Reads of one page, 200 us apart: 2 % of them come while the die is away, and wait for its end.
    for i in 0..50_000u64 {
        let now = Nanos(i * 200_000);
        let read = |a: &mut Array| a.read(now, PageAddress::default(), UNIT).0 - now.0;
        let took = read(&mut a);
        assert_eq!(took, read(&mut b), "drawn from the seed");
        late += u64::from(took > 61_108);
        longest = longest.max(took);
    }
    assert!((900..=1_300).contains(&late), "{late} of 50000");
    assert!((1_800_000..=2_061_108).contains(&longest), "{longest}");
    let wrong = Variability { housekeeping: Some(Housekeeping { time: every, every }), ..v };
    let error = format!("{}", wrong.validate().unwrap_err());
    assert_eq!(error, "variability.housekeeping_every must be more than housekeeping, and at most a day");
}

#[test]
fn programs_of_worn_blocks_are_slower() {
    let (mut a, _) = array(Variability { wear_slowdown: 200, ..Variability::default() });
    for (cycles, expected) in [(0, 900_000), (1_500, 990_000), (3_000, 1_080_000)] {
        a.set_cycles(0, 0, cycles);
        let p = a.program(a.plane_free_at(0), PageAddress::default(), 16384);
        assert_eq!(p.done.0 - p.loaded.0, expected, "{cycles} cycles");
    }
}

#[test]
fn what_is_out_of_range_is_named() {
    let e = |v: Variability| format!("{}", v.validate().unwrap_err());
    let none = Variability::default();
    assert_eq!(e(Variability { chip_spread: 1000, ..none }), "variability.chip_spread must be at most 999 thousandths");
    let errors = |errors| Variability { errors: Some(errors), ..none };
    assert_eq!(
        e(errors(Errors { rber: f64::NAN, ..Errors::default() })),
        "variability.errors.rber must be a rate from 0 to 1"
    );
    assert_eq!(
        e(errors(Errors { endurance: 0, ..Errors::default() })),
        "variability.errors.endurance must be at least 1"
    );
    let steps = EccSteps { step: Nanos(1), cycles: 0, most: 4 };
    assert_eq!(e(Variability { ecc_steps: Some(steps), ..none }), "variability.ecc_steps.cycles must be at least 1");
    let parts = Preset::FemuOc.parts(false);
    let long = FlashTiming { erase: Nanos::from_secs(11), ..parts.timing };
    assert_eq!(format!("{}", long.validate().unwrap_err()), "timing.erase is 11s; at most 10s is supported");
}

/// A drive with a slow die beside one that differs in nothing else: what the slow die's array should have taken is what the other's took.
#[test]
fn what_a_slow_die_should_take_is_what_it_takes_without_the_fault() {
    let v = Variability {
        seed: 5,
        chip_spread: 100,
        bad_chips: 200,
        bad_chip_slowdown: 1000,
        page_spread: 100,
        initial_cycles: 2_800,
        wear_slowdown: 200,
        ecc_steps: Some(EccSteps { step: Nanos(2_000), cycles: 500, most: 8 }),
        housekeeping: Some(Housekeeping { time: Nanos::from_millis(2), every: Nanos::from_millis(20) }),
        ..Variability::default()
    };
    let retries = [None, Some(Nanos(30_000))].map(|retry| Errors { retry, ..Errors::default() });
    for errors in retries {
        let work = |times: u32| {
            let (mut a, shape) = array(Variability { errors: Some(errors), ..v });
            a.set_die_times(1, times);
            let per_die = shape.planes_per_die();
            for i in 0..4_000 {
                let plane = (i % 4) * per_die;
                let at = PageAddress { plane, block: i % 7, page: i / 4 % 16 };
                let now = a.plane_free_at(plane);
                match i % 5 {
                    0 => drop(a.program(now, at, 16384)),
                    1 => drop(a.erase(now, plane, at.block)),
                    2 => {
                        let work = Relocation { read: Nanos(60_000), program: Nanos(900_000), ..Relocation::default() };
                        a.relocate(now, plane, &work, Scope::Plane);
                    }
                    _ => drop(a.read_outcome(now, at, UNIT)),
                }
            }
            a.die_work()[..4].to_vec()
        };
        let (healthy, slow) = (work(1000), work(5000));
        for (die, (healthy, slow)) in healthy.iter().zip(&slow).enumerate() {
            assert_eq!(healthy.taken, healthy.as_drawn, "die {die} has no fault");
            assert_eq!((slow.operations, slow.operations >= 1_000), (healthy.operations, true), "die {die}");
            // Each of an operation's scalings rounds.
            let off = slow.as_drawn.0.abs_diff(healthy.taken.0);
            assert!(off <= 20 * slow.operations, "die {die}: {off} ns in {} operations", slow.operations);
            let factor = slow.taken.0 as f64 / slow.as_drawn.0 as f64;
            let expected = if die == 1 { 4.0..=5.0 } else { 1.0..=1.0 };
            assert!(expected.contains(&factor), "die {die}: {factor}");
        }
    }
}

#[test]
fn dies_are_not_counted_while_all_are_as_the_data_sheet_says() {
    let (mut a, _) = array(Variability::default());
    a.program(Nanos(0), PageAddress::default(), UNIT);
    assert!(a.die_work().is_empty());
    a.set_die_times(1, 2000);
    a.program(Nanos(10_000_000), PageAddress::default(), UNIT);
    let work = a.die_work();
    assert_eq!((work.len(), work[0].operations, work[1]), (256, 1, DieWork::default()));
}
