//! How QEMU's NVMe device chose whom to serve when the paper was written (section II.B): every submission queue has a timer. A
//! doorbell sets it, 500 ns ahead; when it is over, the one main thread takes up to an arbitration burst of commands from that
//! queue, whoever else waits, and sets the timer again if there are more. Whatever was taken is with the backing store.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use weir_units::Nanos;
use weir_workload::{Recorder, RequestKind, SeriesPoint};

/// From a doorbell to when the queue is looked at.
pub const PERIOD: Nanos = Nanos(500);
/// Commands that are taken from a queue at once: the arbitration burst.
pub const BURST: usize = 64;

/// The timers of the submission queues, by their numbers.
#[derive(Debug, Default)]
pub struct QueueTimers {
    armed: Vec<bool>,
    due: BinaryHeap<Reverse<(Nanos, usize)>>,
}

impl QueueTimers {
    /// Timers of so many queues, none of them set.
    pub fn new(queues: usize) -> QueueTimers {
        QueueTimers { armed: vec![false; queues], due: BinaryHeap::with_capacity(queues) }
    }

    /// A doorbell, or a queue of which a burst has left something: sets its timer where it is not set.
    #[inline]
    pub fn set(&mut self, queue: usize, now: Nanos) {
        if !std::mem::replace(&mut self.armed[queue], true) {
            self.due.push(Reverse((now.saturating_add(PERIOD), queue)));
        }
    }

    /// When the first one is over; [`Nanos::NEVER`] while none is set.
    pub fn next(&self) -> Nanos {
        self.due.peek().map_or(Nanos::NEVER, |Reverse((at, _))| *at)
    }

    /// A queue whose timer is over; it is not set any more.
    #[inline]
    pub fn expired(&mut self, now: Nanos) -> Option<usize> {
        let Reverse((at, queue)) = *self.due.peek()?;
        if at > now {
            return None;
        }
        self.due.pop();
        self.armed[queue] = false;
        Some(queue)
    }
}

/// Who submits 4 KiB commands as long as there are fewer than `depth` of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submitter {
    pub start: Nanos,
    pub depth: u32,
}

/// Virtual time: these submitters, a queue each, on a device with such timers whose backing store takes `latency` for a command
/// and works on `parallel` at once, in the order in which they came. What each of them got over time.
pub(super) fn emulated(
    submitters: &[Submitter],
    (latency, parallel): (Nanos, usize),
    (time, interval): (Nanos, Nanos),
) -> Vec<Vec<SeriesPoint>> {
    let mut timers = QueueTimers::new(submitters.len());
    let mut recorders = vec![Recorder::new(Nanos(0), Some(interval)); submitters.len()];
    // When each command in a submission queue was put there.
    let mut queues = vec![VecDeque::new(); submitters.len()];
    let mut starts: Vec<Reverse<(Nanos, usize)>> =
        submitters.iter().enumerate().map(|(i, s)| Reverse((s.start, i))).collect();
    starts.sort();
    let mut servers: BinaryHeap<Reverse<Nanos>> = (0..parallel).map(|_| Reverse(Nanos(0))).collect();
    let mut backing: BinaryHeap<Reverse<(Nanos, u64, usize, Nanos)>> = BinaryHeap::new();
    let mut order = 0;
    loop {
        let started = starts.last().map_or(Nanos::NEVER, |Reverse((at, _))| *at);
        let done = backing.peek().map_or(Nanos::NEVER, |Reverse((at, ..))| *at);
        let now = started.min(done).min(timers.next());
        if now > time {
            break;
        }
        while starts.last().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((_, i))) = starts.pop() else { break };
            queues[i].extend((0..submitters[i].depth).map(|_| now));
            timers.set(i, now);
        }
        while backing.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, _, i, since))) = backing.pop() else { break };
            recorders[i].tick(now);
            recorders[i].record(now.0 - since.0, 4096, RequestKind::Read);
            queues[i].push_back(now);
            timers.set(i, now);
        }
        while let Some(i) = timers.expired(now) {
            for since in (0..BURST).map_while(|_| queues[i].pop_front()) {
                let Some(Reverse(free)) = servers.pop() else { break };
                let end = free.max(now).saturating_add(latency);
                servers.push(Reverse(end));
                backing.push(Reverse((end, order, i, since)));
                order += 1;
            }
            if !queues[i].is_empty() {
                timers.set(i, now);
            }
        }
    }
    recorders.iter_mut().for_each(|r| r.tick(time));
    recorders.iter().map(Recorder::series).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_set_once_and_over_once() {
        let mut timers = QueueTimers::new(3);
        assert_eq!((timers.next(), timers.expired(Nanos::NEVER)), (Nanos::NEVER, None));
        timers.set(2, Nanos(100));
        timers.set(2, Nanos(300));
        timers.set(0, Nanos(200));
        assert_eq!((timers.next(), timers.expired(Nanos(599))), (Nanos(600), None));
        assert_eq!((timers.expired(Nanos(700)), timers.expired(Nanos(700))), (Some(2), Some(0)));
        assert_eq!(timers.expired(Nanos(10_000)), None, "not set again");
    }

    #[test]
    fn the_backing_store_limits_who_is_alone() {
        let one = [Submitter { start: Nanos(0), depth: 8 }];
        let second = Nanos::from_secs(1);
        let series = emulated(&one, (Nanos::from_micros(100), 4), (second, second));
        // 4 at once, 100 us each; the first ones wait for the timer.
        assert!((39_990.0..=40_000.0).contains(&series[0][0].iops), "{:?}", series[0]);
        let alone = [Submitter { start: Nanos(0), depth: 1 }];
        let series = emulated(&alone, (Nanos(9_500), 4), (second, second));
        assert!(
            (99_990.0..=100_000.0).contains(&series[0][0].iops),
            "the timer is part of its latency: {:?}",
            series[0]
        );
    }
}
