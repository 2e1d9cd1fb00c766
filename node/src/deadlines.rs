//! A drive's commands and their modelled times, as the executor keeps them: what is done too early waits, and what was handed
//! to its host is measured.
//!
//! Moving many bytes takes time: 128 KiB are 10 to 25 µs. So the machine emits large commands early by what that takes
//! ([`Subsystem::set_lead`]), and their completions are held until they are due. Media that take a time of their own get every
//! command when it begins, or 20 ms before it is due ([`Subsystem::set_early`]): it completes when it is due and its I/O is done.

use crate::lateness::{Lateness, Summary};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_controller::{Effects, Event, Host, SlotId, Subsystem};
use weir_spec::nvme::Status;
use weir_units::Nanos;

/// From so many bytes on a command is emitted early; what is smaller is moved in less than a microsecond or two.
pub const LARGE: u32 = 32 << 10;
/// The slowest that bytes are believed to move, in nanoseconds a MiB: what takes longer was interrupted.
const SLOWEST: u64 = 4_000_000;

/// See the [module](self).
#[derive(Default)]
pub struct Deadlines {
    /// Done before its time: when that is, the slot, and how it went.
    held: BinaryHeap<Reverse<(u64, u32, u16)>>,
    /// When the commands were due whose completions the doors have got since the last look at the clock.
    handed: Vec<Nanos>,
    /// Of a drive that has completed something with a modelled time.
    lateness: Option<Box<Lateness>>,
    /// What moving bytes costs, in nanoseconds a MiB; a moving average.
    cost: u64,
}

impl Deadlines {
    /// Gives a command that the media has done back to the machine, and notes when it was due.
    #[inline]
    pub fn complete<H: Host>(
        &mut self,
        (now, slot, status): (Nanos, SlotId, Status),
        machine: &mut Subsystem,
        host: &mut H,
        none: &mut Effects,
    ) {
        let due = machine.due(slot);
        machine.apply(now, Event::Done { slot, status }, host, none);
        // A command of several ranges is complete with the last of them.
        if due.is_some() && machine.due(slot).is_none() {
            self.handed.extend(due);
        }
    }

    /// The same at `now` for one that may have been done before its time: then it is held.
    pub fn complete_when_due<H: Host>(
        &mut self,
        (now, slot, status): (Nanos, SlotId, Status),
        machine: &mut Subsystem,
        host: &mut H,
        none: &mut Effects,
    ) {
        match machine.due(slot) {
            Some(due) if now < due => self.held.push(Reverse((due.get(), slot.0, status.field()))),
            _ => self.complete((now, slot, status), machine, host, none),
        }
    }

    /// The next of what was held until `now`, to be [completed](Self::complete).
    #[inline]
    pub fn release(&mut self, now: Nanos) -> Option<(SlotId, Status)> {
        if self.next().is_none_or(|due| due > now) {
            return None;
        }
        self.held.pop().map(|Reverse((_, slot, status))| (SlotId(slot), Status::from_field(status)))
    }

    /// When something that is held is due.
    pub fn next(&self) -> Option<Nanos> {
        self.held.peek().map(|Reverse((due, ..))| Nanos(*due))
    }

    /// Whether a command of `len` bytes is to be timed for [`learn`](Self::learn).
    #[inline]
    pub fn is_large(len: u32) -> bool {
        len >= LARGE
    }

    /// Moving `len` bytes has taken so long: how early commands are to be emitted from now on, in nanoseconds a MiB.
    pub fn learn(&mut self, len: u32, took: Nanos) -> u32 {
        let cost = ((took.get() << 20) / u64::from(len.max(1))).min(SLOWEST);
        self.cost = if self.cost == 0 { cost } else { (7 * self.cost + cost) / 8 };
        // Too early only means that it is held.
        (self.cost + self.cost / 4) as u32
    }

    /// When the first was due of the completions that the doors have got and that are not measured yet.
    #[inline]
    pub fn handed(&self) -> Option<Nanos> {
        self.handed.iter().min().copied()
    }

    /// Takes them, to be [`record`](Self::record)ed one by one.
    pub fn take_handed(&mut self) -> impl Iterator<Item = Nanos> + '_ {
        self.handed.drain(..)
    }

    /// Measures them: their hosts can see them since `at`, the thread's last look at the clock, and they are as late as they
    /// are; `busy` as for [`Lateness::record`].
    pub fn measure(&mut self, (at, busy): (Nanos, Nanos)) {
        let lateness = self.lateness.get_or_insert_with(|| Box::new(Lateness::new(at)));
        for due in self.handed.drain(..) {
            lateness.record((due, at.saturating_sub(due)), (at, busy));
        }
    }

    /// Measures one; see [`Lateness::record`].
    pub fn record(&mut self, (due, net): (Nanos, Nanos), (at, busy): (Nanos, Nanos)) {
        let lateness = self.lateness.get_or_insert_with(|| Box::new(Lateness::new(at)));
        lateness.record((due, net), (at, busy));
    }

    /// Forgets them, where nobody reads the real clock.
    pub fn forget(&mut self) {
        self.handed.clear();
    }

    /// How well the drive keeps its times; `None` before it has completed anything that has one.
    pub fn summary(&mut self, now: Nanos) -> Option<Summary> {
        self.lateness.as_mut().map(|l| l.summary(now))
    }

    /// The whole measurement.
    pub fn lateness(&self) -> Option<&Lateness> {
        self.lateness.as_deref()
    }

    /// Begins to measure anew.
    pub fn reset(&mut self, now: Nanos) {
        if let Some(lateness) = &mut self.lateness {
            lateness.reset(now);
        }
    }
}
