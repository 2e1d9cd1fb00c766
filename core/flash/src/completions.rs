//! A drive whose channels are not booked: its commands end when they end, and whoever wants to know is told.
//!
//! ```text
//! begin ──> When ── tell(tag) ──┐
//! advance(now): reads are delivered, programs free the buffer, waiting units are admitted ──> told() ── tag, time
//! ```

use crate::flash::Flash;
use crate::pending_commands::{PendingFlush, WaitingUnit};
use crate::scheduler::{Signal, Then, When};
use weir_units::Nanos;

impl Flash {
    /// Has `tag` told by [`Flash::told`] with the time of `when`, possibly ahead of that time.
    pub fn tell(&mut self, when: When, tag: u64) {
        match when.known() {
            Some(at) => self.waiting.told.push_back((tag, at)),
            None => self.silicon.signal(when, Signal::Told { tag }),
        }
    }

    /// The next command that is complete, or is known to be at the time that stands beside its tag.
    pub fn told(&mut self) -> Option<(u64, Nanos)> {
        self.waiting.told.pop_front()
    }

    /// Goes on by itself until there is one, as long as that is before `until`, and no further.
    pub fn told_before(&mut self, until: Nanos) -> Option<(u64, Nanos)> {
        loop {
            let told = self.told();
            if told.is_some() {
                return told;
            }
            match self.silicon.step_before(until)? {
                (at, Signal::Told { tag }) => return Some((tag, at)),
                (at, signal) => self.hear(at, signal),
            }
        }
    }

    /// The later of two points in time.
    pub fn later_of(&mut self, a: When, b: When) -> When {
        self.silicon.later_of(a, b)
    }

    /// When something happens in the drive next, if no command comes before; `None`: nothing, or channels are booked.
    pub fn next_event(&self) -> Option<Nanos> {
        self.silicon.next_event()
    }

    /// When [`Flash::told`] may have the next: its present where it has one, else when something happens.
    pub fn next_told(&self) -> Option<Nanos> {
        if self.waiting.told.is_empty() { self.next_event() } else { Some(self.silicon.present()) }
    }

    /// Goes on to `until`.
    #[inline]
    pub fn advance(&mut self, until: Nanos) {
        while let Some((at, signal)) = self.silicon.step(until) {
            self.hear(at, signal);
        }
    }

    fn hear(&mut self, at: Nanos, signal: Signal) {
        match signal {
            Signal::Deliver { bytes, wait } => {
                let delivered = self.deliver(at, bytes);
                self.silicon.happened(wait, delivered);
            }
            Signal::Programmed { number, units } => self.programmed(at, number, units),
            Signal::Admit { ticket } => {
                let place = ticket.wrapping_sub(self.waiting.first) as usize;
                if let Some(unit) = self.waiting.units.get_mut(place) {
                    unit.ready = true;
                }
                self.admit(at);
            }
            Signal::Kept { lpn, units } => self.put_read(at, lpn, units),
            Signal::Told { tag } => self.waiting.told.push_back((tag, at)),
        }
    }

    /// Bytes that will be in the drive at `ready` cross the link: when who asked has them.
    #[cold]
    pub(crate) fn deliver_later(&mut self, ready: When, bytes: u32) -> When {
        let Some(wait) = self.silicon.wait_for(1) else { return ready };
        self.silicon.signal(ready, Signal::Deliver { bytes, wait });
        wait.when()
    }

    /// A program of the host's data has begun whose end is not known; `units` leave the buffer with it.
    pub(crate) fn under_way(&mut self, end: When, units: u32) {
        if end.known().is_some() {
            return;
        }
        let number = self.ftl.flights.number;
        self.ftl.flights.number += 1;
        self.waiting.programs += 1;
        self.silicon.signal(end, Signal::Programmed { number, units });
    }

    fn programmed(&mut self, at: Nanos, number: u64, units: u32) {
        self.ftl.flights.landed(number, at);
        self.waiting.programs -= 1;
        let mut flushes = core::mem::take(&mut self.waiting.flushes);
        flushes.retain_mut(|flush| {
            flush.left -= u64::from(number < flush.number);
            if flush.left == 0 {
                self.silicon.happened(flush.wait, at);
            }
            flush.left > 0
        });
        self.waiting.flushes = flushes;
        if let Some(buffer) = &mut self.buffer {
            buffer.left(units);
        }
        self.admit(at);
    }

    /// When all programs that are under way are done.
    pub(crate) fn durable_later(&mut self, now: Nanos) -> When {
        let left = self.waiting.programs;
        if left == 0 {
            return When::at(now);
        }
        let Some(wait) = self.silicon.wait_for(1) else { return When::at(now) };
        self.waiting.flushes.push(PendingFlush { number: self.ftl.flights.number, left, wait });
        wait.when()
    }

    /// Takes a unit into the buffer when its entry of the map is at hand and there is room; when it is in, the buffer's latency
    /// included.
    #[cold]
    pub(crate) fn take_in_later(&mut self, at: When, (lpn, begins): (u32, bool), hint: u8, through: bool) -> When {
        if let (Some(now), true) = (at.known(), self.waiting.units.is_empty()) {
            if self.renew(now, lpn, hint) {
                return When::at(self.inside(now, begins));
            }
            if self.has_room(now) {
                self.put(now, lpn, hint);
                return When::at(self.inside(now, begins));
            }
        }
        self.ftl.stats.buffer_waits += 1;
        let Some(wait) = self.silicon.wait_for(1) else { return at };
        let ticket = self.waiting.first.wrapping_add(self.waiting.units.len() as u32);
        self.waiting.units.push_back(WaitingUnit { lpn, begins, hint, ready: false, through, wait });
        self.silicon.signal(at, Signal::Admit { ticket });
        wait.when()
    }

    /// Whether a unit fits into the buffer; where everything in it is dirty, some of it leaves.
    fn has_room(&mut self, now: Nanos) -> bool {
        loop {
            match &self.buffer {
                Some(buffer) if !buffer.has_room() && buffer.must_leave() => {
                    if self.destage(now) == 0 {
                        return false;
                    }
                }
                Some(buffer) => return buffer.has_room(),
                None => return true,
            }
        }
    }

    /// Admits units that wait, in their order, as long as there is room.
    fn admit(&mut self, now: Nanos) {
        while self.waiting.units.front().is_some_and(|unit| unit.ready) {
            let Some(&WaitingUnit { lpn, begins, hint, through, wait, .. }) = self.waiting.units.front() else {
                return;
            };
            if !self.renew(now, lpn, hint) {
                if !self.has_room(now) {
                    return;
                }
                self.put(now, lpn, hint);
            }
            self.waiting.units.pop_front();
            self.waiting.first = self.waiting.first.wrapping_add(1);
            let inside = self.inside(now, begins);
            if !through {
                self.silicon.happened(wait, inside);
                continue;
            }
            self.destage_all(now);
            let durable = self.durable_later(now);
            let both = self.silicon.later_of(When::at(inside), durable);
            self.silicon.follow(both, Then::Wait(wait));
        }
    }

    /// Everything under way comes to its end, and the flash is idle from `now` on, as if that had been before.
    pub(crate) fn run_out(&mut self, now: Nanos) {
        if !self.silicon.is_scheduled() {
            return;
        }
        while self.silicon.next_event().is_some() {
            self.advance(Nanos(self.silicon.next_event().map_or(0, |at| at.0)));
        }
        self.silicon.begin_anew(now);
    }
}
