//! Flash whose channels are arbitrated when they are free: a machine of events, for what [`Calendar`](crate::Calendar) cannot say.
//!
//! A calendar books command and data of an operation when it is asked for, ahead of time; the end is known at once. A real bus knows
//! nothing of the future: whoever comes while it is free takes it, and data that is ready a moment later waits. Under load the dies of a
//! channel fall in step, and the bus stands idle while all of them work. So here an operation ends when it ends, and whoever asked
//! for it has a [`When`].
//!
//! ```text
//! submit ─ arrives ─> ArrayTarget: reads, others ──want──> Bus ─ grant: Arbitration ─> command, data in, data out
//!                        ^                                                            │
//!                        └──── array works: Event::Array ──── Event::Bus: it is free ─┘
//! ```
//! Nothing happens but in [`Scheduler::step`], in the order of time; equal times in the order in which they became known.

mod agenda;
mod array;
mod bus;
mod grant;
mod pending_times;
mod target;
#[cfg(test)]
mod tests;
mod work;

use crate::timing::{FlashTiming, Registers};
use agenda::Agenda;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bus::Bus;
pub use pending_times::When;
pub(crate) use pending_times::{Signal, Then, WaitId, Waits};
use target::ArrayTarget;
use weir_units::Nanos;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    /// Command, array, data out.
    Read,
    /// Command and data in, array.
    Program,
    /// Command, array.
    Erase,
}

/// What is asked of the flash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) target: u32,
    pub(crate) kind: OperationKind,
    /// The bus before the array works, data apart, in nanoseconds.
    pub(crate) command: u64,
    /// The same for each further plane.
    pub(crate) command_plane: u64,
    /// The array's time, in nanoseconds.
    pub(crate) array: u64,
    /// Data of each plane.
    pub(crate) bytes: u32,
    pub(crate) planes: u32,
    /// How long it takes to stop for a read; `None`: it cannot.
    pub(crate) stop: Option<u64>,
    /// From when until when the die does something else: the array does not begin before.
    pub(crate) away: (u64, u64),
    /// Of collection, which is not held back while collection blocks the controller.
    pub(crate) collection: bool,
    /// What it may be joined by: operations on other planes of its die and the same page.
    pub(crate) place: Option<Joint>,
}

/// Where an operation on one plane lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joint {
    pub(crate) die: u32,
    /// Of the die.
    pub(crate) plane: u32,
    pub(crate) page: u32,
}

impl Joint {
    fn joins(&self, other: &Joint) -> bool {
        (self.die, self.page) == (other.die, other.page) && self.plane != other.plane
    }
}

/// An operation on its way: whole cache lines, as thousands may wait.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Way {
    what: Operation,
    arrived: u64,
    /// Who waits for its end; `None`: the end is known and was passed on.
    end: Option<WaitId>,
    /// Data still to cross: bytes of the plane whose turn it is, and planes after it.
    left: u32,
    planes_left: u32,
    /// How often it was stopped.
    stops: u32,
    /// The next of those that are done with it, or [`NIL`].
    joined: u32,
    /// Whom it has joined, or itself; and of that one, how many have data to come.
    leader: u32,
    open: u32,
}

const _: () = assert!(size_of::<Way>() == 128);

/// No operation.
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The bus of that channel is free.
    Bus(u32),
    /// The array of a target has done what it did in that epoch.
    Array(u32, u32),
    /// An operation's time has come.
    Arrives(u32),
    Then(Then),
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Scheduler {
    timing: FlashTiming,
    burst: u32,
    /// The transfer of a page, the usual size.
    page: (u32, u64),
    targets: Vec<ArrayTarget>,
    buses: Vec<Bus>,
    ways: Vec<Way>,
    free: Vec<u32>,
    pub(crate) waits: Waits,
    events: Agenda<Event>,
    now: u64,
    /// Operations that begin at `now`.
    arrivals: VecDeque<u32>,
    /// Collections under way that block the controller, and who waits for them to end.
    locks: u32,
    held: VecDeque<u32>,
    over: Vec<(u64, Then)>,
    signals: VecDeque<(Nanos, Signal)>,
}

