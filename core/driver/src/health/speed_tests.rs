use super::speed::*;
use super::{Evidence, Slowness};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_units::Nanos;

const SECOND: Nanos = Nanos::from_secs(1);

/// A drive whose dies take so many percent of what is expected, window by window.
struct Rig {
    watch: SpeedWatch,
    now: Nanos,
    drive: WorkDone,
    dies: Vec<WorkDone>,
    lateness: Nanos,
    unjudged: Option<NotJudged>,
}

/// An operation as expected.
const OPERATION: Nanos = Nanos(100_000);

fn more(done: &mut WorkDone, operations: u64, percent: u64) {
    done.operations += operations;
    done.expected.0 += operations * OPERATION.0;
    done.measured.0 += operations * OPERATION.0 * percent / 100;
}

impl Rig {
    fn new(dies: usize) -> Self {
        let mut rig = Rig {
            watch: SpeedWatch::new(Nanos(0)),
            now: Nanos(0),
            drive: WorkDone::default(),
            dies: vec![WorkDone::default(); dies],
            lateness: Nanos(0),
            unjudged: None,
        };
        rig.look();
        rig
    }

    fn look(&mut self) -> Option<Evidence> {
        let look = SpeedLook { drive: self.drive, dies: &self.dies, lateness: self.lateness, unjudged: self.unjudged };
        let news = self.watch.apply(self.now, &look);
        self.watch.check();
        news
    }

    /// A second in which each part does `operations`: the drive, and each die, at so many percent.
    fn second(&mut self, operations: u64, drive: u64, die: impl Fn(usize) -> u64) -> Option<Evidence> {
        self.now.0 += SECOND.0;
        more(&mut self.drive, operations, drive);
        self.dies.iter_mut().enumerate().for_each(|(at, done)| more(done, operations, die(at)));
        self.look()
    }

    fn speed(&self) -> Speed {
        self.watch.speed(self.now)
    }
}

#[test]
fn each_factor_of_a_die_is_found_with_its_size_and_the_others_are_not_accused() {
    for percent in [200, 500, 2000] {
        let mut rig = Rig::new(8);
        let found: Vec<Evidence> =
            (0..60).filter_map(|_| rig.second(100, 100, |die| if die == 3 { percent } else { 100 })).collect();
        let slowness = Slowness { percent: percent as u32, die: Some(3) };
        assert_eq!(found, [Evidence::Slow(slowness)], "told once");
        assert_eq!(rig.watch.slow_dies().collect::<Vec<_>>(), [slowness]);
        assert_eq!(rig.speed(), Speed::Slow(slowness));
    }
}

#[test]
fn seven_windows_accuse_and_fourteen_acquit() {
    let mut rig = Rig::new(4);
    let seconds = (1..).find(|_| rig.second(100, 100, |die| if die == 0 { 300 } else { 100 }).is_some());
    assert_eq!(seconds, Some(7));
    let seconds = (1..).find(|_| rig.second(100, 100, |_| 100) == Some(Evidence::AsFastAsModelled));
    assert_eq!(seconds, Some(14));
    assert_eq!(rig.speed(), Speed::AsExpected);
    assert_eq!(rig.watch.slow_dies().count(), 0);
}

#[test]
fn dies_that_are_slow_together_are_the_drive() {
    let mut rig = Rig::new(8);
    let told = (0..10).find_map(|_| rig.second(100, 100, |_| 500));
    assert_eq!(told, Some(Evidence::Slow(Slowness { percent: 500, die: None })));
}

#[test]
fn commands_that_take_longer_are_the_drive_whatever_its_dies_do() {
    let mut rig = Rig::new(0);
    let told = (0..10).find_map(|_| rig.second(100, 2000, |_| 100));
    assert_eq!(told, Some(Evidence::Slow(Slowness { percent: 2000, die: None })));
}

#[test]
fn a_window_waits_for_enough_operations() {
    let mut rig = Rig::new(1);
    for _ in 0..LEAST_OPERATIONS - 1 {
        rig.second(1, 100, |_| 500);
    }
    assert_eq!((rig.watch.windows(), rig.speed()), (0, Speed::NotJudged(NotJudged::Idle)));
    rig.second(1, 100, |_| 500);
    assert_eq!((rig.watch.windows(), rig.speed()), (2, Speed::AsExpected), "one of the drive, one of its die");
}

