//! A drive whose thread looks late, be it by a turn's length or because its core was away: what was due meanwhile happens moment by
//! moment, each at its own time, as it would have had the thread looked then.
//!
//! ```text
//!   due          1     2  3                      look
//!   moments      |     |  |                       |
//!   begin        a     b  c (each has the slot    d (came since the last look)
//!                            of who was due)
//! ```
//! So the time at which a command that waits gets its slot, and with it every modelled time after it, does not depend on when the thread
//! looks. What arrives is dated by the look that finds it. What was due longer ago than [`REACH`] happens so long ago: a core that was away for
//! longer is not made up for, and neither is a drive that has more to do than its core can.

use super::Device;
use weir_controller::{Event, Host};
use weir_sys::reactor::Reactor;
use weir_units::Nanos;

/// How far back moments lie at the most.
pub(super) const REACH: Nanos = Nanos::from_micros(100);

/// What came of [`Device::catch_up`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaughtUp {
    /// There was nothing to catch up with.
    Idle,
    /// All that was due has happened.
    Moved,
    /// There is more, before anything that has come since may be given to the drive.
    Behind,
}

impl Device {
    /// Lets what was due until `now` happen one by one, where something waits for it; from `until` on no more of it.
    #[inline]
    pub fn catch_up<H: Host>(&mut self, now: Nanos, host: &mut H, reactor: &mut Reactor, until: Nanos) -> CaughtUp {
        if !self.is_late(now) || self.down.is_some() || !self.machine.has_waiting() {
            return CaughtUp::Idle;
        }
        let caught = self.pass_moments(now, host, reactor, until);
        self.settle(now);
        caught
    }

    /// Whether something was due until `now`, or was due and is not done.
    #[inline]
    pub(super) fn is_late(&self, now: Nanos) -> bool {
        now >= self.due || !self.deferred.is_empty()
    }

    /// The next time at which its machine has something to do by itself.
    #[inline]
    pub(super) fn next_moment(&self) -> Nanos {
        let held = self.deadlines.next().unwrap_or(Nanos::NEVER);
        self.machine.next_deadline().unwrap_or(Nanos::NEVER).min(held)
    }

    fn pass_moments<H: Host>(&mut self, now: Nanos, host: &mut H, reactor: &mut Reactor, until: Nanos) -> CaughtUp {
        let (mut caught, mut last) = (CaughtUp::Idle, Nanos::NEVER);
        loop {
            let clock = self.machine.clock();
            // What was left of the moment before.
            if !self.deferred.is_empty() || self.machine.has_work() {
                caught = CaughtUp::Moved;
                let done = self.deferred.is_empty() || self.carry_out_deferred(clock, host, reactor, until);
                if done && self.machine.has_work() {
                    self.pass(clock, Event::Run, host, reactor, until);
                }
                if !self.deferred.is_empty() {
                    return CaughtUp::Behind;
                }
            }
            self.machine.run_ahead(now);
            let due = self.next_moment();
            let at = due.max(now.saturating_sub(REACH)).max(clock).min(now);
            if due > now || !self.pass(at, Event::Tick, host, reactor, until) && due == last {
                return caught;
            }
            (caught, last) = (CaughtUp::Moved, due);
            if until != Nanos::NEVER && reactor.now() >= until {
                let more = !self.deferred.is_empty() || self.next_moment() <= now;
                return if more { CaughtUp::Behind } else { caught };
            }
        }
    }

    /// One moment, or the rest of one; whether anything was moved in it.
    fn pass<H: Host>(
        &mut self,
        at: Nanos,
        mut event: Event,
        host: &mut H,
        reactor: &mut Reactor,
        until: Nanos,
    ) -> bool {
        let mut moved = self.release(at, host, reactor, until);
        loop {
            self.machine.apply(at, event, host, &mut self.effects);
            event = Event::Run;
            if self.effects.is_empty() {
                return moved;
            }
            moved = true;
            self.execute(at, host, reactor, until);
            if !self.machine.has_work() || !self.deferred.is_empty() {
                return moved;
            }
        }
    }
}
