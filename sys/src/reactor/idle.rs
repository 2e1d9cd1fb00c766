//! When to spin and when to sleep.

use weir_units::Nanos;

/// Spins while there is work and for a while after it: a wake-up costs 5 to 50 µs, which a client that sends its next
/// request right after an answer would pay every time; a core that sleeps costs nothing.
#[derive(Clone, Debug)]
pub struct Idle {
    spin_for: Nanos,
    spin_until: Nanos,
}

impl Idle {
    /// Long enough for a client on the other side of a socket to answer, short enough to be no load on an idle machine.
    pub const DEFAULT_SPIN: Nanos = Nanos::from_micros(100);

    /// Spins for `spin_for` after the last work.
    pub const fn new(spin_for: Nanos) -> Self {
        Self { spin_for, spin_until: Nanos(0) }
    }

    /// Never sleeps: the shortest latency, for one whole core.
    pub const fn never() -> Self {
        Self { spin_for: Nanos::NEVER, spin_until: Nanos::NEVER }
    }

    /// To be called after every turn: `busy` says whether it did anything. True: turn again; false: sleep.
    #[inline]
    pub fn keep_spinning(&mut self, now: Nanos, busy: bool) -> bool {
        if busy {
            self.spin_until = now.saturating_add(self.spin_for);
            return true;
        }
        now < self.spin_until
    }
}

impl Default for Idle {
    fn default() -> Self {
        Self::new(Self::DEFAULT_SPIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_for_a_while_after_work() {
        let mut idle = Idle::new(Nanos(50));
        assert!(!idle.keep_spinning(Nanos(1000), false));
        assert!(idle.keep_spinning(Nanos(1000), true));
        assert!(idle.keep_spinning(Nanos(1049), false));
        assert!(!idle.keep_spinning(Nanos(1050), false));
        let mut never = Idle::never();
        assert!(never.keep_spinning(Nanos(u64::MAX - 1), false));
        let mut at_once = Idle::new(Nanos(0));
        assert!(at_once.keep_spinning(Nanos(7), true));
        assert!(!at_once.keep_spinning(Nanos(7), false));
    }
}
