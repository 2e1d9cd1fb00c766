use super::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;

/// A count that the test sets, and how often it was asked.
#[derive(Clone, Default)]
struct Script(Rc<Cell<(u64, u32)>>);

impl Script {
    fn wait(&self, ns: u64) {
        let (total, asked) = self.0.get();
        self.0.set((total + ns, asked));
    }
    fn asked(&self) -> u32 {
        self.0.get().1
    }
}

impl Delay for Script {
    fn total(&mut self) -> Option<Nanos> {
        let (total, asked) = self.0.get();
        self.0.set((total, asked + 1));
        Some(Nanos(total))
    }
}

fn spin(waits: &mut Waits<Script>, from: u64, to: u64, step: u64) {
    (from..=to).step_by(step as usize).for_each(|t| waits.look(Nanos(t)));
}

#[test]
fn a_wait_lies_in_the_gap_between_two_looks() {
    let script = Script::default();
    let mut waits = Waits::new(script.clone(), Nanos(0));
    spin(&mut waits, 0, 100_000, 500);
    script.wait(2_999_000);
    waits.look(Nanos(3_100_000));
    assert_eq!(waits.since(Nanos(50_000)), Nanos(2_999_000), "overdue before it: all of it");
    assert_eq!(waits.since(Nanos(100_000)), Nanos(2_999_000));
    assert_eq!(waits.since(Nanos(1_100_000)), Nanos(1_999_000), "due in the middle: what came after");
    assert_eq!(waits.since(Nanos(3_100_000)), Nanos(0));
    spin(&mut waits, 3_100_500, 3_200_000, 500);
    assert_eq!(waits.since(Nanos(3_150_000)), Nanos(0), "over");
    assert_eq!(waits.since(Nanos(3_000_000)), Nanos(99_000), "at the end of the gap");
    assert_eq!(waits.squares(), 2_999_000 * 2_999_000);
    script.wait(100_000);
    waits.look(Nanos(3_400_000));
    assert_eq!(waits.squares(), 2_999_000 * 2_999_000 + 100_000 * 100_000, "each by itself");
}

#[test]
fn work_is_not_forgiven() {
    let script = Script::default();
    let mut waits = Waits::new(script.clone(), Nanos(0));
    // A turn of 900 us of which the thread waited 100: due at its beginning 100, due in the middle nothing.
    script.wait(100_000);
    waits.look(Nanos(900_000));
    assert_eq!(waits.since(Nanos(0)), Nanos(100_000));
    assert_eq!(waits.since(Nanos(450_000)), Nanos(0));
    // Long turns without any waiting.
    waits.look(Nanos(2_000_000));
    assert_eq!(waits.since(Nanos(900_000)), Nanos(0));
}

#[test]
fn a_spinning_thread_asks_once_a_millisecond_and_about_gaps() {
    let script = Script::default();
    let mut waits = Waits::new(script.clone(), Nanos(0));
    let before = script.asked();
    spin(&mut waits, 0, 100_000_000, 200);
    assert!((99..=101).contains(&(script.asked() - before)), "{}", script.asked());
    // Turns of 8 us, each with an I/O that is late by 6: not a question for each.
    let before = script.asked();
    for turn in 0..1000 {
        let now = 100_000_000 + turn * 8_000;
        waits.look(Nanos(now));
        waits.since(Nanos(now - 6_000));
    }
    assert!(script.asked() - before <= 1000 / 3 + 10, "{}", script.asked() - before);
}

#[test]
fn a_short_gap_counts_when_somebody_wants_to_know() {
    let script = Script::default();
    let mut waits = Waits::new(script.clone(), Nanos(0));
    spin(&mut waits, 0, 100_000, 500);
    script.wait(18_000);
    waits.look(Nanos(120_000));
    waits.look(Nanos(120_700));
    assert_eq!(waits.since(Nanos(101_000)), Nanos(17_000));
}

#[test]
fn who_sleeps_waits_at_the_end() {
    let script = Script::default();
    let mut waits = Waits::new(script.clone(), Nanos(0));
    script.wait(30_000);
    waits.woke(Nanos(500_000));
    assert_eq!(waits.since(Nanos(480_000)), Nanos(20_000), "what was left of it");
    assert_eq!(waits.since(Nanos(470_000)), Nanos(30_000));
    assert_eq!(waits.total(), Nanos(30_000));
}

#[test]
fn without_statistics_there_is_no_wait() {
    let mut waits = Waits::new(None, Nanos(0));
    assert!(!waits.is_known());
    waits.look(Nanos(1_000_000));
    waits.woke(Nanos(2_000_000));
    assert_eq!((waits.since(Nanos(0)), waits.total()), (Nanos(0), Nanos(0)));
}

#[test]
fn the_kernel_is_asked_for_real() {
    let start = crate::reactor::now();
    let mut waits = Waits::of_this_thread(start);
    let mut now = start;
    while now.saturating_sub(start) < Nanos::from_millis(20) {
        now = crate::reactor::now();
        waits.look(now);
        assert!(waits.since(start) <= now.saturating_sub(start));
    }
    assert!(waits.is_known(), "this kernel has CONFIG_SCHED_INFO");
}

/// What really happened between two looks: work, a wait, work.
#[derive(Clone, Debug)]
struct Turn {
    work: u64,
    wait: u64,
    more: u64,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let wait = prop_oneof![6 => Just(0u64), 1 => 1..5_000u64, 1 => 5_000..4_000_000u64];
    let turn = (1..60_000u64, wait, 0..2_000u64).prop_map(|(work, wait, more)| Turn { work, wait, more });
    prop::collection::vec(turn, 1..60)
}

proptest! {
    #[test]
    fn never_more_than_was_waited_in_all(turns in turns(), back in 0..5_000_000u64) {
        let script = Script::default();
        let mut waits = Waits::new(script.clone(), Nanos(0));
        let (mut now, mut waited) = (0, 0);
        for turn in &turns {
            now += turn.work + turn.wait + turn.more;
            waited += turn.wait;
            script.wait(turn.wait);
            waits.look(Nanos(now));
            let from = now.saturating_sub(back);
            let found = waits.since(Nanos(from)).get();
            prop_assert!(found <= waited && found <= now - from, "{found} of {waited}");
        }
    }

    /// A single long wait is found to within the work that was done in its gap, and never overstated.
    #[test]
    fn one_wait_is_found(work in 0..3_000u64, wait in 50_000..4_000_000u64, more in 0..3_000u64, into in 0.0..1.0f64) {
        let script = Script::default();
        let mut waits = Waits::new(script.clone(), Nanos(0));
        spin(&mut waits, 0, 200_000, 1000);
        let (begin, end) = (200_000 + work, 200_000 + work + wait);
        script.wait(wait);
        waits.look(Nanos(end + more));
        let due = 200_000 + ((work + wait + more) as f64 * into) as u64;
        let truth = end.saturating_sub(due.max(begin));
        let found = waits.since(Nanos(due)).get();
        prop_assert!(found <= truth + work && found + work + more >= truth, "{found} instead of {truth}");
    }
}
