//! How late completions would have been had nobody taken the thread's core.
//!
//! What is due while the core is taken is late by that, and so is what is due while the thread works that off: the taken time
//! goes on through the queue. So the thread keeps a second clock, that of the same thread on a core of its own. On it
//! completions take as long as they took, begin when they are due or when those before them are done, and those that are due
//! by then are shown together, as on the real one:
//!
//! ```text
//!   due        1  2  3  4  5  6           7
//!   really     |--------- taken ---------|1 2 3 4 5 6|  7
//!   undisturbed 1  2  3  4  5  6                         7        lateness net: how late they are here
//!                                                  ◄─────► owed: how far the thread is behind
//! ```
//! Nothing is owed any more when something is due later than the thread is done with all before it. A thread whose core was
//! not taken owes nothing: then net is raw. Commands that a host has sent meanwhile are noticed together and due together
//! afterwards; how they would have come nobody knows, so that what they wait for each other counts as lateness.

use crate::lateness::LATE;
use weir_sys::sched::{Delay, Waits};
use weir_units::Nanos;

/// See the [module](self). Of one thread, whatever its drives.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunQueueWait {
    /// The last measurement.
    at: Nanos,
    /// How far the thread is behind where it would have been then.
    owed: Nanos,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shown {
    /// When it was due.
    pub due: Nanos,
    /// Of which drive.
    pub drive: u32,
    /// How late it would have been.
    pub net: Nanos,
}

impl RunQueueWait {
    /// Whether completions of which the first was due at `due` may be late for the core's sake at `at`; else they are as late
    /// as they are.
    #[inline]
    pub fn matters(&mut self, due: Nanos, at: Nanos) -> bool {
        let matters = self.owed != Nanos(0) || at.saturating_sub(due) > LATE;
        if !matters {
            self.at = at;
        }
        matters
    }

