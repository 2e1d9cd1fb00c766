//! When what waits begins: the drives of these tests are looked at late.

use super::timed_tests::Bench;
use super::*;
use proptest::prelude::*;

const US: u64 = 1000;

impl Bench {
    /// Reads of a block each that come now.
    fn read(&mut self, now: Nanos, count: u64) {
        for at in 0..count {
            self.submit(now, Op::Read, at * 4096, vec![0; 4096]);
        }
    }

    /// Looks at these times, the last of which is after everything is due; when the commands were due, in order.
    fn look(&mut self, at: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut dues = Vec::new();
        for now in at {
            self.run(Nanos(now), Nanos::NEVER);
            dues.extend(self.device.deadlines.take_handed().map(Nanos::get));
        }
        assert!(self.device.is_quiet());
        self.device.machine().check();
        dues.sort_unstable();
        dues
    }
}

/// Two slots, ten commands at once: the last one ends after five service times, however rarely the thread looks.
#[test]
fn a_slot_is_handed_on_when_it_is_free() {
    let mut bench = Bench::new("capacity=16MiB&latency=500us&slots=2");
    bench.read(Nanos(16 * US), 10);
    let dues = bench.look((16..2600).step_by(37).map(|us| us * US));
    assert_eq!(dues.last(), Some(&(2516 * US)));
    let expected: Vec<u64> = (1..=5).flat_map(|n| [(16 + 500 * n) * US; 2]).collect();
    assert_eq!(dues, expected);
}

/// A ceiling lets a tenant go on when it says, not when the thread looks.
#[test]
fn what_its_ceiling_holds_begins_when_it_may() {
    let ends = |step: usize| {
        let mut bench = Bench::new("capacity=16MiB&latency=10us");
        let rates = weir_units::Rates { iops: Some(20_000), bandwidth: None };
        let ceiling = weir_units::Ceiling { rates, burst: Some(1), ..weir_units::Ceiling::default() };
        let (floor, sla) = (weir_units::Floor::default(), weir_units::Sla::default());
        bench.device.machine_mut().set_limits(Nanos(0), 0, floor, ceiling, sla).unwrap();
        bench.read(Nanos(US), 200);
        bench.look((1..20_000).step_by(step).map(|us| us * US))
    };
    assert_eq!(ends(90), ends(1));
}

/// Nothing begins before it came, though the slot was free earlier.
#[test]
fn what_comes_begins_when_it_is_found() {
    let mut bench = Bench::new("capacity=16MiB&latency=100us&slots=1");
    bench.read(Nanos(0), 2);
    bench.run(Nanos(0), Nanos::NEVER);
    // Found by the look at 130 us; the second command of the first look has the slot from 100 us on, this one from 200 us on.
    bench.run(Nanos(60 * US), Nanos::NEVER);
    assert_eq!(
        bench.device.catch_up(Nanos(130 * US), &mut bench.hosts, &mut bench.reactor, Nanos::NEVER),
        CaughtUp::Moved
    );
    bench.read(Nanos(130 * US), 1);
    bench.run(Nanos(130 * US), Nanos::NEVER);
    assert_eq!(bench.look([205, 310].map(|us| us * US)), [100, 200, 300].map(|us| us * US));
    // Nobody waits when the slot becomes free.
    bench.read(Nanos(400 * US), 1);
    bench.run(Nanos(400 * US), Nanos::NEVER);
    bench.read(Nanos(540 * US), 1);
    assert_eq!(bench.look([540, 640].map(|us| us * US)), [500, 640].map(|us| us * US));
}

/// A core that was away for longer is not made up for.
#[test]
fn nothing_is_dated_back_further_than_the_reach() {
    let mut bench = Bench::new("capacity=16MiB&latency=100us&slots=1");
    bench.read(Nanos(0), 2);
    assert_eq!(bench.look([0, 1000, 1100].map(|us| us * US)), [100, 1000].map(|us| us * US));
}

/// What is due is shown in pieces, and each piece has its own time.
#[test]
fn a_drive_that_leaves_off_goes_on_where_it_was() {
    let mut bench = Bench::new("capacity=16MiB&latency=50us&slots=4");
    bench.read(Nanos(0), 12);
    bench.run(Nanos(0), Nanos::NEVER);
    let mut dues = Vec::new();
    for _ in 0..40 {
        // Any time is past the first nanosecond: one command a run.
        bench.run(Nanos(90 * US), Nanos(1));
        dues.extend(bench.device.deadlines.take_handed().map(Nanos::get));
    }
    assert_eq!(dues, [50 * US; 4]);
    dues.extend(bench.look([110, 151].map(|us| us * US)));
    assert_eq!(dues, [[50 * US; 4], [100 * US; 4], [150 * US; 4]].concat());
}

proptest! {
    /// When commands are due does not depend on the looks, where none is longer after the one before than moments reach.
    #[test]
    fn answers_do_not_depend_on_the_looks(
        comes in prop::collection::vec((1..60 * US, 1..4u64), 1..40),
        gaps in prop::collection::vec(1..100 * US, 1..40),
        slots in 1..5u32,
    ) {
        let due = |extra: &mut dyn FnMut(u64) -> u64| {
            let mut bench = Bench::new(&format!("capacity=16MiB&latency=80us&slots={slots}"));
            let (mut now, mut dues) = (0, Vec::new());
            for (gap, count) in &comes {
                let at = now + gap;
                loop {
                    now += extra(now);
                    if now >= at {
                        break;
                    }
                    bench.run(Nanos(now), Nanos::NEVER);
                }
                now = at;
                bench.device.catch_up(Nanos(now), &mut bench.hosts, &mut bench.reactor, Nanos::NEVER);
                bench.read(Nanos(now), *count);
                bench.run(Nanos(now), Nanos::NEVER);
                dues.extend(bench.device.deadlines.take_handed().map(Nanos::get));
            }
            dues.extend(bench.look((now..now + 30_000 * US).step_by(99 * US as usize)));
            dues.sort_unstable();
            dues
        };
        let mut turn = gaps.iter().cycle();
        let rarely = due(&mut |_| *turn.next().unwrap());
        prop_assert_eq!(rarely, due(&mut |_| US));
    }
}