impl Scheduler {
    /// Everything idle. `channels[i]` is target `i`'s.
    pub(crate) fn new(
        timing: &FlashTiming,
        channels: impl Iterator<Item = u32>,
        buses: u32,
        page_bytes: u32,
    ) -> Scheduler {
        Scheduler {
            timing: *timing,
            burst: if timing.burst_bytes == 0 { u32::MAX } else { timing.burst_bytes },
            page: (page_bytes, timing.channel.time(page_bytes).0),
            targets: channels.map(ArrayTarget::on).collect(),
            buses: (0..buses).map(|_| Bus::default()).collect(),
            ways: Vec::new(),
            free: Vec::new(),
            waits: Waits::default(),
            events: Agenda::default(),
            now: 0,
            arrivals: VecDeque::new(),
            locks: 0,
            held: VecDeque::new(),
            over: Vec::new(),
            signals: VecDeque::new(),
        }
    }

    /// Nothing is under way; idle since `now`. Who waited is forgotten.
    pub(crate) fn begin_anew(&mut self, now: Nanos) {
        let busy = |t: &ArrayTarget| t.busy_until(self.now);
        let targets =
            self.targets.iter().map(|t| ArrayTarget { busy: busy(t), since: now.0, ..ArrayTarget::on(t.channel) });
        *self = Scheduler {
            targets: targets.collect(),
            buses: self.buses.iter().map(|bus| Bus::used_for(bus.busy_until(self.now))).collect(),
            now: now.0,
            ..Scheduler::new(&self.timing, core::iter::empty(), 0, self.page.0)
        };
    }