    /// Finds out how late the completions that are shown since `at` would have been; all that were shown since the last
    /// time, in the order in which they were due. Below [`LATE`] net is raw.
    pub fn net<D: Delay>(&mut self, at: Nanos, shown: &mut [Shown], waits: &mut Waits<D>) {
        let Some(first) = shown.first() else { return };
        let start = self.at.max(first.due);
        let taken = waits.since(start);
        if taken == Nanos(0) && self.owed == Nanos(0) {
            shown.iter_mut().for_each(|s| s.net = at.saturating_sub(s.due));
            self.at = at;
            return;
        }
        let each = at.saturating_sub(start).saturating_sub(taken).get() / shown.len() as u64;
        let mut clock = self.at.saturating_sub(self.owed);
        let mut rest = shown;
        while let Some(next) = rest.first() {
            clock = clock.max(next.due);
            let together = rest.partition_point(|s| s.due <= clock);
            let (now, later) = rest.split_at_mut(together);
            clock = clock.saturating_add(Nanos(each * together as u64));
            for s in now {
                let raw = at.saturating_sub(s.due);
                s.net = if raw > LATE { raw.min(clock.saturating_sub(s.due)) } else { raw };
            }
            rest = later;
        }
        (self.at, self.owed) = (at, at.saturating_sub(clock));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::rc::Rc;

    const US: u64 = 1000;

    /// A count that the test sets.
    #[derive(Clone, Default)]
    struct Script(Rc<Cell<u64>>);

    impl Delay for Script {
        fn total(&mut self) -> Option<Nanos> {
            Some(Nanos(self.0.get()))
        }
    }

    /// A thread that serves its completions one by one, `cost` each, in turns of at most `batch`, and spins every 500 ns; its core
    /// is taken once at each of these times, for so long. Raw and net, in order.
    fn serve(dues: &[u64], cost: u64, batch: usize, takes: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let script = Script::default();
        let mut waits = Waits::new(script.clone(), Nanos(0));
        let (mut taken, mut now, mut takes) = (RunQueueWait::default(), 0, takes.iter().peekable());
        let (mut rest, mut found) = (dues, Vec::new());
        while !rest.is_empty() {
            if let Some((_, len)) = takes.next_if(|(at, _)| *at <= now) {
                script.0.set(script.0.get() + len);
                now += len;
                waits.look(Nanos(now));
            }
            let n = rest.partition_point(|due| *due <= now).min(batch);
            if n == 0 {
                now += 500.min(rest[0] - now).max(1);
                waits.look(Nanos(now));
                continue;
            }
            now += cost * n as u64;
            waits.look(Nanos(now));
            let shown = |due: &u64| Shown { due: Nanos(*due), drive: 0, net: Nanos(now - *due) };
            let mut list: Vec<Shown> = rest[..n].iter().map(shown).collect();
            if taken.matters(list[0].due, Nanos(now)) {
                taken.net(Nanos(now), &mut list, &mut waits);
            }
            found.extend(list.iter().map(|s| (now - s.due.get(), s.net.get())));
            rest = &rest[n..];
        }
        found
    }

    fn every(us: u64, n: u64) -> Vec<u64> {
        (1..=n).map(|i| i * us * US).collect()
    }

    #[test]
    fn what_is_worked_off_after_the_core_was_taken_is_not_late() {
        // 100 k/s, 1.2 us each, the core taken for 3 ms: 300 overdue, worked off in 360 us, in which 36 more are due, and so on.
        let found = serve(&every(10, 2000), 1200, 256, &[(5000 * US, 3000 * US)]);
        let late = |pick: fn(&(u64, u64)) -> u64| found.iter().filter(|f| pick(f) > 5 * US).count();
        assert!((330..350).contains(&late(|f| f.0)), "{}", late(|f| f.0));
        assert_eq!(late(|f| f.1), 0);
        // On a core that is nearly full the queue is long for a long time.
        let found = serve(&every(10, 2000), 9000, 1, &[(1000 * US, 300 * US)]);
        assert!(found.iter().filter(|f| f.0 > 15 * US).count() > 250);
        assert!(found.iter().all(|f| f.1 <= 9500), "{:?}", found.iter().map(|f| f.1).max());
    }

    #[test]
    fn what_is_late_of_itself_stays_late() {
        // 32 due together: the core was taken for 6 us of the 38.4 + 6 that they need.
        let found = serve(&[100 * US; 32], 1200, 256, &[(100 * US, 6 * US)]);
        assert!(found.iter().all(|(raw, net)| *raw == 44_400 && *net == 38_400), "{found:?}");
        // More to do than the core can: what was taken does not excuse the rest.
        let found = serve(&every(10, 1000), 20 * US, 1, &[(200 * US, 100 * US)]);
        assert_eq!(found.last().map(|(raw, net)| raw - net), Some(100 * US));
        // A turn of 50 us of which nothing was taken.
        let found = serve(&[10 * US, 100 * US], 50 * US, 1, &[]);
        assert_eq!(found, [(50 * US, 50 * US), (50 * US, 50 * US)]);
    }

    proptest! {
        /// One at a time, net is exactly what the same thread does whose core nobody takes.
        #[test]
        fn net_is_what_an_undisturbed_thread_does(
            gaps in prop::collection::vec(0..40 * US, 1..200),
            cost in 100..20 * US,
            takes in prop::collection::vec((0..200 * US, 55 * US..2000 * US), 0..4),
        ) {
            let sums = |at: &mut u64, gap: &u64| { *at += gap; Some(*at) };
            let dues: Vec<u64> = gaps.iter().scan(US, sums).collect();
            let takes: Vec<(u64, u64)> =
                takes.iter().scan(0, |at, (gap, len)| { *at += gap; Some((*at, *len)) }).collect();
            let alone = serve(&dues, cost, 1, &[]);
            prop_assert!(alone.iter().all(|(raw, net)| raw == net), "nothing taken, nothing forgiven");
            let found = serve(&dues, cost, 1, &takes);
            for ((raw, net), (expected, _)) in found.iter().zip(&alone) {
                prop_assert!(net <= raw && raw >= expected);
                // Looks are 500 ns apart at the most: so much earlier a wait may seem to have begun.
                prop_assert!(net.abs_diff(*expected) <= 500 * takes.len() as u64 || *raw <= 5 * US, "{} {}", net, expected);
            }
        }

        /// In batches it is never more than raw, and without a taken core the same.
        #[test]
        fn nothing_is_forgiven_without_a_reason(
            gaps in prop::collection::vec(0..20 * US, 1..300),
            cost in 100..15 * US,
            batch in 1..64usize,
            take in prop::option::of((0..300 * US, 55 * US..1000 * US)),
        ) {
            let dues: Vec<u64> = gaps.iter().scan(US, |at, gap| { *at += gap; Some(*at) }).collect();
            let takes: Vec<(u64, u64)> = take.into_iter().collect();
            let found = serve(&dues, cost, batch, &takes);
            let most: u64 = takes.iter().map(|t| t.1).sum();
            for (i, (raw, net)) in found.iter().enumerate() {
                prop_assert!(net <= raw, "{i}");
                prop_assert!(!takes.is_empty() || raw == net);
                prop_assert!(batch > 1 || raw - net <= most, "{i}: {raw} {net}");
            }
        }
    }
}