#[test]
fn a_drive_is_judged_for_as_long_as_it_works() {
    let mut rig = Rig::new(2);
    rig.second(100, 100, |_| 100);
    assert_eq!(rig.speed(), Speed::AsExpected);
    for _ in 0..STALE.0 / SECOND.0 {
        rig.second(0, 100, |_| 100);
    }
    assert_eq!(rig.speed(), Speed::AsExpected);
    rig.second(0, 100, |_| 100);
    assert_eq!(rig.speed(), Speed::NotJudged(NotJudged::Idle));
}

#[test]
fn a_late_machine_says_nothing_of_the_drive() {
    let mut rig = Rig::new(4);
    for _ in 0..100 {
        // A quarter of what the commands of this second should take.
        rig.lateness.0 += 100 * OPERATION.0 / 4;
        assert_eq!(rig.second(100, 2000, |_| 500), None);
        assert_eq!(rig.speed(), Speed::NotJudged(NotJudged::Disturbed));
    }
    assert_eq!((rig.watch.windows(), rig.watch.dropped()), (0, 100));
    // What was seen meanwhile is forgotten, and the next windows count.
    let seconds = (1..).find(|_| rig.second(100, 100, |_| 500).is_some());
    assert_eq!(seconds, Some(7));
    // What was found is not refuted by what says nothing.
    rig.lateness.0 += SECOND.0;
    rig.second(100, 100, |_| 100);
    assert!(matches!(rig.speed(), Speed::Slow(_)));
}

#[test]
fn a_look_with_a_reason_says_nothing_and_names_it() {
    for why in [NotJudged::Interrupted, NotJudged::Unmeasured] {
        let mut rig = Rig::new(0);
        rig.second(100, 100, |_| 100);
        rig.unjudged = Some(why);
        for _ in 0..20 {
            assert_eq!(rig.second(100, 2000, |_| 100), None);
            assert_eq!(rig.speed(), Speed::NotJudged(why));
        }
        rig.unjudged = None;
        let seconds = (1..).find(|_| rig.second(100, 2000, |_| 100).is_some());
        assert_eq!((seconds, rig.watch.dropped()), (Some(7), 20));
    }
}

#[test]
fn counts_that_begin_anew_are_no_window() {
    let mut rig = Rig::new(2);
    rig.second(1000, 100, |_| 100);
    let before = rig.watch.windows();
    (rig.drive, rig.dies) = (WorkDone::default(), vec![WorkDone::default(); 2]);
    rig.second(10, 100, |_| 100);
    assert_eq!((rig.watch.windows(), rig.speed()), (before, Speed::AsExpected));
    rig.second(10, 100, |_| 100);
    assert_eq!(rig.watch.windows(), before + 3);
}

#[test]
fn dies_that_are_counted_later_are_watched_from_then_on() {
    let mut rig = Rig::new(0);
    rig.second(100, 100, |_| 100);
    let mut before = WorkDone::default();
    more(&mut before, 1_000_000, 2000);
    rig.dies = vec![before; 2];
    rig.second(0, 100, |_| 100);
    for _ in 0..60 {
        assert_eq!(rig.second(100, 100, |_| 100), None, "what was before does not count");
    }
}

proptest! {
    /// The accusation is where the greatest sum over the latest windows reaches the threshold, which is what the CUSUM procedure computes.
    #[test]
    fn an_accusation_comes_with_the_windows_that_the_definition_says(
        slow in proptest::collection::vec(prop::bool::weighted(0.4), 1..120),
    ) {
        let (by_slow, by_other) = (4500_i64, -2293);
        let is_reached = |to: usize| {
            let sums = slow[..=to].iter().rev().scan(0, |sum, slow| {
                *sum += if *slow { by_slow } else { by_other };
                Some(*sum)
            });
            sums.max().is_some_and(|most| most >= i64::from(THRESHOLD))
        };
        let expected = (0..slow.len()).find(|to| is_reached(*to));
        let mut rig = Rig::new(1);
        let found = slow.iter().position(|slow| rig.second(50, 100, |_| if *slow { 170 } else { 110 }).is_some());
        prop_assert_eq!(found, expected);
    }

    /// Of windows that are slow as often as a healthy part's may be, none in the test's own length accuses.
    #[test]
    fn a_part_with_a_slow_window_now_and_then_is_healthy(
        slow in proptest::collection::vec(prop::bool::weighted(0.01), 500..2000),
    ) {
        let mut rig = Rig::new(1);
        for is_slow in slow {
            prop_assert_eq!(rig.second(10, if is_slow { 900 } else { 100 }, |_| if is_slow { 900 } else { 100 }), None);
        }
        prop_assert_eq!(rig.speed(), Speed::AsExpected);
    }
}