    /// How far it has come.
    pub(crate) fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    /// Asks for an operation from that time on; its end. Nothing happens before the next [`Scheduler::step`].
    pub(crate) fn submit(&mut self, from: When, what: Operation) -> When {
        let end = self.waits.add(1);
        let way = Way {
            what,
            arrived: 0,
            end: Some(end),
            left: what.bytes,
            planes_left: what.planes.saturating_sub(1),
            stops: 0,
            joined: NIL,
            leader: NIL,
            open: 1,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.ways[id as usize] = way;
                id
            }
            None => {
                self.ways.push(way);
                self.ways.len() as u32 - 1
            }
        };
        self.ways[id as usize].leader = id;
        match from.known() {
            Some(at) if at.0 <= self.now => self.arrivals.push_back(id),
            Some(at) => self.push(at.0, Event::Arrives(id)),
            None => self.waits.follow(from, Then::Operation(id)),
        }
        end.when()
    }

    /// That follows at `when`, in [`Scheduler::step`] at the earliest.
    pub(crate) fn follow(&mut self, when: When, then: Then) {
        match when.known() {
            Some(at) => self.push(at.0.max(self.now), Event::Then(then)),
            None => self.waits.follow(when, then),
        }
    }

    /// A wait is over, or is known to be at `at`.
    pub(crate) fn happened(&mut self, id: WaitId, at: Nanos) {
        if let Some((at, then)) = self.waits.happened_alone(id, at.0) {
            return self.follows(at, then);
        }
        let mut over = core::mem::take(&mut self.over);
        self.waits.happened(id, at.0, &mut over);
        over.drain(..).for_each(|(at, then)| self.follows(at, then));
        self.over = over;
    }

    /// That follows at `at`.
    #[inline]
    fn follows(&mut self, at: u64, then: Then) {
        match then {
            // Known ahead of time: the earlier it is told, the better.
            Then::Signal(told @ Signal::Told { .. }) => self.signals.push_back((Nanos(at), told)),
            then if at <= self.now => self.then(then),
            then => self.push(at, Event::Then(then)),
        }
    }

    /// Goes on to the next that those outside hear of, or up to `until`.
    pub(crate) fn step(&mut self, until: Nanos) -> Option<(Nanos, Signal)> {
        let signal = self.step_before(Nanos(until.0.saturating_add(1)));
        if signal.is_none() {
            self.now = self.now.max(until.0);
        }
        signal
    }

    /// Goes on to the next that those outside hear of before `until`. Without one, time stays at the last that has happened.
    pub(crate) fn step_before(&mut self, until: Nanos) -> Option<(Nanos, Signal)> {
        loop {
            if let Some(signal) = self.signals.pop_front() {
                return Some(signal);
            }
            if let Some(id) = self.arrivals.pop_front() {
                self.arrive(id);
                continue;
            }
            let (at, event) = self.events.pop_before(until.0)?;
            self.now = self.now.max(at);
            self.happen(event);
        }
    }

    /// When something happens next, if nothing else is asked for.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        if !self.signals.is_empty() || !self.arrivals.is_empty() {
            return Some(Nanos(self.now));
        }
        self.events.first().map(Nanos)
    }

    /// Collection that blocks the controller begins: what comes from now on waits for [`Then::Unlock`].
    pub(crate) fn lock(&mut self) {
        self.locks += 1;
    }

    /// Array work of `time` that was possible since `from`, while nobody wanted the target: done in hindsight, as far as time has come.
    /// What is left of it may be stopped within `stop`.
    pub(crate) fn work_idle(&mut self, target: u32, from: Nanos, time: u64, stop: Option<u64>) {
        let now = self.now;
        let t = &mut self.targets[target as usize];
        debug_assert!(t.is_idle(), "target {target} was not idle");
        let end = from.0.max(t.since) + time;
        t.busy += end.min(now) - end.min(now).min(from.0.max(t.since));
        if end <= now {
            t.since = end;
            return;
        }
        let what = Operation {
            target,
            kind: OperationKind::Erase,
            command: 0,
            command_plane: 0,
            array: end - now,
            bytes: 0,
            planes: 1,
            stop,
            away: (0, 0),
            collection: true,
            place: None,
        };
        self.submit(When::at(Nanos(now)), what);
    }

    /// Since when a target has been idle; `None`: it is not.
    pub(crate) fn idle_since(&self, target: u32) -> Option<Nanos> {
        let t = &self.targets[target as usize];
        // What has not arrived yet will want it.
        (t.is_idle() && self.arrivals.is_empty()).then_some(Nanos(t.since))
    }

    /// For how long a target was busy up to now.
    pub(crate) fn busy(&self, target: usize) -> u64 {
        self.targets[target].busy_until(self.now)
    }

    /// For how long a channel was taken up to now.
    pub(crate) fn bus_busy(&self, channel: usize) -> u64 {
        self.buses[channel].busy_until(self.now)
    }

    /// Whether nothing is under way, nor waits.
    #[cfg(test)]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.targets.iter().all(ArrayTarget::is_idle)
            && self.buses.iter().all(|bus| bus.holder.is_none() && bus.outs.is_empty())
            && self.ways.len() == self.free.len()
            && self.waits.open() == 0
            && (self.locks, self.held.len(), self.next_event()) == (0, 0, None)
    }

    #[cfg(test)]
    pub(crate) fn set_age(&mut self, age: Nanos) {
        self.timing.age = age;
    }

    /// States the invariants.
    pub(crate) fn check(&self) {
        let passes = self.timing.cache_read && self.timing.registers == Registers::Double;
        self.targets.iter().for_each(|target| target.check(passes));
        let waiting: usize = self.targets.iter().map(|t| t.reads.len() + t.others.len() + t.loaded.len()).sum();
        assert!(waiting <= self.ways.len() - self.free.len(), "more operations wait than there are");
        assert!(self.locks > 0 || self.held.is_empty(), "operations are held back for nothing");
        for (channel, bus) in self.buses.iter().enumerate() {
            let wants = bus.wants();
            let open =
                |t: &u32| self.targets[*t as usize].channel == channel as u32 && self.targets[*t as usize].listed;
            assert!(wants.iter().all(open), "channel {channel} lists {wants:?}");
            // A free bus that somebody wants would have been granted.
            assert!(bus.holder.is_some() || bus.outs.is_empty(), "data waits for channel {channel}, which is free");
        }
    }

    fn push(&mut self, at: u64, event: Event) {
        self.events.push(at, event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Bus(channel) => self.bus_is_free(channel),
            Event::Array(target, epoch) if self.targets[target as usize].epoch == epoch => self.array_is_done(target),
            Event::Array(..) => {}
            Event::Arrives(id) => self.arrive(id),
            Event::Then(then) => self.then(then),
        }
    }

    fn then(&mut self, then: Then) {
        match then {
            Then::Operation(id) => self.arrive(id),
            Then::Signal(signal) => self.signals.push_back((Nanos(self.now), signal)),
            Then::Wait(id) => self.happened(id, Nanos(self.now)),
            Then::Unlock => {
                self.locks -= 1;
                if self.locks == 0 {
                    self.arrivals.extend(core::mem::take(&mut self.held));
                }
            }
        }
    }
}
