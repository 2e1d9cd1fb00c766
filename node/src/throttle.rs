//! Warnings that clients can bring about as often as they like: of each kind a few are written in a period, and of the others how many
//! there were.
//!
//! ```text
//!   throttled!(now, "what it says", tracing::warn!(…)) ─► written, BURST times a PERIOD
//!                                                      └► counted ─► settle(), when the period is over: "… 995 more times"
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_units::Nanos;

/// For how long a burst counts.
const PERIOD: Nanos = Nanos::from_secs(10);
/// Lines that are written of one kind in a period.
const BURST: u32 = 5;

/// Kinds of which lines were not written.
static PENDING: Mutex<Vec<&'static Throttle>> = Mutex::new(Vec::new());
/// When the first of their periods is over.
static DUE: AtomicU64 = AtomicU64::new(u64::MAX);

/// One kind of warning.
#[derive(Debug)]
pub(crate) struct Throttle {
    what: &'static str,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When the period ends, once it has begun.
    until: Nanos,
    written: u32,
    suppressed: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Throttle {
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, state: Mutex::new(State { until: Nanos(0), written: 0, suppressed: 0 }) }
    }

    /// Whether one more is written now.
    pub(crate) fn admit(&'static self, now: Nanos) -> bool {
        if now >= due() {
            settle(now);
        }
        let mut state = lock(&self.state);
        if now >= state.until {
            (state.until, state.written) = (now.saturating_add(PERIOD), 0);
        }
        if state.written < BURST {
            state.written += 1;
            return true;
        }
        state.suppressed += 1;
        if state.suppressed == 1 {
            lock(&PENDING).push(self);
            DUE.fetch_min(state.until.get(), Ordering::Relaxed);
        }
        false
    }

    /// How many were not written, if its period is over.
    fn take(&self, now: Nanos) -> Option<u64> {
        let mut state = lock(&self.state);
        (now >= state.until).then(|| std::mem::take(&mut state.suppressed))
    }
}

/// When [`settle`] has something to say.
pub(crate) fn due() -> Nanos {
    Nanos(DUE.load(Ordering::Relaxed))
}

/// Says how many lines were not written in the periods that are over.
pub(crate) fn settle(now: Nanos) {
    let pending = std::mem::take(&mut *lock(&PENDING));
    DUE.store(u64::MAX, Ordering::Relaxed);
    for throttle in pending {
        match throttle.take(now) {
            Some(times) => tracing::warn!(times, "more of \"{}\" in {PERIOD}, not written one by one", throttle.what),
            None => {
                DUE.fetch_min(lock(&throttle.state).until.get(), Ordering::Relaxed);
                lock(&PENDING).push(throttle);
            }
        }
    }
}

/// Writes a line of a kind that clients can bring about as often as they like.
macro_rules! throttled {
    ($now:expr, $what:literal, $log:expr) => {{
        static THROTTLE: crate::throttle::Throttle = crate::throttle::Throttle::new($what);
        if THROTTLE.admit($now) {
            $log;
        }
    }};
}
pub(crate) use throttled;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_written_and_the_rest_is_counted() {
        static THROTTLE: Throttle = Throttle::new("a test");
        let at = |ms| Nanos::from_millis(ms);
        // Other tests of the process have other clocks: what they settle is settled.
        let written = (0..1000).filter(|ms| THROTTLE.admit(at(*ms))).count();
        assert_eq!((written, THROTTLE.take(at(1000))), (5, None));
        assert!(due() <= at(10_000));
        assert_eq!(THROTTLE.take(at(10_000)), Some(995));
        assert!(THROTTLE.admit(at(10_000)), "a new period");
    }
}
